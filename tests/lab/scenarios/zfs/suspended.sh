# title: a suspended pool holds up neither the gateway nor the doctor, and its age is shown
# seconds: 400

[ -d /sys/module/zfs ] || skip "this image has no ZFS"
store_make zfs
modprobe dm_mod

# A device whose errors come and go.
truncate -s 256M /tmp/backing
LOOP=$(losetup -f --show /tmp/backing)
SECTORS=$((256 * 2048))
table() {
    dmsetup suspend --noflush "${2:---nolockfs}" flaky 2>/dev/null || dmsetup suspend flaky
    dmsetup load flaky --table "$1"
    dmsetup resume flaky
}
dmsetup create flaky --table "0 $SECTORS linear $LOOP 0"
eventually 10 test -b /dev/mapper/flaky

curl_metrics() {
    exec 8<>/dev/tcp/127.0.0.1/9469
    printf 'GET /metrics HTTP/1.0\r\n\r\n' >&8
    cat <&8
    exec 8>&-
}
sampled() { curl_metrics | grep 'zfs_pool_sample_age_seconds{pool="flaky"}'; }
start() {
    zpool create -f -o ashift=12 -O mountpoint=/scratch/flaky flaky /dev/mapper/flaky
    gateway_config
    sed -i 's/^\[server\]/[server]\npool_sample_seconds = 4/' "$CONFIG"
    ZGATE_LOG=info NO_COLOR=1 "$ZGATE" serve --config "$CONFIG" >>/run/zgate/log 2>&1 </dev/null &
    echo $! >/run/zgate/pid
    eventually 30 port_open 2049
    client_mount 4.2 /mnt/a
    eventually 30 sampled
}
online() { same ONLINE "$(cat /proc/spl/kstat/zfs/flaky/state)"; }
suspended() { same SUSPENDED "$(cat /proc/spl/kstat/zfs/flaky/state)"; }
break_it() {
    table "0 $SECTORS error"
    background dd if=/dev/zero of=/scratch/flaky/x bs=1M count=8 conv=fsync status=none
    eventually 60 suspended
}
quick() {
    local began
    began=$(now)
    timeout 10 "$@" >/tmp/said
    figure "$*" "$(since "$began")" s
}
shown() {
    eventually 30 grep -q "pool: I/O is suspended after failures" /run/zgate/log
    sleep 12
    quick "$ZGATE" status
    cat /tmp/said
    grep "^failing .*pool flaky: I/O is suspended" /tmp/said
    grep "^flaky .*SUSPENDED" /tmp/said
    curl_metrics >/tmp/metrics
    grep 'zfs_pool_health{pool="flaky"} 6' /tmp/metrics
    grep 'zfs_pool_health{pool="lab"} 0' /tmp/metrics
    same 1 "$(awk '/^zfs_pool_sample_age_seconds{pool="flaky"}/ { print ($2 >= 10) }' /tmp/metrics)" "old"
    same 1 "$(awk '/^zfs_pool_sample_age_seconds{pool="lab"}/ { print ($2 < 60) }' /tmp/metrics)" "fresh"
    same 1 "$(grep -c "pool: I/O is suspended after failures" /run/zgate/log)" "warnings"
}
serves() {
    echo while >/mnt/a/while
    sync /mnt/a/while
    drop_caches_of_a
    same while "$(cat /mnt/a/while)"
}
# Not of everything: that would wait for the suspended pool.
drop_caches_of_a() { echo 1 >/proc/sys/vm/drop_caches; }
diagnosed() {
    local code=0
    timeout 60 "$ZGATE" doctor server --config "$CONFIG" --json >/tmp/findings || code=$?
    same 2 $code "exit code"
    jq -e '.findings[] | select(.check == "pool-state" and .level == "error") | select((.what | contains("flaky is SUSPENDED")) and (.fix | contains("zpool clear flaky")))' /tmp/findings
}
mended() {
    table "0 $SECTORS linear $LOOP 0"
    zpool clear flaky
    eventually 30 online
    eventually 60 healthy_again
    grep "pool: the warning is cleared" /run/zgate/log
}
healthy_again() {
    curl_metrics >/tmp/metrics
    grep 'zfs_pool_health{pool="flaky"} 0' /tmp/metrics &&
        same 1 "$(awk '/^zfs_pool_sample_age_seconds{pool="flaky"}/ { print ($2 < 15) }' /tmp/metrics)"
}

need "two pools, the gateway serves one" start
need "the other one is suspended" break_it
step "status, metrics and log say so, at once and once" shown
step "NFS goes on" serves
step "the doctor names it" diagnosed
step "mended, and seen to be" mended
step "the gateway lives" gateway_alive
umount -f /mnt/a
gateway_stop
zpool destroy -f flaky
dmsetup remove flaky
