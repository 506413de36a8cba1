# title: a full file system says so at the client, and recovers
# seconds: 600
# ci: no

# What a full ZFS pool does without any gateway, and a client therefore sees:
# - What was freed can be used again after some transaction groups, not at once;
#   until then even a new name is refused. `room` waits for it.
# - An unlink is let through, but a change of times is not. A client sets the times
#   of a file it wrote under a delegation before it removes the file; `removed`
#   tries again, and how long it took is a figure.

fill() {
    eventually 60 room "$1"
    cd "$1"
    echo keep >kept
    sync kept
    refused "No space left" dd if=/dev/urandom of=big bs=1M count=400 conv=fsync status=none
    refused "No space left" dd if=/dev/urandom of=big2 bs=1M count=64 conv=fsync status=none
    same keep "$(cat kept)"
}
recover() {
    cd "$1"
    removed big big2
    eventually 60 room "$1"
    echo again >again
    sync again
    same again "$(cat "$STORE/again")"
    dd if=/dev/urandom of=some bs=1M count=20 conv=fsync status=none
    same 20971520 "$(stat -c %s "$STORE/some")"
}
# Each look ends a transaction group.
room() {
    sync -f "$STORE"
    [ $STORE_KIND != zfs ] || zpool sync lab
    [ "$(stat -f -c '%a' "$1")" -gt $((60 * 1048576 / $(stat -f -c %S "$1"))) ]
}
close_says_it() {
    python3 - "$1/late" <<'END'
import errno, os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
try:
    for _ in range(400):
        os.write(fd, os.urandom(1 << 20))
    os.fsync(fd)
    raise SystemExit("400 MiB fit")
except OSError as error:
    assert error.errno == errno.ENOSPC, error
END
    removed "$1/late"
}
removed() {
    local began
    began=$(now)
    rm -f "$@" || eventually 60 rm -f "$@"
    figure "$STORE_KIND: removed from a full file system after" "$(since "$began")" s
}
reserve() {
    cd "$1"
    rm -f some again
    refused "No space left" fallocate -l 1G reserved
    rm -f reserved
}

for kind in zfs xfs; do
    [ $kind != zfs ] || [ -d /sys/module/zfs ] || continue
    store_make $kind 320
    step "$kind: the gateway serves" gateway_start || continue
    for version in 4.2 3; do
        dir=/mnt/v$version
        client_mount $version $dir
        step "$kind v$version: ENOSPC reaches dd" fill $dir
        step "$kind v$version: room again after rm" recover $dir
        step "$kind v$version: ENOSPC at write or fsync" close_says_it $dir
        rm -f "$STORE"/*
        sync -f "$STORE"
        umount $dir
    done
    [ $kind != xfs ] || { client_mount 4.2 /mnt/f; step "xfs: fallocate beyond the room" reserve /mnt/f; umount /mnt/f; }
    step "$kind: the gateway lives" gateway_alive
    gateway_stop
    umount "$STORE" || zfs unmount "$STORE"
    [ $kind != zfs ] || zpool destroy -f lab
    rm -rf "$STATE_DIR"
done
