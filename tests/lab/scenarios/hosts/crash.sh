# title: a client machine crashes with locks and open files; once it is back they are free
# seconds: 500
# machines: 2
# ci: no

. /lab/guest/peer.sh
# Longer than a boot: what frees the locks is the client's return.
LEASE_SECONDS=240
store_make "$(best_store)"
need "the gateway serves" gateway_start
need "the second machine is there" b_ready
LOCKS=/lab/guest/locks.py
export LOCKS

try() { local code=0; python3 $LOCKS "$@" || code=$?; return $code; }
taken() { local code=0; "$@" || code=$?; same 3 $code "attempt $*"; }
b_locks() {
    b_start python3 $LOCKS posix-hold /mnt/b/locked 1000 0 0 /tmp/held >/dev/null
    on_b eventually 20 test -e /tmp/held
    on_b sh -c 'echo kept >/mnt/b/written && sync /mnt/b/written'
    taken try posix-try /mnt/a/locked
}
still_locked() { taken try posix-try /mnt/a/locked; }
comes_back() {
    local began
    b_mount "$1" /mnt/b
    began=$(now)
    eventually 30 try posix-try /mnt/a/locked
    on_b try posix-try /mnt/b/locked
    figure "v$1 lock free after the client's return" "$(since "$began")" s
    same kept "$(on_b cat /mnt/b/written)" "what was synced before the crash"
}

STEP_SECONDS=220
version=4.2
client_mount $version /mnt/a
need "v$version: B mounts" b_mount $version /mnt/b
need "v$version: B holds a lock" b_locks
need "v$version: B crashes and boots again" b_crash
step "v$version: the lock is held until its lease ends or its holder returns" still_locked
step "v$version: B returns: its old locks are gone" comes_back $version
on_b umount -f /mnt/b
umount /mnt/a
step "the gateway lives" gateway_alive
