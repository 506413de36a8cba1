# title: ids of clients that stand for others, groups that the server knows, names with a domain
# seconds: 400
# ci: no

STRANGER=1500
for user in mapped:101101 member:1101; do
    id "${user%:*}" >/dev/null 2>&1 || useradd -u "${user#*:}" -U "${user%:*}"
done
# More groups than a call has room for.
for number in $(seq 1 20); do
    getent group "crew$number" >/dev/null || groupadd -g $((4000 + number)) "crew$number"
    gpasswd -a member "crew$number" >/dev/null
done
store_make "$(best_store)"
# identity_export NAME KEYS OF THE ENTRY
identity_export() {
    mkdir -p -m 1777 "$STORE/$1"
    EXPORTS+=("[[export]]
path = \"$STORE/$1\"
pseudo = \"/$1\"
clients = [{ match = \"0.0.0.0/0\", access = \"rw\", $2 }]
")
}
identity_export mapped 'map_uids = ["1000-1499 -> 101000"], map_gids = ["1000-1499 -> 101000"]'
identity_export groups 'manage_groups = true'
identity_export plain 'squash = "root"'
need "the gateway serves" gateway_start

# 1101 of the client is 101101 of the server.
mapped() {
    client_mount "$1" /mnt/mapped "" /mapped
    as 1101 sh -c 'echo mine >/mnt/mapped/file; chmod 640 /mnt/mapped/file'
    same 101101:101101 "$(stat -c %u:%g "$STORE/mapped/file")" "owner at the store"
    same 1101:1101 "$(stat -c %u:%g /mnt/mapped/file)" "owner as the client sees it"
    same 1101:1101 "$(ls -n /mnt/mapped | awk '/file/ { print $3 ":" $4 }')" "in a listing"
    as 1101 chgrp 1101 /mnt/mapped/file
    same mine "$(as 1101 cat /mnt/mapped/file)"
    refused "denied" as 1102 cat /mnt/mapped/file
    # Not in the ranges: nobody.
    as $STRANGER touch /mnt/mapped/of-a-stranger
    same 65534 "$(stat -c %u "$STORE/mapped/of-a-stranger")" "owner of what a stranger writes"
    touch /mnt/mapped/by-root
    same 65534 "$(stat -c %u "$STORE/mapped/by-root")" "owner of what root writes"
    echo here >"$STORE/mapped/of-root"
    same 65534 "$(stat -c %u /mnt/mapped/of-root)" "owner of a file of the server's root"
    rm -f "$STORE"/mapped/*
    umount /mnt/mapped
}
acl() {
    client_mount 4.2 /mnt/mapped "" /mapped
    as 1101 touch /mnt/mapped/shared
    as 1101 nfs4_setfacl -a A::1102:r /mnt/mapped/shared
    getfacl -n "$STORE/mapped/shared" | tee /dev/stderr | grep 'user:101102:r'
    as 1101 nfs4_getfacl /mnt/mapped/shared | tee /dev/stderr | grep ':1102:'
    rm -f "$STORE"/mapped/*
    umount /mnt/mapped
}
for version in 4.2 4.0 3; do
    step "v$version: ids are mapped both ways" mapped $version
done
if command -v nfs4_setfacl >/dev/null && command -v getfacl >/dev/null; then
    step "v4.2: ACL entries are mapped" acl
fi

groups() {
    local number
    mkdir -p "$STORE/groups/dir"
    for number in 1 17 20; do
        echo "$number" >"$STORE/groups/of-crew$number"
        chown 0:$((4000 + number)) "$STORE/groups/of-crew$number"
        chmod 640 "$STORE/groups/of-crew$number"
    done
    echo plain >"$STORE/plain/of-crew20"
    chown 0:4020 "$STORE/plain/of-crew20"
    chmod 640 "$STORE/plain/of-crew20"
    client_mount "$1" /mnt/groups "" /groups
    client_mount "$1" /mnt/plain "" /plain
    # The client's process states no groups at all.
    for number in 1 17 20; do
        same $number "$(as 1101 cat "/mnt/groups/of-crew$number")"
    done
    refused "denied" as 1102 cat /mnt/groups/of-crew20
    # Where the server does not know better, the call decides.
    refused "denied" as 1101 cat /mnt/plain/of-crew20
    # Groups that a client invents do not help.
    refused "denied" setpriv --reuid 1102 --regid 1102 --groups 4020 cat /mnt/groups/of-crew20
    umount /mnt/groups
    umount /mnt/plain
}
for version in 4.2 3; do
    step "v$version: groups are those of the server, more than 16" groups $version
done

# The same domain on both sides, and a reload that brings it.
names() {
    sed -i 's/^\[server\]/[server]\nid_domain = "lab.test"/' "$CONFIG"
    "$ZGATE" reload
    mkdir -p /mnt/names
    capture_start
    client_mount 4.2 /mnt/names "" /plain
    as 1101 touch /mnt/names/of-member
    ls -l /mnt/names >/dev/null
    sleep 1
    capture_stop
    CAPTURE=
    [ "$(grep -c -a 'member@lab.test' "$RESULT/packets.pcap")" -gt 0 ] || fail "no name with the domain on the wire"
    rm -f "$RESULT/packets.pcap"
    umount /mnt/names
}
step "v4.2: owners are names with the domain" names
step "the gateway lives" gateway_alive
