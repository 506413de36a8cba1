# title: RPC-with-TLS: entries require certificates, a certificate names the user, a revocation takes effect
# seconds: 600
# ci: no

. /lab/guest/tls.sh
store_make "$(best_store)"
tls_prepare
authority team
cat "$TLS/ca.pem" "$TLS/team.pem" >"$TLS/authorities.pem"
certificate alice team "DNS:alice.hpc.lab,$USER_NAME;UTF8:alice@lab.example"
certificate bob ca "DNS:bob.lab,$USER_NAME;UTF8:bob@lab.example"
certificate carol ca "DNS:carol.lab,$USER_NAME;UTF8:carol@lab.example"
certificate stranger ca "DNS:stranger.lab,$USER_NAME;UTF8:alice@other.example"
certificate root ca "DNS:root.lab,$USER_NAME;UTF8:root@lab.example"
fingerprint() { openssl x509 -noout -fingerprint -sha256 -in "$TLS/$1.pem" | sed 's/.*=//'; }

# Lists of both authorities; only that of `ca` names certificates.
revoke() {
    local authority name
    rm -f "$TLS/crl.pem"
    for authority in ca team; do
        mkdir -p "$TLS/$authority.db"
        : >>"$TLS/$authority.db/index"
        [ -e "$TLS/$authority.db/number" ] || echo 01 >"$TLS/$authority.db/number"
        printf '[ca]\ndefault_ca=x\n[x]\ndatabase=%s/index\ncrlnumber=%s/number\n' \
            "$TLS/$authority.db" "$TLS/$authority.db" >"$TLS/$authority.cnf"
        printf 'default_md=sha256\ndefault_crl_days=7\ncrl_extensions=y\n[y]\nauthorityKeyIdentifier=keyid\n' \
            >>"$TLS/$authority.cnf"
        if [ $authority = ca ]; then
            for name in "$@"; do
                openssl ca -config "$TLS/ca.cnf" -cert "$TLS/ca.pem" -keyfile "$TLS/ca.key" -revoke "$TLS/$name.pem"
            done
        fi
        openssl ca -config "$TLS/$authority.cnf" -cert "$TLS/$authority.pem" -keyfile "$TLS/$authority.key" \
            -gencrl >>"$TLS/crl.pem"
    done
}
need "revocation lists are made" revoke
tls_export any any
tls_export by-name mtls "certificate = { names = [\"dns:*.hpc.lab\", \"user:bob@lab.example\"] }"
tls_export by-fingerprint mtls "certificate = { fingerprints = [\"$(fingerprint bob)\"] }"
tls_export by-authority mtls "certificate = { authorities = [\"$(fingerprint team)\"] }"
tls_export as-user mtls "identity = \"san\"" root
MORE_CONFIG="$(tls_config server "client_crl = \"$TLS/crl.pem\"
user_domain = \"lab.example\"" | sed "s,client_ca = .*,client_ca = \"$TLS/authorities.pem\",")"
need "the gateway serves" gateway_start

# admits VERSION CERTIFICATE EXPORT yes|no
admits() {
    local code=0
    handshakes a ca "$2"
    (secure_mount a "$1" /mnt/a mtls "/$3" && echo x >"/mnt/a/x-$2") || code=$?
    grep ' /mnt/a ' /proc/mounts && unmount /mnt/a
    if [ "$4" = yes ]; then same 0 $code "$3 with $2"; else [ $code -ne 0 ] || fail "$3 admits $2"; fi
}
table() {
    admits "$1" alice by-name yes
    admits "$1" bob by-name yes
    admits "$1" stranger by-name no
    admits "$1" bob by-fingerprint yes
    admits "$1" alice by-fingerprint no
    admits "$1" alice by-authority yes
    admits "$1" bob by-authority no
}
# All calls are of the user that the certificate names, root's too; only root is squashed.
becomes() {
    local user name uid
    for name in alice bob root; do
        handshakes a ca $name
        secure_mount a "$1" /mnt/a mtls /as-user
        touch "/mnt/a/of-$name-$1"
        as 1002 touch "/mnt/a/by-1002-$name-$1"
        uid=$(id -u $name)
        [ "$uid" -ne 0 ] || uid=65534
        for user in "of-$name-$1" "by-1002-$name-$1"; do
            same "$uid" "$(stat -c %u "$STORE/as-user/$user")" "owner of $user"
        done
        umount /mnt/a
    done
    # No such user of this machine, or another domain: nothing.
    admits "$1" carol as-user no
    admits "$1" stranger as-user no
}
for version in 4.2 3; do
    step "v$version: entries admit the certificates they name" table $version
    step "v$version: the certificate names the user" becomes $version
done

# A reload with a new list: the mount of the revoked certificate ends, the other one
# does not notice.
revoked() {
    handshakes a ca carol
    handshakes b ca bob
    secure_mount a 4.2 /mnt/a mtls /any
    secure_mount b 4.2 /mnt/b mtls /any
    echo before >/mnt/a/a
    echo before >/mnt/b/b
    local connection
    connection=$(nsenter --net=/run/netns/client-b ss -Htn state established "( dport = :2049 )")
    revoke carol
    "$ZGATE" reload
    echo after >/mnt/b/b
    same "$connection" "$(nsenter --net=/run/netns/client-b ss -Htn state established "( dport = :2049 )")" "connection of B"
    if timeout 60 sh -c 'echo after >/mnt/a/a'; then fail "the revoked client still writes"; fi
    grep -c "certificate has been revoked\|CertificateRevoked\|Revoked" /run/zgate/log || true
    unmount /mnt/a
    umount /mnt/b
    same before "$(cat "$STORE/any/a")"
    same after "$(cat "$STORE/any/b")"
    admits 4.2 carol any no
    # Another user of this machine: it has the same name as carol's client, whose state can
    # be taken from it when its lease is over. Linux gives up at CLID_INUSE.
    eventually $((LEASE_SECONDS + 90)) admits 4.2 bob any yes
}
STEP_SECONDS=240 step "a revocation takes effect with a reload, for this client alone" revoked
step "the gateway lives" gateway_alive
