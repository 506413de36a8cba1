# title: a dataset unmounted, renamed or destroyed while exported harms only itself
# seconds: 240

store_make zfs
zfs create lab/goes
zfs create lab/stays
chmod 777 "$STORE/goes" "$STORE/stays"
export_add "$STORE/goes" /goes
export_add "$STORE/stays" /stays
need "the gateway serves" gateway_start
client_mount 4.2 /mnt/goes "soft,timeo=50,retrans=2" /goes
client_mount 4.2 /mnt/stays "soft,timeo=50,retrans=2" /stays
client_mount 3 /mnt/goes3 "soft,timeo=50,retrans=2" /goes

works() { echo "$1" >"$2/file" && sync "$2/file" && same "$1" "$(cat "$2/file")"; }
unmounted() {
    works one /mnt/goes
    zfs unmount -f lab/goes
    drop_caches
    refused "Stale\|Input/output\|No such\|Permission" cat /mnt/goes/file
    refused "Stale\|Input/output\|No such\|Permission\|Remote I/O" sh -c 'echo x >/mnt/goes/new'
    same 0 "$(ls -A "$STORE/goes" 2>/dev/null | wc -l)" "nothing written below the mount point"
    works other /mnt/stays
}
mounted_again() {
    zfs mount lab/goes
    eventually 60 works two /mnt/goes
    eventually 60 works three /mnt/goes3
}
destroyed() {
    exec 6<>/mnt/goes/held
    echo x >&6
    zfs destroy -f lab/goes || { fuser -vm "$STORE/goes"; ls -l "/proc/$(cat /run/zgate/pid)/fd"; fail "the gateway keeps the dataset busy"; }
    drop_caches
    exec 6>&- || true
    refused "Stale\|Input/output\|No such\|Permission" ls /mnt/goes/held
    works more /mnt/stays
}
created_anew() {
    zfs create lab/goes
    chmod 777 "$STORE/goes"
    "$ZGATE" reload --config "$CONFIG" || true
    umount -f -l /mnt/goes
    client_mount 4.2 /mnt/again "soft,timeo=50,retrans=2" /goes
    works four /mnt/again
    same four "$(cat "$STORE/goes/file")" "written to the new dataset"
}
step "both work" works zero /mnt/goes
step "unmounted: errors, nothing beneath, the other goes on" unmounted
step "mounted again: goes on" mounted_again
step "destroyed under an open file" destroyed
step "created anew under the same name" created_anew
step "the gateway lives" gateway_alive
