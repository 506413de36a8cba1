# title: a disk over the wire: mkfs, a pulled cable under load, nothing acknowledged is lost
# seconds: 400
# machines: 2
# ci: no

. /lab/guest/peer.sh
. /lab/guest/iscsi.sh
store_make "$(best_store)"
if [ "$STORE_KIND" = zfs ]; then
    zfs create -s -V 512M -o volblocksize=16K lab/vol
    eventually 20 test -b /dev/zvol/lab/vol || skip "no zvol device"
    iscsi_config /dev/zvol/lab/vol
else
    iscsi_config "$STORE/disk.img" 'size = "512MiB"'
fi
export TARGET A_ADDRESS
need "the gateway serves" gateway_start
need "the second machine is there" b_ready

b_login() {
    initiator_start
    portal_discover $A_ADDRESS
    portal_login $A_ADDRESS
}
b_prepare() {
    local disk
    disk=$(iscsi_disk $A_ADDRESS)
    mkfs.xfs -q -f "$disk"
    mkdir -p /mnt/disk
    mount "$disk" /mnt/disk
    pattern /tmp/data 32
    local began
    began=$(now)
    cp /tmp/data /mnt/disk/data
    sync -f /mnt/disk
    figure "write 32 MiB over the wire" "$(since "$began")" s
    echo 3 >/proc/sys/vm/drop_caches
    began=$(now)
    cmp /tmp/data /mnt/disk/data
    figure "read 32 MiB over the wire" "$(since "$began")" s
}
pulled() {
    local job
    job=$(b_start python3 /lab/guest/writer.py /mnt/disk/written /tmp/notes 50)
    sleep 5
    wire_cut
    sleep 15
    wire_mend
    b_wait "$job"
    on_b after_all
}
after_all() {
    disk_kept 20 "longest fsync with the cable out for 15 s"
}
gone() { portal_logout $A_ADDRESS; }

need "B logs in" on_b b_login
need "B makes a file system, writes and reads" on_b b_prepare
STEP_SECONDS=200
step "the cable is pulled for 15 s under a writer" pulled
step "B logs out" on_b gone
step "the gateway lives" gateway_alive
