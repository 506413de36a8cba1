# title: a target of which one zvol is late at a start of the gateway: the others work at once, no file system dies, no rescan
# seconds: 1500
# ci: no

. /lab/guest/iscsi.sh
. /lab/guest/late.sh
store_make zfs
for name in a b c; do
    zfs create -V 256M -o volblocksize=16K "lab/$name"
    eventually 20 test -b "/dev/zvol/lab/$name" || skip "no zvol device"
done

# configured NAME…: the zvols are the LUNs from 0 on.
configured() {
    local number=0 name luns=""
    for name in "${@:2}"; do
        number=$((number + 1))
        luns+="
[[target.lun]]
number = $number
path = \"/dev/zvol/lab/$name\"
"
    done
    iscsi_config "/dev/zvol/lab/$1" "" "$luns"
}
disk() { iscsi_disk 127.0.0.1 "$1"; }
size_of() { blockdev --getsize64 "$(disk "$1")"; }
# Before udev names it: that takes a read of its partitions.
size_is() {
    same $(($2 / 512)) "$(cat /sys/class/scsi_device/*:0:0:"$1"/device/block/*/size)" "sectors of LUN $1"
}

attached() {
    local number=0 name
    portal_discover
    portal_login
    for name in a b c; do
        eventually 30 disk_there 127.0.0.1 $number
        mkfs.ext4 -q -F "$(disk $number)"
        mkdir -p "/mnt/$name"
        mount "$(disk $number)" "/mnt/$name"
        number=$((number + 1))
    done
}
# As after a power failure: the gateway is there before one of the devices.
late() {
    local began name
    for name in a b c; do writer_start $name; done
    gateway_kill
    take_away lab/c
    gateway_start
    eventually 60 logged_in $TARGET
    began=$(now)
    writes_on a
    writes_on b
    figure "the others work after the login" "$(since "$began")" s
    writes_nothing c
    writes_on a
    same $((256 << 20)) "$(size_of 2)" "size of the late disk"
    sleep 20
    began=$(now)
    give_back lab/c
    eventually 90 has_more_records c "$(records_of c)"
    figure "the late one works after its device came" "$(since "$began")" s
    for name in a b c; do
        writer_end $name
        ext4_lives $name
    done
}
# Longer than Linux waits for a disk (100 s), and repeats a command (180 s).
very_late() {
    local began
    umount /mnt/c
    gateway_kill
    take_away lab/c
    gateway_start
    eventually 60 logged_in $TARGET
    began=$(now)
    ext4_lives a
    ext4_lives b
    refused "error" reads "$(disk 2)"
    figure "a read of the late disk fails after" "$(since "$began")" s
    same 1 "$(since "$began" | awk '{ print ($1 > 100 && $1 < 400) }')" "it fails neither at once nor never"
    same $((256 << 20)) "$(size_of 2)" "size of the late disk"
    give_back lab/c
    eventually 90 reads "$(disk 2)"
    mount "$(disk 2)" /mnt/c
    grep -q alive /mnt/c/file
    ext4_lives c
}
# Nobody knows the fourth and the fifth.
never_served() {
    local began
    umount /mnt/a /mnt/b /mnt/c
    portal_logout
    gateway_stop
    zfs create -V 192M -o volmode=none lab/d
    zfs create -V 160M -o volmode=none lab/e
    configured a b c d e
    gateway_start
    began=$(now)
    portal_login
    mount "$(disk 0)" /mnt/a
    ext4_lives a
    eventually 30 disk_there 127.0.0.1 1
    mount "$(disk 1)" /mnt/b
    ext4_lives b
    figure "the others work after the first login" "$(since "$began")" s
    # Linux waits for a disk that it finds, and asks for its size then.
    sleep 10
    give_back lab/d
    eventually 90 disk_there 127.0.0.1 3
    same $((192 << 20)) "$(size_of 3)" "size of a disk that came"
    reads "$(disk 3)"
    # For longer than it waits: ZFS knows the size.
    eventually 200 size_is 4 $((160 << 20))
    test ! -e /dev/zvol/lab/e
    give_back lab/e
    eventually 90 disk_there 127.0.0.1 4
    mkfs.ext4 -q -F "$(disk 4)"
    mkdir -p /mnt/e
    mount "$(disk 4)" /mnt/e
    ext4_lives e
    ext4_lives a
    umount /mnt/a /mnt/b /mnt/e
}

configured a b c
need "the gateway serves" gateway_start
need "the initiator runs" initiator_start
need "three disks with ext4" attached
STEP_SECONDS=400
step "one device is late: the others work at once, it goes on when it comes" late
STEP_SECONDS=600
step "very late: its commands fail, it keeps its size and works when it comes" very_late
step "late ones that were never served are found with their sizes" never_served
STEP_SECONDS=120
step "logout" portal_logout
step "the gateway lives" gateway_alive
