# What iSCSI scenarios have in common.
# shellcheck shell=bash

TARGET=iqn.2026-11.io.zgate:lab

# iscsi_config PATH [LUN LINES [TARGET LINES]]: one target with LUN 0.
iscsi_config() {
    MORE_CONFIG="[iscsi]
listen = [\"0.0.0.0:3260\"]

[[target]]
name = \"$TARGET\"
allow_any_initiator = ${ANY_INITIATOR:-true}

[[target.lun]]
number = 0
path = \"$1\"
${2:-}
${3:-}"
    # An export as well: a gateway serves both.
    EXPORTS=()
    mkdir -p /scratch/nfs
    export_add /scratch/nfs /export
}

# disk_make SIZE [NAME]: DEVICE is a zvol, or a loop device where there is no ZFS.
disk_make() {
    local name=${2:-vol}
    if [ "$STORE_KIND" = zfs ]; then
        zfs create -V "$1" -o volblocksize=16K "lab/$name"
        DEVICE=/dev/zvol/lab/$name
        eventually 20 test -b "$DEVICE" || skip "no zvol device"
    else
        truncate -s "$1" "$STORE/$name.img"
        DEVICE=$(losetup -f --show "$STORE/$name.img")
    fi
}

# replacement_timeout SECONDS: how long sessions logged in from now on keep commands
# for a target that is gone.
replacement_timeout() {
    sed -i "s/^#* *node.session.timeo.replacement_timeout.*/node.session.timeo.replacement_timeout = $1/" \
        /etc/iscsi/iscsid.conf
}

# As installed, whatever a scenario before chose.
initiator_start() {
    replacement_timeout 120
    modprobe iscsi_tcp && modprobe sd_mod || skip "no iSCSI initiator in this kernel"
    mkdir -p /run/lock/iscsi /etc/iscsi
    echo "InitiatorName=iqn.2026-11.org.example:$(hostname)" >/etc/iscsi/initiatorname.iscsi
    pgrep -x iscsid >/dev/null || iscsid
    eventually 10 pgrep -x iscsid
}

portal_discover() { iscsiadm -m discovery -t sendtargets -p "${1:-127.0.0.1}:3260"; }

# The disk of a portal, once udev has named it.
iscsi_disk() { readlink -f "/dev/disk/by-path/ip-${1:-127.0.0.1}:3260-iscsi-$TARGET-lun-${2:-0}"; }
disk_there() { [ -b "$(iscsi_disk "$@")" ]; }

portal_login() {
    iscsiadm -m node -T $TARGET -p "${1:-127.0.0.1}:3260" --login || return 1
    eventually 30 disk_there "$@"
}
portal_logout() { iscsiadm -m node -T $TARGET -p "${1:-127.0.0.1}:3260" --logout; }

# disk_kept LEAST WHAT: a sound file system on A's disk, with /tmp/data and every
# record that writer.py noted, more than LEAST; its longest fsync is WHAT.
disk_kept() {
    figure "$2" "$(cut -d' ' -f2 /tmp/notes)" s
    figure "records" "$(cut -d' ' -f1 /tmp/notes)" records
    umount /mnt/disk
    xfs_repair -n "$(iscsi_disk $A_ADDRESS)"
    mount "$(iscsi_disk $A_ADDRESS)" /mnt/disk
    cmp /tmp/data /mnt/disk/data
    python3 - "$1" <<'END'
import sys
noted = int(open("/tmp/notes").read().split()[0])
data = open("/mnt/disk/written", "rb").read()
for n in range(noted):
    assert data[n * 4096:n * 4096 + 9] == b"%08d:" % n, f"record {n} of {noted} is lost"
assert noted > int(sys.argv[1]), noted
END
    umount /mnt/disk
}

store_used_kib() { du -k "$1" | cut -f1; }
zvol_used() { sync; zpool sync lab; zfs get -Hp -o value referenced "$1"; }
