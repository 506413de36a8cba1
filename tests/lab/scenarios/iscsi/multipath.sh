# title: one disk over two portals: multipath holds when one of them goes
# seconds: 240
# ci: no

. /lab/guest/iscsi.sh
modprobe dm_multipath 2>/dev/null || skip "no dm_multipath in this kernel"
store_make "$(best_store)"
iscsi_config "$STORE/disk.img" 'size = "256MiB"'
need "the gateway serves" gateway_start
need "the initiator runs" initiator_start
SECOND=10.9.0.1
both() {
    # Quick to give a path up: there is another one.
    replacement_timeout 5
    portal_discover
    portal_discover $SECOND || true
    iscsiadm -m node -T $TARGET -p $SECOND:3260 -o new >/dev/null 2>&1 || true
    portal_login
    portal_login $SECOND
}
mapped() {
    cat >/etc/multipath.conf <<END
defaults {
    find_multipaths no
    polling_interval 2
    user_friendly_names yes
}
END
    pgrep -x multipathd || multipathd
    eventually 30 test -e /dev/mapper/mpatha
    multipath -ll
    same 2 "$(multipath -ll | grep -c 'active ready')" paths
}
one_goes() {
    pattern /tmp/data 16
    dd if=/tmp/data of=/dev/mapper/mpatha bs=1M oflag=direct status=none
    path_down
    dd if=/dev/mapper/mpatha bs=1M count=16 iflag=direct status=none | cmp /tmp/data -
    path_up
    eventually 60 both_ready
}
# The second portal's address leaves, as with a pulled cable.
path_down() { ip addr del $SECOND/24 dev veth-a; ss -K dst $SECOND >/dev/null 2>&1 || true; }
path_up() { ip addr add $SECOND/24 dev veth-a; }
both_ready() { [ "$(multipath -ll | grep -c 'active ready')" = 2 ]; }
away() {
    multipath -F
    pkill -x multipathd
    portal_logout
    portal_logout $SECOND
}
need "login over both portals" both
need "multipath makes one disk of two" mapped
step "a path goes and comes" one_goes
step "logout" away
