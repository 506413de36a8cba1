# title: figures: iSCSI over TCP, zgate and LIO in turn, like zvols
# seconds: 1500
# ci: no
# Figures, no judgement. Both targets stay up and take turns of half a second: what
# the machine itself does meanwhile comes to both alike (turns.py).

. /lab/guest/turns.sh
. /lab/guest/iscsi.sh
. /lab/guest/lio.sh
STEP_SECONDS=400
LIO_ADDRESS=127.0.0.2

store_make "$(best_store)"
disk_make 128M
iscsi_config "$DEVICE"
MORE_CONFIG="${MORE_CONFIG/0.0.0.0:3260/127.0.0.1:3260}"

# logged_in ADDRESS
logged_in() {
    iscsiadm -m discovery -t sendtargets -p "$1:3260"
    iscsiadm -m node -T $TARGET -p "$1:3260" --login
    eventually 60 disk_there "$1"
}
ours() {
    initiator_start
    gateway_start
    logged_in 127.0.0.1
}
lio() {
    disk_make 128M lio
    lio_starts $LIO_ADDRESS
    logged_in $LIO_ADDRESS
}
# What a volume's first writes allocate is there afterwards.
filled() {
    local address
    for address in 127.0.0.1 $LIO_ADDRESS; do
        dd if=/dev/urandom "of=$(iscsi_disk $address)" bs=1M count=64 oflag=direct
    done
}
loaded() {
    lasting zgate "$(iscsi_disk 127.0.0.1)" read write read-4k write-4k
    lasting LIO "$(iscsi_disk $LIO_ADDRESS)" read write read-4k write-4k
}
ends() {
    portal_logout 127.0.0.1
    portal_logout $LIO_ADDRESS
    lio_ends $LIO_ADDRESS
    gateway_stop
}
need "zgate serves one" ours
need "LIO serves the other" lio
need "both are written once" filled
need "loads that never end" loaded
in_turns LIO
step "none of them failed" loads_end
step "they end" ends
