# title: power fails after CREATE, RENAME, REMOVE and SETATTR were answered: they have happened
# seconds: 300
# ci: no

. /lab/guest/slow.sh

# Nothing is on disk by the file systems' own timers.
patient() {
    [ ! -d /sys/module/zfs ] || echo 600 >/sys/module/zfs/parameters/zfs_txg_timeout
    echo 300000 >/proc/sys/fs/xfs/xfssyncd_centisecs || true
}
impatient() {
    [ ! -d /sys/module/zfs ] || echo 5 >/sys/module/zfs/parameters/zfs_txg_timeout
    echo 3000 >/proc/sys/fs/xfs/xfssyncd_centisecs || true
}
made() {
    case $1 in
        zfs) zpool create -f -o ashift=12 -O mountpoint=/scratch/names names /dev/mapper/names ;;
        xfs) mkfs.xfs -q -f /dev/mapper/names && mkdir -p /scratch/names && mount /dev/mapper/names /scratch/names ;;
    esac
    mkdir /scratch/names/dir
    touch /scratch/names/dir/{removed,renamed,mode}
    synced "$1"
}
synced() { if [ "$1" = zfs ]; then zpool sync names; else sync -f /scratch/names; fi; }
away() { if [ "$1" = zfs ]; then zpool export -f names; else umount /scratch/names; fi; }
back() { if [ "$1" = zfs ]; then zpool import -f -d /dev/mapper names; else mount /dev/mapper/names /scratch/names; fi; }
names() {
    local dir=/mnt/a/dir
    mkdir $dir/made
    : >$dir/created
    ln -s there $dir/linked
    rm $dir/removed
    mv $dir/renamed $dir/made/moved
    chmod 600 $dir/mode
}
# power_fails KIND VERSION
power_fails() {
    STORE=/scratch/names
    EXPORTS=()
    export_add $STORE /export
    gateway_start
    client_mount "$2" /mnt/a
    ls /mnt/a/dir
    synced "$1"
    names
    device_loses_writes names
    gateway_kill
    away "$1"
    device_quick names
    back "$1"
    # The client waits for its server, as after any restart.
    gateway_start
    umount /mnt/a
    gateway_stop
    find /scratch/names/dir -printf '%P %m %y\n' | sort | tee /tmp/found
    local one wrong=0
    for one in made created linked made/moved; do
        [ -e /scratch/names/dir/$one ] || [ -L /scratch/names/dir/$one ] || { echo "lost: $one"; wrong=1; }
    done
    for one in removed renamed; do
        [ ! -e /scratch/names/dir/$one ] || { echo "there again: $one"; wrong=1; }
    done
    same 600 "$(stat -c %a /scratch/names/dir/mode)" "mode" || wrong=1
    [ $wrong = 0 ] || fail "what was answered has not happened"
}
try_on() {
    made "$1"
    power_fails "$1" "$2"
}
over() {
    if [ "$1" = zfs ]; then zpool destroy -f names || true; else umount /scratch/names || true; fi
    wipefs -q -a /dev/mapper/names
    rm -rf "$STATE_DIR"
}
slow_device names "$STORE_DISK" 1024
patient
if [ -d /sys/module/zfs ]; then
    step "ZFS, NFSv4.2" try_on zfs 4.2
    step "ZFS ends" over zfs
    step "ZFS, NFSv3" try_on zfs 3
    step "ZFS ends again" over zfs
fi
step "xfs, NFSv4.2" try_on xfs 4.2
step "xfs ends" over xfs
impatient
