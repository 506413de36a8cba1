# title: Kerberos: recalls of NFSv4.0 go under the flavour of the client's SETCLIENTID
# seconds: 900
# ci: no

. /lab/guest/kerberos.sh
. /lab/guest/knfsd.sh

ALICE=1001
CLIENT_NAME=zgate-lab.lab.test
id alice >/dev/null 2>&1 || useradd -u $ALICE -U alice
store_make "$(best_store)"
mkdir -p -m 1777 "$STORE/all"
EXPORTS+=("[[export]]
path = \"$STORE/all\"
pseudo = \"/all\"
clients = [{ match = \"0.0.0.0/0\", access = \"rw\", security = [\"krb5p\", \"krb5i\", \"krb5\", \"sys\"] }]
")
MORE_CONFIG="[kerberos]
keytab = \"$KERBEROS/gateway.keytab\""

# The client takes callbacks as nfs/CLIENT: it needs that key, and rpc.svcgssd.
client_takes_callbacks() {
    export KRB5_KDC_PROFILE=$KERBEROS/kdc.conf
    kdc_admin $REALM "addprinc -randkey nfs/$CLIENT_NAME"
    kdc_admin $REALM "ktadd -k /etc/krb5.keytab nfs/$CLIENT_NAME"
    rpc.svcgssd -f -v -v -v >"$RESULT/svcgssd.log" 2>&1 </dev/null &
    echo $! >>/run/lab-processes
    eventually 10 pgrep -x rpc.svcgssd
}
# The same machine is the reference's server, too. rpc.gssd calls back as the machine,
# so the machine's name is the server's.
knfsd_serves() {
    modprobe nfsd
    mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd
    mkdir -p /var/lib/nfs/v4recovery
    pgrep -x rpcbind || rpcbind
    exportfs -o "rw,no_root_squash,fsid=78,insecure,sec=krb5p:krb5i:krb5:sys" "*:$STORE/all"
    pgrep -x rpc.mountd || rpc.mountd
    echo 10 >/proc/fs/nfsd/nfsv4gracetime
    rpc.nfsd 8
    eventually 20 port_open 2049
    # During grace it gives no delegations.
    sleep 15
}
# operations NAME: how often the mount of the first client has sent it.
operations() {
    awk -v name="$1:" '/ mounted on / { here = ($5 == "/mnt/a") } here && $1 == name { print $2 }' /proc/self/mountstats
}
# delegations SERVER: of all clients; the kernel's server does not tell.
delegations() {
    [ "$1" = gateway ] || { echo 0; return; }
    exec 7<>/dev/tcp/127.0.0.1/9469
    printf 'GET /metrics HTTP/1.0\r\n\r\n' >&7
    timeout 10 sed -n "s/^zgate_nfs_delegations //p" <&7
    exec 7>&-
}
# returned FLAVOR EXPORT SERVER SECONDS: the first client reads a file, and gets a delegation;
# the second one writes to it.
returned() {
    local before began took
    rm -f "$STORE/all/ball"
    client_mount 4.0 /mnt/a "sec=$1" "$2"
    grep " /mnt/a .*[ ,]sec=$1[, ]" /proc/mounts
    client_b_mount 4.2 /mnt/b sec=sys "$2"
    # The server must have seen that the client can be called, which takes the kernel a
    # while: it closes the connection until rpc.svcgssd has the ticket.
    as $ALICE sh -c 'umask 0; echo first >/mnt/a/ball; cat /mnt/a/ball'
    sleep "$4"
    drop_caches
    same first "$(as $ALICE cat /mnt/a/ball)"
    same first "$(as $ALICE cat /mnt/a/ball)"
    figure "$3 $1: delegations before the write" "$(delegations "$3")" delegations
    before=$(operations DELEGRETURN)
    began=$(now)
    as $ALICE sh -c 'echo second >>/mnt/b/ball'
    took=$(since "$began")
    figure "$3 $1: a write where the other client has a delegation" "$took" s
    eventually 10 as $ALICE grep second /mnt/a/ball
    figure "$3 $1: delegations returned" "$(($(operations DELEGRETURN) - before))" delegations
    same 1 "$(awk -v took="$took" 'BEGIN { print (took < 12) }')" "without waiting for a lease"
    # The reference gives no delegation now and then; its figures say so.
    [ "$3" = reference ] || [ "$(operations DELEGRETURN)" -gt "$before" ] || fail "no delegation was returned"
}
# on_the_wire FLAVOR SERVER: each call to the client was protected.
on_the_wire() {
    # Not those of sessions, which go over the connection of the client. Flavour 6 is
    # RPCSEC_GSS; procedure 1 is CB_COMPOUND.
    tshark -r "$RESULT/packets.pcap" -Y 'rpc.program == 0x40000000 && rpc.msgtyp == 0 && tcp.port != 2049' \
        -T fields -e rpc.auth.flavor -e rpc.authgss.procedure -e rpc.authgss.service -e rpc.procedure \
        >"$RESULT/calls-$2-$1" 2>"$RESULT/tshark.log" || true
    cat "$RESULT/calls-$2-$1"
    mv "$RESULT/packets.pcap" "$RESULT/$2-$1.pcap"
    figure "$2 $1: callbacks on the wire" "$(grep -c '^6' "$RESULT/calls-$2-$1")" calls
    same 0 "$(grep -c -v '^6' "$RESULT/calls-$2-$1")" "callbacks that are not protected"
    grep -q '^6' "$RESULT/calls-$2-$1" || fail "no callback was seen"
}
# recalls FLAVOR EXPORT SERVER SECONDS
recalls() {
    capture_start
    step "the $3 recalls with $1" returned "$@"
    unmount /mnt/a /mnt/b
    capture_stop
    CAPTURE=
    sleep 1
    step "calls of the $3 with $1 on the wire" on_the_wire "$1" "$3"
}
unmount() {
    local dir
    for dir in "$@"; do
        ! mountpoint -q "$dir" || umount "$dir" || umount -f -l "$dir"
    done
}

need "a realm with a KDC" kerberos_start alice
need "alice has a ticket" ticket $ALICE alice
need "the client takes callbacks" client_takes_callbacks
SERVER=$GATEWAY_NAME

need "the gateway serves" gateway_start
for flavor in krb5i krb5p krb5; do
    recalls $flavor /all gateway 20
done
step "the gateway ends" gateway_stop

# Not `if step`: bash ignores `set -e` there, and the last command of the step succeeds.
step "the kernel's server, as the reference" knfsd_serves
if [ $? -eq 0 ]; then
    for flavor in krb5i krb5p krb5; do
        SERVER=$CLIENT_NAME recalls $flavor "$STORE/all" reference 20
    done
    step "the reference ends" knfsd_ends /mnt/none
fi
kerberos_logs
conclude
