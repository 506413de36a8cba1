# title: a zvol as a disk: block sizes told, grown while mounted, rolled back to a snapshot
# seconds: 240
# ci: no

. /lab/guest/iscsi.sh
store_make zfs
zfs create -s -V 320M -o volblocksize=16K lab/vol
eventually 20 test -b /dev/zvol/lab/vol || skip "no zvol device"
iscsi_config /dev/zvol/lab/vol
need "the gateway serves" gateway_start
need "the initiator runs" initiator_start
need "discovery" portal_discover
need "login" portal_login
DISK=$(iscsi_disk)

told() {
    sg_vpd -p bl "$DISK"
    lsblk -o NAME,LOG-SEC,PHY-SEC,MIN-IO,OPT-IO,DISC-GRAN,DISC-MAX "$DISK"
    same 1 "$(blockdev --getpbsz "$DISK" | awk '{ print ($1 >= 4096) }')" "physical block of 4 KiB or more"
    same 16384 "$(blockdev --getiomin "$DISK")" "smallest good transfer"
    same 1048576 "$(blockdev --getioopt "$DISK")" "best transfer"
    same 0 $(($(lsblk -bdno DISC-GRAN "$DISK") % 4096)) "granularity of discards"
}
mounted() { mkfs.xfs -q -f "$DISK" && mkdir -p /mnt/disk && mount "$DISK" /mnt/disk; }
grown() {
    zfs set volsize=768M lab/vol
    "$ZGATE" lun resize "$TARGET" 0
    echo 1 >"/sys/block/$(basename "$DISK")/device/rescan"
    same $((768 << 20)) "$(blockdev --getsize64 "$DISK")" "capacity after the rescan"
    xfs_growfs /mnt/disk
    dd if=/dev/urandom of=/mnt/disk/large bs=1M count=320 conv=fsync status=none
    same 335544320 "$(stat -c %s /mnt/disk/large)"
    rm /mnt/disk/large
}
snapshot_is_whole() {
    echo before >/mnt/disk/file
    sync -f /mnt/disk
    zfs snapshot lab/vol@before
    echo after >/mnt/disk/file
    sync -f /mnt/disk
    zfs clone lab/vol@before lab/clone
    eventually 20 test -b /dev/zvol/lab/clone
    mkdir -p /mnt/clone
    # What was synced may lie in the log: it is replayed, as after a crash.
    mount -o nouuid /dev/zvol/lab/clone /mnt/clone
    same before "$(cat /mnt/clone/file)" "in the clone of the snapshot"
    same after "$(cat /mnt/disk/file)" "on the disk"
    umount /mnt/clone
    zfs destroy lab/clone
}
# The gateway holds the device: it is given up for the rollback.
rolled_back() {
    umount /mnt/disk
    portal_logout
    zfs rollback lab/vol@before
    portal_login
    mount "$(iscsi_disk)" /mnt/disk
    same before "$(cat /mnt/disk/file)" "after the rollback"
    umount /mnt/disk
    xfs_repair -n "$(iscsi_disk)"
}
step "block sizes" told
need "mkfs.xfs and mount" mounted
step "grown while mounted" grown
step "a snapshot holds what was synced" snapshot_is_whole
step "rolled back between two logins" rolled_back
step "logout" portal_logout
step "the gateway lives" gateway_alive
