# Disks that are slow, stand still, fail or lose writes when a scenario says so:
# the device mapper over a scratch disk.
# shellcheck shell=bash

# One line a device, for the sweep: NAME DISK SECTORS.
SLOW_DEVICES=/run/slow-devices

# slow_device NAME DISK MEBIBYTES: /dev/mapper/NAME, as quick as DISK for now.
slow_device() {
    modprobe -a dm_mod dm_delay dm_flakey || skip "this kernel has no dm-delay or no dm-flakey"
    dmsetup create "$1" --table "0 $(($3 * 2048)) linear $2 0"
    echo "$1 $2 $(($3 * 2048))" >>$SLOW_DEVICES
    eventually 10 test -b "/dev/mapper/$1"
}
slow_disk() { awk -v name="$1" '$1 == name { print $2 }' $SLOW_DEVICES; }
slow_sectors() { awk -v name="$1" '$1 == name { print $3 }' $SLOW_DEVICES; }

# device_becomes NAME TABLE: lines of a table, from the next request on. Requests that a delay
# held back go to the disk first.
device_becomes() {
    dmsetup load "$1" <<<"$2"
    dmsetup suspend --noflush --nolockfs "$1"
    # Not until udev has read the device: it may not be readable.
    dmsetup resume --noudevsync "$1"
}
device_quick() { device_becomes "$1" "0 $(slow_sectors "$1") linear $(slow_disk "$1") 0"; }
# device_slow NAME READ_MS WRITE_MS: flushes wait as long as writes.
device_slow() {
    local disk
    disk=$(slow_disk "$1")
    device_becomes "$1" "0 $(slow_sectors "$1") delay $disk 0 $2 $disk 0 $3 $disk 0 $3"
}
# device_fails NAME [FIRST COUNT]: all sectors, or COUNT of them.
device_fails() {
    local disk sectors first count
    disk=$(slow_disk "$1")
    sectors=$(slow_sectors "$1")
    first=${2:-0}
    count=${3:-$sectors}
    device_becomes "$1" "$(
        [ "$first" = 0 ] || echo "0 $first linear $disk 0"
        echo "$first $count error"
        [ $((first + count)) = "$sectors" ] ||
            echo "$((first + count)) $((sectors - first - count)) linear $disk $((first + count))"
    )"
}
# device_loses_writes NAME: says yes to each write and keeps none, as a machine
# whose power is off.
device_loses_writes() {
    device_becomes "$1" "0 $(slow_sectors "$1") flakey $(slow_disk "$1") 0 0 3600 1 drop_writes"
}
# Requests wait until the device goes on.
device_stops() { dmsetup suspend --noflush --nolockfs "$1"; }
device_goes_on() { dmsetup resume --noudevsync "$1"; }

# slow_devices_mend: what a scenario left; for the sweep.
slow_devices_mend() {
    local name disk sectors
    [ -e $SLOW_DEVICES ] || return 0
    while read -r name disk sectors; do
        dmsetup load "$name" --table "0 $sectors linear $disk 0"
        dmsetup suspend --noflush --nolockfs "$name"
        dmsetup resume --noudevsync "$name"
    done <$SLOW_DEVICES
}
slow_devices_remove() {
    local name rest
    [ -e $SLOW_DEVICES ] || return 0
    while read -r name rest; do
        dmsetup remove --retry "$name" || echo "sweep: device $name stays"
    done <$SLOW_DEVICES
    rm -f $SLOW_DEVICES
}
