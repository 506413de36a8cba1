# title: kill -9 of the gateway under a mounted disk; resize seen after a rescan
# seconds: 300

. /lab/guest/iscsi.sh
store_make "$(best_store)"
iscsi_config "$STORE/disk.img" 'size = "512MiB"'
need "the gateway serves" gateway_start
need "the initiator runs" initiator_start
need "discovery" portal_discover
need "login" portal_login
DISK=$(iscsi_disk)

mounted() { mkfs.xfs -q -f "$DISK" && mkdir -p /mnt/disk && mount "$DISK" /mnt/disk; }
survives() {
    python3 /lab/guest/writer.py /mnt/disk/written /tmp/notes 40 &
    local writer=$!
    sleep 4
    gateway_kill
    sleep 2
    gateway_start
    wait $writer || fail "the writer failed"
    figure "longest fsync across a restart" "$(cut -d' ' -f2 /tmp/notes)" s
    figure "records" "$(cut -d' ' -f1 /tmp/notes)" records
    umount /mnt/disk
    xfs_repair -n "$DISK"
    mount "$DISK" /mnt/disk
    python3 - <<'END'
noted = int(open("/tmp/notes").read().split()[0])
data = open("/mnt/disk/written", "rb").read()
for n in range(noted):
    assert data[n * 4096:n * 4096 + 9] == b"%08d:" % n, f"record {n} of {noted} is lost"
assert noted > 10, f"only {noted} records"
END
}
resized() {
    "$ZGATE" lun resize --help >/dev/null
    "$ZGATE" lun resize "$TARGET" 0 768MiB
    echo 1 >"/sys/block/$(basename "$DISK")/device/rescan"
    same $((768 << 20)) "$(blockdev --getsize64 "$DISK")" "capacity after the rescan"
    xfs_growfs /mnt/disk
    same 1 "$(stat -f -c '%b %S' /mnt/disk | awk '{ print ($1 * $2 > 650000000) }')" "file system grown"
}
need "mkfs.xfs and mount" mounted
STEP_SECONDS=150
step "a writer across kill -9" survives
step "resize" resized
umount /mnt/disk
step "logout" portal_logout
