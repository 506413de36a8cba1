# title: a sharded model over soft-RoCE and TCP, from the gateway and the kernel's server
# seconds: 1200
# machines: 2
# ci: no

. /lab/guest/peer.sh
. /lab/guest/rdma.sh
need "the second machine is there" b_ready

MODEL_MIB=${MODEL_MIB:-192}
STEP_SECONDS=300
export A_ADDRESS MODEL_MIB STEP_SECONDS

b_device() {
    rdma_device eth0
    mkdir -p /run/lab
    cp /lab/zgate /run/lab/zgate
    chmod 755 /run/lab/zgate
}

# load NAME URL [OPTIONS]: with checksums; what it says goes to /tmp/NAME.
load() {
    local name=$1 url=$2
    shift 2
    ZGATE_LOG=info /run/lab/zgate load --json --verify "$@" "$url" >"/tmp/$name" 2>"/tmp/$name.log" ||
        { cat "/tmp/$name" "/tmp/$name.log"; return 1; }
    cat "/tmp/$name" "/tmp/$name.log"
}
field() { python3 -c 'import json,sys; print(json.load(open(sys.argv[1]))[0][sys.argv[2]])' "/tmp/$1" "$2"; }
figure_of() { figure "$2" "$(field "$1" gigabytes_per_second | awk '{ printf "%.2f", $1 * 1000 }')" MB/s; }
# direct NAME: every byte was placed by the device.
direct() {
    same 0 "$(field "$1" copied_bytes)" "bytes copied"
    same 0 "$(field "$1" placed_from_socket_bytes)" "bytes from a socket"
    [ "$(field "$1" placed_by_device_bytes)" -ge "$(field "$1" bytes)" ] || fail "not all by the device"
}

