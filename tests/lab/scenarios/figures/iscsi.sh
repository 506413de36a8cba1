# title: figures: fio over iSCSI against zgate and against LIO, same zvol
# seconds: 300
# ci: no

. /lab/guest/load.sh
. /lab/guest/iscsi.sh
store_make "$(best_store)"
if [ "$STORE_KIND" = zfs ]; then
    zfs create -V 128M -o volblocksize=16K lab/vol
    eventually 20 test -b /dev/zvol/lab/vol || skip "no zvol device"
    DEVICE=/dev/zvol/lab/vol
else
    truncate -s 128M "$STORE/disk.img"
    DEVICE=$(losetup -f --show "$STORE/disk.img")
fi
iscsi_config "$DEVICE"

ours() {
    gateway_start
    initiator_start
    portal_discover
    portal_login
    loads zgate "$(iscsi_disk)" 96m
    portal_logout
    gateway_stop
}
CONFIGFS=/sys/kernel/config/target
CORE=$CONFIGFS/core/iblock_0/lab
TPG=$CONFIGFS/iscsi/$TARGET/tpgt_1
lio() {
    modprobe -a target_core_mod target_core_iblock iscsi_target_mod
    mkdir -p "$CORE"
    echo "udev_path=$DEVICE" >"$CORE/control"
    echo "$DEVICE" >"$CORE/udev_path"
    echo 1 >"$CORE/enable"
    mkdir -p "$TPG/lun/lun_0" "$TPG/np/127.0.0.1:3260"
    ln -s "$CORE" "$TPG/lun/lun_0/lab"
    echo 0 >"$TPG/attrib/authentication"
    echo 1 >"$TPG/attrib/generate_node_acls"
    echo 1 >"$TPG/attrib/cache_dynamic_acls"
    echo 0 >"$TPG/attrib/demo_mode_write_protect"
    echo 1 >"$TPG/enable"
    portal_discover
    portal_login
    loads LIO "$(iscsi_disk)" 96m
    portal_logout
}
lio_ends() {
    [ -d "$TPG" ] || return 0
    echo 0 >"$TPG/enable"
    rm -f "$TPG/lun/lun_0/lab"
    rmdir "$TPG/np/127.0.0.1:3260" "$TPG/lun/lun_0" "$TPG" "$CONFIGFS/iscsi/$TARGET" "$CORE" || true
}
step "zgate" ours
step "LIO" lio
step "LIO ends" lio_ends
