# A realm of Kerberos in the machine, with a KDC of its own, and the kernel's
# client of it.
# shellcheck shell=bash

REALM=LAB.TEST
# A second one, whose users the first one trusts.
FOREIGN_REALM=OTHER.TEST
KERBEROS=/run/kerberos
# The gateway's name. Tickets are for names, and rpc.gssd asks for the name of an
# address.
GATEWAY_NAME=gw.lab.test
GATEWAY_NAME_FOR_B=gw-b.lab.test

kdc_admin() { kadmin.local -r "$1" -q "$2" >>"$KERBEROS/admin.log" 2>&1; }

# kerberos_start USER…: the realm with these users (and `stranger` of the other
# realm), its KDC, keys of the gateway and of this machine, and rpc.gssd.
kerberos_start() {
    local user realm name
    mkdir -p $KERBEROS
    kerberos_settings
    export KRB5_KDC_PROFILE=$KERBEROS/kdc.conf
    for realm in $REALM $FOREIGN_REALM; do
        kdb5_util create -s -r $realm -P "of the lab" >>$KERBEROS/admin.log 2>&1
        kdc_admin $realm "addprinc -pw between krbtgt/$REALM@$FOREIGN_REALM"
    done
    kdc_admin $FOREIGN_REALM "addprinc -pw stranger stranger"
    for user in "$@"; do kdc_admin $REALM "addprinc -pw $user $user"; done
    for name in $GATEWAY_NAME $GATEWAY_NAME_FOR_B; do
        kdc_admin $REALM "addprinc -randkey nfs/$name"
        kdc_admin $REALM "ktadd -k $KERBEROS/gateway.keytab nfs/$name"
    done
    kdc_admin $REALM "addprinc -randkey host/zgate-lab.lab.test"
    kdc_admin $REALM "ktadd -k /etc/krb5.keytab host/zgate-lab.lab.test"
    krb5kdc -r $REALM -r $FOREIGN_REALM
    modprobe -a auth_rpcgss rpcsec_gss_krb5
    mkdir -p /run/rpc_pipefs
    mountpoint -q /run/rpc_pipefs || mount -t rpc_pipefs rpc_pipefs /run/rpc_pipefs
    rpc.gssd -v
    eventually 10 pgrep -x rpc.gssd
}

# kerberos_for_b: rpc.gssd of the second client, whose kernel asks in files of its
# own name space.
kerberos_for_b() {
    # shellcheck disable=SC2016
    nsenter --net=/run/netns/client-b unshare --mount sh -c \
        'umount /run/rpc_pipefs; mount -t rpc_pipefs rpc_pipefs /run/rpc_pipefs && exec rpc.gssd -f -v' \
        >"$RESULT/gssd-b.log" 2>&1 </dev/null &
    echo $! >>/run/lab-processes
    eventually 10 gssd_of_b $!
}
# It has opened the file of the kernel's requests, or the folder of all of them.
gssd_of_b() { [ "$(cat "/proc/$1/comm")" = rpc.gssd ] && ls -l "/proc/$1/fd" | grep rpc_pipefs; }

kerberos_hosts() {
    printf '%s\n' "127.0.0.1 $GATEWAY_NAME localhost" "10.9.0.1 $GATEWAY_NAME_FOR_B" \
        "127.0.1.1 zgate-lab.lab.test zgate-lab" >/etc/hosts
}
kerberos_settings() {
    kerberos_hosts
    cat >/etc/krb5.conf <<END
[libdefaults]
 default_realm = $REALM
 dns_lookup_kdc = false
 dns_lookup_realm = false
 rdns = false
[realms]
 $REALM = {
  kdc = 10.9.0.1:88
 }
 $FOREIGN_REALM = {
  kdc = 10.9.0.1:88
 }
[domain_realm]
 .lab.test = $REALM
END
    cat >$KERBEROS/kdc.conf <<END
[kdcdefaults]
 kdc_listen = 10.9.0.1:88
 kdc_tcp_listen = 10.9.0.1:88
[realms]
 $REALM = {
  database_name = $KERBEROS/principal
  key_stash_file = $KERBEROS/stash
 }
 $FOREIGN_REALM = {
  database_name = $KERBEROS/principal-other
  key_stash_file = $KERBEROS/stash-other
 }
[logging]
 kdc = FILE:$KERBEROS/kdc.log
END
}

# ticket UID PRINCIPAL: for the user, until `ticket_end`. The password is the name.
ticket() { echo "${2%@*}" | as "$1" kinit "$2" >/dev/null; }
ticket_end() { as "$1" kdestroy -q; }

kerberos_logs() {
    cp $KERBEROS/*.log "$RESULT" 2>/dev/null
    pkill -x rpc.gssd
    pkill -x krb5kdc
    umount /run/rpc_pipefs 2>/dev/null
    rm -f /etc/krb5.keytab /tmp/krb5cc*
    return 0
}
