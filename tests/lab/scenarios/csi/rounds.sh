# title: 100 volumes from creation to deletion, over a killed gateway and a power cycle: none dead, nothing left
# seconds: 20000
# round-seconds: 10000
# ci: no

. /lab/guest/slow.sh
. /lab/guest/csi.sh
. /lab/guest/volumes.sh
STEP_SECONDS=3600
# A gateway opens all volumes first.
START_SECONDS=180
# Volumes of each protocol, half of `--volumes`; further rounds with `--rounds`.
COUNT=$(($(cat /lab/volumes 2>/dev/null || echo 100) / 2))
# One of so many volumes is restored from its snapshot.
EVERY=5
ROUNDS=$(cat /lab/rounds 2>/dev/null || echo 1)
GROWN=$((96 << 20))
csi_program kubelet
slow_device power "$STORE_DISK" 5120
STORE_DISK=/dev/mapper/power
csi_start
DISKS=$(disks_there)

made() {
    both up
    written before
    same $((2 * COUNT)) "$(mounts_of_pods vol)" "mounts of pods"
    both healthy >/dev/null
}
gateway_dies() {
    gateway_kill
    gateway_start
    alive killed
}
# From its end on, a gateway that is killed answers nothing. Then the disk keeps
# nothing, and the pool is imported as after a boot.
power_fails() {
    kill -9 "$(cat /run/zgate/pid)"
    device_loses_writes power
    eventually 60 gateway_gone
    # udev looks at each device that the gateway has closed; meanwhile the pool is busy.
    eventually 300 zpool export -f lab
    device_quick power
    zpool import -f -d /dev/mapper lab
    gateway_start
    alive power-cycled
}
expanded() {
    both expand --bytes $GROWN
    local one size small=0
    for one in "$CSI_DIR"/pods/vol-*/target; do
        size=$(df --output=size -B1 "$one" | tail -n 1)
        # A file system on a disk keeps some of it.
        [ "$size" -gt $((80 << 20)) ] || { echo "$one has $size bytes"; small=$((small + 1)); }
    done
    same 0 "$small" "volumes that have not grown"
}
snapshots_taken() {
    both snapshot
    written later
}
restored() {
    both up --name back --from vol --every $EVERY --bytes $GROWN
    same 0 "$(wrong_in back power-cycled)" "restored volumes with other content"
}
# Volumes go before those that were made from their snapshots.
sources_deleted() {
    both delete-snapshot
    both down-node
    both delete
    same 0 "$(wrong_in back power-cycled)" "volumes that lost their content with their source"
}
deleted() {
    both down-node --name back --every $EVERY
    both delete --name back --every $EVERY
    csi_nothing_left
    same "$DISKS" "$(disks_there)" disks
    # udev removes their names a moment later.
    eventually 60 no_zvol_names
    rm -rf "${CSI_DIR:?}/pods"
}
no_zvol_names() { [ -z "$(find /dev/zvol -type l 2>/dev/null)" ]; }
# After a failure the rest would wait for its bounds, for hours, and count what it left.
round() {
    local began
    began=$(now)
    : >"$CSI_DIR/calls"
    need "round $1: $((2 * COUNT)) volumes are made, staged and published" made
    need "round $1: the gateway is killed" gateway_dies
    need "round $1: its power fails" power_fails
    need "round $1: all grow" expanded
    need "round $1: snapshots" snapshots_taken
    need "round $1: volumes are made from them" restored
    need "round $1: their sources are deleted" sources_deleted
    need "round $1: nothing is left" deleted
    figure "round $1 with $((2 * COUNT)) volumes" "$(since "$began")" s
    figure "round $1: repeated calls" "$(awk '{ n += $2 } END { print n + 0 }' "$CSI_DIR/calls")" calls
}

for number in $(seq "$ROUNDS"); do
    round "$number"
done
conclude
