# title: an iSCSI disk over both machines of a pair: multipath follows asymmetric access, reservations hold
# seconds: 10800
# machines: 2
# disk: shared
# ci: no

. /lab/guest/peer.sh
. /lab/guest/pair.sh
. /lab/guest/iscsi.sh
export RESULT
STEP_SECONDS=3600
modprobe dm_multipath 2>/dev/null || skip "no dm_multipath in this kernel"
trap 'multipath_ends; pair_ends; capture_stop' EXIT

TARGETS="[[target]]
name = \"$TARGET\"
allow_any_initiator = true

[[target.lun]]
number = 0"
PORTALS="[iscsi]
listen = [\"$A_ADDRESS:3260\"]
asymmetric = true

[[iscsi.group]]
tag = 2
listen = [\"$B_ADDRESS:3260\"]
"
MORE_CONFIG="
$PORTALS
$TARGETS
path = \"/dev/zvol/$POOL/disk\"
"
STANDBY="[server]
listen = [\"127.0.0.1:12049\"]
metrics_listen = \"127.0.0.1:9470\"
state_dir = \"/var/lib/zgate-standby\"
conf_dir = \"/var/lib/zgate-standby/conf.d\"
admin_socket = \"/run/zgate/standby.sock\"

${PORTALS/asymmetric = true/asymmetric = true
standby = true}
$TARGETS
path = \"/dev/zvol/$POOL/disk\"
size = \"512MiB\"
"
export STANDBY
pool_with_disk() {
    pair_pool
    zpool import -d $POOL_DEVICE $POOL
    # XFS takes 300 MiB at least.
    zfs create -V 512M -o volblocksize=16K $POOL/disk
    # udev may still look at the new disk.
    eventually 60 zpool export $POOL
}
export UDEV_RULE=/run/udev/rules.d/61-zvol-nowatch.rules
standby_prepare() {
    # A reset may have left half of it: the root has no journal.
    rm -rf /var/lib/zgate-standby
    install -d -m 700 /var/lib/zgate-standby
    install -d /etc/zgate /var/lib/zgate-standby/conf.d
    echo "$STANDBY" >/etc/zgate/standby.toml
    # udev would look at the zvol when the gateway has closed it, and the export of the
    # pool fails meanwhile.
    install -d /run/udev/rules.d
    echo 'SUBSYSTEM=="block", KERNEL=="zd*", OPTIONS+="nowatch"' >$UDEV_RULE
    udevadm control --reload || true
    zgate config check /etc/zgate/standby.toml
}
standby_configuration() {
    pair_configuration
    # Programs start slowly on an emulated processor.
    sed 's/timeout="[0-9]*s"/timeout="180s"/' /lab/deploy/pacemaker/standby.xml >/tmp/standby.xml
    cibadmin -c -M -o configuration -x /tmp/standby.xml
    eventually $CLUSTER_SECONDS serves_somewhere || { pair_state; return 1; }
    pair_move $NODE_A
    eventually $CLUSTER_SECONDS standby_at $NODE_B || { pair_state; return 1; }
}
standby_at() { crm_resource --locate --resource tank-standby-all 2>/dev/null | grep "running on: $1 *\$"; }

logged_in() {
    # Quick to give a path up: there is another one.
    replacement_timeout 5
    portal_discover $A_ADDRESS
    same 2 "$(portal_discover $A_ADDRESS | wc -l)" "portals that discovery names"
    iscsiadm -m node -T $TARGET --login
    eventually 120 disk_there $A_ADDRESS
    eventually 120 disk_there $B_ADDRESS
}
mapped() {
    cat >/etc/multipath.conf <<END
defaults {
    find_multipaths no
    polling_interval 2
    user_friendly_names yes
}
devices {
    device {
        vendor "ZGATE"
        product "ZGATE DISK"
        path_grouping_policy group_by_prio
        prio alua
        path_checker tur
        hardware_handler "1 alua"
        failback immediate
        # 20 minutes: a takeover takes long on an emulated machine.
        no_path_retry 600
    }
}
END
    pgrep -x multipathd || multipathd
    eventually 120 test -e /dev/mapper/mpatha
    both_paths $A_ADDRESS
    sg_rtpg --decode "$(iscsi_disk $A_ADDRESS)"
    sg_rtpg --decode "$(iscsi_disk $B_ADDRESS)"
    sg_inq --page=0x83 "$(iscsi_disk $B_ADDRESS)"
}
# path_states: "DISK STATE PRIORITY" of each path, as multipath knows them.
path_states() {
    multipath -ll | awk '/ prio=/ { sub(/.* prio=/, ""); priority = $1 }
        / sd[a-z]+ / { for (n = 1; n < NF; n++) if ($n ~ /^sd/) print $n, $(n + 3), priority }'
}
# leads_to ADDRESS: the path there is used, the other one is in standby and never preferred.
leads_to() {
    local other=$A_ADDRESS
    [ "$1" != "$A_ADDRESS" ] || other=$B_ADDRESS
    path_states | awk -v used="$(basename "$(iscsi_disk "$1")")" \
        -v waits="$(basename "$(iscsi_disk "$other")")" '
        $1 == used && $2 == "ready" { more = $3; paths++ }
        $1 == waits && $2 == "ghost" { less = $3; paths++ }
        END { exit !(NR == 2 && paths == 2 && more > less) }'
}
# both_paths ADDRESS: waits for that.
both_paths() {
    eventually 300 leads_to "$1" || { multipath -ll; return 1; }
    multipath -ll
}
address_of() { if [ "$1" = "$NODE_A" ]; then echo $A_ADDRESS; else echo $B_ADDRESS; fi; }
standby_refuses() {
    local disk said
    disk=$(iscsi_disk $B_ADDRESS)
    # sg_turs ends with 0 where a port is in standby, as if it were ready. TEST UNIT READY:
    said=$(sg_raw "$disk" 0 0 0 0 0 0 2>&1 || true)
    echo "$said"
    grep -i 'in standby' <<<"$said"
    refused "Input/output\|No such device" dd if="$disk" of=/dev/null bs=4096 count=1 iflag=direct
}
# The registration is that of one session, at A: to the disk the session at B is
# another initiator port.
pr() { sg_persist "${@:2}" "$(iscsi_disk "$1")"; }
writes_at() { dd if=/dev/zero of="$(iscsi_disk "$1")" bs=4096 count=1 oflag=direct status=none; }
reserved() {
    pr $A_ADDRESS --out --register --param-sark=0xa --param-aptpl
    pr $A_ADDRESS --out --reserve --param-rk=0xa --prout-type=1
    writes_at $A_ADDRESS
}
kept_at_b() {
    pair_move $NODE_B
    both_paths $B_ADDRESS
    pr $B_ADDRESS --in --read-reservation | grep 0xa
    refused "conflict\|Invalid exchange\|Input/output" writes_at $B_ADDRESS
}
kept_at_a() {
    pair_move $NODE_A
    both_paths $A_ADDRESS
    pr $A_ADDRESS --in --read-reservation | grep 0xa
    eventually 60 writes_at $A_ADDRESS
    pr $A_ADDRESS --out --clear --param-rk=0xa
}
writer() {
    mkfs.xfs -q -f /dev/mapper/mpatha
    mkdir -p /mnt/disk
    mount /dev/mapper/mpatha /mnt/disk
    writer_start disk /mnt/disk
}
switched() {
    pair_move "$1"
    writer_goes_on disk 360
    both_paths "$(address_of "$1")"
}
crashed() {
    power reset
    pair_serves $NODE_A
    writer_goes_on disk 360
    # The cluster starts the standby as soon as B is a node again.
    b_ready
    on_b node_prepare
    on_b standby_prepare
    pair_rejoins
    eventually $CLUSTER_SECONDS standby_at $NODE_B || { pair_state; return 1; }
    both_paths $A_ADDRESS
}
kept() {
    figure "longest fsync over the switches" "$(longest disk)" s
    kill -TERM "$(cat /tmp/writer-disk)"
    eventually 60 process_ended /tmp/writer-disk
    umount /mnt/disk
    xfs_repair -n /dev/mapper/mpatha
    mount /dev/mapper/mpatha /mnt/disk
    python3 /lab/guest/records.py /tmp/notes-disk /mnt/disk/written-disk
    umount /mnt/disk
}
multipath_ends() {
    kill -9 "$(cat /tmp/writer-disk)" 2>/dev/null
    # After a failure both paths may be down: what waits for one gets an error. Before the
    # unmount, which nothing ends while it waits.
    dmsetup message mpatha 0 fail_if_no_path 2>/dev/null
    ! grep -q ' /mnt/disk ' /proc/mounts || umount /mnt/disk || umount -l /mnt/disk
    timeout 60 multipath -F
    pkill -x multipathd
    timeout 60 iscsiadm -m node -u
    rm -f $UDEV_RULE
}
need "the second machine is there" b_ready
need "client, service and machines have one network" pair_network
need "node A is prepared" node_prepare
need "node B is prepared" on_b node_prepare
need "the standby of A is configured" standby_prepare
need "the standby of B is configured" on_b standby_prepare
need "a pool with a zvol" pool_with_disk
need "corosync and Pacemaker run on both" pair_start
need "the pair serves at A, B is in standby" standby_configuration
need "the initiator runs" initiator_start
need "discovery at A names both machines; login to both" logged_in
need "multipath: one path is active, one in standby" mapped
step "the standby refuses what needs the disk" standby_refuses
need "a file system and a writer" writer
# Each begins where the one before has ended.
need "to B: multipath follows" switched $NODE_B
need "B is reset: multipath follows to A" crashed
need "nothing acknowledged is lost" kept
need "A's session reserves the disk, with APTPL" reserved
need "at B the reservation keeps others out" kept_at_b
step "back at A its holder writes" kept_at_a
