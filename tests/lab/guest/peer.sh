# What scenarios with `# machines: 2` have beside: the machine at the other end
# of the wire. This one is A, 10.8.0.1, with the gateway.
# shellcheck shell=bash

JOBS=/lab/peer
A_ADDRESS=10.8.0.1
B_ADDRESS=10.8.0.2

# b_start COMMAND…: begins a command on B and prints its id. B knows the
# functions and the exported variables of the scenario; `set -eu` as in a step.
b_start() {
    local id
    id=${EPOCHREALTIME//[!0-9]/}
    {
        echo ". /lab/guest/lib.sh; . /lab/guest/peer.sh"
        export -p | grep -v -E ' (PATH|HOME|PWD|OLDPWD|SHLVL|LANG|TERM)='
        printf 'RESULT=%q\n' "$RESULT"
        declare -f
        echo "set -eu -o pipefail"
        printf '%q ' "$@"
        echo
    } >"$JOBS/$id.part"
    mv "$JOBS/$id.part" "$JOBS/$id.job"
    echo "$id"
}

# b_wait ID: its output, and how it ended.
b_wait() {
    local code limit=$((EPOCHSECONDS + STEP_SECONDS))
    while b_running "$1"; do
        [ "$EPOCHSECONDS" -lt "$limit" ] || { cat "$JOBS/$1.out"; fail "no end on B"; return 1; }
        sleep 0.1
    done
    code=$(<"$JOBS/$1.exit")
    cat "$JOBS/$1.out"
    rm -f "$JOBS/$1".*
    return "$code"
}
b_running() { [ ! -s "$JOBS/$1.exit" ]; }

# on_b COMMAND…: a command on B, to its end.
on_b() { b_wait "$(b_start "$@")"; }

# b_kill ID: ends a command and whatever it started.
b_kill() {
    on_b job_kill "$1"
    b_wait "$1" || true
}
job_kill() { pkill -9 -s "$(cat "/run/jobs/$1")" || true; echo 137 >"$JOBS/$1.exit"; }

# b_ready: B has booted. Both boot at once; on a busy host it has taken eight minutes.
b_ready() { : >"$JOBS/used"; eventually 900 test -e "$JOBS/ready" && on_b ping -c 1 -w 20 "$A_ADDRESS"; }

# b_crash: B stops as with a pulled plug, and boots again.
b_crash() {
    b_crash_begins
    b_ready
}
# b_crash_begins: the same without waiting for it; b_ready does.
b_crash_begins() {
    b_start crash_now >/dev/null
    sleep 5
    rm -f "$JOBS/ready"
}
crash_now() { sync -f /; echo b >/proc/sysrq-trigger; }

# b_mount VERSION DIRECTORY [OPTIONS [EXPORT]]
b_mount() { SERVER=$A_ADDRESS on_b mount_from_a "$@"; }
mount_from_a() { SERVER=$A_ADDRESS; client_mount "$@"; }

wire_cut() { on_b ip link set eth0 down; }
wire_mend() { on_b ip link set eth0 up; }
