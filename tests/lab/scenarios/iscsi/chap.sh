# title: CHAP both ways, for discovery too: the right secrets get in, others hear why not
# seconds: 200
# ci: no

. /lab/guest/iscsi.sh
store_make "$(best_store)"
secret() { (umask 077; mkdir -p /run/zgate; printf '%s' "$2" >"/run/zgate/$1"); }
secret initiator lab-secret-of-initiator
secret target lab-secret-of-target
secret discovery lab-secret-discovery
EXPORTS=()
mkdir -p /scratch/nfs
export_add /scratch/nfs /export
MORE_CONFIG="[iscsi]
listen = [\"0.0.0.0:3260\"]
discovery_chap = { user = \"finder\", secret_file = \"/run/zgate/discovery\" }

[[target]]
name = \"$TARGET\"

[[target.lun]]
number = 0
path = \"$STORE/disk.img\"
size = \"64MiB\"

[[target.initiator]]
name = \"iqn.2026-11.org.example:*\"
chap = { user = \"lab\", secret_file = \"/run/zgate/initiator\" }
mutual_chap = { user = \"gateway\", secret_file = \"/run/zgate/target\" }
"
need "the gateway serves" gateway_start
need "the initiator runs" initiator_start

settings() {
    iscsiadm -m node -T "$TARGET" -p 127.0.0.1:3260 -o update -n node.session.auth.authmethod -v CHAP \
        -n node.session.auth.username -v lab -n node.session.auth.password -v "$1" \
        -n node.session.auth.username_in -v gateway -n node.session.auth.password_in -v "$2"
}
finds() {
    refused "authori\|fail" portal_discover
    iscsiadm -m discoverydb -t sendtargets -p 127.0.0.1:3260 -o new
    iscsiadm -m discoverydb -t sendtargets -p 127.0.0.1:3260 -o update \
        -n discovery.sendtargets.auth.authmethod -v CHAP -n discovery.sendtargets.auth.username -v finder \
        -n discovery.sendtargets.auth.password -v lab-secret-discovery
    iscsiadm -m discoverydb -t sendtargets -p 127.0.0.1:3260 --discover | grep "$TARGET"
}
no_secret() { refused "authori" portal_login; }
wrong_secret() { settings lab-secret-of-nobody lab-secret-of-target && refused "authori" portal_login; }
wrong_target() { settings lab-secret-of-initiator lab-secret-of-nobody && refused "fail" portal_login; }
right() {
    settings lab-secret-of-initiator lab-secret-of-target
    portal_login
    dd if=/dev/urandom of="$(iscsi_disk)" bs=64k count=4 oflag=direct status=none
}
clean() {
    portal_logout
    iscsiadm -m discoverydb -t sendtargets -p 127.0.0.1:3260 -o delete
}
step "discovery asks for its secret" finds
step "without a secret: refused" no_secret
step "with a wrong one: refused" wrong_secret
step "a target that cannot prove itself is refused by the initiator" wrong_target
step "with the right ones: a disk" right
step "logout" clean
step "the gateway lives" gateway_alive
