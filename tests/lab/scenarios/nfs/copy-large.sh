# title: a large file is copied over each version and comes back the same
# seconds: 400
# ci: no

MEBIBYTES=96
store_make "$(best_store)"
need "the gateway serves" gateway_start
pattern /tmp/source "$MEBIBYTES"
sum=$(sha256sum </tmp/source)

write_large() {
    local began
    began=$(now)
    dd if=/tmp/source of="$1/large" bs=1M conv=fsync status=none
    figure "v$2 write" "$(echo "$MEBIBYTES $(since "$began")" | awk '{ printf "%.1f", $1 / $2 }')" MiB/s
}
read_large() {
    local began
    began=$(now)
    same "$sum" "$(dd if="$1/large" bs=1M status=none | sha256sum)" "checksum at the client"
    figure "v$2 read and checksum" "$(echo "$MEBIBYTES $(since "$began")" | awk '{ printf "%.1f", $1 / $2 }')" MiB/s
}
stored() { same "$sum" "$(sha256sum <"$STORE/large")" "checksum at the store"; }
direct() {
    dd if=/tmp/source of="$1/direct" bs=1M count=16 oflag=direct status=none
    cmp -n $((16 << 20)) /tmp/source "$1/direct"
    dd if="$1/direct" bs=64k iflag=direct status=none | cmp -n $((16 << 20)) /tmp/source -
}
odd_places() {
    python3 - "$1/odd" <<'END'
import os, random, sys
random.seed(4)
model = bytearray(300_000)
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_TRUNC)
os.ftruncate(fd, len(model))
for _ in range(60):
    at, length = random.randrange(290_000), random.randrange(1, 10_000)
    data = random.randbytes(length)
    model[at:at + length] = data
    os.pwrite(fd, data, at)
    if random.random() < 0.2:
        os.fsync(fd)
os.fsync(fd)
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
assert os.pread(fd, len(model) + 1, 0) == bytes(model[:os.fstat(fd).st_size]), "content differs"
END
}

for version in 4.2 4.1 4.0 3; do
    dir=/mnt/v$version
    step "v$version mounts" client_mount "$version" "$dir" || continue
    step "v$version: write $MEBIBYTES MiB" write_large "$dir" "$version"
    step "v$version: the store has it" stored
    drop_caches
    step "v$version: read it back" read_large "$dir" "$version"
    step "v$version: direct I/O" direct "$dir"
    step "v$version: writes at odd places" odd_places "$dir"
    umount "$dir"
    rm -f "$STORE"/*
done
step "the gateway lives" gateway_alive
