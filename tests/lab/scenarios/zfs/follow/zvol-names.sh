# title: zvols that exchange their names: no LUN has the data of another one
# seconds: 300
# ci: no

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
dataset = \"lab/vm/*\"
first_number = 3
"
luns() { "$ZGATE" targets --json | python3 -c '
import json, sys
target, = json.load(sys.stdin)
print(*(l["number"] for l in target["luns"]))'; }
luns_are() { same "$*" "$(luns)" LUNs; }
paths_are() { same "$*" "$("$ZGATE" targets --json | python3 -c '
import json, sys
target, = json.load(sys.stdin)
print(*(str(l["number"]) + l["path"].removeprefix("/dev/zvol/lab/vm") for l in target["luns"]))')" paths; }
trigger() { udevadm trigger --action=change --subsystem-match=block --sysname-match='zd*'; }

# made NAME NUMBER: its data is /tmp/data.NUMBER.
made() {
    zfs create -V 64M "lab/vm/$1"
    eventually 20 test -b "/dev/zvol/lab/vm/$1"
    pattern "/tmp/data.$2" 8
    dd if="/tmp/data.$2" of="/dev/zvol/lab/vm/$1" bs=1M oflag=direct status=none
}
both_made() { made a 3 && made b 4; }
served() { eventually 30 paths_are 3/a 4/b; }
# Numbers belong to zvols, whatever their names: those that are there have their data.
own_data() {
    local number
    portal_discover
    iscsiadm -m node -T $TARGET -p 127.0.0.1:3260 --login
    for number in $(luns); do
        eventually 30 disk_there 127.0.0.1 "$number"
        blockdev --flushbufs "$(iscsi_disk 127.0.0.1 "$number")"
        cmp -n $((8 << 20)) "/tmp/data.$number" "$(iscsi_disk 127.0.0.1 "$number")"
    done
    portal_logout
}
renamed() {
    zfs rename lab/vm/a lab/vm/a-old
    zfs rename lab/vm/b lab/vm/a
    sleep 3
    luns_are 3 4
    own_data
}
# Without a trigger: a LUN may be absent.
restarted() {
    gateway_stop
    ls -l /dev/zvol/lab/vm
    gateway_start
    sleep 5
    luns
    own_data
}
# udev may mend the links by itself once the zvols are closed: those that it leaves
# while they are open are made here. The first zvol has no link of its own then: a LUN
# by that would have it open, and the wrong link would only find it in use.
misled() {
    gateway_stop
    trigger
    eventually 30 test -b /dev/zvol/lab/vm/a-old
    udevadm settle
    ln -sfn "$(readlink -f /dev/zvol/lab/vm/a-old)" /dev/zvol/lab/vm/a
    rm /dev/zvol/lab/vm/a-old
    gateway_start
    eventually 30 grep 'vm/a leads to another zvol, whose path is /dev/zvol/lab/vm/a-old' /run/zgate/log
    own_data
}
mended() {
    gateway_stop
    rm -f /dev/zvol/lab/vm/a
    trigger
    eventually 30 test -b /dev/zvol/lab/vm/a
    eventually 30 test -b /dev/zvol/lab/vm/a-old
    gateway_start
    eventually 30 paths_are 3/a-old 4/a
    own_data
}
need "two zvols with data" both_made
need "the gateway serves" gateway_start
step "both are logical units" served
need "the initiator runs" initiator_start
step "renamed twice: the same data" renamed
step "restarted without a trigger: its own data or none" restarted
step "a link that leads to another zvol is not served" misled
step "with the links renewed, both are served" mended
step "the gateway lives" gateway_alive
