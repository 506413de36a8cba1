# The kernel's NFS server, to compare with.
# shellcheck shell=bash

# knfsd_starts DIRECTORY: $STORE served by it and mounted there.
knfsd_starts() {
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
    client_mount 4.2 "$1" "" "$STORE"
    eventually 60 touch "$1/file"
}
# knfsd_ends DIRECTORY
knfsd_ends() {
    umount -f "$1" 2>/dev/null || true
    exportfs -ua
    rpc.nfsd 0
    pkill -x rpc.mountd || true
}
