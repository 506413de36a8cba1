# title: zvols of a pattern become logical units: numbers and identities stay
# seconds: 400

. /lab/guest/iscsi.sh
store_make zfs
zfs create lab/vm
mkdir -p /scratch/nfs
EXPORTS=("rescan_seconds = 3600
")
export_add /scratch/nfs /export
MORE_CONFIG="[iscsi]
listen = [\"0.0.0.0:3260\"]

[[target]]
name = \"$TARGET\"
allow_any_initiator = true

[[target.volumes]]
dataset = \"lab/vm/**\"
first_number = 3
"
luns() { "$ZGATE" targets --json | python3 -c '
import json, sys
target, = json.load(sys.stdin)
print(*(str(l["number"]) + l["path"].removeprefix("/dev/zvol/lab/vm") for l in target["luns"]))'; }
luns_are() { same "$*" "$(luns)" LUNs; }
# Without names: while a renamed zvol is open, its link keeps the old one.
numbers_are() { same "$*" "$(luns | tr ' ' '\n' | sed 's,/.*,,' | tr '\n' ' ' | sed 's/ $//')" numbers; }
naa() { "$ZGATE" targets --json | python3 -c '
import json, sys
target, = json.load(sys.stdin)
print(*(l["naa"] for l in target["luns"] if l["number"] == int(sys.argv[1])))' "$1"; }
shows_block_size() {
    "$ZGATE" targets --json >/tmp/targets
    grep -q "\"volblocksize_bytes\": $1" /tmp/targets
}
created() {
    zfs create -V 64M lab/vm/one
    eventually 30 luns_are 3/one
    zfs create -s -V 64M -o volblocksize=16K lab/vm/two
    eventually 30 luns_are 3/one 4/two
    # Properties are listed at most every 5 s while datasets go on changing.
    eventually 15 shows_block_size 16384
}
attached() {
    portal_discover
    iscsiadm -m node -T $TARGET -p 127.0.0.1:3260 --login
    eventually 30 disk_there 127.0.0.1 3
    eventually 30 disk_there 127.0.0.1 4
    pattern /tmp/data 8
    dd if=/tmp/data of="$(iscsi_disk 127.0.0.1 4)" bs=1M oflag=direct status=none
}
renamed() {
    local before
    before=$(naa 4)
    zfs rename lab/vm/two lab/vm/zwei
    sleep 3
    numbers_are 3 4
    same "$before" "$(naa 4)" "NAA"
    blockdev --flushbufs "$(iscsi_disk 127.0.0.1 4)"
    cmp -n $((8 << 20)) /tmp/data "$(iscsi_disk 127.0.0.1 4)"
}
restarted() {
    zfs create -V 64M lab/vm/zero
    eventually 30 numbers_are 3 4 5
    gateway_stop
    # Not the initiator's disks: they do not answer while the gateway is away.
    udevadm trigger --action=change --subsystem-match=block --sysname-match='zd*'
    eventually 30 test -e /dev/zvol/lab/vm/zwei
    gateway_start
    eventually 30 luns_are 3/one 4/zwei 5/zero
    eventually 60 cmp -n $((8 << 20)) /tmp/data "$(iscsi_disk 127.0.0.1 4)"
}
destroyed() {
    refused busy zfs destroy lab/vm/one
    "$ZGATE" release lab/vm/one
    eventually 10 zfs destroy lab/vm/one
    eventually 30 luns_are 4/zwei 5/zero
    cmp -n $((8 << 20)) /tmp/data "$(iscsi_disk 127.0.0.1 4)"
    zfs create -V 64M lab/vm/next
    eventually 30 luns_are 4/zwei 5/zero 6/next
}
need "the gateway serves" gateway_start
step "created: a logical unit" created
need "the initiator runs" initiator_start
step "attached" attached
step "renamed: the same unit" renamed
step "numbers survive a restart" restarted
step "destroyed, once let go of" destroyed
step "the gateway lives" gateway_alive
