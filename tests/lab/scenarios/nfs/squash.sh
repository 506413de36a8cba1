# title: users: root is squashed, others have their own rights, read-only is read-only
# seconds: 240
# ci: no

store_make "$(best_store)"
mkdir -p "$STORE/squashed" "$STORE/all" "$STORE/fixed"
chmod 1777 "$STORE/squashed"
# Not sticky: there the client itself would compare its user with the owner,
# nobody, before it asks.
chmod 777 "$STORE/all"
echo content >"$STORE/fixed/file"
install -o 1001 -g 1001 -m 700 -d "$STORE/squashed/alice"
echo mine >"$STORE/squashed/alice/file"
chown 1001:1001 "$STORE/squashed/alice/file"
chmod 600 "$STORE/squashed/alice/file"
export_add "$STORE/squashed" /squashed root
export_add "$STORE/all" /all all
export_add "$STORE/fixed" /fixed none "read_only = true"
need "the gateway serves" gateway_start

root_is_nobody() {
    cd "$1"
    touch of-root
    same 65534 "$(stat -c %u of-root)" "owner of root's file"
    refused "denied" cat alice/file
    refused "denied" ls alice
    refused "not permitted\|denied" chown 1001 of-root
    rm of-root
}
users_are_themselves() {
    cd "$1"
    same mine "$(as 1001 cat alice/file)"
    as 1001 touch alice/new
    same 1001 "$(as 1001 stat -c %u alice/new)" owner
    refused "denied" as 1002 cat alice/file
    refused "denied" as 1002 touch alice/other
    as 1002 touch of-bob
    refused "not permitted" as 1001 rm of-bob
    refused "not permitted" as 1001 chmod 777 of-bob
    refused "denied" as 1001 sh -c 'echo x >of-bob'
    as 1002 rm of-bob
    as 1001 rm alice/new
}
groups() {
    cd "$1"
    as 1001 mkdir shared
    as 1001 chmod 750 shared
    refused denied as 1002 ls shared
    setpriv --reuid 1002 --regid 1002 --groups 1001 ls shared
    as 1001 rmdir shared
}
all_are_nobody() {
    cd "$1"
    as 1001 touch of-alice
    same 65534 "$(stat -c %u of-alice)" owner
    as 1002 rm of-alice
}
# Clients ask ACCESS before some of it and then say EACCES themselves.
read_only() {
    cd "$1"
    same content "$(cat file)"
    refused "Read-only\|denied" touch new
    refused "Read-only\|denied" sh -c 'echo x >>file'
    refused "Read-only\|denied" rm file
    refused "Read-only" chmod 600 file
    same file "$(ls "$STORE/fixed")" "names at the store"
    same content "$(cat "$STORE/fixed/file")" "content at the store"
}

for version in 4.2 4.0 3; do
    step "v$version mounts" client_mount "$version" /mnt/s "" /squashed || continue
    step "v$version: root is squashed" root_is_nobody /mnt/s
    step "v$version: users have their own rights" users_are_themselves /mnt/s
    step "v$version: supplementary groups count" groups /mnt/s
    umount /mnt/s
    client_mount "$version" /mnt/all "" /all
    step "v$version: all squashed" all_are_nobody /mnt/all
    umount /mnt/all
    client_mount "$version" /mnt/fixed "" /fixed
    step "v$version: read-only export" read_only /mnt/fixed
    umount /mnt/fixed
done
whole_tree() {
    client_mount 4.2 /mnt/root "" /
    same "all fixed squashed" "$(ls /mnt/root | xargs)" "the pseudo root"
    same content "$(cat /mnt/root/fixed/file)"
    refused "Read-only\|denied" mkdir /mnt/root/x
    umount -R /mnt/root
}
step "the pseudo root shows all exports" whole_tree
