# title: figures: fio over NFS against zgate and against the kernel's server, same pool
# seconds: 300
# ci: no

. /lab/guest/load.sh
. /lab/guest/knfsd.sh
store_make "$(best_store)"

ours() {
    gateway_start
    client_mount 4.2 /mnt/v
    loads zgate /mnt/v/file 64m
    umount /mnt/v
    gateway_stop
    rm -f "$STORE/file"
}
knfsd() {
    knfsd_starts /mnt/k
    loads knfsd /mnt/k/file 64m
    umount /mnt/k
}
step "zgate" ours
step "knfsd" knfsd
step "knfsd ends" knfsd_ends /mnt/k
