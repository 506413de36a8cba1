# title: figures: NFS 4.2 over TCP, zgate and the kernel's server in turn, same pool
# seconds: 1500
# ci: no
# Figures, no judgement. Both servers stay up, each with a file of its own, and take
# turns of half a second: what the machine itself does meanwhile comes to both alike
# (turns.py).

. /lab/guest/turns.sh
STEP_SECONDS=400
KNFSD_PORT=2050

ours() {
    gateway_start
    client_mount 4.2 /mnt/v
    mkdir -p /mnt/v/z
}
knfsd() {
    modprobe nfsd
    mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd
    mkdir -p /var/lib/nfs/v4recovery /mnt/k
    pgrep -x rpcbind || rpcbind
    exportfs -o rw,no_root_squash,fsid=78,insecure "*:$STORE"
    pgrep -x rpc.mountd || rpc.mountd
    echo 10 >/proc/fs/nfsd/nfsv4gracetime
    rpc.nfsd --port=$KNFSD_PORT 8
    mount -t nfs -o "vers=4.2,proto=tcp,port=$KNFSD_PORT" "127.0.0.1:$STORE" /mnt/k
    eventually 60 mkdir -p /mnt/k/k
}
# What a file's first writes allocate is there afterwards.
filled() {
    local file
    for file in /mnt/v/z/file /mnt/k/k/file; do
        dd if=/dev/urandom "of=$file" bs=1M count=64 oflag=direct
    done
}
loaded() {
    lasting zgate /mnt/v/z/file read write read-4k write-4k names
    lasting knfsd /mnt/k/k/file read write read-4k write-4k names
}
ends() {
    umount -f /mnt/v
    gateway_stop
    umount -f /mnt/k
    exportfs -ua
    rpc.nfsd 0
}
store_make "$(best_store)"
need "zgate serves one file" ours
need "knfsd serves another" knfsd
need "both are written once" filled
need "loads that never end" loaded
in_turns knfsd
step "none of them failed" loads_end
step "they end" ends
