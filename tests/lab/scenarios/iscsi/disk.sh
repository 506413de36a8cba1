# title: open-iscsi logs in; mkfs.xfs, files, fsck, fstrim give space back to the zvol
# seconds: 300
# ci: no

. /lab/guest/iscsi.sh
store_make "$(best_store)"
if [ "$STORE_KIND" = zfs ]; then
    zfs create -s -V 1G -o volblocksize=16K lab/vol
    eventually 20 test -b /dev/zvol/lab/vol || skip "no zvol device"
    iscsi_config /dev/zvol/lab/vol
    used() { zvol_used lab/vol; }
else
    iscsi_config "$STORE/disk.img" 'size = "1GiB"'
    used() { sync; store_used_kib "$STORE/disk.img"; }
fi
need "the gateway serves" gateway_start
need "the initiator runs" initiator_start
need "discovery" portal_discover
need "login" portal_login
DISK=$(iscsi_disk)

facts() {
    lsscsi -g
    same $((1 << 30)) "$(blockdev --getsize64 "$DISK")" capacity
    same 512 "$(blockdev --getss "$DISK")" "logical block"
    sg_inq "$DISK"
    sg_vpd -p di "$DISK"
    sg_vpd -p lbpv "$DISK"
    sg_vpd -p lbpv "$DISK" | grep 'LBPU.*1'
    sg_readcap --16 "$DISK"
    same 1 "$(lsblk -bno DISC-MAX "$DISK" | awk '{ print ($1 > 0) }')" "discard offered"
}
make_file_system() { mkfs.xfs -q -f "$DISK" && mkdir -p /mnt/disk && mount "$DISK" /mnt/disk; }
files() {
    pattern /tmp/data 64
    local began
    began=$(now)
    cp /tmp/data /mnt/disk/data
    sync -f /mnt/disk
    figure "write 64 MiB" "$(since "$began")" s
    umount /mnt/disk
    blockdev --flushbufs "$DISK"
    mount "$DISK" /mnt/disk
    began=$(now)
    cmp /tmp/data /mnt/disk/data
    figure "read 64 MiB" "$(since "$began")" s
}
checked() { umount /mnt/disk && xfs_repair -n "$DISK" && mount "$DISK" /mnt/disk; }
given_back() {
    local before after
    before=$(used)
    rm /mnt/disk/data
    sync -f /mnt/disk
    fstrim -v /mnt/disk
    sleep 2
    after=$(used)
    figure "used before fstrim" "$before" "$([ "$STORE_KIND" = zfs ] && echo bytes || echo KiB)"
    figure "used after fstrim" "$after" "$([ "$STORE_KIND" = zfs ] && echo bytes || echo KiB)"
    same 1 "$(echo "$before $after" | awk '{ print ($2 < $1 / 2) }')" "space given back ($before to $after)"
}
ext4_too() {
    umount /mnt/disk
    mkfs.ext4 -q -F "$DISK"
    mount "$DISK" /mnt/disk
    cp /tmp/data /mnt/disk/data
    umount /mnt/disk
    e2fsck -f -n "$DISK"
}
gone() { portal_logout && ! disk_there; }

step "what the disk says of itself" facts
need "mkfs.xfs and mount" make_file_system
step "64 MiB written and read back" files
step "xfs_repair finds nothing" checked
step "fstrim gives space back" given_back
step "ext4 and e2fsck" ext4_too
step "logout" gone
step "the gateway lives" gateway_alive
