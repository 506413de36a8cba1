# title: the shipped example under the shipped unit: all that it names is served, NFS, RDMA, iSCSI, snapshots
# seconds: 420
# ci: no
# The example as it is, at the place the unit expects it; docs/LAB.md says what
# of the unit applies here.

. /lab/guest/iscsi.sh
. /lab/guest/rdma.sh
. /lab/guest/unit.sh
[ -d /sys/module/zfs ] || skip "this image has no ZFS"
CONFIG=$UNIT_CONFIG
TARGET=iqn.2026-11.io.zgate:vm
INITIATOR=iqn.1993-08.org.debian:01:lab
# In the network that the example admits.
WIRE_ADDRESS=10.10.0.1

# What the example names and a machine has to have.
machine_made() {
    zpool create -f -O mountpoint=/zfast zfast "$STORE_DISK"
    zpool create -f -O mountpoint=/llm llm "$OTHER_DISK"
    zfs create zfast/models
    zfs create zfast/luns
    zfs create llm/backup
    zfs create llm/vm
    zfs create -s -V 64M -o volblocksize=16K llm/vm/iscsi0
    eventually 20 test -b /dev/zvol/llm/vm/iscsi0
    zfs allow -u root snapshot,destroy,mount llm
    chmod 1777 /zfast/models
    rdma_wire
    unit_install
    install -m 644 "$EXAMPLE" "$CONFIG"
    (umask 077 && echo secret-of-pve-01 >/etc/zgate/pve.secret && echo secret-of-zgate1 >/etc/zgate/zgate.secret)
}
unit_applies() {
    local pid rights bits=0 name
    pid=$(cat /run/zgate/pid)
    cmp "$EXAMPLE" "$CONFIG"
    grep -E 'Max (open files|locked memory)' "/proc/$pid/limits"
    grep -E '^Max locked memory +unlimited +unlimited' "/proc/$pid/limits"
    rights=$(sed -n 's/^CapBnd:\t/0x/p' "/proc/$pid/status")
    for name in $(unit_key CapabilityBoundingSet); do
        capability_bit "$name"
        bits=$((bits | 1 << BIT))
    done
    same "$bits" "$((rights))" "bounding set"
}
# As in linux/capability.h.
capability_bit() {
    case $1 in
        CAP_CHOWN) BIT=0 ;;
        CAP_DAC_OVERRIDE) BIT=1 ;;
        CAP_DAC_READ_SEARCH) BIT=2 ;;
        CAP_FOWNER) BIT=3 ;;
        CAP_FSETID) BIT=4 ;;
        CAP_SETGID) BIT=6 ;;
        CAP_SETUID) BIT=7 ;;
        CAP_MKNOD) BIT=27 ;;
        *) fail "the scenario does not know $1" ;;
    esac
}
files_served() {
    SERVER=$WIRE_ADDRESS client_mount 4.2 /mnt/a "" /models
    as 1000 sh -c 'echo text >/mnt/a/file'
    same 1000 "$(stat -c %u /zfast/models/file)" owner
    # This host is not the one that /backup is for.
    refused "No such file" mount -t nfs -o "$(nfs_options 4.2)" $WIRE_ADDRESS:/backup /mnt
}
rdma_served() {
    eventually 30 rdma_listens
    mkdir -p /mnt/r
    mount -t nfs -o "$(rdma_options 4.2)" $WIRE_ADDRESS:/models /mnt/r
    same text "$(cat /mnt/r/file)" "over RDMA"
    pattern /mnt/r/large 8
    cmp /mnt/r/large /zfast/models/large
    umount /mnt/r
}
disks_served() {
    modprobe iscsi_tcp
    modprobe sd_mod
    mkdir -p /run/lock/iscsi /etc/iscsi
    echo "InitiatorName=$INITIATOR" >/etc/iscsi/initiatorname.iscsi
    iscsid
    eventually 10 pgrep -x iscsid
    portal_discover $WIRE_ADDRESS
    refused "authorization" portal_login $WIRE_ADDRESS
    local key
    for key in authmethod=CHAP username=pve password=secret-of-pve-01 \
        username_in=zgate password_in=secret-of-zgate1; do
        iscsiadm -m node -T $TARGET -p $WIRE_ADDRESS:3260 -o update \
            -n "node.session.auth.${key%%=*}" -v "${key#*=}"
    done
    portal_login $WIRE_ADDRESS
    same $((64 << 20)) "$(blockdev --getsize64 "$(iscsi_disk $WIRE_ADDRESS)")" "size of LUN 0"
    portal_logout $WIRE_ADDRESS
}
snapshots_taken() {
    taken() { zfs list -Ht snapshot -o name llm/vm | grep _hourly; }
    eventually 90 taken
}
metrics_served() {
    exec 3<>/dev/tcp/127.0.0.1/9469
    printf 'GET /metrics?from=lab HTTP/1.0\r\n\r\n' >&3
    cat <&3 >/tmp/metrics
    exec 3>&-
    grep '^zgate_build_info{version=' /tmp/metrics
    grep '^zgate_rdma_listening{.*} 1' /tmp/metrics
    grep '^process_resident_memory_bytes [1-9]' /tmp/metrics
    figure "resident memory" "$(awk '$1 == "process_resident_memory_bytes" { print $2 / 1048576 }' /tmp/metrics)" MiB
}
# Without the unit's limit the arena cannot be pinned; TCP clients do not notice.
limit_matters() {
    umount /mnt/a
    gateway_stop
    prlimit --memlock=$((8 << 20)) setpriv --bounding-set "$(unit_rights)" --no-new-privs \
        "$ZGATE" serve --config "$CONFIG" >>/run/zgate/log 2>&1 </dev/null &
    echo $! >/run/zgate/pid
    eventually 30 port_open 2049
    refusal() { grep 'cannot register the arena' /run/zgate/log; }
    eventually 30 refusal
    ! rdma_listens || fail "RDMA is served without locked memory"
    SERVER=$WIRE_ADDRESS client_mount 4.2 /mnt/a "" /models
    same text "$(cat /mnt/a/file)" "over TCP"
}

need "pools, secrets and a device, as the example names them" machine_made
need "the gateway starts as the unit says" unit_start
step "its rights and limits are the unit's" unit_applies
step "files over TCP" files_served
step "files over RDMA" rdma_served
step "a disk, with both secrets" disks_served
step "the schedule is kept" snapshots_taken
step "metrics" metrics_served
step "without the limit of locked memory there is no RDMA" limit_matters
step "the gateway lives" gateway_alive
