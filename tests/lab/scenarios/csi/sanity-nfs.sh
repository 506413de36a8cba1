# title: csi-sanity over NFS: the driver, a gateway, ZFS, the kernel's client
# seconds: 1800
# ci: no

. /lab/guest/csi.sh
STEP_SECONDS=1500
csi_program csi-sanity
csi_start
echo "compression: zstd" >"$CSI_DIR/mutable.yaml"

step "csi-sanity" sanity nfs
step "nothing is left" csi_nothing_left
conclude