over_rdma() {
    load rdma "nfs://$A_ADDRESS/export/m?rdma=on&connections=2"
    direct rdma
    field rdma transport | grep 'over RDMA'
    figure_of rdma "the gateway over RDMA"
}
auto() {
    load auto "nfs://$A_ADDRESS/export/m?connections=2"
    direct auto
}
over_tcp() {
    load tcp "nfs://$A_ADDRESS/export/m?rdma=off&connections=2"
    same 0 "$(field tcp placed_by_device_bytes)"
    figure_of tcp "the gateway over TCP"
}
# In another process: the load is under way when the way ends.
load_and() {
    local name=$1 rdma=$2 job
    shift 2
    job=$(b_start load "$name" "nfs://$A_ADDRESS/export/m?rdma=$rdma&connections=2")
    sleep 3
    "$@"
    b_wait "$job"
}
rdma_cut() { on_b rdma link delete rxe0; }
fell_over() {
    [ "$(field "$1" placed_from_socket_bytes)" -gt 0 ] || fail "nothing over TCP"
    [ "$(field "$1" placed_by_device_bytes)" -gt 0 ] || fail "nothing over RDMA"
    field "$1" transport | grep 'over TCP'
}
killed() {
    gateway_kill
    sleep 1
    gateway_start
}
cut_mid_load() {
    load_and cut auto rdma_cut
    on_b fell_over cut
}
killed_mid_load() {
    on_b b_device
    load_and killed auto killed
}
server_counters() {
    curl -sf http://127.0.0.1:9469/metrics >/tmp/metrics || python3 -c '
import urllib.request
print(urllib.request.urlopen("http://127.0.0.1:9469/metrics").read().decode())' >/tmp/metrics
    grep -E '^zgate_data_(moved|copied)_bytes_total' /tmp/metrics
    grep -E '^zgate_data_copied_bytes_total\{.*rdma.*read.*\} 0$|^zgate_data_copied_bytes_total\{.*read.*rdma.*\} 0$' /tmp/metrics ||
        fail "the gateway copied"
}
from_knfsd() {
    load knfsd "nfs://$A_ADDRESS/m?rdma=$1&connections=2"
    figure_of knfsd "the kernel's server, rdma=$1"
    [ "$1" = off ] || direct knfsd
}
delegated() { grep -h 'type: deleg' /proc/fs/nfsd/clients/*/states; }
# This server grants delegations from when its probe of the way back has returned,
# which on a busy machine comes after the opens of a load: another load meets it done.
delegated_load() {
    local attempt
    for attempt in 1 2 3 4 5; do
        job=$(b_start load recalled "nfs://$A_ADDRESS/m?rdma=on&connections=2")
        while b_running "$job"; do
            ! delegated || return 0
            sleep 0.2
        done
        b_wait "$job"
        echo "load $attempt had no delegation"
    done
    fail "no delegation in $attempt loads"
}
# Who opens a file to write waits until every delegation of it has come back; for
# 45 s, when nobody answers the recall. Once only: for a minute or so this server
# grants no delegation of what it has just recalled.
recalled() {
    local job began name
    delegated_load
    began=$(now)
    for name in /scratch/knfsd/m/*.safetensors; do
        timeout 20 bash -c ': >>"$0"' "$name"
    done
    figure "a recall of the kernel's server is over after" "$(since "$began")" s
    delegated && fail "a delegation stayed"
    b_wait "$job"
}
kernel_mount() {
    mkdir -p /mnt/kernel
    mount -t nfs -o "vers=4.2,$1" $A_ADDRESS:/ /mnt/kernel
    local began bytes
    began=$(now)
    bytes=$(cat /mnt/kernel/m/*.safetensors | wc -c)
    figure "the kernel's client, $1" "$(echo "$began $(now) $bytes" | awk '{ printf "%.2f", $3 / 1e6 / ($2 - $1) }')" MB/s
    umount /mnt/kernel
}
knfsd_up() {
    modprobe -a nfsd rpcrdma
    mkdir -p /scratch/knfsd /var/lib/nfs/v4recovery
    mount -t tmpfs -o size=1800m knfsd /scratch/knfsd
    mv "$STORE/m" /scratch/knfsd/m
    mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd
    echo 10 >/proc/fs/nfsd/nfsv4leasetime
    echo 10 >/proc/fs/nfsd/nfsv4gracetime
    pgrep -x rpcbind || rpcbind
    exportfs -o rw,no_root_squash,fsid=0,insecure '*:/scratch/knfsd'
    pgrep -x rpc.mountd || rpc.mountd
    rpc.nfsd --rdma=20049 8
    cat /proc/fs/nfsd/portlist
    grep -q 'rdma 20049' /proc/fs/nfsd/portlist
}
knfsd_down() {
    exportfs -ua
    rpc.nfsd 0
    pkill -x rpc.mountd || true
    umount /scratch/knfsd
}

need "A has rxe0" rdma_device eth0
need "B has rxe0" on_b b_device
store_make xfs
need "a model of $MODEL_MIB MiB" python3 /lab/guest/model.py "$STORE/m" 4 "$MODEL_MIB"
MORE_CONFIG='[rdma]
listen = ["0.0.0.0:20049"]'
need "the gateway serves" gateway_start
step "rdma=on: the device places every byte, checksums agree" on_b over_rdma
step "rdma=auto takes RDMA" on_b auto
step "the gateway counts 0 bytes copied" server_counters
step "rdma=off: TCP, checksums agree" on_b over_tcp
step "the RDMA device goes away mid-load: TCP finishes it" cut_mid_load
step "the gateway is killed and restarted mid-load" killed_mid_load
step "the gateway lives" gateway_alive
step "the gateway ends" gateway_stop
gateway_logs
need "the kernel's server listens" knfsd_up
step "from the kernel's server over RDMA" on_b from_knfsd on
step "from the kernel's server over TCP" on_b from_knfsd off
step "it recalls its delegations mid-load over RDMA" recalled
step "the kernel's client over TCP, for comparison" on_b kernel_mount proto=tcp
step "the kernel's client over RDMA, for comparison" on_b kernel_mount proto=rdma,port=20049
step "the kernel's server ends" knfsd_down
conclude
