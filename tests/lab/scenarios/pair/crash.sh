# title: the active machine of a pair is reset under load: the other takes over, nothing acknowledged is lost
# seconds: 27000
# machines: 2
# disk: shared
# ci: no

. /lab/guest/peer.sh
. /lab/guest/pair.sh
export RESULT
STEP_SECONDS=1800
trap 'pair_ends; capture_stop' EXIT
need "the pair serves at A, with clients" pair_with_clients
need "writers and locks" loads

# One round: the pair moves to B as planned, B is reset, A takes over.
round() {
    local began version
    pair_move $NODE_B
    goes_on
    began=$(now)
    power reset
    pair_serves $NODE_A
    figure "round $1: reset to address" "$(since "$began")" s
    goes_on
    figure "round $1: reset to the last writer" "$(since "$began")" s
    # The other machine boots meanwhile.
    for version in $VERSIONS 3; do
        figure "round $1: v$version longest fsync" "$(longest "$version")" s
        load_check "$version" /mnt/other
    done
    pair_rejoins
    on_b node_watch
    loads
}
ROUNDS=$(cat /lab/rounds)
for n in $(seq "$ROUNDS"); do
    step "round $n of $ROUNDS: planned to B, reset of B, A takes over" round "$n"
    # Not `step || break`, for the reason that `need` has.
    [ $? -eq 0 ] || break
done
step "at no moment both had the pool" watched
