# title: the ground for RDMA: soft-RoCE between two machines, verbs, rping, the kernel's NFS server over it
# seconds: 420
# machines: 2
# ci: no
# What lies below zgate, without it: for a look at a new kernel or image.

. /lab/guest/peer.sh
need "the second machine is there" b_ready

device() {
    modprobe rdma_rxe
    rdma link add rxe0 type rxe netdev eth0
    eventually 20 active
    rdma link show
    ibv_devinfo -v -d rxe0 | grep -E 'state|active_mtu|GID|max_(qp|cq|mr|sge|srq):|device_cap'
}
active() { rdma link show rxe0/1 | grep 'state ACTIVE'; }
# The GID of RoCE v2 with this machine's IPv4 address.
gid() {
    local index
    for index in /sys/class/infiniband/rxe0/ports/1/gid_attrs/types/*; do
        index=${index##*/}
        grep -q ffff "/sys/class/infiniband/rxe0/ports/1/gids/$index" 2>/dev/null || continue
        grep -q v2 "/sys/class/infiniband/rxe0/ports/1/gid_attrs/types/$index" && echo "$index" && return
    done
    return 1
}
# Both ends wait for events: emulated processors that poll leave none for the
# device, which is software.
verbs() {
    local server
    pkill tcpdump || true
    tcpdump -i eth0 -U -w /tmp/roce.pcap -s 256 udp port 4791 >/dev/null 2>&1 &
    ibv_rc_pingpong -e -d rxe0 -g "$(gid)" -s 65536 -n 20 -c &
    server=$!
    sleep 2
    on_b ping_from_b
    wait $server
    sleep 1
    pkill tcpdump
}
ping_from_b() { ibv_rc_pingpong -e -d rxe0 -g "$(gid)" -s 65536 -n 20 -c $A_ADDRESS; }
export A_ADDRESS
frames() {
    local all bad
    tshark -r /tmp/roce.pcap -Y infiniband >/tmp/all
    tshark -r /tmp/roce.pcap -Y 'infiniband && _ws.malformed' >/tmp/bad
    all=$(wc -l </tmp/all)
    bad=$(wc -l </tmp/bad)
    figure "RoCE frames" "$all" frames
    [ "$all" -gt 600 ] || fail "only $all frames"
    same 0 "$bad" "frames tshark calls malformed"
}
connections() {
    local server
    rping -s -a $A_ADDRESS -C 50 -S 4096 -V &
    server=$!
    sleep 2
    on_b rping -c -a $A_ADDRESS -C 50 -S 4096 -V
    wait $server
}
bandwidth() {
    local server
    "$1" -d rxe0 -x "$(gid)" -e -t 2 -s 1048576 -n 20 -F >/dev/null &
    server=$!
    sleep 2
    on_b measured "$1"
    wait $server
}
measured() {
    local line
    line=$("$1" -d rxe0 -x "$(gid)" -e -t 2 -s 1048576 -n 20 -F $A_ADDRESS | awk '$1 == 1048576 { print $4 }')
    figure "$1 of 1 MiB" "$line" MiB/s
}
knfsd_up() {
    modprobe -a nfsd rpcrdma
    mkdir -p /scratch/knfsd
    mount -t tmpfs knfsd /scratch/knfsd
    mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd
    pgrep -x rpcbind || rpcbind
    exportfs -o rw,no_root_squash,fsid=77,insecure '*:/scratch/knfsd'
    pgrep -x rpc.mountd || rpc.mountd
    mkdir -p /var/lib/nfs/v4recovery
    rpc.nfsd --rdma=20049 4
    cat /proc/fs/nfsd/portlist
    grep -q 'rdma 20049' /proc/fs/nfsd/portlist
}
knfsd_used() {
    modprobe rpcrdma
    mkdir -p /mnt/rdma
    mount -t nfs -o "vers=$1,proto=rdma,port=20049$2" $A_ADDRESS:/scratch/knfsd /mnt/rdma
    grep ' /mnt/rdma ' /proc/mounts | grep 'proto=rdma'
    head -c 16777216 /dev/urandom >/tmp/source
    local began
    began=$(now)
    dd if=/tmp/source of=/mnt/rdma/file bs=1M conv=fsync status=none
    figure "knfsd v$1 over RDMA, write 16 MiB" "$(since "$began")" s
    drop_caches
    began=$(now)
    cmp /tmp/source /mnt/rdma/file
    figure "knfsd v$1 over RDMA, read 16 MiB" "$(since "$began")" s
    umount /mnt/rdma
}
knfsd_down() {
    exportfs -ua
    rpc.nfsd 0
    pkill -x rpc.mountd || true
    umount /scratch/knfsd
}
b_device() { device; }

need "A has rxe0" device
need "B has rxe0" on_b b_device
step "ibv_rc_pingpong" verbs
step "tshark reads every frame" frames
step "rping: connection manager, RDMA read and write" connections
step "ib_send_bw" bandwidth ib_send_bw
step "ib_read_bw" bandwidth ib_read_bw
step "the kernel's NFS server listens for RDMA" knfsd_up
step "B mounts it: v4.2 over RDMA" on_b knfsd_used 4.2 ""
step "B mounts it: v3 over RDMA" on_b knfsd_used 3 ",nolock,mountproto=tcp"
step "the kernel's NFS server ends" knfsd_down
