# Two servers loaded in turn, half a second each, by loads that never end: what the
# machine itself does meanwhile comes to both alike, and no turn pays for a start.
# shellcheck shell=bash

ROUNDS=$(cat /lab/rounds 2>/dev/null || echo 1)
# Of one scenario: another may have run before.
rm -rf /run/turns

# lasting SERVER TARGET: reads and writes of 1 MiB, four at a time, of 64 MiB of a
# file or a disk; they stand still until it is their turn.
lasting() {
    local load
    for load in read write; do
        mkdir -p "/run/turns/$1"
        # A session of its own: what stands still when its step ends is hung up otherwise.
        # shellcheck disable=SC2016 # for the shell that becomes fio
        setsid bash -c 'echo $$ >"$0" && exec fio "$@"' "/run/turns/$1/$load" \
            --thread --name="$load" --direct=1 --ioengine=libaio --iodepth=4 --bs=1m \
            --filename="$2" --size=64m --rw="$load" --time_based --runtime=1000000 \
            --eta=never --output="/run/turns/$1/$load.log" &
        # Emulation translates what it has not run yet.
        sleep 5
        kill -STOP "$(cat "/run/turns/$1/$load")"
        sleep 1
    done
    echo "$2" >"/run/turns/$1/target"
}

# in_turns PEER: who begins changes with each round.
in_turns() {
    local number
    for number in $(seq 1 "$ROUNDS"); do
        case $((number % 2)) in
            1) step "round $number" round zgate "$1" ;;
            0) step "round $number" round "$1" zgate ;;
        esac
    done
}
round() { python3 /lab/guest/turns.py "$@" | tee -a "$RESULT/figures.tsv"; }

# The loads end as they ran: without an error.
loads_end() {
    local pid
    for pid in $(cat /run/turns/*/read /run/turns/*/write); do
        kill -INT "$pid"
        kill -CONT "$pid"
        eventually 30 eval "! kill -0 $pid"
    done
    grep -H 'err=' /run/turns/*/*.log
    [ "$(grep -c 'err= 0' /run/turns/*/*.log | grep -c ':1$')" -eq 4 ]
}
