# title: kill -9 of the gateway under load: clients recover, nothing acknowledged is lost
# seconds: 500

store_make "$(best_store)"
need "the gateway serves" gateway_start
LOCKS=/lab/guest/locks.py

check_records() {
    python3 - "$1" "$2" <<'END'
import sys
noted = int(open(sys.argv[2]).read().split()[0])
data = open(sys.argv[1], "rb").read()
for n in range(noted):
    record = data[n * 4096:(n + 1) * 4096]
    assert record == b"%08d:" % n + bytes([65 + n % 26]) * 4086 + b"\n", f"record {n} of {noted} is lost"
assert noted > 10, f"only {noted} records"
print(noted, "records")
END
}
# Twice: a restart into a grace that still runs is a case of its own.
under_load() {
    local version=$1 a=$2 b=$3 writer reader holder
    pattern "$STORE/read-me" 4
    rm -f /tmp/held /tmp/notes
    python3 $LOCKS posix-hold "$a/locked" 200 0 0 /tmp/held &
    holder=$!
    # A grace period may still run: of the version before.
    eventually $((LEASE_SECONDS + 30)) test -e /tmp/held
    python3 /lab/guest/writer.py "$a/written" /tmp/notes 45 &
    writer=$!
    (while :; do cmp "$a/read-me" "$STORE/read-me" || exit 9; echo 1 >/proc/sys/vm/drop_caches; done) &
    reader=$!
    sleep 4
    gateway_kill
    gateway_start
    sleep 3
    gateway_kill
    sleep 1
    gateway_start
    wait $writer || fail "the writer failed"
    kill -0 $reader || fail "the reader failed"
    kill $reader
    wait $reader || true
    kill -0 $holder || fail "the holder of the lock died"
    figure "v$version longest fsync across two restarts" "$(cut -d' ' -f2 /tmp/notes)" s
    figure "v$version records" "$(cut -d' ' -f1 /tmp/notes)" records
    check_records "$STORE/written" /tmp/notes
    local code=0
    timeout 60 python3 $LOCKS posix-try "$b/locked" || code=$?
    same 3 $code "the held lock, tried by another client"
    kill $holder
    wait $holder || true
    eventually 30 python3 $LOCKS posix-try "$b/locked"
}
open_files() {
    local a=$1
    exec 7<>"$a/open"
    echo before >&7
    rm "$a/open"
    gateway_kill
    gateway_start
    echo after >&7
    sync "/proc/self/fd/7" || true
    same "before after" "$(xargs </proc/self/fd/7)" "a removed file that was open"
    exec 7>&-
}
orderly() {
    local a=$1 began
    echo x >"$a/orderly"
    gateway_stop
    gateway_start
    began=$(now)
    echo y >>"$a/orderly"
    figure "first write after an orderly restart" "$(since "$began")" s
    same "x y" "$(xargs <"$a/orderly")"
}
STEP_SECONDS=160
for version in 4.2 4.0; do
    client_mount "$version" /mnt/a
    client_b_mount "$version" /mnt/b
    step "v$version: writer, reader and lock across two kills" under_load "$version" /mnt/a /mnt/b
    step "v$version: a removed open file survives" open_files /mnt/a
    umount -f /mnt/a /mnt/b
done
client_mount 4.2 /mnt/a
step "an orderly restart" orderly /mnt/a
client_mount 3 /mnt/three
step "v3 goes on as if nothing had been" orderly /mnt/three
step "the gateway lives" gateway_alive
