# title: clients come and go, their records wait for a slow disk: others open, read and write on
# seconds: 300
# ci: no

. /lab/guest/iscsi.sh
. /lab/guest/slow.sh
export TARGET
store_make zfs
slow_device slow "$OTHER_DISK" 256
WRITE_MS=4000

serves() {
    mkfs.ext4 -q /dev/mapper/slow
    mkdir -p /scratch/state
    mount /dev/mapper/slow /scratch/state
    STATE_DIR=/scratch/state
    zfs create -V 64M -o volblocksize=4K lab/vol
    eventually 20 test -b /dev/zvol/lab/vol
    iscsi_config /dev/zvol/lab/vol
    EXPORTS=()
    export_add "$STORE" /export
    gateway_start
    eventually 20 port_open 3260
    client_mount 4.2 /mnt/a
    client_b_mount 4.2 /mnt/b
    umount /mnt/b
}
pace() { PYTHONDONTWRITEBYTECODE=1 timeout 60 python3 /lab/guest/pace.py "$@" || fail "no pace: $*"; }
# Each mount is a client more, each umount one less: a record each time.
come_and_go() {
    local began version
    for version in 4.2 4.0; do
        began=$(now)
        client_b_mount $version /mnt/b
        figure "mount $version" "$(since "$began")" s
        echo $version >/mnt/b/of-b
        umount /mnt/b
    done
}
others_get_on() {
    device_slow slow 0 $WRITE_MS
    come_and_go >/tmp/come-and-go 2>&1 &
    local going=$! kind
    pace disk 0 25 >/tmp/pace-disk &
    local disk=$!
    pace files /mnt/a 25 >/tmp/pace-files
    wait $disk
    for kind in files disk; do
        figure "$kind" "$(cut -d' ' -f1 /tmp/pace-$kind)" steps/s
        figure "$kind: longest step" "$(cut -d' ' -f2 /tmp/pace-$kind)" s
    done
    device_quick slow
    wait $going || { cat /tmp/come-and-go; fail "the other client has no mount"; }
    # Shorter than one wait for the disk.
    for kind in files disk; do
        awk '{ exit !($2 < 3) }' /tmp/pace-$kind || fail "$kind: the longest step took $(cut -d' ' -f2 /tmp/pace-$kind) s"
    done
}
need "the gateway serves, its state on a disk of its own" serves
step "the state's disk becomes slow, clients come and go" others_get_on
step "the gateway lives" gateway_alive
umount /mnt/a
gateway_stop
umount /scratch/state
