# title: a disk loses what was written and not synced: every host that wrote learns of it
# seconds: 300
# ci: no

. /lab/guest/iscsi.sh
. /lab/guest/slow.sh
export TARGET
slow_device unit "$STORE_DISK" 64
slow_device files "$OTHER_DISK" 512

STORE=/scratch/files
# ZFS waits for a disk that fails; ext4 and a bare device report and forget.
serves() {
    mkdir -p $STORE
    mkfs.ext4 -q /dev/mapper/files
    mount /dev/mapper/files $STORE
    head -c $((4 << 20)) /dev/zero >$STORE/file
    chmod 666 $STORE/file
    sync -f $STORE
    iscsi_config /dev/mapper/unit 'direct = "never"'
    EXPORTS=()
    export_add $STORE /export
    gateway_start
    eventually 20 port_open 3260
}
lost() { (cd /lab/guest && PYTHONDONTWRITEBYTECODE=1 timeout 100 python3 lost.py "$@"); }
# The sectors of the file, and no others.
lost_file() {
    local extent
    extent=$(filefrag -e -b512 $STORE/file | awk '$1 == "0:" { sub(/\.\./, "", $4); print $4 }')
    [ "$extent" -gt 0 ]
    lost file "device_fails files $extent 8192" "device_quick files"
}
need "the gateway serves a device and an ext4" serves
step "two initiators: the one that syncs second learns of it, too" lost disk "device_fails unit" "device_quick unit"
step "two NFS clients: the one that commits second learns of it, too" lost_file
step "the gateway lives" gateway_alive
