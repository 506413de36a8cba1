# title: Kerberos: identities, what must be refused, and what a listener reads
# seconds: 700
# ci: no

. /lab/guest/kerberos.sh

ALICE=1001
BOB=1002
STRANGER=1003
for user in alice:$ALICE bob:$BOB; do
    id "${user%:*}" >/dev/null 2>&1 || useradd -u "${user#*:}" -U "${user%:*}"
done
getent group crew >/dev/null || groupadd -g 4000 crew
gpasswd -a alice crew >/dev/null

store_make "$(best_store)"
mkdir -p "$STORE/all" "$STORE/only"
chmod 1777 "$STORE/all" "$STORE/only"

# kerberos_export DIRECTORY FLAVOURS
kerberos_export() {
    EXPORTS+=("[[export]]
path = \"$STORE/$1\"
pseudo = \"/$1\"
clients = [{ match = \"0.0.0.0/0\", access = \"rw\", security = [$2] }]
")
}
kerberos_export all '"krb5p", "krb5i", "krb5", "sys"'
kerberos_export only '"krb5p"'
MORE_CONFIG="[kerberos]
keytab = \"$KERBEROS/gateway.keytab\""

need "a realm with a KDC" kerberos_start alice bob
need "the gateway serves" gateway_start
SERVER=$GATEWAY_NAME

need "alice has a ticket" ticket $ALICE alice

groups_of_the_server() {
    echo shared >"$STORE/all/of-the-crew"
    chown 0:4000 "$STORE/all/of-the-crew"
    chmod 640 "$STORE/all/of-the-crew"
    client_mount 4.2 /mnt/groups sec=krb5 /all
    # The client's processes of alice are in no group: the server knows better.
    same shared "$(as $ALICE cat /mnt/groups/of-the-crew)"
    ticket $BOB bob
    refused "denied" as $BOB cat /mnt/groups/of-the-crew
    umount /mnt/groups
}
machine_is_nobody() {
    client_mount 4.2 /mnt/machine sec=krb5p /all
    echo x >/mnt/machine/by-root
    same 65534 "$(stat -c %u "$STORE/all/by-root")" "owner of what root of the client writes"
    umount /mnt/machine
}
without_a_ticket() {
    client_mount 4.2 /mnt/none sec=krb5p /only
    # The kernel says "stale" of the root of a mount that a user may not ask about.
    refused "denied\|stale" as $STRANGER ls /mnt/none
    refused "denied\|stale" as $STRANGER touch /mnt/none/x
    ticket_end $BOB
    # A new mount: the kernel keeps contexts of users.
    refused "denied\|stale" as $BOB touch /mnt/none/x
    umount /mnt/none
}
weaker_is_refused() {
    refused "denied\|not permitted\|incorrect mount option" client_mount 4.2 /mnt/weak sec=sys /only
    refused "denied\|not permitted\|incorrect mount option" client_mount 4.2 /mnt/weak sec=krb5i /only
    refused "denied\|not permitted\|incorrect mount option" client_mount 4.0 /mnt/weak sec=krb5 /only
    refused "denied\|not permitted\|incorrect mount option" client_mount 3 /mnt/weak sec=sys /only
}
found_by_itself() {
    client_mount 4.2 /mnt/self "" /only
    grep "/mnt/self .*sec=krb5p" /proc/mounts
    umount /mnt/self
    client_mount 4.2 /mnt/self "" /
    same "all only" "$(as $ALICE ls /mnt/self | tr '\n' ' ' | sed 's/ $//')" exports
    as $ALICE touch /mnt/self/only/crossed
    umount -R /mnt/self || { umount /mnt/self/only; umount /mnt/self/all; umount /mnt/self; }
}
of_another_realm() {
    ticket $STRANGER stranger@$FOREIGN_REALM
    client_mount 4.2 /mnt/foreign sec=krb5i /all
    as $STRANGER touch /mnt/foreign/by-a-stranger
    same 65534 "$(stat -c %u "$STORE/all/by-a-stranger")" owner
    ticket_end $STRANGER
    umount /mnt/foreign
}
nothing_readable() {
    local flavor found
    for flavor in krb5i krb5p; do
        rm -f "$RESULT/packets.pcap"
        client_mount 4.2 /mnt/wire "sec=$flavor" /all
        capture_start
        as $ALICE sh -c 'echo a-secret-in-the-file >/mnt/wire/a-secret-name'
        drop_caches
        as $ALICE cat /mnt/wire/a-secret-name
        sleep 1
        capture_stop
        CAPTURE=
        found=$(grep -c -a a-secret "$RESULT/packets.pcap" || true)
        if [ $flavor = krb5i ]; then
            [ "$found" -gt 0 ] || fail "the capture has not seen the file with krb5i"
        else
            same 0 "$found" "packets with readable names or data"
        fi
        as $ALICE rm /mnt/wire/a-secret-name
        umount /mnt/wire
        rm -f "$RESULT/packets.pcap"
    done
}
a_restart() {
    client_mount 4.2 /mnt/restart sec=krb5p /all
    as $ALICE sh -c 'echo before >/mnt/restart/log'
    gateway_kill
    gateway_start
    # The contexts of before are unknown to it: the client makes new ones.
    as $ALICE sh -c 'echo after >>/mnt/restart/log'
    same "before after" "$(tr '\n' ' ' <"$STORE/all/log" | sed 's/ $//')"
    umount /mnt/restart
}

step "groups are those of the server" groups_of_the_server
step "a machine is nobody" machine_is_nobody
step "without a ticket nobody gets in" without_a_ticket
step "weaker flavours are refused" weaker_is_refused
step "a client finds the flavour by itself" found_by_itself
step "a user of a trusted realm is nobody here" of_another_realm
step "nothing is readable on the wire with krb5p" nothing_readable
step "contexts are made anew after a restart" a_restart
kerberos_logs
conclude
