# title: RPC-with-TLS by the kernel's client and tlshd: a listener reads nothing
# seconds: 500
# ci: no

. /lab/guest/tls.sh
store_make "$(best_store)"
tls_prepare
tls_export any any
tls_export tls tls
tls_export mtls mtls
MORE_CONFIG=$(tls_config)
need "the gateway serves" gateway_start
need "tlshd of the first client" handshakes a ca client

# A listener: nothing in TLS is readable, and the same look finds it without TLS.
listen() {
    local version=$1 way=$2 export=$3 name=wire-$1-$2
    wire_begins "$name"
    secure_mount a "$version" /mnt/a "$way" "$export"
    yes "$SECRET_TEXT" | head -c 20000 >"$TLS/content" || true
    cp "$TLS/content" "/mnt/a/$SECRET_NAME"
    drop_caches
    cmp "$TLS/content" "/mnt/a/$SECRET_NAME"
    rm "/mnt/a/$SECRET_NAME"
    umount /mnt/a
    wire_ends
    readable "$name"
    ls -l "$RESULT/$name.pcap"
}
plain_is_readable() {
    listen "$1" none /any
    [ "$(found "wire-$1-none" "$SECRET_TEXT")" -gt 0 ] || fail "the look itself finds nothing"
    [ "$(found "wire-$1-none" "$SECRET_NAME")" -gt 0 ] || fail "the look itself finds no name"
    rm "$RESULT/wire-$1-none.pcap"
}
# The client's requests for TLS (NULL, flavor 7), and over NFSv3 MNT and UMNT, are
# all that is understood.
nothing_is_readable() {
    listen "$1" "$2" "/$2"
    same 0 "$(found "wire-$1-$2" "$SECRET_TEXT")" "lines with the content"
    same 0 "$(found "wire-$1-$2" "$SECRET_NAME")" "lines with the name"
    local calls
    calls=$(readable "wire-$1-$2")
    grep -E "100003\s+0\s+7,0" <<<"$calls" || fail "no request for TLS was seen"
    same 0 "$(grep -v -E "100003\s+0\s+7,0$" <<<"$calls" | grep -v -c -E "100005\s" || true)" "other readable calls"
    [ "$1" = 3 ] || same 0 "$(grep -c -E "100005\s" <<<"$calls" || true)" "calls of MOUNT"
    tshark -r "$RESULT/wire-$1-$2.pcap" -Y 'tls.handshake.type == 1' -T fields \
        -e tls.handshake.extensions_server_name -e tls.handshake.extensions_alpn_str 2>/dev/null
    rm "$RESULT/wire-$1-$2.pcap"
}
for version in 4.2 3; do
    step "v$version plain: a listener reads names and contents" plain_is_readable $version
    step "v$version TLS: a listener reads nothing" nothing_is_readable $version tls
    step "v$version mutual TLS: a listener reads nothing" nothing_is_readable $version mtls
done
counted() {
    local page
    page=$(curl_metrics | grep '^zgate_tls_handshakes')
    echo "$page"
    [ "$(sed -n 's/.*result="completed"} //p' <<<"$page")" -ge 4 ] || fail "handshakes are not counted"
}
curl_metrics() { exec 7<>/dev/tcp/127.0.0.1/9469; printf 'GET /metrics HTTP/1.0\r\n\r\n' >&7; timeout 10 cat <&7; }
step "handshakes are counted" counted
step "the gateway lives" gateway_alive
