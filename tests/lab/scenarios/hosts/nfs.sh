# title: a second machine mounts every version over a wire, writes, reads, and sees what the first one wrote
# seconds: 400
# machines: 2
# ci: no

. /lab/guest/peer.sh
MEBIBYTES=32
store_make "$(best_store)"
need "the gateway serves" gateway_start
need "the second machine is there" b_ready

write_and_sum() {
    local began
    [ -e /tmp/source ] || pattern /tmp/source $MEBIBYTES
    began=$(now)
    dd if=/tmp/source of="$1/from-b" bs=1M conv=fsync status=none
    figure "v$2 write over the wire" "$(echo "$MEBIBYTES $(since "$began")" | awk '{ printf "%.1f", $1 / $2 }')" MiB/s
    drop_caches
    began=$(now)
    cmp /tmp/source "$1/from-b"
    figure "v$2 read over the wire" "$(echo "$MEBIBYTES $(since "$began")" | awk '{ printf "%.1f", $1 / $2 }')" MiB/s
    sha256sum </tmp/source
}
export MEBIBYTES
b_writes() {
    local sum
    sum=$(on_b write_and_sum "$1" "$2")
    same "$sum" "$(sha256sum <"$STORE/from-b")" "checksum at the store"
}
# Close-to-open: what one machine closed, the other sees at its next open.
to_and_fro() {
    local n
    for n in 1 2 3; do
        echo "a $n" >"$1/ball"
        same "a $n" "$(on_b cat "$2/ball")" "seen by B in round $n"
        on_b put "$2/ball" "b $n"
        same "b $n" "$(cat "$1/ball")" "seen by A in round $n"
    done
    mkdir "$1/dir$3"
    on_b mv "$2/ball" "$2/dir$3/ball"
    same "b 3" "$(cat "$1/dir$3/ball")" "moved by B"
}
put() { echo "$2" >"$1"; }
several() {
    b_mount 4.2 /mnt/n nconnect=4
    on_b dd if=/dev/zero of=/mnt/n/zero bs=1M count=16 conv=fsync status=none
    same 4 "$(ss -Htn state established "( sport = :2049 )" dst $B_ADDRESS | wc -l)" "connections of B"
    on_b umount /mnt/n
}

for version in 4.2 4.1 4.0 3; do
    dir=/mnt/v$version
    step "v$version: B mounts" b_mount "$version" "$dir" "acregmin=0,acregmax=0" || continue
    step "v$version: B writes $MEBIBYTES MiB and reads them back" b_writes "$dir" "$version"
    step "v$version: A mounts too" client_mount "$version" /mnt/a "acregmin=0,acregmax=0"
    step "v$version: to and fro" to_and_fro /mnt/a "$dir" "$version"
    umount /mnt/a
    on_b umount "$dir"
done
step "four connections of one mount" several
step "the gateway lives" gateway_alive
