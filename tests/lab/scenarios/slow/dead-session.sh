# title: a write that its disk holds up never lands over a newer one: relogin, LUN RESET, PREEMPT AND ABORT
# seconds: 500
# ci: no

. /lab/guest/iscsi.sh
. /lab/guest/slow.sh
export TARGET
[ -d /sys/module/zfs ] || skip "this image has no ZFS"
STORE=/scratch/nfs
slow_device slow "$STORE_DISK" 1024

# Mebibytes: not where udev looks for file systems.
place() { echo $(($1 * 8 + 3)); }
# Blocks that are not in memory, their places known: a write of a part of one
# waits for the disk, the next block does not.
pool() {
    zpool create -f -o ashift=12 -O mountpoint=none -O primarycache=metadata lab /dev/mapper/slow
    zfs create -s -V 64M -o volblocksize=16K lab/vol
    eventually 20 test -b /dev/zvol/lab/vol || skip "no zvol device"
    local base
    for base in $(seq 5); do
        dd if=/dev/urandom of=/dev/zvol/lab/vol bs=16K count=1 seek=$(($(place "$base") * 64)) oflag=direct status=none
    done
    zpool sync lab
}
serves() {
    iscsi_config /dev/zvol/lab/vol 'direct = "never"'
    gateway_start
    eventually 20 port_open 3260
}
held() { (cd /lab/guest && PYTHONDONTWRITEBYTECODE=1 timeout 110 python3 held.py "$1" $(($(place "$2") * 2048))); }

need "a zvol on a disk that can stand still" pool
need "the gateway serves it" serves
step "relogin after a lost session" held relogin 1
step "LUN RESET by another host after a lost session" held reset-dead 2
step "PREEMPT AND ABORT by another host after a lost session" held preempt-dead 3
step "LUN RESET by another host, the session lives" held reset-live 4
step "PREEMPT AND ABORT by another host, the session lives" held preempt-live 5
step "the gateway lives" gateway_alive
gateway_stop
