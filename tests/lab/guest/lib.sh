# What scenarios are written in: stores, the gateway, clients, steps.
# shellcheck shell=bash

STORE_DISK=/dev/vdb
OTHER_DISK=/dev/vdc
# The disk that the second machine reaches, too; there are two machines then.
SHARED_DISK=/dev/disk/by-id/virtio-shared
RESULT=${RESULT:-/tmp/result}
ZGATE=/run/lab/zgate
CONFIG=/run/zgate/zgate.toml
STATE_DIR=/var/lib/zgate
# Short, so that a restart is over soon; more than an emulated client's pauses.
LEASE_SECONDS=15
STEP_SECONDS=120
# From the start of a gateway until it serves.
START_SECONDS=30
SERVER=127.0.0.1
SERVER_FOR_B=10.9.0.1
failed_steps=0
EXPORTS=()
mkdir -p "$RESULT"
[ -x "$ZGATE" ] || [ "$HOSTNAME" = zgate-lab-b ] || { mkdir -p /run/lab && cp /lab/zgate "$ZGATE" && chmod 755 "$ZGATE"; }

now() { date +%s.%N; }
since() { echo "$1 $(now)" | awk '{ printf "%.2f", $2 - $1 }'; }
fail() { echo "FAILED: $*"; return 1; }

# --- steps and expectations -------------------------------------------------

# step NAME COMMAND…: one thing that must succeed. A failure is recorded and
# the scenario goes on. The command runs in a subshell with `set -eu`.
step() {
    local name=$1 began code text
    shift
    began=$(now)
    echo "--- $name"
    set -m
    (
        trap - EXIT
        set -eu -o pipefail
        "$@"
    ) >"$RESULT/step" 2>&1 </dev/null &
    local pid=$!
    (
        trap - EXIT
        sleep "$STEP_SECONDS"
        echo "no end after $STEP_SECONDS s; the processes of the step:" >>"$RESULT/step"
        whereabouts >>"$RESULT/step" 2>&1
        kill -9 -- "-$pid"
    ) >/dev/null 2>&1 &
    local watchdog=$!
    set +m
    wait "$pid"
    code=$?
    kill -9 -- "-$watchdog" 2>/dev/null
    wait "$watchdog" 2>/dev/null
    cat "$RESULT/step"
    text=pass
    if [ $code -ne 0 ]; then
        text=fail
        failed_steps=$((failed_steps + 1))
        echo "*** step failed with $code"
    fi
    printf '%s\t%s\t%s\t%s\n' "$text" "$(since "$began")" "$name" \
        "$([ $code -eq 0 ] || tail -n 3 "$RESULT/step" | tr '\n\t' '; ')" >>"$RESULT/steps.tsv"
    return $code
}

# What all processes wait for, and where those in the kernel that nothing wakes.
whereabouts() {
    local task
    ps -eo pid,stat,wchan:32,args | grep -v ']$'
    for task in /proc/[0-9]*/task/[0-9]*; do
        case $(sed 's/.*) //; s/ .*//' "$task/stat" 2>/dev/null) in
            D | X | Z) ;;
            *) grep -q zgate "$task/comm" 2>/dev/null || continue ;;
        esac
        echo "$task $(cat "$task/comm"): $(sed 's/.*) //; s/ .*//' "$task/stat")"
        cat "$task/stack"
    done
}

# need NAME COMMAND…: a step without which the rest makes no sense.
# Not `step || conclude`: bash ignores `set -e` in such a list, all the way down.
need() {
    step "$@"
    [ $? -eq 0 ] || conclude
}

# figure NAME VALUE UNIT: something measured.
figure() { printf '%s\t%s\t%s\n' "$1" "$2" "$3" >>"$RESULT/figures.tsv"; }

# skip REASON: nothing of this scenario can run here.
skip() {
    echo "$1" >"$RESULT/skip"
    exit 77
}

conclude() {
    [ -s "$RESULT/steps.tsv" ] || { echo "no step ran"; exit 1; }
    [ "$failed_steps" -eq 0 ] && exit 0
    echo "$failed_steps steps failed"
    exit 1
}

same() { [ "$1" = "$2" ] || fail "${3:-value}: expected '$1', found '$2'"; }

