# title: figures: 1 MiB over NFS/RDMA on soft-RoCE, zgate and the kernel's server in turn
# seconds: 900
# ci: no
# Figures, no judgement; soft-RoCE takes its time under emulation.

. /lab/guest/load.sh
. /lab/guest/rdma.sh
LOAD_SECONDS=10
STEP_SECONDS=200
MORE_CONFIG=$RDMA_CONFIG

ours() {
    local copied
    gateway_start
    rdma_mount $WIRE_ADDRESS 4.2 /mnt/v
    both_ways zgate /mnt/v/file
    umount /mnt/v
    "$ZGATE" status --socket /run/zgate/admin.sock --json | jq -c '.data[] | select(.transport == "rdma")'
    copied=$("$ZGATE" status --socket /run/zgate/admin.sock --json |
        jq '[.data[] | select(.transport == "rdma") | .copied_bytes] | add')
    figure "zgate: copied by the gateway" "$copied" bytes
    gateway_stop
    rm -f "$STORE/file"
}
knfsd() {
    modprobe -a nfsd rpcrdma
    mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd
    mkdir -p /var/lib/nfs/v4recovery
    pgrep -x rpcbind || rpcbind
    exportfs -o rw,no_root_squash,fsid=78,insecure "*:$STORE"
    pgrep -x rpc.mountd || rpc.mountd
    echo 10 >/proc/fs/nfsd/nfsv4gracetime
    rpc.nfsd --rdma=20049 8
    grep -q 'rdma 20049' /proc/fs/nfsd/portlist
    mkdir -p /mnt/k
    mount -t nfs -o vers=4.2,proto=rdma,port=20049 "$WIRE_ADDRESS:$STORE" /mnt/k
    eventually 60 touch /mnt/k/file
    both_ways knfsd /mnt/k/file
}
knfsd_ends() {
    umount -f /mnt/k 2>/dev/null || true
    exportfs -ua
    rpc.nfsd 0
    rm -f "$STORE/file"
}
need "soft-RoCE on a veth pair" rdma_wire
store_make "$(best_store)"
for round in $(seq 1 "$ROUNDS"); do
    step "zgate, round $round" ours
    step "knfsd, round $round" knfsd
    step "knfsd ends, round $round" knfsd_ends
done
