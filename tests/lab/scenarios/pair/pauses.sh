# title: pauses of writers at planned switches and resets of a pair: the gateway
# seconds: 5400
# machines: 2
# ci: no

. /lab/guest/peer.sh
. /lab/guest/pair.sh
export RESULT
STEP_SECONDS=2400
EXPORT=/export
VERSIONS="4.2 4.1"
trap 'pair_ends; capture_stop' EXIT
need "the pair serves at A, with clients" pair_with_clients zgate
step "planned switches and resets" pauses zgate "$(cat /lab/rounds)"
step "at no moment both had the pool" watched
