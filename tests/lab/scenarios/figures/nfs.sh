# title: figures: fio over NFS against zgate and against the kernel's server, same pool
# seconds: 300
# ci: no

. /lab/guest/load.sh
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
    modprobe nfsd
    mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd
    mkdir -p /var/lib/nfs/v4recovery
    pgrep -x rpcbind || rpcbind
    exportfs -o rw,no_root_squash,fsid=78,insecure "*:$STORE"
    pgrep -x rpc.mountd || rpc.mountd
    # Clients of before: none, so nobody has to be waited for.
    echo 10 >/proc/fs/nfsd/nfsv4gracetime
    rpc.nfsd 8
    eventually 20 port_open 2049
    client_mount 4.2 /mnt/k "" "$STORE"
    eventually 60 touch /mnt/k/file
    loads knfsd /mnt/k/file 64m
    umount /mnt/k
}
knfsd_ends() {
    umount -f /mnt/k 2>/dev/null || true
    exportfs -ua
    rpc.nfsd 0
    pkill -x rpc.mountd || true
}
step "zgate" ours
step "knfsd" knfsd
step "knfsd ends" knfsd_ends
