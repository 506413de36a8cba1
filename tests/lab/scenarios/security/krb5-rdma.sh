# title: Kerberos over RDMA: krb5, krb5i and krb5p, over every version of NFS
# seconds: 900
# ci: no

. /lab/guest/kerberos.sh
. /lab/guest/rdma.sh

ALICE=1001
id alice >/dev/null 2>&1 || useradd -u $ALICE -U alice
store_make "$(best_store)"
for flavor in krb5 krb5i krb5p; do
    mkdir -p -m 1777 "$STORE/$flavor"
    EXPORTS+=("[[export]]
path = \"$STORE/$flavor\"
pseudo = \"/$flavor\"
clients = [{ match = \"0.0.0.0/0\", access = \"rw\", security = [\"$flavor\"] }]
")
done
MORE_CONFIG="[kerberos]
keytab = \"$KERBEROS/gateway.keytab\""

over_rdma
need "a realm with a KDC" kerberos_start alice
need "alice has a ticket" ticket $ALICE alice
need "the gateway serves" gateway_start
# The name of the address that has the device.
SERVER=$GATEWAY_NAME_FOR_B
pattern /tmp/data 4
chmod 644 /tmp/data

over_the_device() {
    grep " /mnt/a " /proc/mounts
    same 1 "$(grep " /mnt/a " /proc/mounts | grep 'proto=rdma' | grep -c "sec=$1[, ]")" "mounts over RDMA with $1"
}
mounts() {
    client_mount "$1" /mnt/a "sec=$2" "/$2"
    over_the_device "$2"
}
# Lengths that fit into a message, that need a chunk, and that need several calls.
data() {
    local n dir=$STORE/$1
    for n in 1 4095 65537 1048576 4194304; do
        head -c $n /tmp/data >/tmp/expected
        # A client with a delegation keeps what it has written beyond the close.
        as $ALICE dd if=/tmp/expected of=/mnt/a/len$n bs=1M conv=fsync status=none
        cmp /tmp/expected "$dir/len$n"
    done
    same "$ALICE:$ALICE" "$(stat -c %u:%g "$dir/len1")" owner
    drop_caches
    for n in 1 4095 65537 1048576 4194304; do
        head -c $n /tmp/data >/tmp/expected
        as $ALICE cmp /tmp/expected /mnt/a/len$n
    done
    as $ALICE sh -c 'for n in $(seq 1 70); do : >"/mnt/a/a-file-with-a-name-that-is-long-enough-$n"; done'
    drop_caches
    same 75 "$(as $ALICE ls /mnt/a | wc -l)" entries
    as $ALICE sh -c 'rm /mnt/a/*'
    # Root of a client is nobody.
    touch /mnt/a/by-root
    same 65534 "$(stat -c %u "$dir/by-root")" "owner of what root of the client writes"
    rm -f "$dir/by-root"
}
weaker() {
    local weaker="" said code=0
    case $2 in krb5p) weaker=krb5i ;; krb5i) weaker=krb5 ;; krb5) weaker=sys ;; esac
    said=$( (client_mount "$1" /mnt/weak "sec=$weaker,retry=0,soft,timeo=100,retrans=1" "/$2" &&
        as $ALICE touch /mnt/weak/x) 2>&1) || code=$?
    ! grep ' /mnt/weak ' /proc/mounts || umount -f /mnt/weak
    echo "$said"
    [ $code -ne 0 ] || fail "$weaker reaches what requires $2"
    grep -i "denied\|not permitted\|incorrect mount option\|stale" <<<"$said" || fail "another failure"
}

for version in 4.2 4.1 4.0 3; do
    for flavor in krb5 krb5i krb5p; do
        name="v$version $flavor"
        if step "$name: mounted" mounts $version $flavor; then
            step "$name: written, read back, the same at the store" data $flavor
            step "$name: unmounted" umount /mnt/a
        fi
        step "$name: nothing weaker" weaker $version $flavor
    done
done
step "the gateway lives" gateway_alive
kerberos_logs
conclude
