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
