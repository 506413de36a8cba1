# title: server-side copies: copy_file_range, reflinks, across files and clients
# seconds: 300
# ci: no

copies() {
    python3 - "$1" <<'END'
import os, sys
os.chdir(sys.argv[1])
M = 1 << 20
data = os.urandom(6 * M + 123)
open("from", "wb").write(data)
source, target = os.open("from", os.O_RDONLY), os.open("to", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
done = 0
while done < len(data):
    moved = os.copy_file_range(source, target, len(data) - done)
    assert moved > 0, f"copy ends at {done}"
    done += moved
os.fsync(target)
assert open("to", "rb").read() == data, "copy differs"
# A piece into the middle, unaligned on both sides.
moved = os.copy_file_range(source, target, 100_000, 777, 2 * M + 5)
assert moved == 100_000, moved
expected = bytearray(data)
expected[2 * M + 5:2 * M + 5 + moved] = data[777:777 + moved]
os.fsync(target)
assert open("to", "rb").read() == bytes(expected), "piece differs"
END
}
counted() {
    # The kernel counts the operations it sent.
    local line
    line=$(grep -A 200 " on $1 " /proc/self/mountstats | awk -v op="$2:" '$1 == op { print $2; exit }')
    [ "${line:-0}" -gt 0 ] || fail "no $2 was sent"
    figure "$2 calls on $STORE_KIND" "$line" calls
}
reflink() {
    cd "$1"
    pattern original 8
    sync original
    sync -f "$STORE"
    cp --reflink=always original cloned
    cmp original cloned
    echo changed | dd of=cloned conv=notrunc status=none
    sync cloned
    refused "differ" cmp original cloned
    rm original
    same changed "$(head -c 7 cloned)" "clone outlives its source"
}

for kind in xfs zfs; do
    [ $kind != zfs ] || [ -d /sys/module/zfs ] || continue
    store_make $kind
    step "$kind: the gateway serves" gateway_start || continue
    step "$kind: v4.2 mounts" client_mount 4.2 /mnt/v
    step "$kind: copy_file_range" copies /mnt/v
    step "$kind: COPY was used" counted /mnt/v COPY
    step "$kind: cp --reflink=always" reflink /mnt/v
    step "$kind: CLONE was used" counted /mnt/v CLONE
    umount /mnt/v
    gateway_stop
    umount "$STORE"
    rm -rf "$STATE_DIR"
done
