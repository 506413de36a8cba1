#!/bin/bash
# After a scenario, whatever became of it: no process, mount, pool, device
# or rule of it is left for the next one.
set -u
. /lab/guest/lib.sh
. /lab/guest/peer.sh
. /lab/guest/slow.sh

# Whatever waits for a disk goes on.
slow_devices_mend
if [ "$HOSTNAME" = zgate-lab-b ]; then
    # All at once: there may be hundreds, and each program that is started costs an
    # emulated machine a tenth of a second.
    own=$(ps -o sid= $$ | tr -d ' ')
    sids=$(cat /run/jobs/* | grep -v -x "$own" | paste -s -d,)
    [ -z "$sids" ] || pkill -9 -s "$sids"
    # A cluster has left the sessions of its orders.
    ! pgrep -x 'pacemakerd|corosync' >/dev/null || pkill -9 'pacemaker|corosync'
    grep -L -x "$own" /run/jobs/* | xargs -r rm -f
    ip link set eth0 up
elif [ -e "$JOBS/used" ]; then
    # The other machine first, while the gateway may still live. One that
    # cannot be swept boots again: what its kernel holds would fail all that
    # comes after.
    STEP_SECONDS=40
    on_b bash /lab/guest/sweep.sh || {
        echo "sweep: the other machine boots again"
        b_crash_begins
    }
    rm -f "$JOBS/used" "$JOBS"/[0-9]*
fi
# Programs that hold RDMA devices spin.
pkill -9 -x 'ib_.*|ibv_.*|rping'
for sessions in 1 2; do
    [ -d /sys/class/iscsi_session ] && [ -n "$(ls /sys/class/iscsi_session)" ] &&
        timeout 20 iscsiadm -m node -u >/dev/null 2>&1
done
# Nor does an initiator remember targets, secrets or names of multipath devices.
rm -rf /etc/multipath.conf /etc/multipath/bindings /etc/multipath/wwids /etc/iscsi/nodes /etc/iscsi/send_targets /var/lib/iscsi/nodes /var/lib/iscsi/send_targets
# Clients go first, forced: their server may be dead. Nothing here may ask that
# server: neither umount's helper, nor the look at a path, nor the way to a mount
# that lies in another, which is why the rest goes from the top, with all below.
nfs_mounts() { awk '$3 ~ /^nfs4?$/ { print $2 }' /proc/mounts; }
nfs_mounts | sort -r | while read -r dir; do
    timeout -s KILL 5 umount -i -c -f "$dir" 2>/dev/null
done
nfs_mounts | sort | while read -r dir; do
    ! nfs_mounts | grep -q -x -F "$dir" || timeout -s KILL 5 umount -i -c -f -l "$dir"
done
# The kernel's own NFS server, where a scenario compares with it.
[ ! -e /proc/fs/nfsd/threads ] || { echo 0 >/proc/fs/nfsd/threads; exportfs -ua; }
for pid in $(pgrep -x zgate) $(cat /run/lab-processes 2>/dev/null); do
    kill -9 "$pid" 2>/dev/null
done
# The rest of it, daemons included: sessions and mounts are gone.
[ "$HOSTNAME" = zgate-lab-b ] || echo 1 >/sys/fs/cgroup/scenario/cgroup.kill
rm -f /run/lab-processes
sleep 0.3
swept=0
# A multipath device without paths would keep what waits in it, and unmounts with it.
multipath_devices() {
    [ ! -d /sys/module/dm_multipath ] || dmsetup ls --target multipath | awk -F'\t' 'NF > 1 { print $1 }'
}
for name in $(multipath_devices); do
    dmsetup message "$name" 0 fail_if_no_path
done
# Software devices go when no program and no mount holds them. One that does not
# go cannot be waited for.
for link in $(rdma link show 2>/dev/null | sed -n 's/^link \(rxe[0-9]*\).*/\1/p'); do
    rdma link delete "$link" &
    deleting=$!
    for _ in $(seq 100); do
        [ -d "/proc/$deleting" ] || break
        sleep 0.2
    done
    [ ! -d "/proc/$deleting" ] || {
        echo "sweep: RDMA device $link stays"
        swept=1
    }
done
# A switch between the second machine and the wire, and what was dropped there.
tc qdisc delete dev eth0 ingress 2>/dev/null
if [ -d /sys/class/net/switch0 ]; then
    ip link delete roce0
    ip link delete switch0
    ip link set eth0 down
    ip link set eth0 up
    ip address replace $B_ADDRESS/24 dev eth0
fi
# The switch of a pair.
if [ -d /sys/class/net/br0 ]; then
    ip link delete pair-a 2>/dev/null
    ip link set eth0 nomaster
    ip link delete br0
    ip address replace $A_ADDRESS/24 dev eth0
fi
# The wire of figures, and second addresses: the way of the other client is
# through veth-a.
ip link delete veth0 2>/dev/null
ip address show dev veth-a 2>/dev/null | awk '$1 == "inet" && $2 != "10.9.0.1/24" { print $2 }' | while read -r extra; do
    ip address delete "$extra" dev veth-a
done
awk '$2 ~ "^/(scratch|run/csi)" { print $2 }' /proc/mounts | sort -r | while read -r dir; do
    umount -R "$dir" 2>/dev/null || umount -l "$dir"
done
if [ -d /sys/module/zfs ]; then
    for pool in $(zpool list -H -o name 2>/dev/null); do
        zpool destroy -f "$pool" 2>/dev/null || echo "sweep: pool $pool stays"
    done
fi
for name in $(multipath_devices); do
    timeout 20 dmsetup remove --retry "$name" || echo "sweep: multipath device $name stays"
done
slow_devices_remove
losetup -D
# The second machine has the shared disk alone, which the first one empties.
if [ "$HOSTNAME" != zgate-lab-b ] && [ -b "$STORE_DISK" ]; then
    wipefs -q -a "$STORE_DISK" "$OTHER_DISK"
    blkdiscard -q -f "$STORE_DISK" 2>/dev/null
    [ ! -b "$SHARED_DISK" ] || blkdiscard -q -f "$SHARED_DISK"
fi
if [ -n "$(nfs_mounts)" ]; then
    echo "sweep: still mounted: $(nfs_mounts | tr '\n' ' ')"
    swept=1
fi
# Not through a mount that stayed.
rm -rf --one-file-system /run/zgate /run/csi /var/lib/zgate /var/lib/zgate-standby \
    /etc/zgate/standby.toml /mnt/*
exit $swept
