# title: a pair of Pacemaker: a pool moves with its gateway, writers go on and locks are kept
# seconds: 7200
# machines: 2
# disk: shared
# ci: no

. /lab/guest/peer.sh
. /lab/guest/pair.sh
export RESULT
STEP_SECONDS=1800
trap 'pair_ends; capture_stop' EXIT
need "the second machine is there" b_ready
need "client, service and machines have one network" pair_network
need "node A is prepared" node_prepare
need "node B is prepared" on_b node_prepare
need "a pool with multihost, and nobody has it" pair_pool
need "corosync and Pacemaker run on both" pair_start
need "they take the shipped configuration" pair_configuration
begins() { eventually $CLUSTER_SECONDS serves_somewhere || { pair_state; return 1; }; }
need "the pair serves" begins
need "it serves at A" pair_move $NODE_A
node_watch
on_b node_watch
need "the client mounts" mounts
need "writers and locks" loads

moves() {
    local began
    began=$(now)
    pair_move "$1"
    figure "move to $1" "$(since "$began")" s
    goes_on
}
step "to B, under load" moves $NODE_B
step "to A, under load" moves $NODE_A
pool_refused() {
    refused "cannot import" on_b zpool import -f -d /dev/mapper $POOL
    same 1 "$(zpool list -H -o name | grep -c -x $POOL)" "A's pool"
}
step "B is refused the pool while A has it, by force, too" pool_refused
checked() {
    local version
    for version in $VERSIONS 3; do
        figure "v$version longest fsync over two moves" "$(longest "$version")" s
    done
    checks
}
step "every acknowledged record is there, every lock is held" checked
step "at no moment both had the pool" watched
