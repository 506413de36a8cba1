# title: NFS over RDMA: a client vanishes with 64 READs under way; its buffers come back, others go on
# seconds: 700
# machines: 2
# ci: no

. /lab/guest/peer.sh
. /lab/guest/rdma.sh
STEP_SECONDS=300
LEASE_SECONDS=45
MORE_CONFIG=$RDMA_CONFIG
export A_ADDRESS
b_device() { rdma_device eth0; }
b_mounts() { . /lab/guest/rdma.sh; rdma_mount $A_ADDRESS 4.2 /mnt/b; }
b_begun() { on_b eventually 60 test -e /tmp/begun; }

# 64 READs of a mebibyte under way when the machine is reset.
many_reads() {
    local n
    for n in 1 2 3 4 5 6 7 8; do
        (while :; do dd if=/mnt/b/many iflag=direct bs=8M of=/dev/null status=none; done) &
    done
    sleep 3
    : >/tmp/begun
    wait
}
idle_again() { [ "$(buffers_in_use)" -le "$1" ]; }
vanishes() {
    local before began
    before=$(buffers_in_use)
    pattern "$STORE/many" 32
    on_b b_mounts
    b_start many_reads
    b_begun
    figure "buffers while 8 readers read" "$(buffers_in_use)" B
    began=$(now)
    b_crash_begins
    client_mount 4.2 /mnt/a
    cmp /mnt/a/many "$STORE/many"
    umount /mnt/a
    eventually 150 idle_again "$before"
    figure "buffers of a client that vanished are back after" "$(since "$began")" s
    b_ready
}

mounts_again() {
    on_b b_device
    on_b b_mounts
    on_b reads_all
    on_b umount /mnt/b
}
reads_all() { drop_caches; cat /mnt/b/many >/dev/null; }

need "the second machine is there" b_ready
need "A has an RDMA device" rdma_device eth0
need "B has an RDMA device" on_b b_device
store_make "$(best_store)"
need "the gateway serves" gateway_start
step "B vanishes while it reads" vanishes
step "B is back, mounts and reads" mounts_again
step "the gateway lives" gateway_alive
step "the gateway ends" gateway_stop
