# RPC-with-TLS: authorities and certificates by OpenSSL, and tlshd, which makes
# the handshakes for the kernel's client and server (GnuTLS).
# shellcheck shell=bash

TLS=/run/zgate/tls
# Names of the gateway, as A and as the second client see it.
NAMES="DNS:nas.lab,DNS:nas-b.lab,IP:127.0.0.1"
# FreeBSD's type of a name that is a user: user@domain in UTF-8.
USER_NAME=otherName:1.3.6.1.4.1.2238.1.1.1
# What a listener must not find on the wire: a file's name, and its content.
SECRET_NAME=lab-secret-name
SECRET_TEXT=lab-secret-content

tls_prepare() {
    modprobe tls
    mkdir -p "$TLS"
    grep -q nas-b.lab /etc/hosts || printf '127.0.0.1 nas.lab other.lab\n10.9.0.1 nas-b.lab\n' >>/etc/hosts
    authority ca
    authority foreign
    certificate server ca "$NAMES"
    certificate client ca "DNS:client.lab"
}

# key_and REQUEST…: a self-made or signed certificate with a new key.
key_and() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc "$@" 2>"$TLS/openssl.log" ||
        { cat "$TLS/openssl.log"; return 1; }
}
# authority NAME
authority() {
    key_and -days 365 -subj "/CN=$1" -addext "keyUsage=critical,keyCertSign,cRLSign" \
        -keyout "$TLS/$1.key" -out "$TLS/$1.pem"
}
# certificate NAME AUTHORITY SUBJECT-ALTERNATIVE-NAMES [OPTIONS]
certificate() {
    local name=$1 authority=$2 names=$3
    shift 3
    [ $# -gt 0 ] || set -- -days 365
    key_and -CA "$TLS/$authority.pem" -CAkey "$TLS/$authority.key" -subj "/CN=$name" \
        -addext "basicConstraints=critical,CA:FALSE" -addext "subjectAltName=$names" \
        -addext "extendedKeyUsage=serverAuth,clientAuth" "$@" -keyout "$TLS/$name.key" -out "$TLS/$name.pem"
}
# Options of a certificate of the past.
EXPIRED="-not_before 20240101000000Z -not_after 20240201000000Z"

# handshakes a|b AUTHORITY [CLIENT [SERVER]]: tlshd of one of the two clients from
# now on trusts this authority and shows these certificates.
handshakes() {
    local host=$1 inside=()
    [ "$host" = a ] || inside=(nsenter --net=/run/netns/client-b)
    handshakes_end "$host"
    {
        printf '[debug]\nloglevel=1\n[authenticate]\n'
        side client "$2" "${3:-}"
        side server "$2" "${4:-}"
    } >"$TLS/tlshd-$host.conf"
    "${inside[@]}" tlshd -s -c "$TLS/tlshd-$host.conf" >>"$RESULT/tlshd-$host.log" 2>&1 </dev/null &
    echo $! >"$TLS/tlshd-$host.pid"
    echo $! >>/run/lab-processes
    # It has to join its group before the kernel asks.
    eventually 10 tlshd_listens "$(<"$TLS/tlshd-$host.pid")"
    sleep 0.5
}
side() {
    printf '[authenticate.%s]\nx509.truststore=%s/%s.pem\n' "$1" "$TLS" "$2"
    [ -z "$3" ] || printf 'x509.certificate=%s/%s.pem\nx509.private_key=%s/%s.key\n' "$TLS" "$3" "$TLS" "$3"
}
handshakes_end() {
    local pid
    pid=$(cat "$TLS/tlshd-$1.pid" 2>/dev/null) || return 0
    kill "$pid" 2>/dev/null || return 0
    eventually 10 tlshd_gone "$pid"
}
# Its generic netlink socket (16) has the process in the low 22 bits of its port.
tlshd_listens() { awk -v pid="$1" '$2 == 16 && $3 % 4194304 == pid { found = 1 } END { exit !found }' "/proc/$1/net/netlink"; }
tlshd_gone() { ! kill -0 "$1" 2>/dev/null; }

# tls_config [CERTIFICATE [FURTHER LINES]]: the gateway's own.
tls_config() {
    printf '[tls]\ncertificate = "%s/%s.pem"\nkey = "%s/%s.key"\nclient_ca = "%s/ca.pem"\n%s\n' \
        "$TLS" "${1:-server}" "$TLS" "${1:-server}" "$TLS" "${2:-}"
}
# tls_export NAME TRANSPORT [FURTHER KEYS OF THE ENTRY [SQUASH]]: $STORE/NAME as /NAME.
tls_export() {
    mkdir -p -m 1777 "$STORE/$1"
    EXPORTS+=("[[export]]
path = \"$STORE/$1\"
pseudo = \"/$1\"
clients = [{ match = \"0.0.0.0/0\", access = \"rw\", squash = \"${4:-none}\", transport = \"$2\"${3:+, $3} }]
")
}

# secure_mount a|b VERSION DIRECTORY XPRTSEC EXPORT [SERVER [OPTIONS]]: `none` is
# plain.
secure_mount() {
    local host=$1 options
    options="xprtsec=$4${7:+,$7},retry=0,soft,timeo=100,retrans=1,acdirmin=1,acdirmax=2"
    if [ "$host" = a ]; then
        SERVER=${6:-nas.lab} client_mount "$2" "$3" "$options" "$5"
    else
        SERVER_FOR_B=${6:-nas-b.lab} client_b_mount "$2" "$3" "$options" "$5"
    fi
}
unmount() { umount "$@" 2>/dev/null || umount -f -l "$@"; }

# wire_begins, wire_ends NAME: packets of NFS between, in $RESULT/NAME.pcap.
wire_begins() {
    tcpdump -i any -s 4096 -w "$RESULT/$1.pcap" -U 'tcp port 2049' >"$RESULT/tcpdump.log" 2>&1 &
    WIRE=$!
    echo $WIRE >>/run/lab-processes
    eventually 20 grep -q listening "$RESULT/tcpdump.log"
}
wire_ends() {
    sleep 0.5
    kill $WIRE
    wait $WIRE 2>/dev/null || true
}
# readable NAME: the calls that a listener understands, as "PROGRAM PROCEDURE FLAVOR".
readable() {
    tshark -r "$RESULT/$1.pcap" -Y 'rpc.msgtyp == 0 && !tls' -T fields \
        -e rpc.program -e rpc.procedure -e rpc.auth.flavor 2>/dev/null | sort | uniq -c
}
# found NAME TEXT: the number of packets' lines with a text.
found() { grep -a -c -e "$2" "$RESULT/$1.pcap" || true; }
