# A second client: a network name space with an address and an identity of its
# own. The kernel keeps NFS clients per name space, so mounts made there
# conflict with the others as those of another machine do.
# shellcheck shell=bash

ip netns add client-b
ip link add veth-a type veth peer name veth-b netns client-b
ip addr add 10.9.0.1/24 dev veth-a
ip link set veth-a up
ip -n client-b addr add 10.9.0.2/24 dev veth-b
ip -n client-b link set veth-b up
ip -n client-b link set lo up
echo client-a >/sys/fs/nfs/net/nfs_client/identifier
ip netns exec client-b sh -c 'echo client-b >/sys/fs/nfs/net/nfs_client/identifier'
