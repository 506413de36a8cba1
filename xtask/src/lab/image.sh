#!/bin/sh
# Builds the lab's disk: Debian trixie with the kernel's NFS and iSCSI clients,
# OpenZFS, and the peers and tools scenarios use. The text of this file is part
# of the image's key: a change makes a new image.
#
#   MIRROR   base URI of a Debian mirror, from the machine's own apt sources
#   KEYRING  keyring that signs it
#   APT      extra apt options, one a line
#   OUT      directory that receives disk.img, vmlinuz, initrd, packages.txt
set -eu

SUITE=trixie
ROOT="$OUT/root"

# Everything but ZFS, whose module is built afterwards.
PACKAGES="
    systemd-sysv udev kmod procps psmisc iproute2 iputils-ping ca-certificates
    linux-image-amd64 linux-headers-amd64
    nfs-common nfs-kernel-server rpcbind keyutils nfs4-acl-tools attr acl
    open-iscsi targetcli-fb multipath-tools sg3-utils lsscsi
    rdma-core ibverbs-utils ibverbs-providers rdmacm-utils perftest
    fio xfsprogs e2fsprogs util-linux parted
    dkms gcc make libc6-dev git sqlite3 python3-minimal jq
    strace tshark tcpdump openssl nftables
    ktls-utils krb5-kdc krb5-admin-server krb5-user
    pacemaker pacemaker-cli-utils corosync resource-agents keepalived postgresql
"
ZFS_PACKAGES="zfs-dkms zfsutils-linux"

step() { printf '   %s: %s\n' "$(date +%T)" "$1"; }

mounts() {
    mount -t proc proc "$ROOT/proc"
    mount -t sysfs sys "$ROOT/sys"
    mount --bind /dev "$ROOT/dev"
}
unmounts() {
    for dir in dev sys proc; do umount -l "$ROOT/$dir" 2>/dev/null || true; done
}
trap unmounts EXIT

# mmdebstrap --aptopt for each line of $APT.
set --
old_ifs=$IFS
IFS='
'
for option in $APT; do set -- "$@" "--aptopt=$option"; done
IFS=$old_ifs

unmounts
rm -rf "$ROOT"
mkdir -p "$ROOT"
step "packages of $SUITE"
# Only the drivers this one virtual machine has: its initrd is unpacked by an
# emulated processor.
# shellcheck disable=SC2086
mmdebstrap --mode=root --variant=minbase --components=main,contrib \
    --keyring="$KEYRING" "$@" \
    --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    --essential-hook='mkdir -p "$1/etc/initramfs-tools/conf.d"' \
    --essential-hook='printf "MODULES=list\nCOMPRESS=lz4\nRESUME=none\n" >"$1/etc/initramfs-tools/conf.d/lab"' \
    --essential-hook='printf "virtio_pci\nvirtio_blk\next4\ncrc32c\n" >"$1/etc/initramfs-tools/modules"' \
    --include="$(echo $PACKAGES lz4 | tr ' ' ',')" \
    "$SUITE" "$ROOT" "$MIRROR"

kernel=$(ls "$ROOT/lib/modules" | head -n 1)
if [ -n "${WITHOUT_ZFS:-}" ]; then
    ZFS_PACKAGES=
else
    step "OpenZFS for $kernel (a compilation: minutes)"
    mounts
    cp /etc/resolv.conf "$ROOT/etc/resolv.conf"
    chroot "$ROOT" apt-get -q update >"$OUT/zfs.log" 2>&1
    # shellcheck disable=SC2086
    chroot "$ROOT" env DEBIAN_FRONTEND=noninteractive apt-get -y -q \
        install --no-install-recommends $ZFS_PACKAGES >>"$OUT/zfs.log" 2>&1
    unmounts
    ls "$ROOT/lib/modules/$kernel/updates/dkms/" | grep -q '^zfs\.ko' || {
        echo "zfs-dkms built no module; see $OUT/zfs.log" >&2
        exit 1
    }
fi

step "settings"
cat >"$ROOT/etc/fstab" </dev/null
echo zgate-lab >"$ROOT/etc/hostname"
printf '127.0.0.1 localhost zgate-lab\n127.0.0.2 gateway-b\n' >"$ROOT/etc/hosts"
mkdir -p "$ROOT/lab" "$ROOT/scratch" "$ROOT/var/lib/nfs/rpc_pipefs"
chroot "$ROOT" useradd --uid 1001 --user-group --shell /bin/sh alice
chroot "$ROOT" useradd --uid 1002 --user-group --shell /bin/sh bob
# The first program: it does nothing but hand over to the share, so that the
# image outlives changes of the lab.
cat >"$ROOT/lab-init" <<'INIT'
#!/bin/bash
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/root LANG=C.UTF-8
mount -t proc proc /proc
mount -t sysfs sys /sys
mountpoint -q /dev || mount -t devtmpfs dev /dev
modprobe 9pnet_virtio
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=none lab /lab ||
    { echo "LAB-ERROR no share"; echo o >/proc/sysrq-trigger; sleep 60; }
. /lab/guest/init.sh
INIT
chmod 755 "$ROOT/lab-init"
rm -rf "$ROOT"/var/cache/apt/* "$ROOT"/var/lib/apt/lists/*

step "disk"
cp -L "$ROOT/boot/vmlinuz-$kernel" "$OUT/vmlinuz"
cp -L "$ROOT/boot/initrd.img-$kernel" "$OUT/initrd"
chroot "$ROOT" dpkg-query -W >"$OUT/packages.txt"
truncate -s 8G "$OUT/disk.img.part"
mke2fs -q -t ext4 -L lab-root -O ^has_journal -d "$ROOT" "$OUT/disk.img.part"
mv "$OUT/disk.img.part" "$OUT/disk.img"
rm -rf "$ROOT"
step "done: kernel $kernel"
