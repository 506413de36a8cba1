# title: a pool is imported after the start of the gateway: its disks keep their sizes, a target of it alone is waited for
# seconds: 1200
# ci: no

. /lab/guest/iscsi.sh
. /lab/guest/late.sh
store_make zfs
zpool create -f -o ashift=12 -O mountpoint=none other "$OTHER_DISK"
zfs create other/vm
zfs create other/db
for zvol in lab/a other/vm/x other/db/y; do
    zfs create -V 256M -o volblocksize=16K "$zvol"
    eventually 20 test -b "/dev/zvol/$zvol" || skip "no zvol device"
done

DB_TARGET=$TARGET-db
iscsi_config /dev/zvol/lab/a "" "
[[target.volumes]]
dataset = \"other/vm/*\"
first_number = 8

[[target]]
name = \"$DB_TARGET\"
allow_any_initiator = true

[[target.volumes]]
dataset = \"other/db/*\"
"
# Looks at the partition of its disk alone: those of the target read nothing until the pool is there.
import_other() { zpool import -d "${OTHER_DISK}1" other; }
# disk NAME
disk() {
    case $1 in
        a) iscsi_disk 127.0.0.1 0 ;;
        x) iscsi_disk 127.0.0.1 8 ;;
        y) TARGET=$DB_TARGET iscsi_disk 127.0.0.1 0 ;;
    esac
}
is_there() { [ -b "$(disk "$1")" ]; }
size_of() { blockdev --getsize64 "$(disk "$1")"; }
put_off() { ! logged_in "$1" || fail "logged in to $1, whose disks are not there"; }

attached() {
    local name
    # A session that waits for its login keeps its commands for as long.
    replacement_timeout 900
    portal_discover
    iscsiadm -m node -T $TARGET -p 127.0.0.1:3260 --login
    iscsiadm -m node -T $DB_TARGET -p 127.0.0.1:3260 --login
    for name in a x y; do
        eventually 60 is_there $name
        mkfs.ext4 -q -F "$(disk $name)"
        mkdir -p /mnt/$name
        mount "$(disk $name)" /mnt/$name
    done
}
without_pool() {
    gateway_kill
    eventually 30 zpool export other
    gateway_start
    eventually 90 logged_in $TARGET
}
late() {
    local name began
    for name in a x y; do writer_start $name; done
    without_pool
    writes_on a
    writes_nothing x
    same $((256 << 20)) "$(size_of x)" "size of the disk whose pool is late"
    put_off $DB_TARGET
    writes_on a
    began=$(now)
    import_other
    eventually 90 has_more_records x "$(records_of x)"
    figure "a disk works after the import" "$(since "$began")" s
    eventually 120 logged_in $DB_TARGET
    writes_on y
    for name in a x y; do
        writer_end $name
        ext4_lives $name
    done
}
# Longer than Linux waits for a disk (100 s).
very_late() {
    umount /mnt/x
    without_pool
    ext4_lives a
    sleep 130
    same $((256 << 20)) "$(size_of x)" "size of the disk whose pool is late"
    put_off $DB_TARGET
    import_other
    eventually 90 reads "$(disk x)"
    mount "$(disk x)" /mnt/x
    grep -q alive /mnt/x/file
    eventually 120 logged_in $DB_TARGET
    ext4_lives a
    ext4_lives x
    ext4_lives y
    umount /mnt/a /mnt/x /mnt/y
}
away() {
    portal_logout
    TARGET=$DB_TARGET portal_logout
}

need "the gateway serves" gateway_start
need "the initiator runs" initiator_start
need "three disks with ext4" attached
STEP_SECONDS=400
step "one pool is late: the disk of the other works at once, its own go on when it comes" late
step "very late: its disk keeps its size" very_late
STEP_SECONDS=120
step "logout" away
step "the gateway lives" gateway_alive
