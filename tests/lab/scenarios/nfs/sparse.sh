# title: sparse files, read at any offset, through the page cache and around it, on ext4 and on ZFS
# seconds: 400

# Linux reads by READ_PLUS over NFSv4.2, and receives an answer into the room of one segment.

mkdir -p /scratch/ext
truncate -s 512M /tmp/ext.img
mkfs.ext4 -q /tmp/ext.img
mount -o loop /tmp/ext.img /scratch/ext
store_make "$(best_store)"
export_add "$STORE" /store
export_add /scratch/ext /ext
need "the gateway serves" gateway_start

# holey FILE: data, a hole, data that begins and ends within a block, a hole, data.
holey() {
    python3 - "$1" <<'PY'
import os, sys
with open(sys.argv[1], "wb") as file:
    for offset, length, byte in [(0, 4096, 1), (700_003, 50_001, 2), (3_000_000, 7, 3)]:
        file.seek(offset)
        file.write(bytes([byte]) * length)
    file.truncate(4_000_001)
    os.fsync(file.fileno())
PY
}
# equal SERVED MOUNTED: the same bytes, at offsets of all kinds.
equal() {
    python3 - "$1" "$2" <<'PY'
import os, random, sys
served = open(sys.argv[1], "rb").read()
edges = [0, 4096, 700_003, 750_004, 3_000_000, 3_000_007, len(served)]
choose = random.Random(7)
reads = 0
for flags in (os.O_DIRECT, 0):
    file = os.open(sys.argv[2], os.O_RDONLY | flags)
    for edge in edges:
        for before in (0, 1, 5, 10, 511, 4095):
            for length in (1, 9, 13, 4096, 65_537, 262_144):
                offset = max(edge - before, 0)
                found = os.pread(file, length, offset)
                assert found == served[offset:offset + length], (flags, offset, length, len(found))
                reads += 1
    for _ in range(300):
        offset, length = choose.randrange(len(served)), choose.randrange(1, 300_000)
        found = os.pread(file, length, offset)
        assert found == served[offset:offset + length], (flags, offset, length, len(found))
        reads += 1
    os.close(file)
print(reads, "reads")
PY
}
reads_equal() {
    holey "$1/holey"
    equal "$1/holey" "$2/holey"
    # What has just changed, and is on no disk yet.
    printf 'new' | dd of="$2/holey" bs=1 seek=1500000 conv=notrunc status=none
    equal "$1/holey" "$2/holey"
    cmp "$1/holey" "$2/holey"
}
sent_bytes() {
    exec 7<>/dev/tcp/127.0.0.1/9469
    printf 'GET /metrics HTTP/1.0\r\n\r\n' >&7
    timeout 5 awk '/^zgate_sent_bytes_total / { printf "%d", $2 }' <&7
    exec 7>&-
}
# An image of 256 MiB has 240 MiB of holes: on ZFS they are found after a while.
hole_is_not_sent() {
    local before sent
    head -c 16M /dev/urandom >"$1/image"
    truncate -s 256M "$1/image"
    sync -f "$1"
    drop_caches
    before=$(sent_bytes)
    cmp "$1/image" "$2/image"
    sent=$((($(sent_bytes) - before) >> 20))
    [ "$sent" -lt 96 ] || fail "$sent MiB were sent"
}
cut_off() {
    truncate -s 2500000 "$1/holey"
    drop_caches
    same "$(sha256sum <"$1/holey")" "$(sha256sum <"$2/holey")" content
}
for version in 4.2 4.1; do
    for export in ext store; do
        served=/scratch/ext
        [ $export = ext ] || served=$STORE
        dir=/mnt/$export-$version
        need "$export, v$version: mounts" client_mount "$version" "$dir" "" "/$export"
        step "$export, v$version: all reads have the bytes of the file" reads_equal "$served" "$dir"
        step "$export, v$version: the same after a truncation on the server" cut_off "$served" "$dir"
        [ $version = 4.1 ] || step "$export: holes of an image are not sent" hole_is_not_sent "$served" "$dir"
        step "$export, v$version: unmounts" umount "$dir"
    done
done
step "the gateway lives" gateway_alive
conclude
