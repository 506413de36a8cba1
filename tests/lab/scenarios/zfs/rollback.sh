# title: rollbacks and received streams by hand: clients are told, and no COMMIT says of what is gone that it is stored
# seconds: 500
# ci: no

. /lab/guest/iscsi.sh
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
mapped_again() {
    told "a rollback of a zvol" disk "zfs snapshot lab/vol@before" "zfs rollback lab/vol@before"
}
step "a rollback is told" by_rollback
step "one of a dataset below the export's is told" told "a rollback below" file /data "zfs rollback lab/data/below@before"
step "one under an export by path is told" told "a rollback under a path" file /other "zfs rollback lab/other@before"
step "clients of other exports are told nothing" rolled_back other /other "zfs rollback lab/data@before"
step "a received stream is told" by_stream
step "what happens between two runs of zpool events is told" between_two_followers
step "a client with a delegation reads what is there" recalled
step "blocks of a zvol that have come back are mapped" mapped_again
step "the gateway lives" gateway_alive
