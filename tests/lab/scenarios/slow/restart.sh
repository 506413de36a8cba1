# title: the service is restarted while one of two pools stands still: hosts of the other go on
# seconds: 1500
# ci: no

. /lab/guest/iscsi.sh
. /lab/guest/slow.sh
. /lab/guest/service.sh
STEP_SECONDS=400
CONFIG=/etc/zgate/zgate.toml
export TARGET
store_make zfs
slow_device slow "$OTHER_DISK" 1024

CLIENTS=12
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
    install -d -m 755 /etc/zgate/conf.d
    gateway_config
    install -m 755 "$ZGATE" /usr/local/bin/zgate
    install -m 644 /lab/deploy/systemd/zgate.service /etc/systemd/system/zgate.service
    under_manager systemctl daemon-reload
    under_manager systemctl start zgate
    eventually 30 port_open 3260
    client_mount 4.2 /mnt/a
    client_mount 3 /mnt/a3
    client_b_mount 4.2 /mnt/slow "" /slow
    client_b_mount 4.2 /mnt/cold "" /cold
}
# disk_written LUN: a record written, with FUA, over a session of its own.
disk_written() {
    python3 -c "
import sys
sys.path.insert(0, '/lab/guest')
sys.dont_write_bytecode = True
from initiator import *
session = Session('$TARGET', 'iqn.2026-11.org.example:host$1', lun=$1, seconds=60)
session.run(bytes(6))
session.run(write16(0, 8, fua=True), bytes(4096))"
}
stands_still() {
    local number
    echo before >/mnt/a/now
    sync /mnt/a/now
    disk_written 0
    device_stops slow
    for number in $(seq $CLIENTS); do
        background dd if=/dev/zero of=/mnt/slow/written$number bs=64K count=4 conv=fsync status=none
        background dd if=/mnt/cold/file of=/dev/null bs=64K count=1 skip=$((number * 20)) iflag=direct status=none
    done
    background disk_written 1
    sleep 10
}
main_pid() { under_manager systemctl show --property=MainPID --value zgate; }
another_pid() { local pid; pid=$(main_pid); [ "$pid" != "$1" ] && [ "$pid" != 0 ]; }
# hosts_go_on WHAT BEGAN
hosts_go_on() {
    eventually 300 port_open 2049
    figure "$1: to the port" "$(since "$2")" s
    timeout 90 bash -c "echo '$1' >/mnt/a/now; sync /mnt/a/now"
    figure "$1: to a write over 4.2" "$(since "$2")" s
    timeout 90 bash -c "echo '$1' >/mnt/a3/now3; sync /mnt/a3/now3"
    figure "$1: to a write over 3" "$(since "$2")" s
    eventually 60 disk_written 0
    figure "$1: to a write to a disk" "$(since "$2")" s
    same "$1" "$(cat "$STORE/now")"
    timeout 5 nsenter --target "$(cat $MANAGER_PID)" --pid --mount zgate status | tee /tmp/said
}
restarted() {
    local pid began
    pid=$(main_pid)
    began=$(now)
    timeout 350 bash -c "$(declare -f under_manager); MANAGER_PID=$MANAGER_PID; under_manager systemctl restart zgate"
    figure "restart: the manager's command" "$(since "$began")" s
    another_pid "$pid"
    hosts_go_on restart "$began"
}
# ended SIGNAL: by it, as by a watchdog; the manager starts another one.
ended() {
    local pid began
    pid=$(main_pid)
    began=$(now)
    under_manager kill "-$1" "$pid"
    eventually 300 another_pid "$pid"
    hosts_go_on "$1" "$began"
}
goes_on() {
    device_goes_on slow
    local number
    for number in $(seq $CLIENTS); do
        eventually 90 sync "/mnt/slow/written$number"
        same 262144 "$(stat -c %s "/mnt/slow/written$number")"
        rm "/mnt/slow/written$number"
    done
    eventually 60 disk_written 1
}
journal_says() { under_manager journalctl --no-pager -o cat -u zgate | grep -F "$1"; }
killed() {
    under_manager kill -KILL "$(main_pid)"
    eventually 150 journal_says "killed while storage hung"
}
comes_back() {
    local began
    began=$(now)
    device_goes_on slow
    hosts_go_on KILL "$began"
    goes_on
}
logs() { under_manager journalctl --no-pager -o short-precise >"$RESULT/journal.log" 2>&1; }
trap logs EXIT

need "two pools" pools
need "a service manager" manager_start
need "the gateway serves both" serves
need "one pool stands still" stands_still
step "the service is restarted: the other pool's hosts go on" restarted
step "the pool goes on, and so do its hosts" goes_on
need "one pool stands still again" stands_still
step "a watchdog ends the gateway: the other pool's hosts go on" ended ABRT
step "the pool goes on, and so do its hosts" goes_on
need "one pool stands still once more" stands_still
step "after SIGKILL the next one says what keeps it from starting" killed
step "the pool goes on, and so do all hosts" comes_back
