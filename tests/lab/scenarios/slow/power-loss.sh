# title: the disk's power fails under writers that sync each step, over NFS and iSCSI: nothing acknowledged is lost
# seconds: 2400
# ci: no

. /lab/guest/iscsi.sh
. /lab/guest/slow.sh
export TARGET
[ -d /sys/module/zfs ] || skip "this image has no ZFS"
# As in Jepsen's test of local file systems: --rounds 20 for a long run.
ROUNDS=$(cat /lab/rounds 2>/dev/null || echo 1)
slow_device power "$STORE_DISK" 1024
STORE=/scratch/power/files
STEP_SECONDS=240

power() { PYTHONDONTWRITEBYTECODE=1 python3 /lab/guest/power.py "$@"; }
uptime_seconds() { python3 -c 'import time; print("%.6f" % time.monotonic())'; }
pools() {
    zpool create -f -o ashift=12 -O mountpoint=/scratch/power power /dev/mapper/power
    zfs create power/files
    chmod 777 $STORE
    zfs create -V 64M -o volblocksize=4K power/raw
    zfs create -V 320M -o volblocksize=16K power/disk
    truncate -s 256K $STORE/v4 $STORE/v3
    zpool sync power
    volumes
}
volumes() { eventually 30 test -b /dev/zvol/power/raw && eventually 30 test -b /dev/zvol/power/disk; }
serves() {
    iscsi_config /dev/zvol/power/raw "[[target.lun]]
number = 1
path = \"/dev/zvol/power/disk\""
    EXPORTS=()
    export_add $STORE /export
    gateway_start
    eventually 20 port_open 3260
    client_mount 4.2 /mnt/v4
    client_b_mount 3 /mnt/v3
    initiator_start
    # A host whose target is without power gives up soon.
    replacement_timeout 10
    portal_discover
    portal_login
    eventually 30 disk_there 127.0.0.1 1
    mkfs.xfs -q -f "$(iscsi_disk 127.0.0.1 1)"
}
# writes ROUND: five writers, each by its own way; two thirds of a second to some seconds.
WAYS="v4 v3 names raw disk"
path_of() {
    case $1 in
        v4 | v3) echo "/mnt/$1/$1" ;;
        names) echo "/mnt/v4/names$2" ;;
        raw) iscsi_disk ;;
        disk) echo /mnt/disk/file ;;
    esac
}
# Its place on the server.
stored() {
    case $1 in
        v4 | v3) echo "$STORE/$1" ;;
        names) echo "$STORE/names$2" ;;
        raw) echo /dev/zvol/power/raw ;;
        disk) echo /scratch/disk/file ;;
    esac
}
kind_of() { if [ "$1" = names ]; then echo names; else echo slots; fi; }
all_have_begun() {
    local way
    for way in $WAYS; do [ "$(wc -l <"/tmp/power-$way")" -ge 3 ] || return 1; done
}
writers_start() {
    local way
    mkdir -p /mnt/disk "/mnt/v4/names$1"
    mount "$(iscsi_disk 127.0.0.1 1)" /mnt/disk
    [ -e /mnt/disk/file ] || { truncate -s 256K /mnt/disk/file && sync -f /mnt/disk; }
    rm -f /tmp/power-*
    for way in $WAYS; do
        : >"/tmp/power-$way"
        background power write "$(kind_of "$way")" "$(path_of "$way" "$1")" "/tmp/power-$way" "$1"000000
    done
    eventually 100 all_have_begun
    sleep "$((RANDOM % 5)).$((RANDOM % 10))"
}
writers_gone() { ! pgrep -f /lab/guest/power.py; }
# The whole machine is without power: disk, gateway, and what the host had in memory.
power_fails() {
    uptime_seconds >/tmp/power-until
    device_loses_writes power
    sleep "0.$((RANDOM % 10))"
    gateway_kill
    pkill -9 -f /lab/guest/power.py || true
    xfs_io -x -c shutdown /mnt/disk || true
    # Commands for a target that is gone end with the time of the host's patience.
    eventually 60 umount /mnt/disk
    eventually 60 zpool export -f power
    device_quick power
    zpool import -f -d /dev/mapper power
    volumes
}
# What is there now, before any client is back.
nothing_lost() {
    local way steps
    xfs_check
    for way in $WAYS; do
        steps=$(power check "$(kind_of "$way")" "$(stored "$way" "$1")" "/tmp/power-$way" "$1"000000 "$(</tmp/power-until)")
        echo "$way: $steps steps acknowledged before the power failed"
        echo "$steps" >>"/tmp/acknowledged-$way"
    done
    umount /scratch/disk
    # Log and data are one whole.
    xfs_repair -n /dev/zvol/power/disk
}
xfs_check() {
    mkdir -p /scratch/disk
    # Its log is replayed, as after any power failure.
    mount /dev/zvol/power/disk /scratch/disk
}
back() {
    gateway_start
    eventually 60 port_open 3260
    eventually 90 dd if="$(iscsi_disk)" of=/dev/null bs=4K count=1 iflag=direct
    eventually 90 dd if="$(iscsi_disk 127.0.0.1 1)" of=/dev/null bs=4K count=1 iflag=direct
    eventually 90 ls /mnt/v4 && eventually 90 ls /mnt/v3
    eventually 90 writers_gone
    rm -rf "/mnt/v4/names$1"
}
# Every second time nothing reaches the disk by ZFS's own timer, but the intent log alone.
timer() { echo $((($1 % 2) * 595 + 5)) >/sys/module/zfs/parameters/zfs_txg_timeout; }
round() {
    timer "$1"
    writers_start "$1"
    power_fails
    nothing_lost "$1"
    back "$1"
}
need "a pool" pools
need "the gateway serves, hosts are there" serves
for number in $(seq "$ROUNDS"); do
    need "round $number: the power fails" round "$number"
done
for way in $WAYS; do
    figure "$way: steps before the power failed" "$(awk '{ n += $1 } END { print n }' "/tmp/acknowledged-$way")" steps
done
timer 0
step "the gateway lives" gateway_alive
