# title: a pool is made on disks, with partitions, by id
# seconds: 900
# ci: no
# Seen to pass twice, but on a busy machine one step took 290 s.

[ -d /sys/module/zfs ] || skip "this image has no ZFS"
STEP_SECONDS=400
. /lab/guest/iscsi.sh
mkdir -p /scratch/luns
# The gateway's own disks stand for the machine's.
iscsi_config /scratch/luns/0 'size = "1GiB"'
for lun in 1 2 3; do
    MORE_CONFIG="$MORE_CONFIG
[[target.lun]]
number = $lun
path = \"/scratch/luns/$lun\"
size = \"1GiB\""
done
need "the gateway serves" gateway_start
need "the initiator runs" initiator_start
need "discovery" portal_discover
need "login" portal_login
zgate() { "$ZGATE" "$@"; }
four() { [ "$(zgate pool devices --json | jq length)" -ge 4 ]; }
need "four disks have names by id" eventually 90 four

described() {
    zgate pool devices
    zgate pool devices --json >/tmp/devices.json
    local disks
    disks=$(for lun in 0 1 2 3; do iscsi_disk 127.0.0.1 $lun; done)
    {
        cat <<END
[pool]
name = "made"
mountpoint = "/scratch/made"
properties = { ashift = 12, autotrim = "on" }
filesystem = { compression = "lz4", special_small_blocks = "32K" }
END
        local index=0
        for disk in $disks; do
            cat <<END
[[device]]
name = "disk$index"
path = "$(jq -r --arg d "$disk" '.[] | select(.device == $d) | .path' /tmp/devices.json)"
size = $(jq -r --arg d "$disk" '.[] | select(.device == $d) | .size_bytes' /tmp/devices.json)
sector_bytes = $(jq -r --arg d "$disk" '.[] | select(.device == $d) | .sector_bytes' /tmp/devices.json)
END
            [ $index -lt 2 ] || echo 'partitions = [{ name = "special", size = "256MiB" }, { name = "slog", size = "128MiB" }, { name = "l2arc", size = "rest" }]'
            index=$((index + 1))
        done
        cat <<END
[[vdev]]
type = "mirror"
devices = ["disk0", "disk1"]
[[vdev]]
class = "special"
type = "mirror"
devices = ["disk2.special", "disk3.special"]
[[vdev]]
class = "log"
type = "mirror"
devices = ["disk2.slog", "disk3.slog"]
[[vdev]]
class = "cache"
type = "stripe"
devices = ["disk2.l2arc", "disk3.l2arc"]
[[dataset]]
name = "models"
properties = { recordsize = "1M" }
END
    } >/tmp/made.toml
    cat /tmp/made.toml
    zgate pool plan /tmp/made.toml
}
hash_of() { zgate pool plan /tmp/made.toml | sed -n 's/^# hash: //p'; }
refusals() {
    mkfs.ext4 -q -F "$(iscsi_disk 127.0.0.1 1)"
    refused "disk1 (.*): not empty: signature ext4" zgate pool apply /tmp/made.toml --hash "$(hash_of)"
    mkdir -p /mnt/used && mount "$(iscsi_disk 127.0.0.1 1)" /mnt/used
    refused "disk1 (.*): not empty: cannot be opened exclusively" zgate pool apply /tmp/made.toml --hash "$(hash_of)"
    umount /mnt/used
    wipefs -q -a "$(iscsi_disk 127.0.0.1 1)"
    parted --script "$(iscsi_disk 127.0.0.1 3)" mklabel gpt mkpart x 1MiB 100MiB
    udevadm settle
    refused "disk3 (.*): not empty: partition sd" zgate pool apply /tmp/made.toml --hash "$(hash_of)"
    wipefs -q -a "$(iscsi_disk 127.0.0.1 3)"
    blockdev --rereadpt "$(iscsi_disk 127.0.0.1 3)" || true
    refused "not abc" zgate pool apply /tmp/made.toml --hash abc
}
made() {
    zgate pool apply /tmp/made.toml --hash "$(hash_of)"
    zpool status -P made
    same 8 "$(zpool status -P made | grep -c '/dev/disk/by-id/')" "devices by id"
    same 0 "$(zpool status -P made | grep -c '/dev/sd' || true)" "devices by other names"
    local third
    third=$(sed -n 's/^path = "\(.*\)"/\1/p' /tmp/made.toml | sed -n 3p)
    same 268435456 "$(blockdev --getsize64 "$third-part1")" "special partition"
    same 134217728 "$(blockdev --getsize64 "$third-part2")" "log partition"
    same special "$(lsblk -no PARTLABEL "$third-part1")" "its name"
    same 1048576 "$(zfs get -Hp -o value recordsize made/models)" recordsize
    pattern /tmp/weights 32
    cp /tmp/weights /scratch/made/models/weights
    zpool export made && zpool import -d /dev/disk/by-id made
    cmp /tmp/weights /scratch/made/models/weights
    refused "pool made exists already" zgate pool apply /tmp/made.toml --hash "$(hash_of)"
}
unmade() {
    zpool destroy made
    refused "not empty" zgate pool apply /tmp/made.toml --hash "$(hash_of)"
    portal_logout
}

step "the disks are described, the plan is made" described
step "disks that are in use or not empty are refused" refusals
step "the pool is made: whole disks and partitions, by id" made
step "what was a pool is not empty" unmade