# refused TEXT COMMAND…: it must fail, and say so with this text.
refused() {
    local text=$1 said
    shift
    if said=$("$@" 2>&1); then fail "succeeded: $*"; return 1; fi
    grep -q -i -e "$text" <<<"$said" || fail "'$*' says: $said (wanted: $text)"
}

# eventually SECONDS COMMAND…: it must become true.
eventually() {
    local limit=$1 began
    shift
    began=$(date +%s)
    until "$@" >/dev/null 2>&1; do
        [ $(($(date +%s) - began)) -lt "$limit" ] || { fail "not within $limit s: $*"; return 1; }
        sleep 0.3
    done
}

# pattern FILE MEBIBYTES: incompressible content, quick under emulation.
pattern() { openssl_pattern "$1" "$2" 2>/dev/null || dd if=/dev/urandom of="$1" bs=1M count="$2" status=none; }
openssl_pattern() { head -c "$(($2 << 20))" /dev/urandom >"$1"; }

as() { setpriv --reuid "$1" --regid "$1" --clear-groups "${@:2}"; }
background() { "$@" & echo $! >>/run/lab-processes; }

# --- stores -----------------------------------------------------------------

# store_make zfs|xfs|ext4 [MEBIBYTES]: a file system at $STORE.
store_make() {
    local kind=$1 size=${2:-}
    STORE=/scratch/lab
    STORE_KIND=$kind
    mkdir -p "$STORE"
    case $kind in
        zfs)
            [ -d /sys/module/zfs ] || skip "this image has no ZFS"
            local device=$STORE_DISK
            if [ -n "$size" ]; then
                truncate -s "${size}M" /tmp/pool.img
                device=/tmp/pool.img
            fi
            zpool create -f -o ashift=12 -o autotrim=on -O atime=off -O xattr=sa \
                -O acltype=posixacl -O compression=lz4 -O mountpoint=/scratch/lab lab "$device"
            ;;
        xfs) mkfs.xfs -q -f "$STORE_DISK" ${size:+-d size=${size}m} && mount "$STORE_DISK" "$STORE" ;;
        ext4) mkfs.ext4 -q -F "$STORE_DISK" ${size:+${size}M} && mount "$STORE_DISK" "$STORE" ;;
    esac || {
        # Not a scenario on whatever lies there.
        printf 'fail\t0\ta store is made\tno %s at %s\n' "$kind" "$STORE" >>"$RESULT/steps.tsv"
        exit 1
    }
    chmod 1777 "$STORE"
}

# The best store of this image.
best_store() { if [ -d /sys/module/zfs ]; then echo zfs; else echo xfs; fi; }

# --- the gateway ------------------------------------------------------------

