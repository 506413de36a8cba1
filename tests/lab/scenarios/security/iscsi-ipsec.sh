# title: iSCSI with CHAP under IPsec: a listener reads nothing, and a connection outside of IPsec is dropped
# seconds: 400
# machines: 2
# ci: no

. /lab/guest/peer.sh
. /lab/guest/iscsi.sh
. /lab/guest/tls.sh
store_make "$(best_store)"
disk_make 64M
(umask 077; mkdir -p /run/zgate; printf lab-secret-of-initiator >/run/zgate/initiator)
ANY_INITIATOR=false iscsi_config "$DEVICE" "" "
[[target.initiator]]
name = \"iqn.2026-11.org.example:*\"
chap = { user = \"lab\", secret_file = \"/run/zgate/initiator\" }
"
# As on a network of strangers: a key for each direction, for AES-256-GCM.
TO_A=0x$(openssl rand -hex 36)
TO_B=0x$(openssl rand -hex 36)
export TARGET A_ADDRESS B_ADDRESS TO_A TO_B SECRET_TEXT
need "the gateway serves" gateway_start
need "the second machine is there" b_ready

# ipsec OWN PEER sport|dport: ESP in transport mode for the portal's port; what
# comes without it is dropped.
ipsec() {
    ip xfrm state add src "$B_ADDRESS" dst "$A_ADDRESS" proto esp spi 0x1001 mode transport \
        replay-window 64 aead 'rfc4106(gcm(aes))' "$TO_A" 128
    ip xfrm state add src "$A_ADDRESS" dst "$B_ADDRESS" proto esp spi 0x1002 mode transport \
        replay-window 64 aead 'rfc4106(gcm(aes))' "$TO_B" 128
    local in=dport
    [ "$3" = sport ] || in=sport
    ip xfrm policy add src "$1" dst "$2" proto tcp "$3" 3260 dir out \
        tmpl src "$1" dst "$2" proto esp mode transport
    ip xfrm policy add src "$2" dst "$1" proto tcp $in 3260 dir in \
        tmpl src "$2" dst "$1" proto esp mode transport
}
ipsec_ends() { ip xfrm policy flush; ip xfrm state flush; }
b_login() {
    initiator_start
    portal_discover $A_ADDRESS
    iscsiadm -m node -T "$TARGET" -p $A_ADDRESS:3260 -o update -n node.session.auth.authmethod -v CHAP \
        -n node.session.auth.chap_algs -v SHA256 \
        -n node.session.auth.username -v lab -n node.session.auth.password -v lab-secret-of-initiator
    portal_login $A_ADDRESS
}
b_writes() {
    local disk
    disk=$(iscsi_disk $A_ADDRESS)
    yes "$SECRET_TEXT" | head -c 65536 >/tmp/marked || true
    dd if=/tmp/marked of="$disk" bs=64k count=1 oflag=direct status=none
    dd if="$disk" of=/tmp/back bs=64k count=1 iflag=direct status=none
    cmp /tmp/marked /tmp/back
}
listened() {
    tcpdump -i eth0 -s 4096 -w "$RESULT/$1.pcap" -U "host $B_ADDRESS" >"$RESULT/tcpdump.log" 2>&1 &
    WIRE=$!
    echo $WIRE >>/run/lab-processes
    eventually 20 grep -q listening "$RESULT/tcpdump.log"
    on_b b_login
    on_b b_writes
    on_b portal_logout $A_ADDRESS
    wire_ends
    tshark -r "$RESULT/$1.pcap" -T fields -e _ws.col.Protocol 2>/dev/null | sort | uniq -c
}
readable_without() {
    listened plain
    [ "$(found plain "$SECRET_TEXT")" -gt 0 ] || fail "the look itself finds nothing"
    rm "$RESULT/plain.pcap"
}
unreadable_with() {
    ipsec $A_ADDRESS $B_ADDRESS sport
    on_b ipsec $B_ADDRESS $A_ADDRESS dport
    listened ipsec
    same 0 "$(found ipsec "$SECRET_TEXT")" "lines with the content"
    same 0 "$(found ipsec iqn.2026)" "lines with a name"
    same 0 "$(tshark -r "$RESULT/ipsec.pcap" -Y 'tcp.port == 3260' 2>/dev/null | wc -l)" "segments outside of ESP"
    [ "$(tshark -r "$RESULT/ipsec.pcap" -Y esp 2>/dev/null | wc -l)" -gt 20 ] || fail "no ESP"
    rm "$RESULT/ipsec.pcap"
}
connects() { timeout 4 bash -c "exec 3<>/dev/tcp/$A_ADDRESS/3260"; }
dropped_outside() {
    on_b connects
    on_b ipsec_ends
    if on_b connects; then fail "the portal answers outside of IPsec"; fi
}
step "without IPsec: CHAP alone, and a listener reads the disk's content" readable_without
step "with IPsec: a listener reads nothing" unreadable_with
step "outside of IPsec the portal does not answer" dropped_outside
on_b ipsec_ends
ipsec_ends
step "the gateway lives" gateway_alive
