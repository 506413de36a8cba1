# title: zgate snapshot create, list, prune, diff
# seconds: 600
# ci: no

store_make zfs
[ "$STORE_KIND" = zfs ] || skip "this image has no ZFS"
zfs create lab/a && zfs create lab/a/b && zfs create -s -V 64M lab/a/vol
zgate() { "$ZGATE" "$@"; }

created() {
    echo one >"$STORE/a/file"
    zgate snapshot create lab/a@first
    zfs list lab/a@first
    zgate snapshot create -r lab/a@tree 2>/tmp/said
    # One moment: one transaction group.
    same 1 "$(zfs get -Hp -o value createtxg lab/a@tree lab/a/b@tree lab/a/vol@tree | sort -u | wc -l)" "transaction groups"
    grep -q "no LUN was flushed, because no gateway answers" /tmp/said
    zgate snapshot create lab/a/b --json | jq -e '.created | test("^lab/a/b@zgate_[-0-9]+_[:0-9]+_manual$")'
    refused "already exists" zgate snapshot create lab/a@first
    # All or none.
    refused "already exists" zgate snapshot create -r lab/a/b@tree
    refused "does not exist" zgate snapshot create lab/none@x
    refused "is not allowed" zgate snapshot create 'lab/a@x;y'
    refused "letter" zgate snapshot create -- -r@x
}
listed() {
    zfs hold keep lab/a@first
    zfs clone lab/a@tree lab/copy
    zgate snapshot list -r lab/a
    same 5 "$(zgate snapshot list -r lab/a --json | jq length)" "snapshots"
    same 2 "$(zgate snapshot list lab/a --json | jq length)" "snapshots of one"
    same 1 "$(zgate snapshot list lab/a --json | jq '.[0].holds')" "holds"
    same lab/copy "$(zgate snapshot list lab/a --json | jq -r '.[1].clones[0]')" "clone"
    zgate snapshot list lab/a | grep '1 holds'
}
# Six hours of hourly snapshots of a tree, one held, one cloned, others not ours.
pruned() {
    for hour in 1 2 3 4 5 6; do zfs snapshot -r "lab/a@zgate_2026-01-01_0$hour:00:00_hourly"; done
    zfs snapshot lab/a@autosnap_2026-01-01_01:00:00_hourly
    zfs hold keep lab/a@zgate_2026-01-01_01:00:00_hourly
    zfs clone lab/a/b@zgate_2026-01-01_02:00:00_hourly lab/copy2
    cat >/tmp/zgate.toml <<END
[[snapshot]]
dataset = "lab/a"
recursive = true
hourly = 2
END
    zgate snapshot prune --config /tmp/zgate.toml --dry-run
    same 10 "$(zgate snapshot prune --config /tmp/zgate.toml --dry-run --json | jq '.schedules[0].done.pruned | length')" "would destroy"
    same 6 "$(zfs list -Ht snapshot -o name lab/a | grep -c _hourly$ | awk '{ print $1 - 1 }')" "nothing gone yet"
    zgate snapshot prune --config /tmp/zgate.toml >/tmp/said
    cat /tmp/said
    grep -q "left lab/a@zgate_2026-01-01_01:00:00_hourly: it is held" /tmp/said
    grep -q "left lab/a/b@zgate_2026-01-01_02:00:00_hourly: it has clones" /tmp/said
    zfs list lab/a@first lab/a@tree lab/a@autosnap_2026-01-01_01:00:00_hourly
    same "05 06 " "$(zfs list -Ht snapshot -o name lab/a/vol | sed -n 's/.*zgate_2026-01-01_\(..\).*/\1/p' | tr '\n' ' ')" "left of the volume"
    same "02 05 06 " "$(zfs list -Ht snapshot -o name lab/a/b | sed -n 's/.*zgate_2026-01-01_\(..\).*/\1/p' | tr '\n' ' ')" "left of b"
    refused "has no \[\[snapshot\]\] for lab/z" zgate snapshot prune --config /tmp/zgate.toml lab/z
}
compared() {
    local dir=$STORE/a
    mkdir "$dir/dir" && echo x >"$dir/old" && echo y >"$dir/gone" && ln -s x "$dir/link"
    zfs snapshot lab/a@before
    mv "$dir/old" "$dir/new name"
    rm "$dir/gone"
    echo z >>"$dir/file"
    printf x >"$dir/tab	and ä"
    ln "$dir/file" "$dir/second"
    mkfifo "$dir/pipe"
    zfs snapshot lab/a@after
    zgate snapshot diff lab/a@before lab/a@after
    zgate snapshot diff lab/a@before lab/a@after --json >/tmp/diff.json
    local path=$STORE/a
    jq -e --arg p "$path/old" --arg n "$path/new name" '.[] | select(.change == "renamed" and .path == $p and .new_path == $n and .type == "file")' /tmp/diff.json
    jq -e --arg p "$path/gone" '.[] | select(.change == "removed" and .path == $p)' /tmp/diff.json
    jq -e --arg p "$path/tab	and ä" '.[] | select(.change == "created" and .path == $p)' /tmp/diff.json
    jq -e --arg p "$path/pipe" '.[] | select(.type == "fifo" and .path == $p)' /tmp/diff.json
    jq -e '.[] | select(.link_change == 1)' /tmp/diff.json
    jq -e --arg p "$path/" '.[] | select(.change == "modified" and .path == $p and .type == "directory")' /tmp/diff.json
    printf 'bad\377name' >/tmp/name && touch "$dir/$(cat /tmp/name)"
    zgate snapshot diff lab/a@after --json | jq -e '.[] | select(.path | type == "object") | .path.bytes | index(255)'
}

step "created: one, a tree in one moment, a zvol without a gateway" created
step "listed with holds and clones" listed
step "pruned: ours only, held and cloned ones stay" pruned
step "compared, whatever the names are" compared
