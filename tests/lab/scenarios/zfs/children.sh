# title: datasets mounted below an exported one are part of it, each with its own fsid
# seconds: 300
# ci: no

[ -d /sys/module/zfs ] || skip "this image has no ZFS"
store_make zfs
for dataset in models models/a models/a/inner models/a/inner/most; do
    zfs create "lab/$dataset"
    echo "of $dataset" >"$STORE/$dataset/file"
    chmod 1777 "$STORE/$dataset"
done
EXPORTS=("[[export]]
dataset = \"lab/models/**\"
pseudo = \"/m\"
snapshots_visible = true
clients = [{ match = \"0.0.0.0/0\", access = \"rw\", squash = \"none\" }]
")
export_add "$STORE/models" /path
need "the gateway serves" gateway_start

# A match below another match is no export of its own.
one_export() {
    "$ZGATE" exports
    same 1 "$("$ZGATE" exports --json | jq '[.[] | select((.pseudo_path // .pseudo) | startswith("/m/"))] | length')" exports
}
fsids_differ() {
    local base=$1 one two three
    one=$(stat -c %d "$base") two=$(stat -c %d "$base/inner/.") three=$(stat -c %d "$base/inner/most/.")
    echo "fsids: $one $two $three"
    [ "$one" != "$two" ] && [ "$two" != "$three" ] && [ "$one" != "$three" ]
}
crossed() {
    same "of models/a" "$(cat "$1/file")"
    same "of models/a/inner" "$(cat "$1/inner/file")"
    same "of models/a/inner/most" "$(cat "$1/inner/most/file")"
    fsids_differ "$1"
    echo new >"$1/inner/most/new"
    same new "$(cat "$STORE/models/a/inner/most/new")"
    # From one file system to another: copied, as mv does anywhere.
    mv "$1/inner/most/new" "$1/inner/moved"
    same new "$(cat "$STORE/models/a/inner/moved")"
    refused "cross-device" python3 -c "import os; os.rename('$1/inner/moved', '$1/moved')"
    rm "$1/inner/moved"
}
later() {
    zfs create lab/models/a/later
    chmod 1777 "$STORE/models/a/later"
    echo late >"$STORE/models/a/later/file"
    eventually 20 test -e "$1/later/file"
    same late "$(cat "$1/later/file")"
    echo x >"$1/later/x"
    same x "$(cat "$STORE/models/a/later/x")"
}
gone() {
    umount "$1/later" 2>/dev/null || true
    drop_caches
    eventually 40 zfs destroy lab/models/a/later
    empty() { [ -z "$(ls -A "$1/later" 2>/dev/null)" ]; }
    eventually 30 empty "$1"
    same "of models/a" "$(cat "$1/file")"
}
for version in 4.2 3; do
    client_mount $version /mnt/d "" /m/a
    step "v$version: an export that is a dataset: children are there" crossed /mnt/d
    [ $version != 4.2 ] || step "v$version: one made later is found" later /mnt/d
    [ $version != 4.2 ] || step "v$version: one that is destroyed is gone" gone /mnt/d
    umount -R /mnt/d
    client_mount $version /mnt/p "" /path
    step "v$version: an export that is a path: children are there" crossed /mnt/p/a
    umount -R /mnt/p
done
step "a match below a match is part of it" one_export
step "the gateway lives" gateway_alive
