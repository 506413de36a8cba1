# The scratch disks: one for the store the gateway exports, one for whatever a
# scenario wants beside.
# shellcheck shell=bash

if modprobe zfs 2>/dev/null; then
    # An emulated machine has little memory, and a pool that is full soon.
    echo $((256 << 20)) >/sys/module/zfs/parameters/zfs_arc_max
    echo 1 >/sys/module/zfs/parameters/zfs_bclone_enabled
fi
modprobe -a xfs loop nfs nfsv3 nfsv4 2>/dev/null
