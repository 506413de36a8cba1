# Load for figures: the same few seconds of fio against whatever serves.
# shellcheck shell=bash

LOAD_SECONDS=6

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
