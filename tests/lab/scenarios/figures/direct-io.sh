# title: figures: direct_io auto, always and never on a ZFS dataset
# seconds: 900
# ci: no

[ -d /sys/module/zfs ] || skip "this image has no ZFS"
STEP_SECONDS=300
FILE_MEBIBYTES=192
OFTEN_MEBIBYTES=24
# Less than the file, so that what is read once pushes out what is read often.
ARC_BYTES=$((96 << 20))
PARAMETERS=/sys/module/zfs/parameters
BEFORE="$(cat $PARAMETERS/zfs_arc_min) $(cat $PARAMETERS/zfs_arc_max)"
store_make zfs
zfs create -o recordsize=1M -o compression=off lab/data
echo $((32 << 20)) >$PARAMETERS/zfs_arc_min
echo "$ARC_BYTES" >$PARAMETERS/zfs_arc_max
pattern /scratch/lab/data/large $FILE_MEBIBYTES
pattern /scratch/lab/data/often $OFTEN_MEBIBYTES
zpool sync lab

serve() {
    EXPORTS=()
    export_add /scratch/lab/data "/$1" none "direct_io = \"$1\""
    gateway_start
}
arcstat() { awk -v name="$1" '$1 == name { print $3 }' /proc/spl/kstat/zfs/arcstats; }
gateway_cpu() { awk '{ print ($14 + $15) / 100 }' "/proc/$(cat /run/zgate/pid)/stat"; }
# The pool's cache is empty after this.
cold() {
    drop_caches
    ! gateway_alive 2>/dev/null || gateway_stop
    zpool export lab
    zpool import -d /dev lab
}
# What the client has cached; all three would empty the cache of ZFS as well.
forget_pages() { sync && echo 1 >/proc/sys/vm/drop_caches; }
per_second() { echo "$1 $2" | awk '{ printf "%.1f", $1 / $2 }'; }
direct_reads() { awk '$1 == "direct_read_count" { s += $3 } END { print s + 0 }' /proc/spl/kstat/zfs/lab/iostats; }

# once POLICY ROUND: the large file from front to back, cold; then what is read
# often, which was in the cache before.
once() {
    local began took cpu hits
    cold
    serve "$1"
    client_mount 4.2 "/mnt/$1" "rsize=1048576" "/$1"
    cat "/mnt/$1/often" "/mnt/$1/often" >/dev/null
    forget_pages
    # Twice past the client's cache: it is in the server's.
    cat "/mnt/$1/often" >/dev/null
    forget_pages
    local size direct
    size=$(arcstat size)
    direct=$(direct_reads)
    cpu=$(gateway_cpu)
    began=$(now)
    dd if="/mnt/$1/large" of=/dev/null bs=1M status=none
    took=$(since "$began")
    figure "$1, round $2: read once" "$(per_second $FILE_MEBIBYTES "$took")" MiB/s
    figure "$1, round $2: the gateway's CPU time for it" "$(echo "$cpu $(gateway_cpu)" | awk '{ printf "%.2f", $2 - $1 }')" s
    figure "$1, round $2: reads past the cache" "$(($(direct_reads) - direct))" reads
    figure "$1, round $2: the cache grew by" "$((($(arcstat size) - size) >> 20))" MiB
    forget_pages
    hits=$(arcstat misses)
    began=$(now)
    dd if="/mnt/$1/often" of=/dev/null bs=1M status=none
    took=$(since "$began")
    figure "$1, round $2: what is read often, after it" "$(per_second $OFTEN_MEBIBYTES "$took")" MiB/s
    figure "$1, round $2: of it not in the cache" "$(($(arcstat misses) - hits))" misses
    forget_pages
    began=$(now)
    dd if="/mnt/$1/large" of=/dev/null bs=1M status=none
    took=$(since "$began")
    figure "$1, round $2: read again" "$(per_second $FILE_MEBIBYTES "$took")" MiB/s
    cmp "/mnt/$1/often" /scratch/lab/data/often
    umount "/mnt/$1"
}
same_bytes() {
    gateway_stop
    serve "$1"
    client_mount 4.2 "/mnt/$1" "" "/$1"
    cmp "/mnt/$1/large" /scratch/lab/data/large
    umount "/mnt/$1"
}
for round in 1 2; do
    for policy in never auto always; do
        step "$policy, round $round" once $policy $round
    done
done
for policy in auto always; do
    step "$policy: the same bytes" same_bytes $policy
done
echo "${BEFORE#* }" >$PARAMETERS/zfs_arc_max
echo "${BEFORE% *}" >$PARAMETERS/zfs_arc_min
step "the gateway lives" gateway_alive
