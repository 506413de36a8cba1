# title: a machine cut off longer than its lease loses its locks, and knows it
# seconds: 600
# machines: 2

. /lab/guest/peer.sh
# Long enough for a short absence even of machines that run slowly.
LEASE_SECONDS=45
store_make "$(best_store)"
need "the gateway serves" gateway_start
need "the second machine is there" b_ready
LOCKS=/lab/guest/locks.py

try() { local code=0; python3 $LOCKS "$@" || code=$?; return $code; }
taken() { local code=0; "$@" || code=$?; same 3 $code "attempt $*"; }
export LOCKS

conflicts() {
    local holder
    rm -f /tmp/held
    python3 $LOCKS "$1-hold" /mnt/a/locked 100 0 0 /tmp/held &
    holder=$!
    eventually 20 test -e /tmp/held
    taken on_b try "$1-try" /mnt/b/locked
    kill $holder
    wait $holder || true
    eventually 20 on_b try "$1-try" /mnt/b/locked
    holder=$(b_start hold_here "$1-hold" /mnt/b/locked)
    eventually 20 taken try "$1-try" /mnt/a/locked
    b_kill "$holder"
    eventually 20 try "$1-try" /mnt/a/locked
}
hold_here() { rm -f /tmp/held; python3 $LOCKS "$1" "$2" 100 0 0 /tmp/held; }

# hold_then_write FILE MARK: holds a lock, which MARK tells; writes under it once
# it is told to. A mark of its own: B still has those of before.
hold_then_write() {
    rm -f /tmp/go
    python3 - "$@" <<'END'
import errno, fcntl, os, sys, time
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.lockf(fd, fcntl.LOCK_EX)
os.pwrite(fd, b"mine", 0)
os.fsync(fd)
open(sys.argv[2], "w").close()
while not os.path.exists("/tmp/go"):
    time.sleep(0.2)
try:
    os.pwrite(fd, b"late", 0)
    os.fsync(fd)
    print("written")
except OSError as error:
    print("refused", errno.errorcode[error.errno])
END
}
b_holds() { on_b eventually 20 test -e "$1"; }
short_cut() {
    local job attempt
    job=$(b_start hold_then_write /mnt/b/short "/tmp/short-$1")
    b_holds "/tmp/short-$1"
    wire_cut
    # B may hold the lock by a delegation: then the attempt has to wait until B
    # can be asked for it.
    taken try posix-try /mnt/a/short &
    attempt=$!
    sleep 3
    wire_mend
    wait $attempt
    on_b touch /tmp/go
    same written "$(b_wait "$job")" "a write under a lock that was kept"
    same late "$(cat /mnt/a/short)"
}
long_cut() {
    local job began
    job=$(b_start hold_then_write /mnt/b/long "/tmp/long-$1")
    b_holds "/tmp/long-$1"
    wire_cut
    began=$(now)
    eventually 120 try posix-try /mnt/a/long
    figure "$1 lock of a machine that is away is free after" "$(since "$began")" s
    echo theirs >/mnt/a/long
    wire_mend
    on_b touch /tmp/go
    same "refused EIO" "$(b_wait "$job")" "a write under a lock that was lost"
    same theirs "$(cat /mnt/a/long)" "what the new holder wrote"
    on_b try posix-try /mnt/b/long
    on_b cat /mnt/b/long
}

STEP_SECONDS=200
for version in 4.2 4.0; do
    client_mount $version /mnt/a
    step "v$version: B mounts" b_mount $version /mnt/b || continue
    # rdma/nfs has those of 4.0 between machines.
    if [ $version = 4.2 ]; then
        step "v$version: fcntl locks between machines" conflicts posix
        step "v$version: flock between machines" conflicts flock
    fi
    step "v$version: cut off for less than a lease: the lock is kept" short_cut v$version
    wire_mend
    step "v$version: cut off for longer: the lock goes, its holder hears of it" long_cut v$version
    wire_mend
    umount /mnt/a
    on_b umount -f /mnt/b
done
step "the gateway lives" gateway_alive
