# The matrix of security: flavours, protections of the connection, versions. In
# each cell two clients mount an export that admits nothing weaker.
# shellcheck shell=bash

. /lab/guest/kerberos.sh
. /lab/guest/tls.sh

ALICE=1001
WAYS="none tls mtls"
NAMES="$NAMES,DNS:$GATEWAY_NAME,DNS:$GATEWAY_NAME_FOR_B"

# matrix_start FLAVOR: authorities, a realm, a gateway with an export for each
# protection, and two clients with a tlshd and an rpc.gssd each.
matrix_start() {
    local way
    FLAVOR=$1
    id alice >/dev/null 2>&1 || useradd -u $ALICE -U alice
    store_make "$(best_store)"
    for way in $WAYS; do
        mkdir -p -m 1777 "$STORE/$way"
        EXPORTS+=("[[export]]
path = \"$STORE/$way\"
pseudo = \"/$way\"
clients = [{ match = \"0.0.0.0/0\", access = \"rw\", security = [\"$FLAVOR\"], transport = \"${way/none/any}\" }]
")
    done
    MORE_CONFIG=$(tls_config)
    # Where rpc.gssd runs, Linux makes clients known with Kerberos even for sec=sys.
    if [ "$FLAVOR" = sys ]; then
        need "names" kerberos_hosts
    else
        MORE_CONFIG+="
[kerberos]
keytab = \"$KERBEROS/gateway.keytab\""
        need "a realm with a KDC" kerberos_start alice
        need "the second client asks for tickets" kerberos_for_b
        need "alice has a ticket" ticket $ALICE alice
    fi
    need "authorities and certificates" tls_prepare
    need "tlshd of the first client" handshakes a ca client
    need "tlshd of the second client" handshakes b ca client
    need "the gateway serves" gateway_start
    pattern /tmp/data 2
    chmod 644 /tmp/data
    cp /lab/guest/locks.py /tmp/locks.py
    chmod 644 /tmp/locks.py
}

# cells: all of the flavour.
cells() {
    local version way
    for way in $WAYS; do
        for version in 4.2 4.1 4.0 3; do
            cell $version $way
        done
    done
}
cell() {
    local version=$1 way=$2 name="$FLAVOR v$1 $2"
    # Not `step || …`, for the reason that `need` has.
    step "$name: both clients mount" cell_mounts "$version" "$way"
    [ $? -eq 0 ] || { unmount /mnt/a /mnt/b; return 0; }
    step "$name: written, read back, the same at the store" cell_data "$way"
    if [ "$version" = 3 ]; then
        # Without NLM there are no locks of NFSv3, nor recalls.
        step "$name: what one changes, the other sees" cell_seen
    else
        step "$name: a lock excludes the other client" cell_locks
        step "$name: what one changes, the other sees" cell_seen
        step "$name: delegations" cell_delegations "$version" "$way"
    fi
    step "$name: unmounted" umount /mnt/a /mnt/b
    step "$name: nothing weaker" cell_weaker "$version" "$way"
}
# cell_mount a|b VERSION FLAVOR PROTECTION EXPORT
cell_mount() {
    local server=$GATEWAY_NAME
    [ "$1" = a ] || server=$GATEWAY_NAME_FOR_B
    secure_mount "$1" "$2" "/mnt/$1" "$4" "/$5" "$server" "sec=$3"
}
cell_mounts() {
    local dir
    cell_mount a "$1" "$FLAVOR" "$2" "$2"
    cell_mount b "$1" "$FLAVOR" "$2" "$2"
    for dir in /mnt/a /mnt/b; do
        grep " $dir .*[ ,]sec=$FLAVOR[, ]" /proc/mounts || fail "another flavour: $(grep " $dir " /proc/mounts)"
        if [ "$2" = none ]; then
            same 0 "$(grep " $dir " /proc/mounts | grep -c 'xprtsec=m\?tls')" "protected mounts"
        else
            same 1 "$(grep " $dir " /proc/mounts | grep -c "xprtsec=$2")" "mounts with $2"
        fi
    done
}
cell_data() {
    as $ALICE dd if=/tmp/data of=/mnt/a/data bs=1M conv=fsync status=none
    cmp /tmp/data "$STORE/$1/data"
    same "$ALICE:$ALICE" "$(stat -c %u:%g "$STORE/$1/data")" owner
    drop_caches
    as $ALICE cmp /tmp/data /mnt/a/data
    as $ALICE cmp /tmp/data /mnt/b/data
    as $ALICE rm /mnt/a/data
    # Root of a client is nobody in every combination.
    touch /mnt/a/by-root
    same 65534 "$(stat -c %u "$STORE/$1/by-root")" "owner of what root of the client writes"
    rm -f "$STORE/$1/by-root"
}
cell_locks() {
    local holder code=0
    rm -f /tmp/held
    # Not by a function: that would have a process in between, which the signal hits.
    setpriv --reuid $ALICE --regid $ALICE --clear-groups \
        python3 /tmp/locks.py posix-hold /mnt/a/locked 60 0 0 /tmp/held &
    holder=$!
    # The next cell must find nobody in its mounts.
    eventually 60 test -e /tmp/held || { kill $holder; return 1; }
    as $ALICE python3 /tmp/locks.py posix-try /mnt/b/locked || code=$?
    same 3 $code "attempt of the other client"
    kill $holder
    wait $holder || true
    eventually 20 as $ALICE python3 /tmp/locks.py posix-try /mnt/b/locked
}
# Without a recall, the reader would see its cached first line for longer.
cell_seen() {
    local began
    as $ALICE sh -c 'umask 0; echo first >/mnt/a/ball'
    same first "$(as $ALICE cat /mnt/a/ball)"
    began=$(now)
    as $ALICE sh -c 'exec 5</mnt/a/ball; cat <&5 >/dev/null; echo second >/mnt/b/ball'
    eventually 10 as $ALICE grep second /mnt/a/ball
    same 1 "$(since "$began" | awk '{ print ($1 < 12) }')" "without waiting for a lease"
    as $ALICE rm /mnt/a/ball
}
# Returned by both clients since they mounted. The server of 4.0 calls back over a
# connection of its own: without TLS, so a client with TLS gets no delegation; and with
# Kerberos only to clients that take tickets, which these do not (`krb5-callbacks`).
cell_delegations() {
    local returned
    returned=$(awk '$1 == "DELEGRETURN:" { sum += $2 } END { print sum + 0 }' /proc/self/mountstats)
    figure "$FLAVOR v$1 $2: delegations returned" "$returned" calls
    if [ "$1" = 4.0 ] && { [ "$2" != none ] || [ "$FLAVOR" != sys ]; }; then
        same 0 "$returned" "delegations of 4.0"
    else
        [ "$returned" -gt 0 ] || fail "no delegation was recalled"
    fi
}
# The next weaker flavour and the next weaker protection reach nothing.
cell_weaker() {
    local flavor="" way=""
    case $FLAVOR in krb5p) flavor=krb5i ;; krb5i) flavor=krb5 ;; krb5) flavor=sys ;; esac
    case $2 in mtls) way=tls ;; tls) way=none ;; esac
    [ -z "$flavor" ] || cell_refused "$1" "$flavor" "$2" "$2"
    [ -z "$way" ] || cell_refused "$1" "$FLAVOR" "$way" "$2"
}
# NFSv3 and the pseudo root of NFSv4 may allow a mount that reaches nothing.
cell_refused() {
    local said code=0 began
    began=$(now)
    said=$( (cell_mount a "$@" && as $ALICE touch /mnt/a/x) 2>&1) || code=$?
    ! grep ' /mnt/a ' /proc/mounts || unmount /mnt/a
    echo "$said"
    [ $code -ne 0 ] || fail "v$1 $2 $3 reaches what requires $FLAVOR and $4"
    grep -i "denied\|not permitted\|Input/output\|incorrect mount option\|stale" <<<"$said" || fail "another failure"
    figure "refused: v$1 $2 $3 where $FLAVOR $4 is required" "$(since "$began")" s
}

# The lab's kernel has TLS: it encrypts the gateway's replies in all cells with TLS.
by_kernel() {
    local page completed kernel
    exec 7<>/dev/tcp/127.0.0.1/9469
    printf 'GET /metrics HTTP/1.0\r\n\r\n' >&7
    page=$(timeout 10 cat <&7 | grep '^zgate_tls')
    exec 7>&-
    echo "$page"
    completed=$(sed -n 's/^zgate_tls_handshakes_total{result="completed"} //p' <<<"$page")
    kernel=$(sed -n 's/^zgate_tls_kernel_total //p' <<<"$page")
    figure "handshakes after which the kernel encrypts" "$kernel" handshakes
    [ "$completed" -ge 16 ] || fail "few handshakes: $completed"
    same "$completed" "$kernel" "handshakes after which the kernel encrypts"
}

matrix_end() {
    step "$FLAVOR: the kernel encrypts what is sent over TLS" by_kernel
    step "the gateway lives" gateway_alive
    kerberos_logs
}
