# title: a pool exported and imported under clients of a followed pattern
# seconds: 400
# ci: no

store_make zfs
zfs create lab/data
zfs create lab/data/one
zfs create lab/data/two
chmod 777 "$STORE"/data/*
EXPORTS=("rescan_seconds = 3600
away_seconds = 45
" "[[export]]
dataset = \"lab/data/*\"
pseudo = \"/d\"
clients = [{ match = \"0.0.0.0/0\", access = \"rw\", squash = \"none\" }]
")
paths() { "$ZGATE" exports --json | python3 -c '
import json, sys
print(*sorted(e["pseudo_path"] for e in json.load(sys.stdin)))'; }
paths_are() { same "$*" "$(paths)" exports; }
work() { echo "$1" >"$2/file" && sync "$2/file" && same "$1" "$(cat "$2/file")"; }
mounted() {
    client_mount 4.2 /mnt/one "" /d/one
    client_mount 3 /mnt/two "" /d/two
    work a /mnt/one
    work b /mnt/two
}
idle() {
    exec 6<>/mnt/one/held
    echo kept >&6
    sync /mnt/one/held
    eventually 30 zpool export lab
    sleep 2
    paths_are /d/one /d/two
    zpool import lab
    echo more >&6
    exec 6>&-
    same "kept
more" "$(cat /mnt/one/held)"
    work c /mnt/one
    work d /mnt/two
}
under_load() {
    (for i in $(seq 1 300); do echo "$i" && sleep 0.05 || exit 1; done >/mnt/one/counted) &
    local first=$!
    (for i in $(seq 1 200); do echo "$i" >>/mnt/two/counted && sync /mnt/two/counted || exit 1; done) &
    local second=$!
    sleep 2
    refused busy zpool export lab
    "$ZGATE" release lab
    zpool export lab
    sleep 5
    kill -0 $first && kill -0 $second || fail "a writer did not wait"
    zpool import lab
    wait $first || fail "the first writer failed"
    wait $second || fail "the second writer failed"
    sync /mnt/one/counted
    same 300 "$(wc -l <"$STORE/data/one/counted")" "lines of the first"
    same 200 "$(wc -l <"$STORE/data/two/counted")" "lines of the second"
}
# Longer than clients are told to wait.
long_gone() {
    eventually 30 zpool export lab
    eventually 90 paths_are
    drop_caches
    refused "Stale\|No such" cat /mnt/two/file
    zpool import lab
    eventually 30 paths_are /d/one /d/two
    eventually 60 work e /mnt/two
    umount -l /mnt/one
    client_mount 4.1 /mnt/again "" /d/one
    work f /mnt/again
}
restarted() {
    gateway_kill
    gateway_start
    eventually 60 work g /mnt/again
    eventually 60 work h /mnt/two
}
need "the gateway serves" gateway_start
need "both are exported" mounted
step "exported while idle, with a file open: clients go on" idle
step "exported under load, once let go of: clients go on" under_load
step "away for long: stale, and back" long_gone
step "the same handles after a restart" restarted
step "the gateway lives" gateway_alive
