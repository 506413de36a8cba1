# title: session trunking: the kernel finds both addresses and uses them
# seconds: 300
# ci: no

store_make "$(best_store)"
SERVER=10.9.0.1
SECOND=10.9.0.3
ip address replace $SECOND/24 dev veth-a
MORE_CONFIG="
[[interface]]
address = \"$SERVER\"
role = \"both\"
clients = [\"10.9.0.0/24\"]

[[interface]]
address = \"$SECOND\"
role = \"both\"
clients = [\"10.9.0.0/24\"]
"
need "the gateway serves" gateway_start

# Addresses of the switch that leads to a server at more than one.
addresses() {
    local switch
    for switch in /sys/kernel/sunrpc/xprt-switches/switch-*; do
        grep -q "^$SERVER\$" "$switch"/xprt-*/dstaddr 2>/dev/null || continue
        cat "$switch"/xprt-*/dstaddr | sort -u
    done | sort -u
}
# Requests that went over each transport of a mount.
sends() { awk -v at="$1" '$1 == "device" { on = $5 == at } on && $1 == "xprt:" { print $8 }' /proc/self/mountstats; }
found() {
    client_mount "$1" /mnt/a trunkdiscovery,max_connect=4
    eventually 60 both_addresses
    addresses
    pattern "$STORE/data" 16
    cmp /mnt/a/data "$STORE/data"
    for n in 1 2 3 4; do
        drop_caches
        cat /mnt/a/data >/dev/null
    done
    sends /mnt/a
    same 2 "$(sends /mnt/a | wc -l)" transports
    sends /mnt/a | while read -r count; do
        [ "$count" -gt 10 ] || fail "a transport carried $count requests"
    done
}
both_addresses() { [ "$(addresses | xargs)" = "$SERVER $SECOND" ]; }
# A restart of the gateway takes both away; both come back.
over_a_restart() {
    local before
    exec 7>/mnt/a/open
    echo before >&7
    gateway_kill
    gateway_start
    echo after >&7
    exec 7>&-
    # The client may hold a delegation, and the data with it.
    sync -f /mnt/a
    same "before after" "$(xargs <"$STORE/open")" "the file"
    before=$(sends /mnt/a | sort -n | head -n 1)
    for n in 1 2 3 4; do
        drop_caches
        cmp /mnt/a/data "$STORE/data"
    done
    [ "$(sends /mnt/a | sort -n | head -n 1)" -gt "$before" ] || fail "one transport stays unused"
}
# Without the option there is one way, and without a second interface nothing to find.
not_asked() {
    client_mount 4.2 /mnt/n
    same 1 "$(sends /mnt/n | wc -l)" transports
    umount /mnt/n
}
for version in 4.1 4.2; do
    step "v$version: both addresses are found and used" found $version
    step "v$version: both come back after a restart" over_a_restart
    step "v$version: unmount" umount /mnt/a
done
step "a mount that does not ask has one way" not_asked
step "the gateway lives" gateway_alive
step "the gateway ends" gateway_stop
