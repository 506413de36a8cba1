# NFS over RDMA: soft-RoCE on this machine's interfaces.
# shellcheck shell=bash

RDMA_CONFIG='[rdma]
listen = ["0.0.0.0:20049"]
arena = "256MiB"
'

# rdma_device INTERFACE: the software device rxe0 on it.
rdma_device() {
    modprobe -a rdma_rxe rdma_ucm ib_uverbs rpcrdma
    rdma link show | grep rxe0 || rdma link add rxe0 type rxe netdev "$1"
    eventually 20 rdma_active
}
rdma_active() { rdma link show rxe0/1 | grep 'state ACTIVE'; }

# A veth pair with soft-RoCE: both ends of every connection are this machine.
WIRE_ADDRESS=10.9.5.1
rdma_wire() {
    [ -d /sys/class/net/veth0 ] || ip link add veth0 type veth peer name veth1
    ip link set veth0 mtu 9000 up
    ip link set veth1 mtu 9000 up
    ip address replace $WIRE_ADDRESS/24 dev veth0
    rdma_device veth0
}

# The gateway is there when it listens for RDMA as well. (Sourced again: as it is.)
declare -f tcp_gateway_start >/dev/null ||
    eval "$(declare -f gateway_start | sed '1s/.*/tcp_gateway_start ()/')"
gateway_start() { tcp_gateway_start && eventually 30 rdma_listens; }
rdma_listens() {
    "$ZGATE" status --socket /run/zgate/admin.sock --json |
        jq -e '.rdma.portals | length > 0 and all(.listening)' >/dev/null
}

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
    grep " $3 " /proc/mounts | grep 'proto=rdma' || fail "not mounted over RDMA"
}

# What the gateway says its buffers hold, in bytes.
buffers_in_use() {
    "$ZGATE" status --socket /run/zgate/admin.sock --json | jq .buffers_in_use_bytes
}

# over_rdma: client_mount of this machine goes over RDMA from here on. The second
# client stays on TCP: soft-RoCE of this kernel knows the first name space only.
over_rdma() {
    rdma_device veth-a || skip "no soft-RoCE in this kernel"
    SERVER=10.9.0.1
    # Kernels wait up to half a minute between two tries to connect over RDMA.
    LEASE_SECONDS=45
    eval "$(declare -f gateway_config | sed '1s/.*/tcp_gateway_config ()/')"
    eval "$(declare -f nfs_options | sed '1s/.*/tcp_nfs_options ()/')"
    gateway_config() { tcp_gateway_config && printf '%s\n' "$RDMA_CONFIG" >>"$CONFIG"; }
    nfs_options() { rdma_options "$1"; }
    client_b_mount() {
        mkdir -p "$2"
        nsenter --net=/run/netns/client-b \
            mount -t nfs -o "$(tcp_nfs_options "$1")${3:+,$3}" "$SERVER_FOR_B:${4:-/export}" "$2"
    }
}
