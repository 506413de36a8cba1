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
# A process keeps what it has open: like any other server in user space the
# gateway has to be told first.
busy() {
    refused busy zfs unmount lab/goes
    works one /mnt/goes
}
configured_with() {
    local name
    EXPORTS=()
    for name in "$@"; do export_add "$STORE/$name" "/$name"; done
    gateway_config
}
# What clients use is taken away only if that is said.
reload_with() {
    configured_with "$@"
    "$ZGATE" reload --force
}
let_go() {
    exec 6<>/mnt/goes/held
    echo x >&6
    sync /mnt/goes/held
    configured_with stays
    refused "take away what is in use" "$ZGATE" reload
    works used /mnt/goes
    reload_with stays
    eventually 10 zfs unmount lab/goes || { ls -l "/proc/$(cat /run/zgate/pid)/fd" | grep scratch; fail "the gateway keeps a dataset it no longer exports"; }
    drop_caches
    refused "Stale\|Input/output\|No such\|Permission" cat /mnt/goes/file
    refused "Stale\|Input/output\|No such\|Permission\|Remote I/O" sh -c 'echo x >/mnt/goes/new'
    exec 6>&- || true
    same 0 "$(ls -A "$STORE/goes" 2>/dev/null | wc -l)" "nothing written below the mount point"
    works other /mnt/stays
}
back() {
    zfs mount lab/goes
    reload_with goes stays
    eventually 60 works two /mnt/goes
    eventually 60 works three /mnt/goes3
}
destroyed() {
    reload_with stays
    eventually 10 zfs destroy lab/goes
    works more /mnt/stays
    zfs create lab/goes
    chmod 777 "$STORE/goes"
    reload_with goes stays
    drop_caches
    refused "Stale\|Input/output\|No such\|Permission" cat /mnt/goes3/file
    refused "Stale\|Input/output\|No such\|Permission" cat /mnt/goes/file
    umount -f -l /mnt/goes
    client_mount 4.2 /mnt/again "soft,timeo=50,retrans=2" /goes
    works four /mnt/again
    same four "$(cat "$STORE/goes/file")" "written to the new dataset"
}
renamed() {
    zfs create lab/old
    chmod 777 "$STORE/old"
    reload_with goes stays old
    client_mount 4.2 /mnt/old "soft,timeo=50,retrans=2" /old
    works before /mnt/old
    reload_with goes stays
    eventually 10 zfs rename lab/old lab/new
    reload_with goes stays new
    client_mount 4.2 /mnt/new "soft,timeo=50,retrans=2" /new
    same before "$(cat /mnt/new/file)"
}
# A disk that fails, a lazy unmount: the tree is there no more, the process
# lives on.
pool_gone() {
    works x /mnt/stays
    umount -l "$STORE/stays"
    works still /mnt/stays
    gateway_alive
}
step "both work" works zero /mnt/goes
step "an exported dataset is busy" busy
step "no longer exported: let go, clients hear errors, the other goes on" let_go
step "mounted and exported again: clients go on" back
step "destroyed and created anew: old handles are stale" destroyed
step "renamed" renamed
step "detached lazily: what is served stays that dataset" pool_gone
step "the gateway lives" gateway_alive
