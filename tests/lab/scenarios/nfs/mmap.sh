# title: mapped files: written, read, private, shared between clients after close
# seconds: 200
# ci: no

store_make "$(best_store)"
need "the gateway serves" gateway_start

mapped() {
    python3 - "$1/mapped" <<'END'
import mmap, os, random, sys
random.seed(1)
size = 4 << 20
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_TRUNC)
os.ftruncate(fd, size)
view = mmap.mmap(fd, size)
model = bytearray(size)
for _ in range(200):
    at = random.randrange(size - 5000)
    data = random.randbytes(random.randrange(1, 5000))
    view[at:at + len(data)] = data
    model[at:at + len(data)] = data
view.flush()
assert os.pread(fd, size, 0) == bytes(model), "read differs from what was mapped"
private = mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE)
private[0:4] = b"mine"
assert os.pread(fd, 4, 0) == bytes(model[:4]), "a private change is seen"
os.pwrite(fd, b"pwritten", 100)
assert view[100:108] == b"pwritten", "the map does not show a write"
model[100:108] = b"pwritten"
view.flush()
view.close()
os.fsync(fd)
os.close(fd)
open("/tmp/model", "wb").write(model)
END
}
elsewhere() { cmp /tmp/model "$1/mapped"; }
stored() { cmp /tmp/model "$STORE/mapped"; }
executed() {
    cp /bin/true "$1/program"
    "$1/program"
    rm "$1/program"
}
# Execute permission is enough to run a program, not to read it.
executed_by_another() {
    cp /bin/true "$1/private"
    chmod 0711 "$1/private"
    # The client must ask for the pages again, as this user.
    echo 3 >/proc/sys/vm/drop_caches
    as 1001 "$1/private"
    refused "denied" as 1001 cat "$1/private"
    chmod 0700 "$1/private"
    refused "denied" as 1001 "$1/private"
    rm "$1/private"
}

for version in 4.2 4.0 3; do
    dir=/mnt/v$version
    step "v$version mounts" client_mount "$version" "$dir" || continue
    step "v$version: shared and private maps" mapped "$dir"
    step "v$version: the store has it" stored
    client_b_mount "$version" /mnt/b
    step "v$version: another client sees it" elsewhere /mnt/b
    step "v$version: a program runs from there" executed "$dir"
    step "v$version: another user runs a program that it may not read" executed_by_another "$dir"
    umount /mnt/b "$dir"
done
