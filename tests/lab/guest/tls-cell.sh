# One cell of the matrix of versions and protections: data, a lock, and a recall
# between two clients, each with a tlshd of its own.
# shellcheck shell=bash

# cell VERSION none|tls|mtls EXPORT [PREFIX OF THE SERVER'S PATH]
cell() {
    local version=$1 way=$2 export=$3 a=/mnt/a b=/mnt/b name="v$1 $2"
    # Not `step || …`, for the reason that `need` has.
    step "$name: both clients mount" mounts "$version" "$way" "$export"
    [ $? -eq 0 ] || { unmount $a $b; return 0; }
    step "$name: written, read back, the same at the store" data $a "$STORE$export"
    [ "$version" = 3 ] || step "$name: a lock excludes the other client" locks $a $b
    step "$name: what one changes, the other sees" seen $a $b
    [ "$version" = 3 ] || step "$name: delegations" delegations "$version" "$way"
    step "$name: unmounted" umount $a $b
}
mounts() {
    secure_mount a "$1" /mnt/a "$2" "$3"
    secure_mount b "$1" /mnt/b "$2" "$3"
    local expected=$2
    for dir in /mnt/a /mnt/b; do
        grep " $dir " /proc/mounts
        if [ "$expected" = none ]; then
            same 0 "$(grep " $dir " /proc/mounts | grep -c 'xprtsec=m\?tls')" "protected mounts"
        else
            same 1 "$(grep " $dir " /proc/mounts | grep -c "xprtsec=$expected")" "mounts with $expected"
        fi
    done
}
data() {
    [ -e /tmp/data ] || pattern /tmp/data 3
    cp /tmp/data "$1/data"
    sync "$1/data"
    cmp /tmp/data "$2/data"
    drop_caches
    cmp /tmp/data "$1/data"
    rm "$1/data"
}
locks() {
    local holder code=0
    rm -f /tmp/held
    python3 /lab/guest/locks.py posix-hold "$1/locked" 60 0 0 /tmp/held &
    holder=$!
    eventually 20 test -e /tmp/held
    python3 /lab/guest/locks.py posix-try "$2/locked" || code=$?
    same 3 $code "attempt of the other client"
    kill $holder
    wait $holder || true
    eventually 20 python3 /lab/guest/locks.py posix-try "$2/locked"
}
# Without a recall, the reader would see its cached first line for longer.
seen() {
    local began
    echo first >"$1/ball"
    same first "$(cat "$1/ball")"
    began=$(now)
    exec 5<"$1/ball"
    cat <&5 >/dev/null
    echo second >"$2/ball"
    exec 5<&-
    eventually 10 grep second "$1/ball"
    same 1 "$(since "$began" | awk '{ print ($1 < 12) }')" "without waiting for a lease"
}
# Returned by both clients since they mounted. The server of 4.0 calls back over a
# connection of its own, which would not be protected: it gives none.
delegations() {
    local returned
    returned=$(awk '$1 == "DELEGRETURN:" { sum += $2 } END { print sum + 0 }' /proc/self/mountstats)
    figure "v$1 $2: delegations returned" "$returned" calls
    if [ "$1" = 4.0 ] && [ "$2" != none ]; then
        same 0 "$returned" "delegations of 4.0"
    else
        [ "$returned" -gt 0 ] || fail "no delegation was recalled"
    fi
}
