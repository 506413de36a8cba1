# title: volumes live on after a killed gateway; those of a dead gateway are unstaged within 30 s
# seconds: 1500
# ci: no

. /lab/guest/csi.sh
STEP_SECONDS=400
COUNT=20
csi_program kubelet
csi_start

kubelet() { /run/lab/kubelet "$CSI_SOCKET" "$1" "$2" "${3:-$COUNT}" "$CSI_DIR/$2" "$CSI_PLACE"; }
published() {
    local protocol
    for protocol in nfs iscsi; do
        kubelet up "$protocol"
        for one in "$CSI_DIR/$protocol"/*/target; do echo before >"$one/file"; done
    done
    sync
    same $((2 * COUNT)) "$(grep -c "$CSI_DIR/.*/target " /proc/mounts)" "mounts of pods"
}
alive() {
    local dead=0 one
    for one in "$CSI_DIR"/*/*/target; do
        if ! timeout 60 sh -c "grep -q before $one/file && echo $1 >$one/after && sync $one/after"; then
            echo "dead: $one"
            dead=$((dead + 1))
        fi
    done
    figure "dead volumes of $((2 * COUNT)) after $1" "$dead" volumes
    same 0 "$dead" "dead volumes"
}
gateway_dies_and_returns() {
    gateway_kill
    gateway_start
    alive "a killed gateway"
}
driver_dies_and_returns() {
    kill -9 "$DRIVER"
    driver_start
    sleep 1
    # The same calls again find what is there.
    kubelet up nfs
    kubelet up iscsi
    alive "a killed driver"
}
dead_is_unstaged() {
    local protocol seconds
    gateway_kill
    for protocol in nfs iscsi; do
        seconds=$(kubelet down-node "$protocol" 2)
        figure "longest unpublish or unstage of a dead gateway, $protocol" "$seconds" s
        awk -v s="$seconds" 'BEGIN { exit !(s < 30) }' || fail "$protocol: $seconds s"
    done
}
deleted() {
    gateway_start
    local protocol
    for protocol in nfs iscsi; do
        kubelet down-node "$protocol"
        kubelet delete "$protocol"
    done
}

step "volumes are made, staged and published" published
step "a gateway dies and comes back" gateway_dies_and_returns
step "the driver dies and comes back" driver_dies_and_returns
step "volumes of a dead gateway are unstaged" dead_is_unstaged
step "all are deleted" deleted
step "nothing is left" csi_nothing_left
conclude
