# title: csi-sanity over iSCSI: file systems on disks and raw devices
# seconds: 3600
# ci: no

. /lab/guest/csi.sh
STEP_SECONDS=1500
csi_program csi-sanity
csi_start
echo "compression: zstd" >"$CSI_DIR/mutable.yaml"
echo "protocol: iscsi" >"$CSI_DIR/iscsi.yaml"

step "csi-sanity, file systems" sanity iscsi --csi.testvolumeparameters="$CSI_DIR/iscsi.yaml"
step "csi-sanity, raw devices" sanity raw --csi.testvolumeparameters="$CSI_DIR/iscsi.yaml" \
    --csi.testvolumeaccesstype=block
step "nothing is left" csi_nothing_left
conclude
