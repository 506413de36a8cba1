# title: a zvol's snapshot under iSCSI load holds what was acknowledged
# seconds: 600
# ci: no

. /lab/guest/iscsi.sh
store_make zfs
[ "$STORE_KIND" = zfs ] || skip "this image has no ZFS"
zfs create lab/vm
zfs create -s -V 512M -o volblocksize=16K lab/vm/disk
eventually 20 test -b /dev/zvol/lab/vm/disk || skip "no zvol device"
# Through the page cache: there is something to flush.
iscsi_config /dev/zvol/lab/vm/disk 'direct = "never"'
need "the gateway serves" gateway_start
need "the initiator runs" initiator_start
need "discovery" portal_discover
need "login" portal_login
DISK=$(iscsi_disk)
need "a file system" sh -c "mkfs.ext4 -q -F $DISK && mkdir -p /mnt/disk && mount $DISK /mnt/disk"

zgate() { "$ZGATE" "$@"; }
# writer.py notes a record once its fsync was acknowledged.
under_load() {
    python3 /lab/guest/writer.py /mnt/disk/records /tmp/notes 25 &
    local writer=$!
    for round in 1 2 3; do
        sleep 5
        local noted
        noted=$(cut -d' ' -f1 /tmp/notes)
        zgate snapshot create "lab/vm@load$round" -r --json | tee "/tmp/answer$round"
        echo "$noted" >"/tmp/noted$round"
    done
    wait $writer
    jq -e '.flush.luns == "flushed" and (.flush.flushed | length) == 1' /tmp/answer1
    jq -e --arg t "$TARGET" '.flush.flushed[0] | .target == $t and .lun == 0 and .zvol == "lab/vm/disk"' /tmp/answer1
}
holds_it() {
    for round in 1 2 3; do
        zfs clone "lab/vm/disk@load$round" "lab/clone$round"
        eventually 20 test -b "/dev/zvol/lab/clone$round"
        e2fsck -p -f "/dev/zvol/lab/clone$round" || [ $? -le 1 ]
        mkdir -p /mnt/clone && mount "/dev/zvol/lab/clone$round" /mnt/clone
        python3 - "/tmp/noted$round" <<'END'
import sys
noted = int(open(sys.argv[1]).read())
data = open("/mnt/clone/records", "rb").read()
for n in range(noted + 1):
    record = data[n * 4096:(n + 1) * 4096]
    if record[:9] != b"%08d:" % n:
        sys.exit("record %d of %d acknowledged ones is not in the snapshot" % (n, noted + 1))
print(noted + 1, "records acknowledged before, all there")
END
        figure "records acknowledged before snapshot $round" "$(cat /tmp/noted$round)" records
        umount /mnt/clone
    done
}
# What the host has written and not synced reached the gateway's page cache
# only: the flush takes it to the zvol.
flushed() {
    umount /mnt/disk
    python3 - "$DISK" <<'END'
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_DIRECT)
buf = mmap.mmap(-1, 4096)
buf.write(b"ACKNOWLEDGED".ljust(4096, b"!"))
os.pwrite(fd, buf, 400 << 20)
END
    zgate snapshot create lab/vm/disk@now
    zfs clone lab/vm/disk@now lab/now
    eventually 20 test -b /dev/zvol/lab/now
    same ACKNOWLEDGED "$(dd if=/dev/zvol/lab/now bs=1M skip=400 count=1 status=none | head -c 12)" "in the snapshot"
}
scheduled() {
    MORE_CONFIG="$MORE_CONFIG
[[snapshot]]
dataset = \"lab/vm\"
recursive = true
hourly = 1"
    gateway_config
    zgate reload
    taken() { zfs list -Ht snapshot -o name lab/vm/disk | grep _hourly; }
    eventually 30 taken
    zgate snapshot schedules --json | jq -e '.[0].failed == []'
}
without() {
    portal_logout
    gateway_stop
    zgate snapshot create lab/vm/disk@alone 2>&1 | grep "no LUN was flushed, because no gateway answers"
    zfs list lab/vm/disk@alone
}

step "three snapshots while records are written and synced" under_load
step "each holds what was acknowledged before it" holds_it
step "what was only acknowledged is flushed first" flushed
step "a schedule of the running gateway does the same" scheduled
step "without a gateway it says so" without
