# title: figures: 1 MiB over NFS/RDMA on soft-RoCE, zgate and the kernel's server in turn
# seconds: 600
# ci: no
# Figures, no judgement; soft-RoCE takes its time under emulation.

. /lab/guest/load.sh
. /lab/guest/rdma.sh
LOAD_SECONDS=15
STEP_SECONDS=200
ADDRESS=10.9.0.1
MORE_CONFIG=$RDMA_CONFIG

# A veth pair: both ends of every connection are this machine.
wire() {
    ip link add veth0 type veth peer name veth1
    ip link set veth0 mtu 9000 up
    ip link set veth1 mtu 9000 up
    ip address add $ADDRESS/24 dev veth0
    rdma_device veth0
}
# Busy time of all processors so far, in hundredths of a second.
busy() { awk '$1 == "cpu" { print $2 + $3 + $4 + $7 + $8 + $9 }' /proc/stat; }
# spent NAME TARGET FIO-ARGUMENTS…: a load, and the machine's CPU time a GB of it.
spent() {
    local name=$1 target=$2 before moved
    shift 2
    drop_caches
    before=$(busy)
    load "$name" "--filename=$target" --size=64m --bs=1m --iodepth=4 "$@"
    moved=$(awk -F'\t' -v name="$name" '$1 == name && $3 == "MiB/s" { v = $2 } END { print v }' "$RESULT/figures.tsv")
    figure "$name" "$(awk -v a="$before" -v b="$(busy)" -v m="$moved" -v s=$LOAD_SECONDS \
        'BEGIN { printf "%.2f", m > 0 ? (b - a) / 100 / (m * s * 1048576 / 1e9) : 0 }')" "CPU s/GB"
}
both_ways() {
    spent "$1: write 1 MiB" "$2" --rw=write
    spent "$1: read 1 MiB" "$2" --rw=read
}
ours() {
    gateway_start
    rdma_mount $ADDRESS 4.2 /mnt/v
    both_ways zgate /mnt/v/file
    umount /mnt/v
    "$ZGATE" status --socket /run/zgate/admin.sock --json | jq -c '.data[] | select(.transport == "rdma")'
    copied=$("$ZGATE" status --socket /run/zgate/admin.sock --json |
        jq '[.data[] | select(.transport == "rdma") | .copied_bytes] | add')
    figure "zgate: copied by the gateway" "$copied" bytes
    "$ZGATE" doctor rdma --config "$CONFIG" || true
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
    mount -t nfs -o vers=4.2,proto=rdma,port=20049 "$ADDRESS:$STORE" /mnt/k
    eventually 60 touch /mnt/k/file
    both_ways knfsd /mnt/k/file
    umount /mnt/k
    rm -f "$STORE/file"
}
knfsd_ends() {
    umount -f /mnt/k 2>/dev/null || true
    exportfs -ua
    rpc.nfsd 0
    pkill -x rpc.mountd || true
}
need "soft-RoCE on a veth pair" wire
store_make "$(best_store)"
step "zgate" ours
step "knfsd" knfsd
step "knfsd ends" knfsd_ends
