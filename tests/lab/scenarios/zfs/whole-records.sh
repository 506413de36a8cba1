# title: records that a client sends whole are written whole; sizes are told
# seconds: 240
# ci: no

[ -d /sys/module/zfs ] || skip "this image has no ZFS"
store_make zfs
for kib in 128 1024; do
    zfs create -o recordsize=${kib}K -o compression=off lab/r$kib
    chmod 1777 "$STORE/r$kib"
done
EXPORTS=()
export_add "$STORE/r128" /r128
export_add "$STORE/r1024" /r1024
need "the gateway serves" gateway_start

# sizes VERSION KIB: what the client took from the server.
sizes() {
    client_mount "$1" /mnt/s "" "/r$2"
    same "rsize=1048576 wsize=1048576" "$(grep ' /mnt/s ' /proc/mounts | grep -o '[rw]size=[0-9]*' | tr '\n' ' ' | sed 's/ $//')"
    umount /mnt/s
}
# written KIB: the system calls that 8 MiB become.
written() {
    client_mount 4.2 /mnt/s "" "/r$1"
    strace -f -e trace=pwritev2,pwrite64 -o "$RESULT/writes" -p "$(cat /run/zgate/pid)" 2>/dev/null &
    local tracer=$!
    sleep 3
    dd if=/dev/urandom of=/mnt/s/file bs=8M count=1 conv=fsync status=none
    kill $tracer
    wait $tracer || true
    # A call that another thread interrupts is two lines; its answer is on the second.
    grep -o '= [0-9]*$' "$RESULT/writes" | sort | uniq -c
    local bytes calls
    bytes=$(grep -o '= [0-9]*$' "$RESULT/writes" | awk '{ n += $2 } END { print n }')
    calls=$(grep -c '= 1048576$' "$RESULT/writes")
    same $((8 << 20)) "$bytes" "bytes written"
    figure "calls for 8 MiB, recordsize $1 KiB" "$(grep -c '= [0-9]*$' "$RESULT/writes")" calls
    [ "$calls" -ge 6 ] || fail "only $calls calls of 1 MiB"
    cmp /mnt/s/file "$STORE/r$1/file"
    umount /mnt/s
}
for version in 4.2 3; do
    step "v$version: wsize is what the export takes" sizes $version 1024
done
for kib in 128 1024; do
    step "recordsize $kib KiB: WRITEs go down whole" written $kib
done
step "the gateway lives" gateway_alive
