# NFS over RDMA: soft-RoCE on this machine's interfaces.
# shellcheck shell=bash

RDMA_CONFIG='[rdma]
listen = ["0.0.0.0:20049"]
arena = "256MiB"
'

# rdma_device INTERFACE: the software device rxe0 on it.
rdma_device() {
    modprobe -a rdma_rxe rdma_ucm ib_uverbs rpcrdma
    rdma link add rxe0 type rxe netdev "$1"
    eventually 20 rdma_active
}
rdma_active() { rdma link show rxe0/1 | grep -q 'state ACTIVE'; }

rdma_options() {
    case $1 in
        3) echo "vers=3,nolock,proto=rdma,port=20049,mountport=2049,mountproto=tcp" ;;
        *) echo "vers=$1,proto=rdma,port=20049" ;;
    esac
}

# rdma_mount SERVER VERSION DIRECTORY [OPTIONS]
rdma_mount() {
    mkdir -p "$3"
    mount -t nfs -o "$(rdma_options "$2")${4:+,$4}" "$1:/export" "$3"
    grep " $3 " /proc/mounts | grep -q 'proto=rdma' || fail "not mounted over RDMA"
}

# What the gateway says its buffers hold, in bytes.
buffers_in_use() {
    "$ZGATE" status --socket /run/zgate/admin.sock --json | jq .buffers_in_use_bytes
}
