# title: two pools are served, one stands still: hosts of the other get on as before
# seconds: 400
# ci: no

. /lab/guest/iscsi.sh
. /lab/guest/slow.sh
export TARGET
store_make zfs
slow_device slow "$OTHER_DISK" 1024

CLIENTS=24
pools() {
    zpool create -f -o ashift=12 -O mountpoint=/scratch/slow slow /dev/mapper/slow
    zfs create -V 64M -o volblocksize=4K lab/vol
    zfs create -V 64M -o volblocksize=4K slow/vol
    zfs create -o primarycache=metadata slow/cold
    dd if=/dev/urandom of=/scratch/slow/cold/file bs=1M count=32 conv=fsync status=none
    zpool sync
    eventually 20 test -b /dev/zvol/lab/vol
    eventually 20 test -b /dev/zvol/slow/vol
}
serves() {
    iscsi_config /dev/zvol/lab/vol "[[target.lun]]
number = 1
path = \"/dev/zvol/slow/vol\""
    EXPORTS=()
    export_add "$STORE" /export
    export_add /scratch/slow /slow
    export_add /scratch/slow/cold /cold
    gateway_start
    eventually 20 port_open 3260
    client_mount 4.2 /mnt/a
    client_b_mount 4.2 /mnt/slow "" /slow
    client_b_mount 4.2 /mnt/cold "" /cold
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
# Each of these waits for the pool: as many as would take all of a gateway's
# threads.
stands_still() {
    device_stops slow
    local number
    for number in $(seq $CLIENTS); do
        background dd if=/dev/zero of=/mnt/slow/written$number bs=64K count=4 conv=fsync status=none
        background dd if=/mnt/cold/file of=/dev/null bs=64K count=1 skip=$((number * 20)) iflag=direct status=none
        background python3 -c "
import sys
sys.path.insert(0, '/lab/guest')
sys.dont_write_bytecode = True
from initiator import *
session = Session('$TARGET', 'iqn.2026-11.org.example:slow$number', lun=1, seconds=300)
session.run(bytes(6))
session.run(write16($number * 8, 8, fua=True), bytes(4096))"
    done
    sleep 10
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
    local number
    for number in $(seq $CLIENTS); do
        eventually 60 sync "/mnt/slow/written$number"
        same 262144 "$(stat -c %s "/mnt/slow/written$number")"
    done
}
need "two pools" pools
need "the gateway serves both" serves
step "a quiet time" measured "quiet" quiet
need "one pool stands still, $CLIENTS files, reads and writes of disks wait for it" stands_still
step "the other pool's hosts get on" got_on
step "status, metrics and healthz answer" answers
step "the pool goes on, and so do its hosts" goes_on
step "the gateway lives" gateway_alive
