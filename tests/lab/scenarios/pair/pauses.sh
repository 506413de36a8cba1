# title: pauses of writers at planned switches and resets of a pair: the gateway
# seconds: 27000
# machines: 2
# disk: shared
# ci: no

. /lab/guest/peer.sh
. /lab/guest/pair.sh
export RESULT
ROUNDS=$(cat /lab/rounds)
STEP_SECONDS=$((900 + 1500 * ROUNDS))
EXPORT=/export
VERSIONS="4.2 4.1"
# The default of both servers. A client whose lease is shorter than a takeover gives its
# connection up, and then sleeps for seconds between attempts to connect.
export LEASE_SECONDS=90
mounts() { client_mounts; }
trap 'pair_ends; capture_stop' EXIT
need "the pair serves at A, with clients" pair_with_clients zgate
step "planned switches and resets" pauses zgate "$ROUNDS"
step "at no moment both had the pool" watched
