# title: rollbacks and received streams by hand: clients are told, and no COMMIT says of what is gone that it is stored
# seconds: 700
# ci: no

. /lab/guest/iscsi.sh
. /lab/guest/unit.sh
export TARGET
store_make zfs
zfs create -s -V 64M -o volblocksize=16K lab/vol
eventually 20 test -b /dev/zvol/lab/vol || skip "no zvol device"
for dataset in data data/below other src; do
    zfs create "lab/$dataset"
    echo before >"$STORE/$dataset/file"
    chmod 1777 "$STORE/$dataset"
    chmod 666 "$STORE/$dataset/file"
    zfs snapshot "lab/$dataset@before"
done
zfs send lab/src@before | zfs receive lab/replica

iscsi_config /dev/zvol/lab/vol
# One by a dataset, one by a path; no search but at the start.
EXPORTS=("rescan_seconds = 3600
")
for dataset in data replica; do
    EXPORTS+=("[[export]]
dataset = \"lab/$dataset\"
pseudo = \"/$dataset\"
clients = [{ match = \"0.0.0.0/0\", access = \"rw\", squash = \"none\" }]
")
done
export_add "$STORE/other" /other
need "the gateway serves" gateway_start

rolled_back() { (cd /lab/guest && PYTHONDONTWRITEBYTECODE=1 timeout 100 python3 rolled-back.py "$@"); }
# told WHAT ARGUMENTS: how long it took is a figure.
told() {
    local what=$1
    shift
    rolled_back "$@" >/tmp/took
    figure "$what is told after" "$(cat /tmp/took)" s
}
by_rollback() {
    told "a rollback" file /data "zfs rollback lab/data@before"
    same 65536 "$(tr -cd A <"$STORE/data/file" | wc -c)" "bytes that were written again"
}
by_stream() {
    echo after >"$STORE/src/file"
    zfs snapshot lab/src@after
    told "a received stream" file /replica "zfs send -i @before lab/src@after | zfs receive -F lab/replica"
}
# ZFS keeps what it has reported meanwhile.
between_two_followers() {
    cat >/tmp/between <<'END'
pgrep -f 'zpool events' | xargs kill
zfs rollback lab/data@before
END
    told "a rollback between two followers" file /data "bash -eu /tmp/between"
}
delegations() { "$ZGATE" clients --json | jq '[.[].delegations] | add // 0'; }
is_delegated() {
    cat /mnt/data/told >/dev/null
    [ "$(delegations)" -gt 0 ]
}
reads() { [ "$(cat /mnt/data/told)" = "$1" ]; }
recalled() {
    echo before >"$STORE/data/told"
    chmod 666 "$STORE/data/told"
    zfs snapshot lab/data@told
    echo after >"$STORE/data/told"
    client_mount 4.2 /mnt/data "" /data
    exec 5</mnt/data/told
    eventually 30 is_delegated
    reads after
    zfs rollback lab/data@told
    eventually 20 reads before
    exec 5<&-
    umount /mnt/data
    zfs destroy lab/data@told
}
# mapped_again SNAPSHOT: a name of its own, since no later one may be there.
mapped_again() {
    told "a rollback of a zvol" disk "zfs snapshot lab/vol@$1" "zfs rollback lab/vol@$1"
}

# --- a gateway with the rights of the unit, which zed tells ---------------------

limited_start() {
    gateway_stop
    unit_exec "$ZGATE" serve --config "$CONFIG" >>/run/zgate/log 2>&1 </dev/null &
    echo $! >/run/zgate/pid
    eventually 30 port_open 2049
    gateway_alive
    same 0 "$(($(grep CapEff "/proc/$(cat /run/zgate/pid)/status" | sed 's/.*\t/0x/') >> 21 & 1))" CAP_SYS_ADMIN
    grace_over() { "$ZGATE" status --json | jq -e '.grace_seconds_left == 0'; }
    eventually 60 grace_over
}
# The image has no zed: for each event of a pool's history, the script as zed would run it.
as_zed() {
    local line operation="" dataset=""
    zpool events -f -v -H | while IFS= read -r line; do
        case $line in
            *'history_dsname = "'*) dataset=${line#*\"} && dataset=${dataset%\"} ;;
            *'history_internal_name = "'*) operation=${line#*\"} && operation=${operation%\"} ;;
            '')
                [ -z "$operation" ] || env -i PATH=/usr/bin:/bin:/usr/sbin:/sbin ZED_ZEDLET_DIR=/tmp/zed.d \
                    ZEVENT_SUBCLASS=history_event ZEVENT_HISTORY_INTERNAL_NAME="$operation" \
                    ZEVENT_HISTORY_DSNAME="$dataset" /tmp/zed.d/history_event-zgate.sh </dev/null || echo "exit $?"
                operation="" dataset=""
                ;;
        esac
    done
}
follows() { pgrep -f 'zpool events'; }
zed_starts() {
    install -m 755 "$ZGATE" /usr/local/bin/zgate
    install -D -m 755 /lab/deploy/zed/history_event-zgate.sh /tmp/zed.d/history_event-zgate.sh
    # Those of earlier steps would be told now.
    zpool events -c
    as_zed >/tmp/zed.log 2>&1 </dev/null &
    echo $! >>/run/lab-processes
    eventually 20 follows
}
by_later_stream() {
    echo later >"$STORE/src/file"
    zfs snapshot lab/src@later
    told "a received stream, by zed" file /replica "zfs send -i @after lab/src@later | zfs receive -F lab/replica"
}
# The script is run for events that concern nobody, too.
beside_others() {
    local began number
    for number in $(seq 50); do echo "zfs set lab:number=$number lab/src"; done >/tmp/many
    began=$(now)
    told "a rollback behind 50 events, by zed" file /data "bash -eu /tmp/many; zfs rollback lab/data@before"
    figure "50 other events and a rollback" "$(since "$began")" s
}
audited() {
    grep 'what="replaced lab/data"' /run/zgate/log | grep 'outcome="done, exports: 1'
    same "" "$(cat /tmp/zed.log)" "what the script says"
}
without_a_gateway() {
    gateway_stop
    zfs rollback lab/data@before
    sleep 1
    same "" "$(cat /tmp/zed.log)" "what the script says"
}

step "a rollback is told" by_rollback
step "one of a dataset below the export's is told" told "a rollback below" file /data "zfs rollback lab/data/below@before"
step "one under an export by path is told" told "a rollback under a path" file /other "zfs rollback lab/other@before"
step "clients of other exports are told nothing" rolled_back other /other "zfs rollback lab/data@before"
step "a received stream is told" by_stream
step "what happens between two runs of zpool events is told" between_two_followers
step "a client with a delegation reads what is there" recalled
step "blocks of a zvol that have come back are mapped" mapped_again before
need "the gateway serves with the unit's rights" limited_start
step "it hears of nothing by itself" rolled_back other /data "zfs rollback lab/data@before"
need "a stand-in for zed follows" zed_starts
step "a rollback is told by zed" told "a rollback, by zed" file /data "zfs rollback lab/data@before"
step "one under an export by path, too" told "a rollback under a path, by zed" file /other "zfs rollback lab/other@before"
step "clients of other exports are told nothing by it" rolled_back other /other "zfs rollback lab/data@before"
step "a received stream is told by zed" by_later_stream
step "a client with a delegation reads what is there, by zed" recalled
step "blocks of a zvol are mapped, by zed" mapped_again later
step "other events do not keep it" beside_others
step "an audit line names the dataset, and the script is silent" audited
step "the gateway lives" gateway_alive
step "zed is not disturbed where no gateway runs" without_a_gateway
