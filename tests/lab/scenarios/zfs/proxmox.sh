# title: the plug-in for Proxmox VE on real zvols: disks, snapshots, rollback, templates; nothing is left
# seconds: 900
# ci: no

. /lab/guest/iscsi.sh
STEP_SECONDS=300
store_make zfs
[ "$STORE_KIND" = zfs ] || skip "this image has no ZFS"
perl -MJSON::PP -MIO::Socket::UNIX -e 1 || skip "this image has no Perl"
zfs create lab/pve
MORE_CONFIG='[iscsi]
listen = ["0.0.0.0:3260"]

[[volumes.parent]]
dataset = "lab/pve"
target = "iqn.2026-11.io.zgate:pve"'
export_add /scratch /export
need "the gateway serves" gateway_start
need "the initiator runs" initiator_start

export ZGATE_PLUGIN=/lab/deploy/proxmox/ZgatePlugin.pm ZGATE_API_SOCKET=/run/zgate/api.sock
cat >/tmp/storage.json <<'END'
{"type": "zgate", "zgate-api": "127.0.0.1", "zgate-parent": "lab/pve", "zgate-token-file": "/tmp/token",
 "initiator_file": "/etc/iscsi/initiatorname.iscsi"}
END
echo none >/tmp/token
# plugin METHOD ARGUMENTS…: what it returns, as JSON.
plugin() { perl -I/lab/proxmox/socket /lab/proxmox/call.pl /tmp/storage.json "$@"; }
returned() { plugin "$@" | jq -r '.returned[0]'; }
DISK=vm-100-disk-0
MIB=1048576

attached() { # DISK
    plugin activate_volume STORAGE CONFIG "$1"
    TARGET=$(returned path CONFIG "$1" STORAGE | cut -d/ -f4)
    echo "$TARGET" >/tmp/target
    portal_discover && portal_login
}
detached() { # DISK
    TARGET=$(cat /tmp/target)
    portal_logout
    iscsiadm -m node -T "$TARGET" -o delete
    plugin deactivate_volume STORAGE CONFIG "$1"
}
pattern() { head -c $MIB /dev/zero | tr '\0' "$1"; }
written() { # CHARACTER
    TARGET=$(cat /tmp/target)
    pattern "$1" | dd of="$(iscsi_disk)" bs=1M oflag=direct iflag=fullblock
}
holds() { # CHARACTER
    TARGET=$(cat /tmp/target)
    same "$(pattern "$1" | sha256sum)" \
        "$(dd if="$(iscsi_disk)" bs=1M count=1 iflag=direct | sha256sum)" "content, $1"
}

made() {
    same $DISK "$(returned alloc_image STORAGE CONFIG 100 raw UNDEF 65536)" name
    same 67108864 "$(zfs get -Hpo value volsize lab/pve/$DISK)" size
    same - "$(zfs get -Ho value zgate:unconfirmed lab/pve/$DISK)" confirmation
    same true "$(plugin status STORAGE CONFIG | jq '.returned[0] == .returned[1] + .returned[2]')" space
}
used() {
    attached $DISK
    written a
    for _ in 1 2; do plugin volume_snapshot CONFIG STORAGE $DISK before; done
    written b
    refused "in use" plugin volume_snapshot_rollback CONFIG STORAGE $DISK before
    holds b
    detached $DISK
}
rolled_back() {
    plugin volume_rollback_is_possible CONFIG STORAGE $DISK before
    plugin volume_snapshot_rollback CONFIG STORAGE $DISK before
    attached $DISK
    holds a
    sleep 1
    plugin volume_snapshot CONFIG STORAGE $DISK later
    refused later plugin volume_rollback_is_possible CONFIG STORAGE $DISK before
    detached $DISK
    refused later plugin volume_snapshot_rollback CONFIG STORAGE $DISK before
    plugin volume_snapshot_delete CONFIG STORAGE $DISK later
    # Forced, under a session: the gateway holds the zvol open.
    attached $DISK
    written c
    "$ZGATE" api POST "volumes/lab%2Fpve%2F$DISK/snapshots/before/rollback" --data '{"owner": "pve", "force": true}'
    holds a
}
grown() {
    plugin volume_resize CONFIG STORAGE $DISK $((128 * MIB)) 1
    iscsiadm -m session -R
    TARGET=$(cat /tmp/target)
    grown_to() { [ "$(cat "/sys/block/$(basename "$(iscsi_disk)")/size")" = 262144 ]; }
    eventually 20 grown_to
    holds a
    detached $DISK
}
template() {
    same base-100-disk-0 "$(returned create_base STORAGE CONFIG $DISK)" name
    same base-100-disk-0/vm-101-disk-0 "$(returned clone_image CONFIG STORAGE base-100-disk-0 101)" name
    same lab/pve/$DISK@0-base "$(zfs get -Ho value origin lab/pve/vm-101-disk-0)" origin
    attached base-100-disk-0/vm-101-disk-0
    holds a
    written d
    detached base-100-disk-0/vm-101-disk-0
    same "base-100-disk-0 base-100-disk-0/vm-101-disk-0" \
        "$(plugin list_images STORAGE CONFIG | jq -r '.returned[0][].volid' | sed 's/zgate://' | sort | xargs)" list
}
crashed() {
    # Killed when it has made the disk and before it has confirmed it: with a name
    # that is given, no request comes before these two.
    ! CALL_DIES_AFTER=1 plugin alloc_image STORAGE CONFIG 200 raw vm-200-disk-0 65536 ||
        fail "it was not killed"
    zfs list lab/pve/vm-200-disk-0
    zfs set zgate:unconfirmed=1 lab/pve/vm-200-disk-0
    gateway_kill
    gateway_start
    same vm-200-disk-0 "$(returned alloc_image STORAGE CONFIG 200 raw UNDEF 131072)" "name of another disk"
    same 134217728 "$(zfs get -Hpo value volsize lab/pve/vm-200-disk-0)" "its size"
}
freed() {
    for disk in base-100-disk-0/vm-101-disk-0 base-100-disk-0 vm-200-disk-0; do
        for _ in 1 2; do plugin free_image STORAGE CONFIG $disk 0; done
    done
    same lab/pve "$(zfs list -Hr -t all -o name lab/pve)" datasets
    same 0 "$("$ZGATE" targets --json | jq length)" targets
}

step "a disk is made and confirmed" made
step "a node uses it; a rollback waits for its end" used
step "it is rolled back, also by force under a session" rolled_back
step "it grows" grown
step "a template and its clone" template
step "a node that crashes leaves nothing" crashed
step "all are freed with their snapshots" freed
