# title: a pair whose clients use RDMA: planned switches and resets under writers and held locks, over soft-RoCE
# seconds: 27000
# machines: 2
# disk: shared
# ci: no

. /lab/guest/peer.sh
. /lab/guest/pair.sh
. /lab/guest/rdma.sh
export RESULT
STEP_SECONDS=1800
# Kernels wait up to half a minute between two tries to connect over RDMA.
export LEASE_SECONDS=90
MORE_CONFIG=$RDMA_CONFIG
# A's device lies on its end of the wire, which is a port of the switch that has the address.
eval "$(declare -f node_prepare | sed '1s/.*/node_prepare_without_rdma ()/')"
node_prepare() {
    node_prepare_without_rdma
    rdma_device "$(if is_b; then echo eth0; else echo br0; fi)"
}
# Soft-RoCE of this kernel knows the first name space only: the machine itself is the
# client, and the one that tries its locks is in the other name space, over TCP.
client_mounts() {
    local version
    for version in $VERSIONS 3; do
        rdma_mount $SERVICE "$version" "/mnt/$version"
        touch "/mnt/$version/here-$version"
    done
}
other_mount() { service_mount 4.2 /mnt/other; }
# Shows, too, what the devices and the kernel's client of this machine do if writers do not go on.
eval "$(declare -f goes_on | sed '1s/.*/goes_on_or_not ()/')"
goes_on() {
    local code=0
    (
        set -e
        goes_on_or_not
    ) &
    wait $! || code=$?
    [ $code -eq 0 ] || rdma_state || true
    return $code
}
rdma_state() {
    devices
    on_b devices
    ip neighbour show $SERVICE
    [ -d /sys/kernel/debug/sunrpc ] || mount -t debugfs none /sys/kernel/debug
    head -n 60 /sys/kernel/debug/sunrpc/rpc_xprt/*/info /sys/kernel/debug/sunrpc/rpc_clnt/*/tasks
    echo w >/proc/sysrq-trigger
    dmesg | tail -n 200
}
devices() {
    hostname
    rdma resource show cm_id
    rdma resource show qp
    zgate status --socket /run/zgate/$POOL.sock
}
trap 'pair_ends; capture_stop' EXIT
need "the pair serves at A, with clients" pair_with_clients
need "writers and locks" loads
reset_rounds "$(cat /lab/rounds)"
still_rdma() {
    local version
    for version in $VERSIONS 3; do
        grep " /mnt/$version " /proc/mounts | grep 'proto=rdma' || fail "v$version is not mounted over RDMA"
    done
}
step "the clients are still those of RDMA" still_rdma
step "at no moment both had the pool" watched
