# title: exports follow a pattern of datasets: created, renamed, unmounted, destroyed under clients
# seconds: 600
# ci: no

store_make zfs
zfs create lab/models
zfs create -o recordsize=1M lab/models/a
zfs create lab/models/b
zfs create lab/models/b/inner
zfs create -o mountpoint=none lab/models/hidden
chmod 777 "$STORE"/models/* "$STORE/models/b/inner"
# No scan but at the start: what follows is seen through events.
EXPORTS=("rescan_seconds = 3600
away_seconds = 60
" "[[export]]
dataset = \"lab/models/**\"
pseudo = \"/m\"
clients = [{ match = \"0.0.0.0/0\", access = \"rw\", squash = \"none\" }]
")

exported() { "$ZGATE" exports --json | python3 -c '
import json, sys
print(*sorted(e["pseudo_path"] for e in json.load(sys.stdin)))'; }
exports_are() { same "$*" "$(exported)" exports; }
of_dataset() { "$ZGATE" exports --json | python3 -c '
import json, sys
e = [e for e in json.load(sys.stdin) if e["pseudo_path"] == sys.argv[1]][0]
print(e["dataset"].get(sys.argv[2]))' "$1" "$2"; }

# What zgate reads of this release, in both forms of its output.
discovery() {
    zfs create -V 64M -o volblocksize=16K -o sync=always lab/vol
    zfs set quota=100M lab/models/b
    zpool sync lab
    sleep 1
    "$ZGATE" datasets --json >/tmp/datasets.json
    "$ZGATE" pools --json >/tmp/pools.json
    mkdir -p /tmp/old
    local program
    for program in zfs zpool; do
        cat >/tmp/old/$program <<END
#!/bin/sh
for word in "\$@"; do
    if [ "\$word" = -j ]; then echo "invalid option 'j'" >&2; exit 2; fi
done
exec $(command -v $program) "\$@"
END
    done
    chmod 755 /tmp/old/*
    PATH=/tmp/old:$PATH "$ZGATE" datasets --json >/tmp/datasets-old.json
    PATH=/tmp/old:$PATH "$ZGATE" pools --json >/tmp/pools-old.json
    cmp /tmp/datasets.json /tmp/datasets-old.json
    cmp /tmp/pools.json /tmp/pools-old.json
    python3 - <<'END'
import json, subprocess
found = {d["name"]: d for d in json.load(open("/tmp/datasets.json"))}
listed = subprocess.run(["zfs", "get", "-r", "-Hp", "-o", "name,property,value",
    "-t", "filesystem,volume", "guid,sync,recordsize,volblocksize,quota", "lab"],
    capture_output=True, text=True, check=True).stdout
keys = {"guid": "guid", "sync": "sync", "recordsize": "recordsize_bytes",
        "volblocksize": "volblocksize_bytes", "quota": "quota_bytes"}
checked = 0
for line in listed.splitlines():
    name, prop, value = line.split("\t")
    if prop in keys and value not in ("-", "0"):
        assert str(found[name][keys[prop]]) == value, (line, found[name])
        checked += 1
assert checked >= 15, checked
assert found["lab/vol"]["type"] == "volume" and found["lab/vol"]["volsize_bytes"] == 64 << 20
pool, = json.load(open("/tmp/pools.json"))
assert pool["name"] == "lab" and pool["health"] == "ONLINE" and pool["guid"] > 0, pool
assert [v["class"] for v in pool["vdevs"]] == ["data"], pool
print(checked, "values agree")
END
    zfs destroy lab/vol
}
classes() {
    truncate -s 128M /tmp/f1 /tmp/f2 /tmp/f3 /tmp/f4 /tmp/f5
    zpool create -f two mirror /tmp/f1 /tmp/f2 special /tmp/f3 log /tmp/f4 cache /tmp/f5
    "$ZGATE" pools | tee /tmp/two
    grep -q "SLOG: /tmp/f4" /tmp/two && grep -q "L2ARC: /tmp/f5" /tmp/two
    grep -q "special: /tmp/f3" /tmp/two && grep -q "data: mirror-0 of 2 disks" /tmp/two
    PATH=/tmp/old:$PATH "$ZGATE" pools >/tmp/two-old
    # What is used grows between the two: ZFS writes its own things.
    sed -i 's/, [^,]* used ([0-9]* %)//' /tmp/two /tmp/two-old
    cmp /tmp/two /tmp/two-old
    zpool destroy two
}
work() { echo "$1" >"$2/file" && sync "$2/file" && same "$1" "$(cat "$2/file")"; }
begins() {
    exports_are /m/a /m/b
    client_mount 4.2 /mnt/a "" /m/a
    client_mount 3 /mnt/b3 "" /m/b
    work one /mnt/a
    work two /mnt/b3
    echo deep >/mnt/b3/inner/x
    same deep "$(cat "$STORE/models/b/inner/x")"
    same 1048576 "$(of_dataset /m/a recordsize_bytes)"
}
created() {
    zfs create lab/models/c
    chmod 777 "$STORE/models/c"
    eventually 20 exports_are /m/a /m/b /m/c
    client_mount 4.1 /mnt/c "" /m/c
    work new /mnt/c
}
# Idle, but with a file open at the client.
renamed() {
    exec 6<>/mnt/a/held
    echo before >&6
    sync /mnt/a/held
    eventually 30 zfs rename lab/models/a lab/models/z
    eventually 20 exports_are /m/b /m/c /m/z
    work three /mnt/a
    echo after >&6
    exec 6>&-
    same "before
after" "$(cat "$STORE/models/z/held")"
    client_mount 4.2 /mnt/z "" /m/z
    same three "$(cat /mnt/z/file)"
    umount /mnt/z
}
# A client that writes all the time.
in_use() {
    (for i in $(seq 1 400); do echo "$i" && sleep 0.05 || exit 1; done >/mnt/a/counted) &
    local writer=$!
    (while :; do echo x >>/mnt/a/busy && sync /mnt/a/busy || exit 1; sleep 0.2; done) &
    local syncer=$!
    sleep 3
    refused busy zfs unmount lab/models/z
    "$ZGATE" release lab/models/z --json | tee /tmp/released
    grep -q '"free": true' /tmp/released
    zfs rename lab/models/z lab/models/y
    eventually 20 exports_are /m/b /m/c /m/y
    wait $writer || fail "the writer failed"
    kill -0 $syncer || fail "the other writer failed"
    kill $syncer
    wait $syncer || true
    sync /mnt/a/counted
    same 400 "$(wc -l <"$STORE/models/y/counted")" "lines written over the rename"
}
unmounted() {
    # Nothing unwritten may be left: to write it would wait, too.
    drop_caches
    eventually 30 zfs unmount lab/models/y
    cat /mnt/a/file >/tmp/waited &
    local reader=$!
    sleep 5
    kill -0 $reader || fail "the reader does not wait"
    same 0 "$(ls -A "$STORE/models/y" | wc -l)" "nothing below the mount point"
    zfs mount lab/models/y
    wait $reader || fail "the reader failed"
    same three "$(cat /tmp/waited)"
    work four /mnt/a
}
destroyed() {
    eventually 30 zfs destroy lab/models/y
    eventually 20 exports_are /m/b /m/c
    drop_caches
    refused "Stale\|No such" cat /mnt/a/file
    refused "Stale\|No such" sh -c 'echo x >/mnt/a/new'
    zfs create lab/models/y
    chmod 777 "$STORE/models/y"
    eventually 20 exports_are /m/b /m/c /m/y
    refused "Stale\|No such" cat /mnt/a/file
    umount -l /mnt/a
    client_mount 4.2 /mnt/again "" /m/y
    work anew /mnt/again
}
unsafe_writes() {
    zfs set sync=disabled lab/models/c
    disabled() { of_dataset /m/c warning | grep '^sync=disabled'; }
    eventually 20 disabled
    "$ZGATE" status >/tmp/status
    grep -q 'export /m/c: sync=disabled' /tmp/status
    "$ZGATE" mount-hint /m/c | tee /tmp/hint
    grep -q 'note.*sync=disabled' /tmp/hint
    same None "$(of_dataset /m/b warning)"
}
events_again() {
    pgrep -f 'zpool events' | xargs kill
    sleep 3
    eventually 20 pgrep -f 'zpool events'
    zfs create lab/models/late
    eventually 20 exports_are /m/b /m/c /m/late /m/y
}
ends() {
    gateway_stop
    eventually 10 events_gone
}
events_gone() { ! pgrep -f 'zpool events'; }
step "pools and datasets of this release are read, in both forms" discovery
step "special, SLOG and L2ARC devices are told apart" classes
need "the gateway serves" gateway_start
need "every mounted match is exported" begins
step "created: exported" created
step "renamed: another place, the same handles and open files" renamed
step "renamed under load, once let go of: clients notice nothing" in_use
step "unmounted: clients wait until it is mounted" unmounted
step "destroyed: stale, and a new one is another" destroyed
step "sync=disabled is named" unsafe_writes
step "events that end are begun again" events_again
step "the gateway lives" gateway_alive
step "nothing is left running" ends
