# title: two pools are served, one stands still: hosts of the other get on as before
# seconds: 400
# ci: no

. /lab/guest/iscsi.sh
. /lab/guest/slow.sh
. /lab/guest/two-pools.sh
export TARGET
store_make zfs
slow_device slow "$OTHER_DISK" 1024

# As many as would take all of a gateway's threads, if they shared them.
CLIENTS=24
serves() {
    two_pools_named
    gateway_start
    two_pools_mounted
}
pace() { PYTHONDONTWRITEBYTECODE=1 timeout 60 python3 /lab/guest/pace.py "$@" || fail "no pace: $*"; }
# measured NAME KEPT: pace of files and of a disk, both at once.
measured() {
    pace disk 0 10 >/tmp/pace-disk &
    local disk=$!
    pace files /mnt/a 10 >/tmp/pace-files
    wait $disk
    local kind
    for kind in files disk; do
        cp "/tmp/pace-$kind" "/tmp/pace-$kind-$2"
        figure "$1, $kind" "$(cut -d' ' -f1 "/tmp/pace-$kind")" steps/s
        figure "$1, $kind: longest step" "$(cut -d' ' -f2 "/tmp/pace-$kind")" s
    done
}
got_on() {
    measured "one pool stands still" held
    local kind
    for kind in files disk; do
        # Half of the pace: what waits costs an emulated machine something, too.
        awk 'NR == 1 { before = $1 } NR == 2 { if ($1 < before / 2 || $2 > 3) exit 1 }' \
            "/tmp/pace-$kind-quiet" "/tmp/pace-$kind-held" || fail "$kind: $(cat "/tmp/pace-$kind-held")"
    done
}
asked() {
    local what=$1 began
    shift
    began=$(now)
    timeout 5 "$@" >/tmp/said || fail "$what: no answer within 5 s"
    figure "$what" "$(since "$began")" s
}
ask_http() {
    exec 8<>/dev/tcp/127.0.0.1/9469
    printf 'GET %s HTTP/1.0\r\n\r\n' "$1" >&8
    cat <&8
    exec 8>&-
}
export -f ask_http
answers() {
    asked status "$ZGATE" status
    asked metrics bash -c 'ask_http /metrics'
    grep -q zgate_ /tmp/said
    asked healthz bash -c 'ask_http /healthz'
}
goes_on() {
    device_goes_on slow
    hosts_written $CLIENTS 60
}
need "two pools" two_pools
need "the gateway serves both" serves
step "a quiet time" measured "quiet" quiet
need "one pool stands still, $CLIENTS files, reads and writes of disks wait for it" hosts_wait $CLIENTS
step "the other pool's hosts get on" got_on
step "status, metrics and healthz answer" answers
step "the pool goes on, and so do its hosts" goes_on
step "the gateway lives" gateway_alive
