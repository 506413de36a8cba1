# title: volumes live on after a killed gateway; those of a dead gateway are unstaged within 30 s
# seconds: 1800
# ci: no

. /lab/guest/csi.sh
. /lab/guest/volumes.sh
STEP_SECONDS=400
COUNT=20
csi_program kubelet
csi_start

published() {
    both up
    written before
    same $((2 * COUNT)) "$(mounts_of_pods vol)" "mounts of pods"
}
gateway_dies_and_returns() {
    gateway_kill
    gateway_start
    alive gateway-killed
}
# For longer than the 120 s after which commands of a disk fail as open-iscsi is installed.
gateway_is_away() {
    local one writers=()
    gateway_kill
    for one in "$CSI_DIR"/pods/vol-iscsi-*/target; do
        (echo late >"$one/late" && sync "$one/late") &
        writers+=($!)
    done
    sleep 140
    gateway_start
    for one in "${writers[@]}"; do wait "$one" || fail "a write has failed"; done
    alive gateway-away
}
driver_dies_and_returns() {
    kill -9 "$DRIVER"
    eventually 10 driver_gone
    driver_start
    eventually 30 driver_serves
    # The same calls again find what is there.
    both up
    alive driver-killed
}
dead_is_unstaged() {
    local protocol seconds
    gateway_kill
    for protocol in nfs iscsi; do
        # Four pods each, one after the other: each waits for its own bounds.
        seconds=$(COUNT=4 kubelet "$protocol" down-node --parallel 1 --patience 0 | cut -d' ' -f1)
        figure "longest unpublish or unstage of a dead gateway, $protocol" "$seconds" s
        awk -v s="$seconds" 'BEGIN { exit !(s < 30) }' || fail "$protocol: $seconds s"
    done
}
deleted() {
    gateway_start
    both down-node
    both delete
}

step "volumes are made, staged and published" published
step "a gateway dies and comes back" gateway_dies_and_returns
step "a gateway is away for two minutes and more" gateway_is_away
step "the driver dies and comes back" driver_dies_and_returns
step "volumes of a dead gateway are unstaged" dead_is_unstaged
step "all are deleted" deleted
step "nothing is left" csi_nothing_left
conclude
