# title: the service is restarted while one of two pools stands still: hosts of the other go on
# seconds: 1500
# ci: no

. /lab/guest/iscsi.sh
. /lab/guest/slow.sh
. /lab/guest/two-pools.sh
. /lab/guest/service.sh
STEP_SECONDS=400
CONFIG=/etc/zgate/zgate.toml
export TARGET
store_make zfs
slow_device slow "$OTHER_DISK" 1024

CLIENTS=12
serves() {
    two_pools_named
    install -d -m 755 /etc/zgate/conf.d
    gateway_config
    install -m 755 "$ZGATE" /usr/local/bin/zgate
    install -m 644 /lab/deploy/systemd/zgate.service /etc/systemd/system/zgate.service
    under_manager systemctl daemon-reload
    under_manager systemctl start zgate
    two_pools_mounted
    client_mount 3 /mnt/a3
}
stands_still() {
    echo before >/mnt/a/now
    sync /mnt/a/now
    disk_written 0
    hosts_wait $CLIENTS
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
    under_manager timeout 5 zgate status
}
restarted() {
    local pid began
    pid=$(main_pid)
    began=$(now)
    under_manager timeout 350 systemctl restart zgate
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
    hosts_written $CLIENTS 90
    rm /mnt/slow/written*
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

need "two pools" two_pools
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
