# title: NFS over RDMA between two machines: every version, locks with a TCP client, every frame decoded
# seconds: 900
# machines: 2

. /lab/guest/peer.sh
. /lab/guest/rdma.sh
LOCKS=/lab/guest/locks.py
STEP_SECONDS=150
# More than an overloaded machine's pauses.
LEASE_SECONDS=45
MORE_CONFIG=$RDMA_CONFIG
export A_ADDRESS LOCKS
b_device() { rdma_device eth0; }

# Lengths around everything that is rounded; names and a link that need a
# reply chunk; files larger than a transfer, several at once.
used() {
    local version=$1 d=/mnt/rdma began n long
    . /lab/guest/rdma.sh
    rdma_mount $A_ADDRESS "$version" $d
    [ -e /tmp/source ] || pattern /tmp/source 4
    for n in 1 3 4095 4097 65535 1048575 1048577; do head -c $n /tmp/source >$d/len$n; done
    long=$(printf 'x%.0s' $(seq 1 3000))
    ln -s "$long" $d/link
    mkdir $d/names
    for n in $(seq 1 70); do : >"$d/names/a-file-with-a-name-that-is-long-enough-$n"; done
    began=$(now)
    dd if=/tmp/source of=$d/big bs=1M conv=fsync status=none
    figure "v$version write 4 MiB" "$(since "$began")" s
    drop_caches
    for n in 1 3 4095 4097 65535 1048575 1048577; do head -c $n /tmp/source | cmp - $d/len$n; done
    same "$long" "$(readlink $d/link)" "a long link"
    same 70 "$(ls $d/names | wc -l)" entries
    began=$(now)
    cmp /tmp/source $d/big
    figure "v$version read 4 MiB" "$(since "$began")" s
    for n in 1 2 3 4; do dd if=/tmp/source of=$d/par$n bs=64k conv=fsync status=none & done
    wait
    drop_caches
    for n in 1 2 3 4; do cmp /tmp/source $d/par$n & done
    wait
    rm -r $d/names $d/link $d/len* $d/par* $d/big
    umount $d
}

capture() {
    tcpdump -i eth0 -s 0 -B 65536 -U -w /tmp/roce.pcap udp port 4791 >/tmp/tcpdump 2>&1 &
    eventually 20 grep -q listening /tmp/tcpdump
}
# The file's length is a multiple of four: tshark wants padding behind results
# in write chunks, where there is none (RFC 8166 §3.4.6.2).
recorded() {
    local d=/mnt/rdma
    . /lab/guest/rdma.sh
    rdma_mount $A_ADDRESS "$1" $d
    head -c 20480 /dev/urandom >$d/file
    ln -s "$(printf 'y%.0s' $(seq 1 2000))" $d/link
    drop_caches
    cat $d/file >/dev/null
    readlink $d/link >/dev/null
    ls -l $d >/dev/null
    mkdir $d/dir && mv $d/file $d/dir/file && rm -r $d/dir $d/link
    umount $d
}
decoded() {
    local calls
    capture
    on_b recorded "$1"
    sleep 1
    pkill -x tcpdump
    cat /tmp/tcpdump
    # Two passes: tshark puts what write chunks carried back into its reply in
    # the second one.
    tshark -2 -r /tmp/roce.pcap -Y rpcordma >/tmp/frames 2>/dev/null
    calls=$(wc -l </tmp/frames)
    figure "v$1 RPC-over-RDMA frames" "$calls" frames
    [ "$calls" -gt 40 ] || fail "only $calls frames are RPC-over-RDMA"
    tshark -2 -r /tmp/roce.pcap -Y '_ws.malformed || _ws.expert.severity == error' >/tmp/bad 2>/dev/null
    head -n 20 /tmp/bad
    cp /tmp/roce.pcap "$RESULT/roce-$1.pcap"
    same 0 "$(wc -l </tmp/bad)" "frames tshark calls malformed"
}

# B over RDMA, A over TCP: one file, one lock.
try() { local code=0; python3 $LOCKS "$@" || code=$?; return $code; }
taken() { local code=0; "$@" || code=$?; same 3 $code "attempt $*"; }
hold_here() { rm -f /tmp/held; python3 $LOCKS "$1" "$2" 100 0 0 /tmp/held; }
b_mounts() { . /lab/guest/rdma.sh; rdma_mount $A_ADDRESS "$1" /mnt/b acregmin=0,acregmax=0; }
mixed() {
    local holder n
    on_b b_mounts "$1"
    client_mount "$1" /mnt/a acregmin=0,acregmax=0
    rm -f /tmp/held
    python3 $LOCKS posix-hold /mnt/a/locked 100 0 0 /tmp/held &
    holder=$!
    eventually 20 test -e /tmp/held
    taken on_b try posix-try /mnt/b/locked
    kill $holder
    wait $holder || true
    eventually 20 on_b try posix-try /mnt/b/locked
    holder=$(b_start hold_here posix-hold /mnt/b/locked)
    eventually 20 taken try posix-try /mnt/a/locked
    b_kill "$holder"
    eventually 20 try posix-try /mnt/a/locked
    # What one closed, the other sees; delegations come back on the way.
    for n in 1 2 3; do
        echo "a $n" >/mnt/a/ball
        same "a $n" "$(on_b cat /mnt/b/ball)" "seen over RDMA in round $n"
        on_b put /mnt/b/ball "b $n"
        same "b $n" "$(cat /mnt/a/ball)" "seen over TCP in round $n"
    done
    rm /mnt/a/ball /mnt/a/locked
    umount /mnt/a
    on_b umount /mnt/b
}
put() { echo "$2" >"$1"; }

need "the second machine is there" b_ready
need "A has an RDMA device" rdma_device eth0
need "B has an RDMA device" on_b b_device
store_make "$(best_store)"
need "the gateway serves" gateway_start
for version in 4.2 4.1 4.0 3; do
    step "v$version: B mounts, writes and reads" on_b used $version
done
step "v4.2: tshark reads every frame" decoded 4.2
step "v3: tshark reads every frame" decoded 3
step "v4.2: locks and changes of an RDMA and a TCP client" mixed 4.2
step "v4.0: locks and changes of an RDMA and a TCP client" mixed 4.0
step "the gateway lives" gateway_alive
step "the gateway ends" gateway_stop
