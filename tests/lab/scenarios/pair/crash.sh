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
reset_rounds "$(cat /lab/rounds)"
step "at no moment both had the pool" watched
