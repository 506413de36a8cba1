# title: ZFS snapshots are read over NFS
# seconds: 240
# ci: no

store_make zfs
export_add "$STORE" /export none "snapshots_visible = true"
need "the gateway serves" gateway_start

old_content() {
    local dir=$1
    echo old >"$dir/file"
    mkdir -p "$dir/sub"
    echo deep >"$dir/sub/deep"
    sync "$dir/file" "$dir/sub/deep"
    zfs snapshot "lab@$2"
    echo new >"$dir/file"
    rm "$dir/sub/deep"
    sync "$dir/file"
    same "$2" "$(ls "$dir/.zfs/snapshot" | grep -x "$2")" "snapshot listed"
    same old "$(cat "$dir/.zfs/snapshot/$2/file")" "content in the snapshot"
    same deep "$(cat "$dir/.zfs/snapshot/$2/sub/deep")" "a removed file"
    same new "$(cat "$dir/file")" "content now"
}
# Version 3 clients ask ACCESS first and say EACCES themselves.
read_only() { refused "Read-only\|denied" sh -c "echo x >'$1/.zfs/snapshot/$2/file'" && refused "Read-only\|denied" touch "$1/.zfs/snapshot/$2/x"; }
appears() {
    zfs snapshot "lab@later-$2"
    eventually 70 test -e "$1/.zfs/snapshot/later-$2/file"
}
goes() {
    exec 4<"$1/.zfs/snapshot/$2/file"
    exec 4<&-
    sleep 1
    # Clients keep a delegation they have no use for until they renew their lease.
    eventually $((LEASE_SECONDS + 30)) zfs destroy "lab@$2"
    eventually 70 gone "$1/.zfs/snapshot/$2/file"
}
gone() { ! cat "$1" 2>/dev/null; }
apart() {
    # tar and find tell file systems apart by device and inode.
    local now then
    now=$(stat -c '%d:%i' "$1/file")
    then=$(stat -c '%d:%i' "$1/.zfs/snapshot/$2/file")
    [ "$now" != "$then" ] || fail "the live file and the one in the snapshot are both $now"
}

for version in 4.2 3; do
    dir=/mnt/v$version
    client_mount $version $dir
    snapshot=before-$version
    step "v$version: old content is read" old_content $dir $snapshot
    step "v$version: snapshots are read-only" read_only $dir $snapshot
    step "v$version: live and old file are told apart" apart $dir $snapshot
    step "v$version: a new snapshot appears" appears $dir $version
    step "v$version: a destroyed one goes" goes $dir $snapshot
    umount $dir
done
hidden() {
    EXPORTS=()
    gateway_stop
    gateway_start
    client_mount 4.2 /mnt/hidden
    refused "No such file" ls /mnt/hidden/.zfs/snapshot
}
step "not visible unless the export says so" hidden
step "the gateway lives" gateway_alive
