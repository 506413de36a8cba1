# title: the kernel's NFS server with TLS, as the reference: what it serves and refuses
# seconds: 400
# ci: no

. /lab/guest/tls.sh
. /lab/guest/knfsd.sh
store_make "$(best_store)"
tls_prepare

serve() {
    modprobe nfsd
    mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd
    mkdir -p /var/lib/nfs/v4recovery
    pgrep -x rpcbind || rpcbind
    local way number=80
    for way in none tls mtls; do
        mkdir -p -m 1777 "$STORE/$way"
        number=$((number + 1))
        exportfs -o "rw,no_root_squash,fsid=$number,insecure,xprtsec=$way" "*:$STORE/$way"
    done
    pgrep -x rpc.mountd || rpc.mountd --port 2052
    echo 10 >/proc/fs/nfsd/nfsv4gracetime
    handshakes a ca client server
    rpc.nfsd 8
    eventually 20 port_open 2049
}
# outcome VERSION XPRTSEC EXPORT: "served", or the error that a person reads.
outcome() {
    local said
    mkdir -p /mnt/a
    if said=$( (mount -t nfs -o "$(options "$1"),xprtsec=$2,retry=0,soft,timeo=100,retrans=1" "nas.lab:$STORE/$3" /mnt/a &&
        echo x >/mnt/a/x) 2>&1); then
        said=served
    fi
    grep -q ' /mnt/a ' /proc/mounts && unmount /mnt/a
    echo "v$1 $2 $3: $said" | head -n 1 | tee -a "$RESULT/reference"
}
options() {
    case $1 in
        3) echo "vers=3,nolock,proto=tcp,port=2049,mountport=2052,mountproto=tcp" ;;
        *) echo "vers=$1,proto=tcp,port=2049" ;;
    esac
}
# The table in which the gateway and the reference agree: `any` is `none` here.
table() {
    local version
    for version in 4.2 3; do
        outcome $version none none
        outcome $version tls tls
        outcome $version mtls mtls
        outcome $version none tls
        outcome $version none mtls
        outcome $version tls mtls
    done
    same 6 "$(grep -c ': served$' "$RESULT/reference")" "combinations that are served"
    same 6 "$(grep -c -i 'denied\|not permitted\|Input/output' "$RESULT/reference")" "combinations that are refused"
}
mnt_in_the_clear() {
    wire_begins reference-3
    outcome 3 mtls mtls
    wire_ends
    readable reference-3
    tshark -r "$RESULT/reference-3.pcap" -Y 'tls.handshake.type == 1' -T fields -e tls.handshake.extensions_alpn_str 2>/dev/null
    rm "$RESULT/reference-3.pcap"
}
need "the kernel's server runs" serve
STEP_SECONDS=240 step "what it serves and refuses" table
step "what a listener reads of NFSv3" mnt_in_the_clear
stop() { exportfs -ua; rpc.nfsd 0; pkill -x rpc.mountd || true; }
step "it ends" stop
