# title: a v3 write waits for its disk: nobody gets a delegation, nobody keeps what was there before
# seconds: 200
# ci: no

. /lab/guest/slow.sh
[ -d /sys/module/zfs ] || skip "this image has no ZFS"
slow_device slow "$STORE_DISK" 1024
STORE=/scratch/lab
PLACE=$((512 * 1024))

# Records that are not in memory: a write of a part of one waits for the disk.
serves() {
    zpool create -f -o ashift=12 -O mountpoint=$STORE -O primarycache=metadata -O compression=off lab /dev/mapper/slow
    head -c $((1 << 20)) /dev/zero | tr '\0' o >$STORE/file
    chmod 666 $STORE/file
    zpool sync lab
    gateway_start
    client_mount 4.2 /mnt/a
    client_b_mount 3 /mnt/b
}
at_place() { dd if="$1" bs=1 skip=$PLACE count=1 status=none; }
known() {
    cat /mnt/a/file >/dev/null
    same o "$(at_place /mnt/a/file)"
}
written() {
    head -c 4096 /dev/zero | tr '\0' n |
        dd of=/mnt/b/file bs=4096 count=1 seek=$((PLACE / 4096)) conv=notrunc,fsync iflag=fullblock status=none
}
# Longer than any time for which a change is only taken to last.
held() {
    device_slow slow 600000 0
    written &
    echo $! >/tmp/writer
    sleep 12
    kill -0 "$(cat /tmp/writer)" || fail "the write was not held: nothing is tried here"
    # What was there before is right while the write is under way.
    exec 7</mnt/a/file
    same o "$(dd bs=1 skip=$PLACE count=1 status=none <&7)" "during the write"
    device_quick slow
    wait "$(cat /tmp/writer)"
    # Longer than attributes are kept by a client.
    sleep 4
    same n "$(at_place $STORE/file)" "in the store"
    same n "$(at_place /mnt/a/file)" "opened again after the write"
    exec 7<&-
}
need "the gateway serves a pool whose disk can stand still" serves
step "A has read the file and keeps it" known
step "B's v3 write is held, A opens the file, B's write ends" held
step "the gateway lives" gateway_alive
umount /mnt/a
umount /mnt/b
gateway_stop
