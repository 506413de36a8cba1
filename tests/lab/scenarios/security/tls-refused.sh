# title: RPC-with-TLS: what the gateway or the kernel's client refuses
# seconds: 900
# ci: no

. /lab/guest/tls.sh
store_make "$(best_store)"
tls_prepare
certificate foreign-client foreign "DNS:client.lab"
# shellcheck disable=SC2086
certificate expired-client ca "DNS:client.lab" $EXPIRED
certificate foreign-server foreign "$NAMES"
# shellcheck disable=SC2086
certificate expired-server ca "$NAMES" $EXPIRED
tls_export any any
tls_export tls tls
tls_export mtls mtls
MORE_CONFIG=$(tls_config)
need "the gateway serves" gateway_start

# mounted TRUSTED-AUTHORITY CLIENT-CERTIFICATE VERSION XPRTSEC EXPORT [SERVER]: the
# mount succeeds, and a file can be written.
mounted() {
    handshakes a "$1" "$2"
    secure_mount a "$3" /mnt/a "$4" "$5" "${6:-}"
    echo x >/mnt/a/x
    umount /mnt/a
}
# no_access …: no mount, or one that gives no access to anything, as NFSv3 and the
# pseudo root of NFSv4 allow; and not for want of time.
no_access() {
    local said code=0 began
    began=$(now)
    # Chained: bash ignores `set -e` before `||`.
    said=$( (handshakes a "$1" "$2" && secure_mount a "$3" /mnt/a "$4" "$5" "${6:-}" && echo x >/mnt/a/x) 2>&1) || code=$?
    grep ' /mnt/a ' /proc/mounts && unmount /mnt/a
    echo "$said"
    [ $code -ne 0 ] || fail "access was given"
    grep -i "denied\|not permitted\|Input/output\|Protocol not supported\|refused\|incorrect mount option\|mount system call failed" <<<"$said" ||
        fail "another failure"
    figure "refused: $3 $4 $5 by $1 with ${2:-nothing}" "$(since "$began")" s
}
for version in 4.2 4.1 4.0 3; do
    step "v$version: right certificates: served" mounted ca client $version mtls /mtls
    step "v$version plain: an export with TLS is closed" no_access ca client $version none /tls
    step "v$version plain: an export with mutual TLS is closed" no_access ca client $version none /mtls
    step "v$version TLS without a certificate: an export with mutual TLS is closed" no_access ca "" $version tls /mtls
    step "v$version: a certificate of a foreign authority" no_access ca foreign-client $version mtls /mtls
    step "v$version: an expired certificate" no_access ca expired-client $version mtls /mtls
    step "v$version: the client does not trust the gateway's authority" no_access foreign "" $version tls /any
    step "v$version: the gateway's certificate has another name" no_access ca "" $version tls /any other.lab
    step "v$version: its address, which the certificate has: served" mounted ca "" $version tls /tls 127.0.0.1
done

# A downgrade: the client must not go on in the clear, nor would the gateway.
downgrade() {
    background python3 /lab/guest/strip-tls.py 2050 2049
    eventually 10 port_open 2050
    handshakes a ca client
    local options="proto=tcp,port=2050,retry=0,soft,timeo=100,retrans=1"
    # The way itself works.
    mkdir -p /mnt/a
    mount -t nfs -o "vers=4.2,$options" nas.lab:/any /mnt/a
    umount /mnt/a
    refused "Protocol not supported\|not permitted\|denied\|Input/output\|incorrect" \
        mount -t nfs -o "vers=4.2,xprtsec=tls,$options" nas.lab:/any /mnt/a
    refused "not permitted\|denied" mount -t nfs -o "vers=4.2,$options" nas.lab:/tls /mnt/a
}
step "the offer is stripped in between: the client does not go on in the clear" downgrade

other_server() {
    MORE_CONFIG=$(tls_config "$1")
    gateway_stop
    gateway_start
    no_access ca "" 4.2 tls /any
    no_access ca "" 3 tls /any
}
step "the gateway's certificate has expired" other_server expired-server
step "the gateway's certificate is of a foreign authority" other_server foreign-server
# The log names the reasons, and shows nothing of a key.
logged() {
    grep -i "requires TLS" /run/zgate/log | head -n 3
    [ "$(grep -c -i "requires TLS" /run/zgate/log)" -gt 0 ] || fail "the log does not say that TLS is required"
    local key
    for key in "$TLS"/*.key; do
        same 0 "$(grep -c -F "$(sed -n 2p "$key")" /run/zgate/log || true)" "lines of $key in the log"
    done
}
step "the log says why, and no secret" logged
step "the gateway lives" gateway_alive
