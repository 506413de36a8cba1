# title: zgate doctor is content with a healthy machine, finds each of ten faults and names its fix
# seconds: 1000
# ci: no

. /lab/guest/iscsi.sh
. /lab/guest/unit.sh
[ -d /sys/module/zfs ] || skip "this image has no ZFS"

# --- a healthy machine ------------------------------------------------------

pool_make() {
    mkfs.xfs -q -f "$STORE_DISK"
    mkdir -p /scratch/disks
    mount "$STORE_DISK" /scratch/disks
    truncate -s 1G /scratch/disks/m0 /scratch/disks/m1
    zpool create -o ashift=12 -O atime=off -O xattr=sa -O acltype=posixacl -O compression=off \
        -O mountpoint=/scratch/lab lab mirror /scratch/disks/m0 /scratch/disks/m1
    zfs create lab/data
    zfs create -s -V 128M -o volblocksize=16K lab/vol
    eventually 20 test -b /dev/zvol/lab/vol
    chmod 1777 /scratch/lab/data
    echo held >/scratch/lab/data/held
    zpool scrub -w lab
}
configure() {
    install -d -m 700 "$STATE_DIR" /run/zgate
    iscsi_config /dev/zvol/lab/vol
    EXPORTS=()
    export_add /scratch/lab/data /export
    gateway_config
    sed -i 's/^\[server\]/[server]\npool_sample_seconds = 5/' "$CONFIG"
}
# serve [MEMLOCK [CAPABILITIES]]: as the unit does.
serve() {
    local limits
    read -ra limits <<<"$(unit_limits)"
    NO_COLOR=1 ZGATE_LOG=info prlimit "${limits[@]}" ${1:+--memlock="$1"} \
        setpriv --bounding-set "${2:-$(unit_rights)}" \
        "$ZGATE" serve --config "$CONFIG" >>/run/zgate/log 2>&1 </dev/null &
    echo $! >/run/zgate/pid
    eventually 30 port_open 2049 && gateway_alive || { tail -n 20 /run/zgate/log; return 1; }
}
healthy_machine() {
    pool_make
    configure
    serve
    client_mount 4.2 /mnt/a
    client_b_mount 4.2 /mnt/b
    same held "$(cat /mnt/a/held)"
    same held "$(cat /mnt/b/held)"
}

# --- what the doctor says ---------------------------------------------------

doctor() { "$ZGATE" doctor --config "$CONFIG" "$@"; }
bad() { jq -r '[.findings[] | select(.level != "ok") | .check] | unique | join(" ")' "$1"; }
content() {
    local code=0
    doctor --json >/tmp/findings || code=$?
    same "" "$(bad /tmp/findings)" "found on a healthy machine" || { jq . /tmp/findings; return 1; }
    same 0 $code "exit code" || return 1
    jq -r '.findings[] | "\(.group) \(.check): \(.what)"' /tmp/findings
}
well_within() {
    eventually "$1" content || { jq '.findings[] | select(.level != "ok")' /tmp/findings; return 1; }
}
# Hosts that reach the disk may outlive this machine: no fault, but said.
cache_noted() {
    doctor --json >/tmp/findings
    jq -e '[.findings[] | select(.check == "lun-cache" and .level == "ok") | select((.why | contains("loses power")) and (.fix | contains("zfs set sync=always lab/vol")))] | length == 1' /tmp/findings
}
# (Where these are conditions, bash ignores `set -e`.)
# finds CHECK EXIT-CODE WHAT FIX: this check, no other, in these words.
finds() {
    local code=0
    doctor --json >/tmp/findings || code=$?
    jq -r '.findings[] | select(.level != "ok")' /tmp/findings
    same "$1" "$(bad /tmp/findings)" "checks that found something" || return 1
    same "$2" $code "exit code" || return 1
    jq -e --arg what "$3" --arg fix "$4" \
        '[.findings[] | select(.level != "ok") | select((.what | contains($what)) and (.fix | contains($fix)) and .why != "")] | length > 0' \
        /tmp/findings >/dev/null || fail "not said: '$3', fix '$4'"
}

# --- ten faults -------------------------------------------------------------

