# title: a running gateway keeps its snapshot schedules
# seconds: 900
# ci: no

store_make zfs
[ "$STORE_KIND" = zfs ] || skip "this image has no ZFS"
STEP_SECONDS=280
zfs create lab/a && zfs create lab/a/b && zfs create lab/c
zgate() { "$ZGATE" "$@"; }
schedule() {
    MORE_CONFIG="[[snapshot]]
dataset = \"lab/a\"
recursive = true
frequently = 2
frequent_period_minutes = 1
hourly = 24
$1"
}
count() { zfs list -Ht snapshot -o name "$1" | grep -c "_$2\$" || true; }
exactly() { [ "$(count "$1" "$2")" = "$3" ]; }
at_least() { [ "$(count "$1" "$2")" -ge "$3" ]; }

at_once() {
    eventually 30 at_least lab/a/b frequently 1
    same 1 "$(count lab/a hourly)" "hourly"
    same 0 "$(count lab/c hourly)" "of another dataset"
    local name
    name=$(zfs list -Ht snapshot -o name lab/a | grep _hourly)
    same "$(zfs get -Hp -o value createtxg "$name")" \
        "$(zfs get -Hp -o value createtxg "lab/a/b@${name#*@}")" "one transaction group"
    zgate snapshot schedules
    zgate snapshot schedules --json | jq -e '.[0].dataset == "lab/a" and (.[0].next | length) > 0 and .[0].failed == []'
}
each_minute() {
    zfs snapshot lab/a@mine
    local held
    held=$(zfs list -Ht snapshot -o name lab/a | grep _frequently | head -n 1)
    zfs hold keep "$held"
    third() { [ "$(zfs list -Ht snapshot -o name -s createtxg lab/a/b | grep _frequently | tail -n 1)" != "$1" ]; }
    for round in 1 2 3; do
        eventually 80 third "$(zfs list -Ht snapshot -o name -s createtxg lab/a/b | grep _frequently | tail -n 1)"
    done
    zfs list -t snapshot
    # Two are kept; of the dataset with the hold that one as well.
    eventually 20 exactly lab/a/b frequently 2
    same 3 "$(count lab/a frequently)" "with the held one"
    zfs list "$held" lab/a@mine
    # Unless the hour has changed meanwhile.
    [ "$(count lab/a hourly)" -le 2 ]
}
reloaded() {
    schedule "
[[snapshot]]
dataset = \"lab/c\"
daily = 3"
    gateway_config
    zgate reload
    eventually 30 at_least lab/c daily 1
    # A wrong one changes nothing.
    sed -i 's/daily = 3/daily = -3/' "$CONFIG"
    refused "nothing changed" zgate reload
    zgate snapshot schedules --json | jq -e 'length == 2'
}
failing() {
    schedule "
[[snapshot]]
dataset = \"lab/nothing\"
daily = 3"
    gateway_config
    zgate reload
    said() { zgate snapshot schedules --json | jq -e '.[] | select(.dataset == "lab/nothing") | .failed[0] | test("does not exist")'; }
    eventually 30 said
    grep -q "a snapshot schedule failed" /run/zgate/log
}

schedule ""
need "the gateway serves" gateway_start
step "what is due is taken at once, a tree in one moment" at_once
step "each minute one; as many are kept as asked, holds respected" each_minute
step "a reload changes schedules" reloaded
step "what fails is told" failing
# Root without CAP_SYS_ADMIN, as the unit runs it: ZFS has to delegate.
delegated() {
    gateway_stop
    zfs allow -u root snapshot,destroy,mount lab
    schedule "
[[snapshot]]
dataset = \"lab/c\"
daily = 0
weekly = 1"
    gateway_config
    setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin "$ZGATE" serve --config "$CONFIG" >>/run/zgate/log 2>&1 </dev/null &
    echo $! >/run/zgate/pid
    eventually 40 at_least lab/c weekly 1
    # The daily one is no longer asked for.
    eventually 20 exactly lab/c daily 0
}
step "without CAP_SYS_ADMIN, by delegation" delegated
