# title: Kerberos: calls that somebody in between repeats or changes have no effect
# seconds: 500
# ci: no

. /lab/guest/kerberos.sh

ALICE=1001
id alice >/dev/null 2>&1 || useradd -u $ALICE -U alice
store_make "$(best_store)"
mkdir -p -m 1777 "$STORE/all"
EXPORTS+=("[[export]]
path = \"$STORE/all\"
pseudo = \"/all\"
clients = [{ match = \"0.0.0.0/0\", access = \"rw\", security = [\"krb5i\", \"krb5p\"] }]
")
MORE_CONFIG="[kerberos]
keytab = \"$KERBEROS/gateway.keytab\""
WAY=/tmp/way

need "a realm with a KDC" kerberos_start alice
need "the gateway serves" gateway_start
SERVER=$GATEWAY_NAME
need "alice has a ticket" ticket $ALICE alice
echo pass >$WAY
background python3 /lab/guest/gss-between.py 2051 2049 $WAY
need "somebody is in between" eventually 10 port_open 2051
pattern /tmp/data 1
chmod 644 /tmp/data

# refusals REASON: calls that the gateway has refused or dropped for it.
refusals() {
    exec 7<>/dev/tcp/127.0.0.1/9469
    printf 'GET /metrics HTTP/1.0\r\n\r\n' >&7
    timeout 10 sed -n "s/^zgate_kerberos_refused_total{reason=\"$1\"} //p" <&7
    exec 7>&-
}
between_mount() {
    mkdir -p /mnt/between
    mount -t nfs -o "vers=$1,$([ "$1" != 3 ] || echo nolock,mountport=2051,mountproto=tcp,)proto=tcp,port=2051,sec=$2,soft,timeo=50,retrans=3" "$SERVER:/all" /mnt/between
}
# Appended lines would be there twice if a call ran twice.
works() {
    as $ALICE cp /tmp/data /mnt/between/data
    as $ALICE sh -c 'for n in 1 2 3 4 5 6; do echo $n >>/mnt/between/lines; mkdir /mnt/between/d$n; rmdir /mnt/between/d$n; done'
    drop_caches
    as $ALICE cmp /tmp/data /mnt/between/data
    cmp /tmp/data "$STORE/all/data"
    same "1 2 3 4 5 6" "$(tr '\n' ' ' <"$STORE/all/lines" | sed 's/ $//')" lines
    as $ALICE rm /mnt/between/data /mnt/between/lines
}
# survives VERSION FLAVOR WAY REASON: the work is done, and the gateway has noticed.
survives() {
    local before
    echo pass >$WAY
    between_mount "$1" "$2"
    before=$(refusals "$4")
    echo "$3" >$WAY
    works
    echo pass >$WAY
    umount /mnt/between
    figure "v$1 $2 $3: calls refused or dropped" "$(($(refusals "$4") - before))" calls
    [ "$(refusals "$4")" -gt "$before" ] || fail "none of reason '$4' was noticed"
}
nothing_runs() {
    echo pass >$WAY
    between_mount "$1" "$2"
    as $ALICE ls /mnt/between
    echo all >$WAY
    if as $ALICE timeout 60 touch /mnt/between/forged; then fail "a changed call has run"; fi
    [ ! -e "$STORE/all/forged" ] || fail "the file is there"
    echo pass >$WAY
    umount -f -l /mnt/between
}
for flavor in krb5i krb5p; do
    step "$flavor: repeated calls run once" survives 4.2 $flavor repeat sequence
    step "$flavor: changed arguments are noticed" survives 4.2 $flavor arguments arguments
    step "$flavor: changed credentials are noticed" survives 4.2 $flavor header verifier
    step "$flavor: where every call is changed, nothing runs" nothing_runs 4.2 $flavor
done
step "krb5i, v3: repeated calls run once" survives 3 krb5i repeat sequence
step "the gateway lives" gateway_alive
kerberos_logs
