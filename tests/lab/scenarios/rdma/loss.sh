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
export A_ADDRESS B_ADDRESS
# B's interface with the device is behind a switch, and the cable between that
# and the wire is pulled. When the interface itself goes down, soft-RoCE of this
# kernel never sends a management datagram again (`rdma resource show qp`: GSI in
# ERR) and B would not connect to any server; once that was so, it seems, when the
# interface lost its carrier only.
b_device() {
    ip link add switch0 type bridge
    ip link add roce0 type veth peer name port0
    ip address flush dev eth0
    ip link set eth0 master switch0
    ip link set port0 master switch0
    ip address add $B_ADDRESS/24 dev roce0
    for name in switch0 port0 roce0; do ip link set $name up; done
    eventually 20 ping -c 1 -w 5 $A_ADDRESS
    rdma_device roce0
}
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
# Longer than a queue pair tries again, too.
link_down() {
    on_b ip link set eth0 down
    sleep 15
    on_b ip link set eth0 up
}

need "the second machine is there" b_ready
need "A has an RDMA device" rdma_device eth0
need "B has an RDMA device" on_b b_device
store_make "$(best_store)"
need "the gateway serves" gateway_start
for version in 4.2 4.0 3; do
    step "v$version: kill -9 and a restart" under_load $version killed
done
step "nothing arrives for 25 s" under_load 4.2 wire_silent
for version in 4.2 3; do
    step "v$version: the link between them goes down and comes back" under_load $version link_down
done
step "the gateway lives" gateway_alive
step "the gateway ends" gateway_stop
