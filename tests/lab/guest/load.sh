# Load for figures: the same few seconds of fio against whatever serves.
# shellcheck shell=bash

LOAD_SECONDS=6
# How often each server is loaded; the lab's shell does not say.
ROUNDS=$(cat /lab/rounds 2>/dev/null || echo 1)

# load NAME FIO-ARGUMENTS…: one run; bandwidth and operations become figures.
load() {
    local name=$1 json
    shift
    json=$(fio --output-format=json --name=x --direct=1 --ioengine=libaio --time_based \
        --runtime=$LOAD_SECONDS --randrepeat=1 --group_reporting "$@")
    jq -e '.jobs[0].error == 0' >/dev/null <<<"$json" || { echo "$json"; fail "fio failed"; return 1; }
    figure "$name" "$(jq '[.jobs[0].read.bw, .jobs[0].write.bw] | add / 1024 * 10 | round / 10' <<<"$json")" MiB/s
    figure "$name" "$(jq '[.jobs[0].read.iops, .jobs[0].write.iops] | add | round' <<<"$json")" ops/s
}

# loads SERVER TARGET SIZE: all of them against a file or a disk.
loads() {
    local at="--filename=$2 --size=$3"
    load "$1: write 1 MiB" $at --rw=write --bs=1m --iodepth=4
    load "$1: read 1 MiB" $at --rw=read --bs=1m --iodepth=4
    load "$1: random read 4 KiB" $at --rw=randread --bs=4k --iodepth=16
    load "$1: random write 4 KiB" $at --rw=randwrite --bs=4k --iodepth=16
}

# Busy time of all processors so far, in hundredths of a second.
busy() { awk '$1 == "cpu" { print $2 + $3 + $4 + $7 + $8 + $9 }' /proc/stat; }

# spent NAME TARGET FIO-ARGUMENTS…: MiB at once, and the machine's CPU time a GB of
# it, the client's and the server's. A few seconds go before that count for nobody:
# emulation translates what it has not run yet, and memory is touched for the first
# time.
WARM_SECONDS=3
spent() {
    local name=$1 target=$2 before moved
    shift 2
    drop_caches
    fio --name=warm --direct=1 --ioengine=libaio --time_based --runtime=$WARM_SECONDS \
        "--filename=$target" --size=64m --bs=1m --iodepth=4 "$@" >/dev/null
    drop_caches
    before=$(busy)
    load "$name" "--filename=$target" --size=64m --bs=1m --iodepth=4 "$@"
    moved=$(awk -F'\t' -v name="$name" '$1 == name && $3 == "MiB/s" { v = $2 } END { print v }' "$RESULT/figures.tsv")
    figure "$name" "$(awk -v a="$before" -v b="$(busy)" -v m="$moved" -v s=$LOAD_SECONDS \
        'BEGIN { printf "%.2f", (m > 0 ? (b - a) / 100 / (m * s * 1048576 / 1e9) : 0) }')" "CPU s/GB"
}
both_ways() {
    spent "$1: write 1 MiB" "$2" --rw=write
    spent "$1: read 1 MiB" "$2" --rw=read
}

# in_turns PEER: the scenario's `round` with the servers in the order in which they
# are loaded; who begins changes with each.
in_turns() {
    local number
    for number in $(seq 1 "$ROUNDS"); do
        case $((number % 2)) in
            1) step "round $number" round zgate "$1" ;;
            0) step "round $number" round "$1" zgate ;;
        esac
    done
}

# A veth pair with soft-RoCE: both ends of every connection are this machine.
WIRE_ADDRESS=10.9.5.1
rdma_wire() {
    [ -d /sys/class/net/veth0 ] || ip link add veth0 type veth peer name veth1
    ip link set veth0 mtu 9000 up
    ip link set veth1 mtu 9000 up
    ip address replace $WIRE_ADDRESS/24 dev veth0
    rdma_device veth0
}
