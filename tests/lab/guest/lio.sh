# The kernel's iSCSI target, to compare with.
# shellcheck shell=bash

CONFIGFS=/sys/kernel/config/target
CORE=$CONFIGFS/core/iblock_0/lab
TPG=$CONFIGFS/iscsi/$TARGET/tpgt_1

# lio_starts ADDRESS: DEVICE is LUN 0 of TARGET there.
lio_starts() {
    modprobe -a target_core_mod target_core_iblock iscsi_target_mod
    mkdir -p "$CORE"
    echo "udev_path=$DEVICE" >"$CORE/control"
    echo "$DEVICE" >"$CORE/udev_path"
    echo 1 >"$CORE/enable"
    mkdir -p "$TPG/lun/lun_0" "$TPG/np/$1:3260"
    ln -s "$CORE" "$TPG/lun/lun_0/lab"
    echo 0 >"$TPG/attrib/authentication"
    echo 1 >"$TPG/attrib/generate_node_acls"
    echo 1 >"$TPG/attrib/cache_dynamic_acls"
    echo 0 >"$TPG/attrib/demo_mode_write_protect"
    echo 1 >"$TPG/enable"
}
# lio_iser ADDRESS: over iSER from here on.
lio_iser() {
    modprobe ib_isert
    echo 1 >"$TPG/np/$1:3260/iser"
}
# lio_ends ADDRESS
lio_ends() {
    [ -d "$TPG" ] || return 0
    echo 0 >"$TPG/enable"
    rm -f "$TPG/lun/lun_0/lab"
    rmdir "$TPG/np/$1:3260" "$TPG/lun/lun_0" "$TPG" "$CONFIGFS/iscsi/$TARGET" "$CORE" || true
}