pool_degraded() {
    zpool offline lab /scratch/disks/m1
    finds pool-state 2 "lab is DEGRADED: /scratch/disks/m1 OFFLINE" "zpool online lab /scratch/disks/m1"
    eventually 20 grep -q "the pool is DEGRADED: /scratch/disks/m1 OFFLINE" /run/zgate/log
    "$ZGATE" status | grep "the pool is DEGRADED"
    # What the fix says mends it.
    zpool online lab /scratch/disks/m1
    zpool wait -t resilver lab
    well_within 20
}
age_said() { (finds scrub 1 "40 days ago" "zpool scrub lab") >/tmp/said 2>&1; }
scrub_old() {
    local began up code
    # A resilver may run once more after the one that was waited for, and would
    # end on the changed clock. Nothing is left to be resilvered after a scrub.
    eventually 60 zpool scrub -w lab
    began=$(date +%s)
    up=$(cut -d. -f1 /proc/uptime)
    date -s "@$((began + 40 * 86400))"
    eventually 30 age_said && code=0 || code=$?
    cat /tmp/said
    # The same clock as before, and what has passed since.
    date -s "@$((began + $(cut -d. -f1 /proc/uptime) - up))"
    return "$code"
}
nearly_full() {
    dd if=/dev/zero of=/scratch/lab/fill bs=1M count=840 status=none || true
    sync -f /scratch/lab/fill
    zpool list lab
    finds capacity 1 "% full" "zfs list -o space -r lab"
    eventually 20 grep -q "pool: the pool is 8. % full" /run/zgate/log
    sleep 12
    same 1 "$(grep -c "pool: the pool is 8. % full" /run/zgate/log)" "warnings for one crossing"
    "$ZGATE" status | grep "the pool is 8. % full"
    curl_metrics | grep 'zfs_pool_capacity_warning_percent{pool="lab"} 80'
    rm /scratch/lab/fill
    zpool sync lab
    well_within 60
}
dataset_unmounted() {
    umount /mnt/a /mnt/b
    gateway_stop
    zfs unmount lab/data
    finds dataset-mounted 2 "belongs to dataset lab/data, which is not mounted" "zfs mount lab/data"
    zfs mount lab/data
    serve
    client_mount 4.2 /mnt/a
    client_b_mount 4.2 /mnt/b
    content
}
sync_disabled() {
    zfs set sync=disabled lab/vol
    finds lun-sync 2 "lab/vol has sync=disabled" "zfs set sync=standard lab/vol"
    zfs set sync=standard lab/vol
    content
}
memlock_low() {
    gateway_stop
    serve 65536
    finds memlock 1 "may pin only 64 KiB" "LimitMEMLOCK=infinity"
    gateway_stop
    serve
    content
}
capability_missing() {
    gateway_stop
    local rights
    rights=$(unit_rights)
    serve unlimited "${rights/+dac_read_search,/}"
    finds capabilities 2 "lacks CAP_DAC_READ_SEARCH" "CapabilityBoundingSet="
    gateway_stop
    serve
    content
}
port_taken() {
    # Its clients would go to the kernel's server.
    umount /mnt/a /mnt/b
    gateway_stop
    modprobe nfsd
    mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd
    pgrep -x rpcbind >/dev/null || background rpcbind -f
    eventually 20 port_open 111
    rpc.nfsd --no-nfs-version 3 2
    (finds ports 2 "knfsd, 2 threads" "systemctl disable --now nfs-server") && code=0 || code=$?
    # Without systemd, as the fix says.
    rpc.nfsd 0
    umount /proc/fs/nfsd
    serve
    [ "$code" -eq 0 ]
    content
}
mtu_mismatch() {
    # A client that is heard of: its connection has to be there again.
    eventually 60 cat /mnt/b/held
    ip link set veth-a mtu 9000
    (finds mtu 2 "veth-a sends packets of 9000 bytes, those above 1500 are dropped" "mtu 1500") && code=0 || code=$?
    doctor path 10.9.0.2 --port 2049 | tee /tmp/said || true
    ip link set veth-a mtu 1500
    grep -q "✗ mtu: 10.9.0.2" /tmp/said
    grep -q "✗ reachable: 10.9.0.2: port 2049" /tmp/said
    [ "$code" -eq 0 ]
    content
}
silent() { (finds stale-clients 1 "at 10.9.0.2" "bring 10.9.0.2 back") >/tmp/said 2>&1; }
stale_client() {
    eventually 60 cat /mnt/b/held
    exec 7</mnt/b/held
    ip -n client-b link set veth-b down
    eventually 90 silent && code=0 || code=$?
    cat /tmp/said
    ip -n client-b link set veth-b up
    exec 7<&-
    [ "$code" -eq 0 ]
    # It comes back, and all is well again.
    well_within 110
}
curl_metrics() {
    exec 8<>/dev/tcp/127.0.0.1/9469
    printf 'GET /metrics HTTP/1.0\r\n\r\n' >&8
    cat <&8
    exec 8>&-
}
# The figures of the real pool, under the names dashboards know.
metrics() {
    curl_metrics >/tmp/metrics
    local name
    for name in 'zfs_pool_health{pool="lab"} 0' 'zfs_pool_scrub_state{pool="lab"} 2' \
        'zfs_pool_size_bytes{pool="lab"}' 'zfs_pool_vdev_health{pool="lab",vdev="mirror-0",class="normal"} 0' \
        'zfs_pool_vdev_errors_total{pool="lab",vdev="/scratch/disks/m0",class="normal",kind="checksum"} 0' \
        'zfs_pool_vdev_size_bytes{pool="lab",vdev="mirror-0"' 'zfs_arc_hits_total' 'zfs_zil_commits_total'; do
        grep -F "$name" /tmp/metrics || { grep ^zfs_ /tmp/metrics; fail "no $name"; }
    done
    dd if=/dev/urandom of=/scratch/lab/data/busy bs=64k count=600 oflag=sync status=none &
    local writer=$!
    eventually 60 wait_seen
    kill $writer 2>/dev/null || true
    "$ZGATE" status --json | jq '.pools, .zfs'
}
wait_seen() { curl_metrics | grep 'zfs_pool_vdev_wait_seconds{pool="lab",vdev="lab",stage="total",kind="write"}'; }

STEP_SECONDS=240
need "a healthy machine" healthy_machine
need "nothing is found on it" content
step "the write cache of its disk is noted" cache_noted
step "metrics of the pool" metrics
step "pool degraded" pool_degraded
step "scrub old" scrub_old
step "nearly full" nearly_full
step "sync=disabled under a VM zvol" sync_disabled
step "MTU mismatch" mtu_mismatch
step "stale client" stale_client
step "dataset unmounted" dataset_unmounted
step "memlock too low" memlock_low
step "missing capability" capability_missing
step "port taken by knfsd" port_taken
step "text for people, and all is well" doctor
gateway_stop
zpool destroy lab
umount /scratch/disks
