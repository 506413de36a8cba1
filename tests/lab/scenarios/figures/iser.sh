# title: figures: 1 MiB over iSER on soft-RoCE, zgate and LIO in turn, same zvol
# seconds: 900
# ci: no
# Figures, no judgement; soft-RoCE takes its time under emulation.

. /lab/guest/load.sh
. /lab/guest/rdma.sh
. /lab/guest/iscsi.sh
. /lab/guest/lio.sh
LOAD_SECONDS=10
STEP_SECONDS=200

need "soft-RoCE on a veth pair" rdma_wire
store_make "$(best_store)"
disk_make 128M
iscsi_config "$DEVICE"
MORE_CONFIG="[rdma]
arena = \"256MiB\"

${MORE_CONFIG/3260\"]/3260\"]$'\n'iser_listen = [\"0.0.0.0:3260\"]}"

# used NAME: logs in over iSER, loads the disk, logs out.
used() {
    initiator_start
    modprobe ib_iser
    iscsiadm -m discovery -t sendtargets -p $WIRE_ADDRESS:3260 -I iser
    iscsiadm -m node -T $TARGET -p $WIRE_ADDRESS:3260 -I iser --login
    eventually 60 disk_there $WIRE_ADDRESS
    iscsiadm -m session -P 1 | grep -q 'Iface Transport: iser' || fail "another transport"
    both_ways "$1" "$(iscsi_disk $WIRE_ADDRESS)"
    portal_logout $WIRE_ADDRESS
    iscsiadm -m node -o delete || true
}
ours() {
    gateway_start
    used zgate
    "$ZGATE" status --socket /run/zgate/admin.sock --json | jq -c '.data[] | select(.transport == "iser")'
    gateway_stop
}
lio() {
    lio_starts $WIRE_ADDRESS
    lio_iser $WIRE_ADDRESS
    used LIO
}
for round in 1 2 3; do
    step "zgate, round $round" ours
    step "LIO, round $round" lio
    step "LIO ends, round $round" lio_ends $WIRE_ADDRESS
done
