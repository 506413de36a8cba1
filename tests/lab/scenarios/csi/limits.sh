# title: limits on rates by class, over NFS and iSCSI; access for reading is enforced by the gateway
# seconds: 600
# ci: no

. /lab/guest/csi.sh
. /lab/guest/volumes.sh
STEP_SECONDS=200
COUNT=1
csi_program kubelet
csi_start

target() { echo "$CSI_DIR/pods/$1-$2-0/target"; }
delayed() {
    exec 7<>/dev/tcp/127.0.0.1/9469
    printf 'GET /metrics HTTP/1.0\r\n\r\n' >&7
    timeout 5 awk '/^zgate_rate_limited_requests_total/ { print $2 }' <&7
    exec 7>&-
}
# takes DIRECTORY: seconds for 8 MiB on stable storage.
takes() {
    local began
    began=$(now)
    dd if=/dev/zero of="$1/data" bs=1M count=8 conv=fsync status=none
    since "$began"
}
limited() {
    local protocol seconds
    both up --parameter bytes_per_second_max=1Mi
    for protocol in nfs iscsi; do
        seconds=$(takes "$(target vol $protocol)")
        figure "8 MiB at 1 MiB/s, $protocol" "$seconds" s
        awk -v s="$seconds" 'BEGIN { exit !(s > 6) }' || fail "$protocol: $seconds s"
    done
    [ "$(delayed)" -gt 10 ] || fail "$(delayed) requests were delayed"
}
# In effect at once, for the mount and the session that exist.
other_limit() {
    local protocol seconds
    both modify --mutable bytes_per_second_max=none --mutable iops_max=10
    for protocol in nfs iscsi; do
        seconds=$(
            began=$(now)
            for n in $(seq 30); do
                dd if=/dev/zero of="$(target vol $protocol)/small" bs=4k count=1 seek="$n" conv=notrunc,fsync status=none
            done
            since "$began"
        )
        figure "30 writes at 10 per second, $protocol" "$seconds" s
        awk -v s="$seconds" 'BEGIN { exit !(s > 2.5) }' || fail "$protocol: $seconds s"
    done
}
no_limit() {
    local protocol before
    both modify --mutable iops_max=none
    # Requests that wait already keep their time.
    sleep 11
    before=$(delayed)
    for protocol in nfs iscsi; do takes "$(target vol $protocol)" >/dev/null; done
    same "$before" "$(delayed)" "delayed requests"
    both healthy
}
# The limits are in the record of the volume, which a restart reads.
after_a_restart() {
    both modify --mutable iops_max=10
    gateway_kill
    gateway_start
    local before
    before=$(delayed)
    for n in $(seq 30); do
        dd if=/dev/zero of="$(target vol iscsi)/small" bs=4k count=1 seek="$n" conv=notrunc,fsync status=none
    done
    [ "$(delayed)" -gt "$before" ] || fail "no request was delayed"
}
# A node that ignores that it may only read is refused by the gateway.
only_reading() {
    modprobe sg
    kubelet iscsi up --name reader --raw --access rox
    local device
    device=$(basename "$(readlink -f "/sys/dev/block/$(stat -c '%Hr:%Lr' "$(target reader iscsi)")")")
    same 1 "$(blockdev --getro "/dev/$device")" "the disk is read-only"
    device=/dev/$(ls "/sys/block/$device/device/scsi_generic")
    sg_dd if="$device" of=/dev/null bs=512 count=1 blk_sgio=1
    refused "protect" sg_dd if=/dev/zero of="$device" bs=512 count=1
    kubelet iscsi down-node --name reader
    kubelet iscsi delete --name reader
}
ended() {
    both down-node
    both delete
    csi_nothing_left
}

step "bytes per second" limited
step "requests per second, by a change" other_limit
step "no limit" no_limit
step "limits outlive a restart" after_a_restart
step "access for reading" only_reading
step "nothing is left" ended
conclude
