# title: NFS over RDMA under load: kill -9, a wire that carries nothing, a link that goes down
# seconds: 900
# machines: 2
# ci: no
# Waits for retries and leases: too long for every run.

. /lab/guest/peer.sh
. /lab/guest/rdma.sh
STEP_SECONDS=240
# Kernels wait up to half a minute between two tries to connect over RDMA.
LEASE_SECONDS=45
MORE_CONFIG=$RDMA_CONFIG
export A_ADDRESS
b_device() { rdma_device eth0; }
b_mounts() { . /lab/guest/rdma.sh; rdma_mount $A_ADDRESS "$1" /mnt/b; }

# Writes for a while, then compares.
load() {
    local n
    [ -e /tmp/source ] || pattern /tmp/source 8
    rm -f /tmp/begun
    for n in $(seq 1 "$1"); do
        dd if=/tmp/source of=/mnt/b/load bs=256K conv=fsync status=none
        : >/tmp/begun
        drop_caches
        cmp /tmp/source /mnt/b/load
    done
}
b_begun() { on_b eventually 60 test -e /tmp/begun; }
under_load() {
    local job began
    on_b b_mounts "$1"
    job=$(b_start load 4)
    b_begun
    began=$(now)
    "$2"
    b_wait "$job"
    figure "v$1 $2: load went on and ended after" "$(since "$began")" s
    on_b umount /mnt/b
}
killed() { gateway_kill; gateway_start; }
# Nothing arrives at either end any more: longer than a queue pair tries again.
deaf() {
    tc qdisc add dev eth0 ingress
    tc filter add dev eth0 parent ffff: matchall action drop
}
hears() { tc qdisc del dev eth0 ingress; }
wire_silent() {
    on_b deaf
    deaf
    sleep 25
    hears
    on_b hears
}
# Shorter than queue pairs try again: what begins to connect over a link of its
# own that is down never sends a management datagram again, in soft-RoCE of this
# kernel (`rdma resource show qp`: GSI in ERR).
link_down() { wire_cut; sleep 3; wire_mend; }

need "the second machine is there" b_ready
need "A has an RDMA device" rdma_device eth0
need "B has an RDMA device" on_b b_device
store_make "$(best_store)"
need "the gateway serves" gateway_start
for version in 4.2 4.0 3; do
    step "v$version: kill -9 and a restart" under_load $version killed
done
step "nothing arrives for 25 s" under_load 4.2 wire_silent
step "B's link goes down and comes back" under_load 4.2 link_down
step "the gateway lives" gateway_alive
step "the gateway ends" gateway_stop
