#!/bin/bash
# After a scenario, whatever became of it: no process, mount, pool or rule of
# it is left for the next one.
set -u
. /lab/guest/lib.sh

for sessions in 1 2; do
    [ -d /sys/class/iscsi_session ] && [ -n "$(ls /sys/class/iscsi_session)" ] &&
        timeout 20 iscsiadm -m node -u >/dev/null 2>&1
done
# Clients go first, forced: their server may be dead.
awk '$3 ~ /^nfs4?$/ { print $2 }' /proc/mounts | sort -r | while read -r dir; do
    timeout 10 umount -f "$dir" 2>/dev/null || umount -f -l "$dir"
done
for pid in $(pgrep -x zgate) $(cat /run/lab-processes 2>/dev/null); do
    kill -9 "$pid" 2>/dev/null
done
rm -f /run/lab-processes
sleep 0.3
awk '$2 ~ "^/scratch" { print $2 }' /proc/mounts | sort -r | while read -r dir; do
    umount -R "$dir" 2>/dev/null || umount -l "$dir"
done
if [ -d /sys/module/zfs ]; then
    for pool in $(zpool list -H -o name 2>/dev/null); do
        zpool destroy -f "$pool" 2>/dev/null || echo "sweep: pool $pool stays"
    done
fi
losetup -D
wipefs -q -a "$STORE_DISK" "$OTHER_DISK"
blkdiscard -q -f "$STORE_DISK" 2>/dev/null
rm -rf /run/zgate /var/lib/zgate /mnt/*
exit 0
