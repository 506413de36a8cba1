# title: RPC-with-TLS: OpenSSL's client changes its keys, and asks the gateway to change its own
# seconds: 600
# ci: no

. /lab/guest/tls.sh
store_make "$(best_store)"
tls_prepare
tls_export tls tls
MORE_CONFIG=$(tls_config server "kernel_records = false")
need "the gateway serves" gateway_start

# total METRIC: a counter of the gateway.
total() {
    exec 7<>/dev/tcp/127.0.0.1/9469
    printf 'GET /metrics HTTP/1.0\r\n\r\n' >&7
    timeout 10 awk -v name="$1" '$1 == name { print $2 }' <&7
    exec 7>&-
}
HANDSHAKES='zgate_tls_handshakes_total{result="completed"}'
BY_KERNEL=zgate_tls_kernel_total
VIOLATIONS='zgate_closed_connections_total{fault="peer",reason="protocol"}'

updates() { python3 /lab/guest/key-update.py "$TLS/ca.pem" "$@"; }
# beside_others NAME STEP COUNT: while another connection calls; its slowest call is a
# figure.
beside_others() {
    local said code=0
    said=$(updates "${@:2}" 2>&1) || code=$?
    echo "$said"
    [ $code -ne 0 ] || figure "$1: slowest call of another connection" "$(sed -n 's/^slowest: //p' <<<"$said")" s
    return $code
}
cpu_ticks() { sed 's/.*) //' "/proc/$(cat /run/zgate/pid)/stat" | awk '{ print $12 + $13 }'; }
flood() {
    local violations ticks
    violations=$(total "$VIOLATIONS")
    ticks=$(cpu_ticks)
    beside_others "$1: a flood of keys" flood 5000
    figure "$1: CPU time during a flood of keys" "$((($(cpu_ticks) - ticks) * 10))" ms
    same $((violations + 1)) "$(total "$VIOLATIONS")" "connections that ended for a violation"
}

encrypted_here() {
    [ "$(total "$HANDSHAKES")" -gt 0 ] || fail "no handshake was made"
    same 0 "$(total $BY_KERNEL)" "handshakes after which the kernel encrypts"
    same 1 "$(total "$VIOLATIONS")" "violations, with that of the flood"
}
step "process: the client changes its keys before each of 50 calls" updates served k 50
step "process: the client asks for the gateway's keys before each of 50 calls" updates served K 50
step "process: both, several times between two calls" updates served kKkK 10
step "process: 20 changes between two calls" updates served kkkkkkkkkkkkkkkkkkkk 3
step "process: 1,000 changes and calls without a pause, others are served" beside_others "process: 1,000 changes" busy 1000
step "process: a flood of changes ends its connection, others are served" flood process
step "process: the process has encrypted" encrypted_here

other_mode() {
    gateway_stop
    gateway_start
}
MORE_CONFIG=$(tls_config)
need "the gateway serves again, and the kernel encrypts" other_mode

# The kernel's client writes and reads all the while, past its cache.
ROUNDS=/tmp/mount-rounds
BROKEN=/tmp/mount-broken
connection_of_b() {
    nsenter --net=/run/netns/client-b ss -Htn state established "( dport = :2049 )" | awk '{ print $3, $4 }'
}
write_and_read() {
    until [ -e /tmp/mount-stops ]; do
        dd if=/tmp/data of=/mnt/b/data bs=256k oflag=direct status=none &&
            dd if=/mnt/b/data bs=256k iflag=direct status=none | cmp - /tmp/data ||
            echo "round $(wc -l <$ROUNDS)" >>$BROKEN
        echo >>$ROUNDS
    done
    : >/tmp/mount-stopped
}
mount_begins() {
    handshakes b ca client
    secure_mount b 4.2 /mnt/b tls /tls
    pattern /tmp/data 1
    rm -f $BROKEN /tmp/mount-stops /tmp/mount-stopped
    : >$ROUNDS
    background write_and_read >"$RESULT/mount.log" 2>&1
    eventually 60 goes_on 0
    connection_of_b | tee /tmp/connection-b
    same 1 "$(wc -l </tmp/connection-b)" "connections of the mount"
    [ "$(total $BY_KERNEL)" -gt 0 ] || fail "the kernel does not encrypt"
}
# goes_on ROUNDS: more than these have been written and read.
goes_on() { [ "$(wc -l <$ROUNDS)" -gt "$1" ]; }
undisturbed() {
    # One that has begun since, and is over.
    eventually 60 goes_on $(($(wc -l <$ROUNDS) + 1))
    [ ! -e $BROKEN ] || fail "the mount: $(cat $BROKEN "$RESULT/mount.log")"
    same "$(cat /tmp/connection-b)" "$(connection_of_b)" "connection of the mount"
}
# beside_the_mount COMMAND…: all its connections are encrypted by the kernel.
beside_the_mount() {
    local before
    before=$(total $BY_KERNEL)
    "$@"
    same "$(total "$HANDSHAKES")" "$(total $BY_KERNEL)" "handshakes after which the kernel encrypts"
    [ "$(total $BY_KERNEL)" -gt "$before" ] || fail "no handshake was made"
    undisturbed
}
need "kernel: a mount writes and reads" mount_begins
step "kernel: the client changes its keys before each of 50 calls" beside_the_mount updates served k 50
step "kernel: 20 changes between two calls" beside_the_mount updates served kkkkkkkkkkkkkkkkkkkk 3
ended_once() {
    local violations
    violations=$(total "$VIOLATIONS")
    updates ended 2
    same "$violations" "$(total "$VIOLATIONS")" "violations: asking is none"
}
STEP_SECONDS=240 step "kernel: who asks for the gateway's keys is disconnected, hears nothing more, and comes back" beside_the_mount ended_once
step "kernel: a flood of changes ends its connection, others are served" beside_the_mount flood kernel
mount_ends() {
    undisturbed
    touch /tmp/mount-stops
    eventually 60 test -e /tmp/mount-stopped
    figure "kernel: MiB written and read by the mount meanwhile" "$(wc -l <$ROUNDS)" MiB
    [ ! -e $BROKEN ] || fail "the mount: $(cat $BROKEN "$RESULT/mount.log")"
    cmp /tmp/data "$STORE/tls/data"
    umount /mnt/b
}
step "kernel: the mount's data are at the store" mount_ends
step "the gateway lives" gateway_alive