# export_add PATH PSEUDO [SQUASH [FURTHER LINES]]
export_add() {
    EXPORTS+=("[[export]]
path = \"$1\"
pseudo = \"$2\"
${4:-}
clients = [{ match = \"0.0.0.0/0\", access = \"rw\", squash = \"${3:-none}\" }]
")
}

gateway_config() {
    mkdir -p /run/zgate "$STATE_DIR"
    [ ${#EXPORTS[@]} -gt 0 ] || export_add "$STORE" /export
    {
        cat <<END
[server]
listen = ["0.0.0.0:2049"]
state_dir = "$STATE_DIR"
lease_seconds = $LEASE_SECONDS
grace_seconds = $LEASE_SECONDS
admin_socket = "/run/zgate/admin.sock"
metrics_listen = "127.0.0.1:9469"
${SERVER_KEYS:-}

END
        printf '%s\n' "${EXPORTS[@]}"
        printf '%s\n' "${MORE_CONFIG:-}"
    } >"$CONFIG"
}

# gateway_start: with the configuration of this scenario; back when it serves.
gateway_start() {
    gateway_config
    # Not with the scenario's open files: a gateway that holds a file of its own
    # mount cannot end, because closing that waits for the gateway.
    (
        for fd in /proc/self/fd/*; do
            fd=${fd##*/}
            [ "$fd" -le 2 ] || eval "exec $fd>&-"
        done
        ZGATE_LOG=${ZGATE_LOG:-info} RUST_BACKTRACE=1 exec "$ZGATE" serve --config "$CONFIG"
    ) >>/run/zgate/log 2>&1 </dev/null &
    echo $! >/run/zgate/pid
    eventually "$START_SECONDS" port_open 2049 && gateway_alive || { tail -n 20 /run/zgate/log; return 1; }
}
port_open() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
gateway_alive() { kill -0 "$(cat /run/zgate/pid)" 2>/dev/null; }
gateway_kill() {
    local pid
    pid=$(cat /run/zgate/pid)
    gateway_used
    kill -9 "$pid"
    eventually 60 gateway_gone || { whereabouts; return 1; }
}
gateway_stop() {
    gateway_used requests
    kill -TERM "$(cat /run/zgate/pid)"
    eventually 30 gateway_gone
}
gateway_gone() { ! gateway_alive; }

# gateway_used [requests]: notes what the gateway that runs has used so far.
gateway_used() {
    local pid memory="" cpu="" requests=0
    pid=$(cat /run/zgate/pid 2>/dev/null) && [ -r "/proc/$pid/status" ] || return 0
    memory=$(sed -n 's/^VmHWM:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$pid/status") || return 0
    cpu=$(sed 's/.*) //' "/proc/$pid/stat" 2>/dev/null | cut -d' ' -f12,13) || return 0
    [ -z "${1:-}" ] || requests=$(gateway_requests 2>/dev/null) || requests=0
    [ -z "$memory" ] || echo "$pid $memory ${cpu:-0 0} ${requests:-0}" >>/run/zgate/used
}
gateway_requests() {
    exec 7<>/dev/tcp/127.0.0.1/9469 || return 0
    printf 'GET /metrics HTTP/1.0\r\n\r\n' >&7
    timeout 5 awk '/^zgate_(nfs_operation|nfs3_procedure|scsi_command)_seconds_count/ { n += $2 }
        END { printf "%d", n }' <&7
    exec 7>&-
}
# gateway_figures: what all gateways of the scenario used, as figures.
gateway_figures() {
    gateway_used requests
    [ -s /run/zgate/used ] || return 0
    # The latest line of a process holds; it may have been killed before it was asked.
    awk '{ memory[$1] = $2; cpu[$1] = $3 + $4; if ($5 > requests[$1]) requests[$1] = $5 }
        END { for (pid in memory) { if (memory[pid] > most) most = memory[pid]; all += cpu[pid]; n += requests[pid] }
            printf "gateway: memory at most\t%.1f\tMiB\n", most / 1024
            printf "gateway: CPU time\t%.2f\ts\n", all / 100
            printf "gateway: NFS operations and SCSI commands\t%d\toperations\n", n }' \
        /run/zgate/used >>"$RESULT/figures.tsv"
}
gateway_logs() { cp /run/zgate/log "$RESULT/zgate.log" 2>/dev/null; cp "$CONFIG" "$RESULT/zgate.toml" 2>/dev/null; }

# --- clients ----------------------------------------------------------------

# The gateway answers MOUNT at its own port, the kernel's server at MOUNT_PORT.
nfs_options() {
    case $1 in
        3) echo "vers=3,nolock,proto=tcp,port=2049,mountport=${MOUNT_PORT:-2049},mountproto=tcp" ;;
        *) echo "vers=$1,proto=tcp,port=2049" ;;
    esac
}

# client_mount VERSION DIRECTORY [OPTIONS [EXPORT]]
client_mount() {
    mkdir -p "$2"
    mount -t nfs -o "$(nfs_options "$1")${3:+,$3}" "$SERVER:${4:-/export}" "$2"
}

# The same as the second client, which is another machine to the gateway.
client_b_mount() {
    mkdir -p "$2"
    nsenter --net=/run/netns/client-b \
        mount -t nfs -o "$(nfs_options "$1")${3:+,$3}" "$SERVER_FOR_B:${4:-/export}" "$2"
}

# Forget what the client knows: what is read next comes from the gateway.
drop_caches() { sync && echo 3 >/proc/sys/vm/drop_caches; }

# All packets of the scenario, in $RESULT/packets.pcap.
capture_start() {
    tcpdump -i any -s 600 -w "$RESULT/packets.pcap" -U 'tcp' >/dev/null 2>&1 &
    CAPTURE=$!
    sleep 1
}
capture_stop() { [ -z "${CAPTURE:-}" ] || { sleep 0.3; kill "$CAPTURE"; }; }
