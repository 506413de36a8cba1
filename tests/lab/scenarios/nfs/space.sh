# title: space: fallocate, holes punched and found, sizes told
# seconds: 300
# ci: no

# XFS has what ZFS lacks: real preallocation.
store_make xfs
need "the gateway serves" gateway_start
need "v4.2 mounts" client_mount 4.2 /mnt/v

allocate() {
    cd /mnt/v
    fallocate -l 4M reserved
    same 4194304 "$(stat -c %s reserved)" size
    same 1 "$(stat -c '%b' reserved | awk '{ print ($1 >= 8192) }')" "blocks reserved"
    same 1 "$(stat -c '%b' "$STORE/reserved" | awk '{ print ($1 >= 8192) }')" "blocks reserved at the store"
    fallocate -o 4M -l 1M reserved
    same 5242880 "$(stat -c %s reserved)" "size after more"
}
keep_size() { cd /mnt/v && touch kept && refused "not supported\|unsupported" fallocate -n -l 1M kept; }
punch() {
    cd /mnt/v
    pattern full 4
    sync full
    cp full /tmp/full
    local before
    before=$(stat -c %b "$STORE/full")
    fallocate -p -o 1M -l 1M full
    same 4194304 "$(stat -c %s full)" "size after the hole"
    dd if=/dev/zero of=/tmp/full bs=1M seek=1 count=1 conv=notrunc status=none
    drop_caches
    cmp full /tmp/full
    sync -f "$STORE"
    same 2048 $((before - $(stat -c %b "$STORE/full"))) "blocks given back"
}
seek() {
    python3 - /mnt/v/full <<'END'
import errno, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
M = 1 << 20
assert os.lseek(fd, 0, os.SEEK_HOLE) == M, os.lseek(fd, 0, os.SEEK_HOLE)
assert os.lseek(fd, M, os.SEEK_DATA) == 2 * M
assert os.lseek(fd, 2 * M + 5, os.SEEK_DATA) == 2 * M + 5
assert os.lseek(fd, 2 * M, os.SEEK_HOLE) == 4 * M
try:
    os.lseek(fd, 4 * M, os.SEEK_DATA)
    raise SystemExit("data beyond the end")
except OSError as error:
    assert error.errno == errno.ENXIO, error
END
}
sparse_copy() {
    cd /mnt/v
    truncate -s 64M sparse
    echo end | dd of=sparse bs=1 seek=67000000 conv=notrunc status=none
    sync sparse
    cp --sparse=auto sparse /tmp/sparse
    cmp sparse /tmp/sparse
    same 1 "$(stat -c %b /tmp/sparse | awk '{ print ($1 < 2000) }')" "the copy is sparse"
}
# Clients of Linux 6.12 have no operation for it, and say so.
zero_range() { cd /mnt/v && refused "not supported\|unsupported" fallocate -z -o 2M -l 64K full; }

step "ALLOCATE" allocate
step "beyond the end without growing is refused" keep_size
step "DEALLOCATE punches a hole" punch
step "SEEK finds data and holes" seek
step "cp keeps a sparse file sparse" sparse_copy
step "zeroing a range is refused" zero_range
umount /mnt/v

if [ -d /sys/module/zfs ]; then
    punch_zfs() {
        cd /mnt/z
        pattern full 4
        sync full
        fallocate -p -o 1M -l 1M full
        same 0 "$(od -An -tx1 -j 1M -N 1M full | tr -d ' 0*\n' | wc -c)" "bytes not zero"
    }
    gateway_stop
    umount "$STORE"
    store_make zfs
    rm -rf "$STATE_DIR"
    step "the gateway serves ZFS" gateway_start
    step "v4.2 mounts" client_mount 4.2 /mnt/z
    step "ZFS: a hole is punched" punch_zfs
fi
step "the gateway lives" gateway_alive
