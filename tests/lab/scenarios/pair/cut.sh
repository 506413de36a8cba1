# title: the wire between the machines of a pair is cut, disks are cut, a machine hangs: one serves, one is fenced
# seconds: 14400
# machines: 2
# disk: shared
# ci: no

. /lab/guest/peer.sh
. /lab/guest/pair.sh
export RESULT
STEP_SECONDS=2700
trap 'pair_ends; capture_stop' EXIT
need "the pair serves at A, with clients" pair_with_clients
need "writers and locks" loads

# Before the first one there is no file.
fencings() { cat /lab/peer/fencing 2>/dev/null | grep -c "$NODE_A fences $NODE_B" || true; }
fenced_once() { same $(($1 + 1)) "$(fencings)" "fencings of B"; }
# back FENCINGS: A serves, B was fenced once more; everything is as before.
back() {
    # The stop of what waits for a disk has its full time first.
    pair_serves $NODE_A 1200
    fenced_once "$1"
    goes_on
    checks
    pair_rejoins
    on_b node_watch
    loads
}
moved_to_b() { pair_move $NODE_B; goes_on; }

# Each machine sees that the other one is gone, while clients reach A only.
wire_of_passive() {
    local before
    before=$(fencings)
    wire_cut
    eventually $CLUSTER_SECONDS fenced_more "$before"
    back "$before"
}
fenced_more() { [ "$(fencings)" -gt "$1" ]; }
wire_of_active() {
    local before
    moved_to_b
    before=$(fencings)
    wire_cut
    back "$before"
}
# The active machine loses its disks: its pool is suspended, it cannot give it away.
disks_of_active() {
    local before
    moved_to_b
    before=$(fencings)
    on_b disks_cut
    back "$before"
}
disks_cut() { . /lab/guest/slow.sh; device_fails shared; }
# The active machine stands still, and goes on after the other one has taken over:
# it must not write. It is reset before, which is what fencing is for.
hangs() {
    local before
    moved_to_b
    before=$(fencings)
    power stop
    back "$before"
}
# Each begins where the one before has ended.
need "the wire is cut while A serves: A goes on" wire_of_passive
need "the wire is cut while B serves: A takes over" wire_of_active
need "B's disks fail while B serves: B is fenced, A takes over" disks_of_active
need "B stands still while it serves: B is fenced, A takes over" hangs
step "at no moment both had the pool" watched
