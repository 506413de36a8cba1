# title: figures: iSER on soft-RoCE, zgate and LIO in turn, like zvols
# seconds: 1500
# ci: no
# Figures, no judgement; soft-RoCE takes its time under emulation. Both targets
# stay up and take turns of half a second: what the machine itself does meanwhile
# comes to both alike (turns.py).

. /lab/guest/turns.sh
. /lab/guest/rdma.sh
. /lab/guest/iscsi.sh
. /lab/guest/lio.sh
STEP_SECONDS=400
LIO_ADDRESS=10.9.5.3

need "soft-RoCE on a veth pair" rdma_wire
store_make "$(best_store)"
disk_make 128M
iscsi_config "$DEVICE"
MORE_CONFIG="[rdma]
arena = \"256MiB\"

${MORE_CONFIG/0.0.0.0:3260\"]/$WIRE_ADDRESS:3260\"]$'\n'iser_listen = [\"$WIRE_ADDRESS:3260\"]}"

# logged_in ADDRESS
logged_in() {
    iscsiadm -m discovery -t sendtargets -p "$1:3260" -I iser
    iscsiadm -m node -T $TARGET -p "$1:3260" -I iser --login
    eventually 60 disk_there "$1"
    iscsiadm -m session -P 1 | grep 'Iface Transport: iser' || fail "another transport"
}
ours() {
    initiator_start
    modprobe ib_iser
    gateway_start
    logged_in $WIRE_ADDRESS
}
lio() {
    ip address replace $LIO_ADDRESS/24 dev veth0
    disk_make 128M lio
    lio_starts $LIO_ADDRESS
    lio_iser $LIO_ADDRESS
    logged_in $LIO_ADDRESS
}
# What a volume's first writes allocate is there afterwards.
filled() {
    local address
    for address in $WIRE_ADDRESS $LIO_ADDRESS; do
        dd if=/dev/urandom "of=$(iscsi_disk $address)" bs=1M count=64 oflag=direct
    done
}
loaded() {
    lasting zgate "$(iscsi_disk $WIRE_ADDRESS)" read write read-4k write-4k
    lasting LIO "$(iscsi_disk $LIO_ADDRESS)" read write read-4k write-4k
}
ends() {
    "$ZGATE" status --socket /run/zgate/admin.sock --json | jq -c '.data[] | select(.transport == "iser")'
    portal_logout $WIRE_ADDRESS
    portal_logout $LIO_ADDRESS
    lio_ends $LIO_ADDRESS
    gateway_stop
}
step "zgate serves one" ours
step "LIO serves the other" lio
step "both are written once" filled
need "loads that never end" loaded
in_turns LIO
step "none of them failed" loads_end
step "they end" ends
