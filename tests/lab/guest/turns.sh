# Two servers loaded in turn, half a second each, by loads that never end: what the
# machine itself does meanwhile comes to both alike, and no turn pays for a start.
# shellcheck shell=bash

ROUNDS=$(cat /lab/rounds 2>/dev/null || echo 1)
# Of one scenario: another may have run before.
rm -rf /run/turns

# lasting SERVER TARGET [LOAD…]: loads of 64 MiB of a file or a disk, which stand still
# until it is their turn. read, write: 1 MiB, four at a time; read-4k, write-4k: random,
# sixteen at a time; names: files in the directory of TARGET, one at a time.
lasting() {
    local server=$1 target=$2 load loads
    shift 2
    loads=${*:-read write}
    mkdir -p "/run/turns/$server"
    for load in $loads; do
        case $load in
            read | write) lasts "$server" $load fio_lasts "$target" --iodepth=4 --bs=1m --rw=$load ;;
            read-4k) lasts "$server" $load fio_lasts "$target" --iodepth=16 --bs=4k --rw=randread ;;
            write-4k) lasts "$server" $load fio_lasts "$target" --iodepth=16 --bs=4k --rw=randwrite ;;
            names)
                lasts "$server" names python3 /lab/guest/names-load.py "$(dirname "$target")" \
                    "/run/turns/$server/names.count"
                ;;
        esac
    done
    echo "$target" >"/run/turns/$server/target"
}

# lasts SERVER LOAD COMMAND…: the load's process, which stands still.
lasts() {
    local file="/run/turns/$1/$2"
    shift 2
    [ "$1" != fio_lasts ] || set -- fio --thread --name=load --direct=1 --ioengine=libaio \
        --filename="$2" --size=64m --time_based --runtime=1000000 --eta=never \
        --output="$file.log" "${@:3}"
    # A session of its own: what stands still when its step ends is hung up otherwise.
    # shellcheck disable=SC2016 # for the shell that becomes the load
    setsid bash -c 'echo $$ >"$0" && exec "$@"' "$file" "$@" &
    # Emulation translates what it has not run yet.
    sleep 5
    kill -STOP "$(cat "$file")"
    sleep 1
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
    local file pid
    for file in /run/turns/*/{read,write,read-4k,write-4k,names}; do
        [ -e "$file" ] || continue
        pid=$(cat "$file")
        kill -0 "$pid" || fail "$file has ended before"
        case $file in
            # It has nothing to finish. A REMOVE of which the kernel's server answers
            # for minutes that it is to be tried later ends by no milder signal.
            */names) kill -KILL "$pid" ;;
            *) kill -INT "$pid" ;;
        esac
        kill -CONT "$pid"
        # Writes that are under way take as long as the pool does.
        (eventually 120 eval "! kill -0 $pid") || {
            grep -H . "/proc/$pid/comm" /proc/"$pid"/task/*/{wchan,stack} || true
            fail "$file has not ended"
        }
    done
    grep -H 'err=' /run/turns/*/*.log
    [ "$(grep -c 'err= 0' /run/turns/*/*.log | grep -vc ':1$')" -eq 0 ]
}
