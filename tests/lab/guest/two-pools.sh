# Two pools with files and a disk each, one of them on a device that stands still when told.
# After iscsi.sh and slow.sh.
# shellcheck shell=bash

# two_pools: `lab`, and `slow` on the other disk.
two_pools() {
    zpool create -f -o ashift=12 -O mountpoint=/scratch/slow slow /dev/mapper/slow
    zfs create -V 64M -o volblocksize=4K lab/vol
    zfs create -V 64M -o volblocksize=4K slow/vol
    zfs create -o primarycache=metadata slow/cold
    dd if=/dev/urandom of=/scratch/slow/cold/file bs=1M count=32 conv=fsync status=none
    zpool sync
    eventually 20 test -b /dev/zvol/lab/vol
    eventually 20 test -b /dev/zvol/slow/vol
}
# two_pools_named: LUN 0 and /export are on `lab`, LUN 1, /slow and /cold on `slow`.
two_pools_named() {
    iscsi_config /dev/zvol/lab/vol "[[target.lun]]
number = 1
path = \"/dev/zvol/slow/vol\""
    EXPORTS=()
    export_add "$STORE" /export
    export_add /scratch/slow /slow
    export_add /scratch/slow/cold /cold
}
two_pools_mounted() {
    eventually 20 port_open 3260
    client_mount 4.2 /mnt/a
    client_b_mount 4.2 /mnt/slow "" /slow
    client_b_mount 4.2 /mnt/cold "" /cold
}
# disk_written LUN [HOST [SECONDS]]: a record of that host, with FUA, over a session of its own.
disk_written() {
    python3 -c "
import sys
sys.path.insert(0, '/lab/guest')
sys.dont_write_bytecode = True
from initiator import *
session = Session('$TARGET', 'iqn.2026-11.org.example:host$1-${2:-0}', lun=$1, seconds=${3:-60})
session.run(bytes(6))
session.run(write16(${2:-0} * 8, 8, fua=True), bytes(4096))"
}
# hosts_wait COUNT: the slow pool stands still; so many writers, readers and disks wait for it.
hosts_wait() {
    device_stops slow
    local number
    for number in $(seq "$1"); do
        background dd if=/dev/zero of=/mnt/slow/written$number bs=64K count=4 conv=fsync status=none
        background dd if=/mnt/cold/file of=/dev/null bs=64K count=1 skip=$((number * 20)) iflag=direct status=none
        background disk_written 1 "$number" 300
    done
    sleep 10
}
# hosts_written COUNT SECONDS: what the writers wrote comes, within so long each.
hosts_written() {
    local number
    for number in $(seq "$1"); do
        eventually "$2" sync "/mnt/slow/written$number"
        same 262144 "$(stat -c %s "/mnt/slow/written$number")"
    done
}
