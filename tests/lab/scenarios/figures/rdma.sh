# title: figures: NFS/RDMA on soft-RoCE, zgate and the kernel's server in turn
# seconds: 1500
# ci: no
# Figures, no judgement; soft-RoCE takes its time under emulation. Both servers
# stay up, each with a file of its own, and take turns of half a second: what the
# machine itself does meanwhile comes to both alike (turns.py).

. /lab/guest/turns.sh
. /lab/guest/rdma.sh
STEP_SECONDS=400
MORE_CONFIG=$RDMA_CONFIG
# Beside a gateway that has the usual ports.
KNFSD_ADDRESS=10.9.5.3
KNFSD_TCP_PORT=2050
KNFSD_RDMA_PORT=20050

ours() {
    gateway_start
    rdma_mount $WIRE_ADDRESS 4.2 /mnt/v
}
knfsd() {
    modprobe -a nfsd rpcrdma
    mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd
    mkdir -p /var/lib/nfs/v4recovery
    pgrep -x rpcbind || rpcbind
    exportfs -o rw,no_root_squash,fsid=78,insecure "*:$STORE"
    pgrep -x rpc.mountd || rpc.mountd
    echo 10 >/proc/fs/nfsd/nfsv4gracetime
    rpc.nfsd --port=$KNFSD_TCP_PORT --rdma=$KNFSD_RDMA_PORT 8
    grep "rdma $KNFSD_RDMA_PORT" /proc/fs/nfsd/portlist
    ip address replace $KNFSD_ADDRESS/24 dev veth0
    mkdir -p /mnt/k
    mount -t nfs -o vers=4.2,proto=rdma,port=$KNFSD_RDMA_PORT "$KNFSD_ADDRESS:$STORE" /mnt/k
    grep ' /mnt/k .*proto=rdma' /proc/mounts
    eventually 60 touch /mnt/k/of-knfsd
}
# What a file's first writes allocate is there afterwards.
filled() {
    local file
    for file in /mnt/v/of-zgate /mnt/k/of-knfsd; do
        dd if=/dev/urandom "of=$file" bs=1M count=64 oflag=direct
    done
}
loaded() {
    lasting zgate /mnt/v/of-zgate read write read-4k write-4k
    lasting knfsd /mnt/k/of-knfsd read write read-4k write-4k
}
ends() {
    local copied
    copied=$("$ZGATE" status --socket /run/zgate/admin.sock --json |
        jq '[.data[] | select(.transport == "rdma") | .copied_bytes] | add')
    figure "zgate: copied by the gateway" "$copied" bytes
    umount /mnt/v
    gateway_stop
    umount /mnt/k
    exportfs -ua
    rpc.nfsd 0
}
need "soft-RoCE on a veth pair" rdma_wire
store_make "$(best_store)"
need "zgate serves one file" ours
need "knfsd serves another" knfsd
need "both are written once" filled
need "loads that never end" loaded
in_turns knfsd
step "none of them failed" loads_end
step "they end" ends
