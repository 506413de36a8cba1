# title: byte-range locks and flock between processes and between two clients
# seconds: 400

store_make "$(best_store)"
need "the gateway serves" gateway_start
LOCKS=/lab/guest/locks.py

taken() { local code=0; python3 $LOCKS "$@" || code=$?; same 3 $code "attempt $*"; }
granted() { python3 $LOCKS "$@"; }

# $1 holds, $2 is another mount; the first argument names the kind of lock.
conflict() {
    local kind=$1 a=$2 b=$3 holder
    rm -f /tmp/held
    python3 $LOCKS "$kind-hold" "$a/locked" 60 0 0 /tmp/held &
    holder=$!
    eventually 20 test -e /tmp/held
    taken "$kind-try" "$b/locked"
    kill $holder
    wait $holder || true
    eventually 20 granted "$kind-try" "$b/locked"
}
ranges() {
    local a=$1 b=$2 holder
    rm -f /tmp/held
    python3 $LOCKS posix-hold "$a/locked" 60 100 50 /tmp/held &
    holder=$!
    eventually 20 test -e /tmp/held
    taken posix-try "$b/locked" 140 5
    granted posix-try "$b/locked" 0 100
    granted posix-try "$b/locked" 150 10
    taken posix-try "$b/locked" 0 0
    kill $holder
    wait $holder || true
}
waits() {
    local a=$1 b=$2 began
    rm -f /tmp/held
    python3 $LOCKS posix-hold "$a/locked" 3 0 0 /tmp/held &
    eventually 20 test -e /tmp/held
    began=$(now)
    python3 $LOCKS posix-hold "$b/locked" 0
    figure "v$3 wait for a lock held 3 s" "$(since "$began")" s
    wait
}
# A lock ends with the process, whatever else has the file open.
unlocked_by_exit() {
    local a=$1 b=$2 holder
    exec 5<>"$a/locked"
    python3 $LOCKS posix-hold "$a/locked" 1
    granted posix-try "$b/locked"
    exec 5>&-
}
visible() {
    local a=$1
    (
        flock -x 9
        echo inside >"$a/guarded"
    ) 9>"$a/guard"
    same inside "$(cat "$a/guarded")"
}

for version in 4.2 4.1 4.0; do
    a=/mnt/a$version
    b=/mnt/b$version
    step "v$version: two clients mount" client_mount "$version" $a || continue
    step "v$version: the second one" client_b_mount "$version" $b || continue
    step "v$version: fcntl locks exclude the other client" conflict posix $a $b
    step "v$version: flock excludes the other client" conflict flock $a $b
    step "v$version: ranges" ranges $a $b
    step "v$version: a waiter gets the lock" waits $a $b "$version"
    step "v$version: the lock ends with its process" unlocked_by_exit $a $b
    step "v$version: flock(1)" visible $a
    umount $a $b
done

# Both are one client to the gateway, which therefore may give one of them a
# delegation that the other does not end; under a delegation the kernel keeps
# locks to itself. A second client that has the file open for writing makes
# delegations impossible: the locks come to the gateway.
one_machine() {
    client_mount 4.2 /mnt/one nosharecache
    client_mount 4.2 /mnt/two nosharecache
    client_b_mount 4.2 /mnt/b
    exec 5<>/mnt/b/locked
    conflict posix /mnt/one /mnt/two
    conflict flock /mnt/one /mnt/two
    exec 5>&-
    umount /mnt/one /mnt/two /mnt/b
}
step "two mounts of one machine (nosharecache)" one_machine
step "the gateway lives" gateway_alive
