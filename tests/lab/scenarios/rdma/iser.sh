# title: a disk over iSER between two machines: open-iscsi logs in, mkfs, fsck, kill -9; every frame decoded
# seconds: 700
# machines: 2
# ci: no

. /lab/guest/peer.sh
. /lab/guest/iscsi.sh
. /lab/guest/rdma.sh
STEP_SECONDS=150
store_make "$(best_store)"
iscsi_config "$STORE/disk.img" 'size = "384MiB"'
MORE_CONFIG="[rdma]
arena = \"128MiB\"

${MORE_CONFIG/3260\"]/3260\"]$'\n'iser_listen = [\"0.0.0.0:3260\"]}"
export TARGET A_ADDRESS

a_device() { rdma_device eth0; }
b_device() { . /lab/guest/rdma.sh; rdma_device eth0; modprobe ib_iser; }
capture() {
    tcpdump -i eth0 -s 0 -B 65536 -U -w /tmp/iser.pcap udp port 4791 >/tmp/tcpdump 2>&1 &
    eventually 20 grep -q listening /tmp/tcpdump
}

b_login() {
    initiator_start
    iscsiadm -m iface
    iscsiadm -m discovery -t sendtargets -p $A_ADDRESS:3260 -I iser
    iscsiadm -m node -T $TARGET -p $A_ADDRESS:3260 -I iser --login
    eventually 60 disk_there $A_ADDRESS
    iscsiadm -m session -P 3
    iscsiadm -m session -P 1 | grep 'Iface Transport: iser' || fail "another transport"
}
b_few() {
    local disk
    disk=$(iscsi_disk $A_ADDRESS)
    pattern /tmp/few 1
    dd if=/tmp/few of="$disk" bs=64k oflag=direct status=none
    dd if="$disk" of=/tmp/back bs=64k count=16 iflag=direct status=none
    cmp /tmp/few /tmp/back
    # Short ones travel with their command.
    dd if=/tmp/few of="$disk" bs=4k count=16 oflag=direct status=none
}
login_recorded() {
    capture
    on_b b_login
    on_b b_few
    sleep 1
    pkill -x tcpdump
    cat /tmp/tcpdump
}
decoded() {
    local all
    tshark -r /tmp/iser.pcap -Y iser >/tmp/frames 2>/dev/null
    all=$(wc -l </tmp/frames)
    figure "iSER frames" "$all" frames
    tshark -r /tmp/iser.pcap -Y 'iser && _ws.malformed' >/tmp/bad 2>/dev/null
    head -n 20 /tmp/bad
    cp /tmp/iser.pcap "$RESULT/iser.pcap"
    [ "$all" -gt 40 ] || { tshark -r /tmp/iser.pcap 2>/dev/null | head -n 40; fail "only $all frames are iSER"; }
    same 0 "$(wc -l </tmp/bad)" "frames tshark calls malformed"
}
data_figures() { "$ZGATE" status --socket /run/zgate/admin.sock --json | jq -c '.data[] | select(.transport == "iser")'; }
not_copied() {
    data_figures
    same 0 "$(data_figures | jq -s '[.[] | select(.direction == "read") | .copied_bytes] | add')" "bytes of reads that were copied"
    [ "$(data_figures | jq -s '[.[].moved_bytes] | add')" -gt 1000000 ] || fail "hardly anything was moved"
}
b_prepare() {
    local disk began
    disk=$(iscsi_disk $A_ADDRESS)
    mkfs.xfs -q -f "$disk"
    mkdir -p /mnt/disk
    mount "$disk" /mnt/disk
    pattern /tmp/data 16
    began=$(now)
    cp /tmp/data /mnt/disk/data
    sync -f /mnt/disk
    figure "write 16 MiB over iSER" "$(since "$began")" s
    umount /mnt/disk
    xfs_repair -n "$disk"
    mount "$disk" /mnt/disk
    echo 3 >/proc/sys/vm/drop_caches
    began=$(now)
    cmp /tmp/data /mnt/disk/data
    figure "read 16 MiB over iSER" "$(since "$began")" s
}
killed() {
    local job
    job=$(b_start python3 /lab/guest/writer.py /mnt/disk/written /tmp/notes 40)
    sleep 5
    gateway_kill
    sleep 2
    gateway_start
    b_wait "$job"
    on_b after_all
}
after_all() {
    disk_kept 10 "longest fsync across a restart over iSER"
}
gone() { portal_logout $A_ADDRESS; }
all_freed() { eventually 20 no_session; }
no_session() { [ "$("$ZGATE" sessions --socket /run/zgate/admin.sock --json | jq length)" = 0 ]; }

need "the second machine is there" b_ready
need "A has rxe0" a_device
need "B has rxe0" on_b b_device
need "the gateway listens for iSER" gateway_start
need "B logs in over iSER, reads and writes" login_recorded
step "tshark reads every frame" decoded
step "reads were not copied" not_copied
need "mkfs.xfs, 16 MiB there and back, xfs_repair finds nothing" on_b b_prepare
STEP_SECONDS=200
step "a writer across kill -9" killed
step "B logs out" on_b gone
step "its session is gone" all_freed
step "the gateway lives" gateway_alive
