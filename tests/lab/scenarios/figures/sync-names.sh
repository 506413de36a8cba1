# title: figures: names on disk before they are answered, ZFS with and without a log device, beside the kernel's server
# seconds: 900
# ci: no

. /lab/guest/knfsd.sh
[ -d /sys/module/zfs ] || skip "this image has no ZFS"
STORE=/scratch/lab
STEP_SECONDS=200

pool() {
    zpool create -f -o ashift=12 -O atime=off -O xattr=sa -O acltype=posixacl -O mountpoint=$STORE lab \
        "$STORE_DISK" "$@"
    chmod 1777 $STORE
}
names_on() {
    local processes rates kind
    for processes in 1 8; do
        rates=$(python3 /lab/guest/names.py "$2" 40 $processes)
        for kind in create rename remove; do
            figure "$1: $kind, $processes at once" "${rates%% *}" ops/s
            rates=${rates#* }
        done
    done
}
# zgate_names SYNC NAME
zgate_names() {
    EXPORTS=()
    export_add $STORE /export none "sync_names = $1"
    gateway_start
    client_mount 4.2 /mnt/v
    names_on "$2" /mnt/v
    umount /mnt/v
    gateway_stop
}
knfsd_names() {
    knfsd_starts /mnt/k
    names_on "$1" /mnt/k
    umount /mnt/k
    knfsd_ends /mnt/k
}
layout() {
    need "$1: the pool" pool "${@:2}"
    step "$1: zgate, sync_names = true" zgate_names true "$1: zgate"
    step "$1: zgate, sync_names = false" zgate_names false "$1: zgate, not synced"
    step "$1: the kernel's server" knfsd_names "$1: knfsd"
    step "$1: the pool ends" zpool destroy -f lab
}
layout "no log device"
wipefs -q -a "$STORE_DISK"
layout "log device" log "$OTHER_DISK"
