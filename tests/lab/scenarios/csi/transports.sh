# title: transports of a node: NFS/RDMA and iSER, TCP where they fail, two portals as one disk
# seconds: 3000
# ci: no

. /lab/guest/rdma.sh
. /lab/guest/csi.sh
. /lab/guest/volumes.sh
STEP_SECONDS=600
COUNT=3
LEASE_SECONDS=45
# The second portal, on the other end of the wire between the clients.
SECOND=10.9.0.1
csi_program kubelet
modprobe dm_multipath 2>/dev/null || skip "no dm_multipath in this kernel"

# Both ends of the wire are this machine; iSER and NFS/RDMA go over it.
transports_gateway() {
    rdma_wire || skip "no soft-RoCE in this kernel"
    modprobe ib_iser
    ADDRESS=$WIRE_ADDRESS
    CSI_CONFIG="$RDMA_CONFIG"
    ISCSI_LINES='iser_listen = ["0.0.0.0:3261"]'
    csi_start --transport rdma
}
over() {
    local found
    found=$(grep -c "$CSI_DIR/pods/vol-nfs-.*/staging .*proto=$1" /proc/mounts || true)
    same "$COUNT" "$found" "mounts over $1"
    found=$(iscsiadm -m session | grep -c "^$2: " || true)
    same "$COUNT" "$found" "sessions over $2"
}
made_over_rdma() {
    both up
    over rdma iser
    written before
    both healthy
    same 0 "$(wrong_in vol before)" "volumes with other content"
}
gone() {
    both down-node
    both delete
    csi_nothing_left
    same 0 "$(find /sys/block -name 'dm-*' | wc -l)" "multipath devices"
}
driver_stop() { pkill -f "csi --endpoint $CSI_SOCKET" && eventually 10 no_driver; }
no_driver() { ! pgrep -f "csi --endpoint $CSI_SOCKET"; }
# The gateway says that it has RDMA; at this address of it nothing does.
fallback() {
    driver_stop
    sed -i "s/^address.*/address = \"$SECOND\"/" "$CSI_DIR/csi.toml"
    ADDRESS=$SECOND driver_start
    eventually 30 driver_serves
    both up
    over tcp tcp
    written before
    both healthy
}
two_portals() {
    gateway_stop
    driver_stop
    tcp_gateway_start
    cat >/etc/multipath.conf <<END
defaults {
    find_multipaths no
    polling_interval 2
    user_friendly_names no
}
devices {
    device {
        vendor "ZGATE"
        product "ZGATE DISK"
        no_path_retry queue
    }
}
END
    multipathd
    eventually 30 multipathd_answers
    driver_start
    eventually 30 driver_serves
}
multipathd_answers() { multipathd show daemon | grep '^ *pid'; }
on_multipath() {
    kubelet iscsi up
    same $((2 * COUNT)) "$(iscsiadm -m session | wc -l)" sessions
    same "$COUNT" "$(grep -c '^/dev/\(mapper/\|dm-\).*pods/vol-iscsi-.*/staging ' /proc/mounts || true)" "mounts of multipath devices"
    eventually 60 all_paths
    # A gateway that is away for longer takes all paths: what waits is kept by the device.
    same "$COUNT" "$(dmsetup table --target multipath | grep -c queue_if_no_path || true)" "devices that queue"
    same 5 "$(cat /sys/class/iscsi_session/*/recovery_tmo | sort -u)" "seconds until a path fails"
    written before
}
path_goes() {
    ip address delete $SECOND/24 dev veth-a
    ss -K dst $SECOND >/dev/null 2>&1 || true
    alive one-path
    ip address add $SECOND/24 dev veth-a
    eventually 60 all_paths
    # Growth reaches the disk through both paths.
    kubelet iscsi expand --bytes $((96 << 20))
    local one
    for one in "$CSI_DIR"/pods/vol-iscsi-*/target; do
        [ "$(df --output=size -B1 "$one" | tail -n 1)" -gt $((80 << 20)) ] || fail "$one has not grown"
    done
}
# Both paths of each disk are away for longer than the 5 s after which a path fails.
both_paths_go() {
    local one writers=()
    gateway_kill
    for one in "$CSI_DIR"/pods/vol-iscsi-*/target; do
        (echo late >"$one/late" && sync "$one/late") &
        writers+=($!)
    done
    sleep 20
    tcp_gateway_start
    for one in "${writers[@]}"; do wait "$one" || fail "a write has failed"; done
    eventually 60 all_paths
    alive gateway-away
    kubelet iscsi healthy
}
all_paths() { [ "$(multipath -ll | grep -c 'active ready')" = $((2 * COUNT)) ]; }
paths_gone() {
    kubelet iscsi down-node
    kubelet iscsi delete
    csi_nothing_left
    same "" "$(multipath -ll)" "multipath devices"
}
# Nothing of any volume is on the node.
no_disk_left() {
    same "" "$(ls /sys/class/iscsi_session)" sessions
    same 0 "$(disks_there)" disks
    same "" "$(multipath -ll)" "multipath devices"
    same "No devices found" "$(dmsetup ls)" "devices of the device mapper"
}
# multipath would keep what waits for a dead gateway without end. What was written last waits, too,
# and the file system with it: its device is in use until the logout.
dead_is_unstaged() {
    local one seconds
    kubelet iscsi up
    same $((2 * COUNT)) "$(iscsiadm -m session | wc -l)" sessions
    eventually 60 all_paths
    for one in "$CSI_DIR"/pods/vol-iscsi-*/target; do
        echo late >"$one/late"
    done
    gateway_kill
    seconds=$(kubelet iscsi down-node --parallel 1 --patience 0 | cut -d' ' -f1)
    figure "longest unpublish or unstage of a dead gateway, two portals" "$seconds" s
    awk -v s="$seconds" 'BEGIN { exit !(s < 30) }' || fail "$seconds s"
    no_disk_left
    tcp_gateway_start
    kubelet iscsi delete
    csi_nothing_left
    no_disk_left
}
# Without multipathd one path is used.
one_path() {
    pkill -x multipathd
    eventually 30 no_daemon
    kubelet iscsi up
    same "$COUNT" "$(grep -c '^/dev/sd.*pods/vol-iscsi-.*/staging ' /proc/mounts || true)" "mounts of single paths"
    written before
    kubelet iscsi down-node
    kubelet iscsi delete
    csi_nothing_left
}
no_daemon() { ! pgrep -x multipathd; }

transports_gateway
step "NFS over RDMA and iSER, by the node's transport" made_over_rdma
step "nothing is left of them" gone
step "TCP where nothing answers over RDMA" fallback
step "nothing is left of the others" gone
# For each gateway and driver from here on, so not in a step, whose variables end with it: two
# portals without RDMA. The gateway sees another address of the node at each of them.
CSI_LISTEN="\"$WIRE_ADDRESS:3260\", \"$SECOND:3260\""
ISCSI_LINES=""
CSI_CONFIG=""
csi_config
DRIVER_OPTIONS=(--address "$SECOND")
need "two portals" two_portals
step "both paths are one disk" on_multipath
step "a path goes and comes; the disk grows" path_goes
step "the gateway of both paths goes and comes" both_paths_go
step "unstaging removes the device and its paths" paths_gone
step "a disk with two paths to a dead gateway is unstaged" dead_is_unstaged
step "one path where multipathd does not run" one_path
conclude
