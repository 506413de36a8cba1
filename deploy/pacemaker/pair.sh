#!/bin/sh
# Two nodes that share the disks of one pool, as resources of Pacemaker: the pool,
# the gateway, the address. Edit the values, then run it on one node of a cluster
# that `pcs cluster setup` has made. docs/HIGH_AVAILABILITY.md explains each line.
set -eu

POOL=tank
CONFIG=/tank/zgate/zgate.toml
STATE=/tank/zgate/state
ADDRESS=192.0.2.10
PREFIX=24
NODE_A=nas-a
NODE_B=nas-b

# The pool protects itself: a node does not import it while another one writes to
# it. It needs a hostid of its own on each node (`zgenhostid`).
if [ "$(zpool get -H -o value multihost "$POOL")" != on ]; then
    echo "zpool set multihost=on $POOL, with a hostid of its own on each node" >&2
    exit 1
fi

# Fencing: a node that does not answer is switched off before the other one takes
# over. Replace the addresses and passwords by those of your management boards. When
# each node takes the other one for gone, the one that does not serve waits for 15 s,
# so that the one that serves stays; where nobody serves, fence-b's 5 s decide.
pcs property set stonith-enabled=true priority-fencing-delay=15s
pcs stonith create fence-a fence_ipmilan pcmk_host_list="$NODE_A" \
    ip=192.0.2.101 username=fence password_script=/etc/cluster/fence-a lanplus=1 \
    op start timeout=60s op monitor interval=60s timeout=60s
pcs stonith create fence-b fence_ipmilan pcmk_host_list="$NODE_B" \
    ip=192.0.2.102 username=fence password_script=/etc/cluster/fence-b lanplus=1 \
    pcmk_delay_base=5s \
    op start timeout=60s op monitor interval=60s timeout=60s

# Nobody moves back by itself, and one failure of the monitor moves the group; the
# gateway has a threshold of its own, below.
pcs resource defaults update resource-stickiness=100 migration-threshold=1 \
    failure-timeout=10min

# The resources of one group. It starts in this order, stops in the other, and stays
# together: one that is not in it yet would start by itself, anywhere.

# The pool. An import after a crash watches the disks for activity first, which
# takes longer than the agent's usual timeout. Encrypted datasets need -l in importargs,
# and their keys in files on both nodes.
pcs resource create "$POOL-pool" ocf:heartbeat:ZFS pool="$POOL" \
    importargs="-d /dev/disk/by-id" \
    op start timeout=120s op stop timeout=120s op monitor interval=10s timeout=30s \
    --group "$POOL"

# The gateway, before the address: clients find it ready. One that ends starts again
# where it was, and moves with its third failure: with a threshold of 1, the second one
# could leave no node, until the first is 10 minutes old.
pcs resource create "$POOL-gateway" ocf:zgate:zgate config="$CONFIG" state_dir="$STATE" \
    op start timeout=120s op stop timeout=45s op monitor interval=10s timeout=20s \
    meta migration-threshold=3 --group "$POOL"

# The address. It tells switches and hosts where it is now.
pcs resource create "$POOL-address" ocf:heartbeat:IPaddr2 ip="$ADDRESS" cidr_netmask="$PREFIX" \
    op start timeout=60s op stop timeout=60s op monitor interval=10s timeout=20s \
    --group "$POOL"

# Planned switches: it is stopped first, and has the gateway answer what runs while
# replies still reach their clients.
pcs resource create "$POOL-handover" ocf:zgate:zgate-handover config="$CONFIG" \
    op start timeout=60s op stop timeout=45s op monitor interval=60s timeout=20s \
    --group "$POOL"

# What makes a node the one that serves, to priority-fencing-delay.
pcs resource meta "$POOL" priority=10
