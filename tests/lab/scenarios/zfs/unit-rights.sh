# title: what ZFS tells a gateway with the rights of the shipped unit
# seconds: 300

. /lab/guest/unit.sh
[ -d /sys/module/zfs ] || skip "this image has no ZFS"
store_make zfs
zfs create lab/models
zfs create lab/models/a
chmod 1777 "$STORE/models/a"
EXPORTS=("[[export]]
dataset = \"lab/models/*\"
pseudo = \"/m\"
clients = [{ match = \"0.0.0.0/0\", access = \"rw\", squash = \"none\" }]
")
MORE_CONFIG="[[snapshot]]
dataset = \"lab/models\"
recursive = true
hourly = 1
"
RESCAN_SECONDS=15
limited_start() {
    gateway_config
    sed -i "s/^lease_seconds/rescan_seconds = $RESCAN_SECONDS\nlease_seconds/" "$CONFIG"
    unit_exec "$ZGATE" serve --config "$CONFIG" >>/run/zgate/log 2>&1 </dev/null &
    echo $! >/run/zgate/pid
    eventually 30 port_open 2049
    grep Cap "/proc/$(cat /run/zgate/pid)/status"
    same 0 "$(($(grep CapEff "/proc/$(cat /run/zgate/pid)/status" | sed 's/.*\t/0x/') >> 21 & 1))" CAP_SYS_ADMIN
}
serves() {
    client_mount 4.2 /mnt/a "" /m/a
    echo text >/mnt/a/file
    chown 1000:1000 /mnt/a/file
    as 1000 sh -c 'echo more >>/mnt/a/file'
    same 1000 "$(stat -c %u "$STORE/models/a/file")"
}
said() { grep 'ZFS reports no events' /run/zgate/log; }
told_once() {
    eventually 20 said
    sleep 5
    same 1 "$(grep -c 'ZFS reports no events' /run/zgate/log)" "lines about events"
}
exported() { "$ZGATE" exports --json | jq -e --arg p "$1" 'map(.pseudo_path // .pseudo) | index($p)'; }
mount_noticed() {
    local began
    began=$(now)
    zfs create lab/models/b
    eventually 60 exported /m/b
    figure "a created dataset is exported after" "$(since "$began")" s
}
property_noticed() {
    local began
    began=$(now)
    zfs set sync=disabled lab/models/a
    named() { "$ZGATE" status | grep 'sync=disabled'; }
    eventually $((RESCAN_SECONDS + 30)) named
    figure "a changed property is shown after" "$(since "$began")" s
}
pools_known() {
    known() { "$ZGATE" status --json | jq -e '.pools[] | select(.name == "lab") | .state == "ONLINE"'; }
    eventually 60 known
    metrics
    grep '^zfs_pool_health{pool="lab"} 0' /tmp/metrics
}
# Without what `zfs allow` delegates, the schedule says why nothing is taken.
schedule_refused() {
    refused_once() { "$ZGATE" snapshot schedules --json | jq -e '.[0].failed | length > 0'; }
    eventually 30 refused_once
    "$ZGATE" snapshot schedules --json | jq '.[0].failed'
    metrics
    grep '^zgate_snapshot_schedule_failures_total{dataset="lab/models"} [1-9]' /tmp/metrics
}
metrics() {
    exec 3<>/dev/tcp/127.0.0.1/9469
    printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3
    cat <&3 >/tmp/metrics
    exec 3>&-
}
schedule_kept() {
    zfs allow -u root snapshot,destroy,mount lab
    taken() { zfs list -Ht snapshot -o name lab/models/a | grep _hourly; }
    eventually 90 taken
    kept() { metrics && grep -q '^zgate_snapshot_schedule_taken_total{dataset="lab/models"} 1' /tmp/metrics; }
    eventually 20 kept
    grep '^zgate_snapshot' /tmp/metrics
    local last
    last=$(sed -n 's/^zgate_snapshot_schedule_last_success_timestamp_seconds{.*} //p' /tmp/metrics)
    [ $(($(date +%s) - last)) -lt 120 ]
}

need "the gateway serves with the unit's rights" limited_start
step "clients work: other identities, owners" serves
step "that there are no events is said, once" told_once
step "a new dataset is noticed by its mount" mount_noticed
step "a property is noticed by looking" property_noticed
step "pools are asked all the same" pools_known
step "snapshots are refused until they are delegated" schedule_refused
step "delegated, the schedule is kept; its metrics say so" schedule_kept
step "the gateway lives" gateway_alive
