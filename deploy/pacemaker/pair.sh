#!/bin/sh
# Two nodes that share the disks of their pools, as resources of Pacemaker: for each pool
# a group of the pool, the gateway, the address. Edit the values, then run it on a node of
# a cluster that `pcs cluster setup` has made, where the pool is imported:
#
#     sh pair.sh                  makes the pair, with its first pool
#     sh pair.sh POOL ADDRESS     adds a pool, which moves separately, to the pair
#
# It changes no resource that is there: a second run with the same pool makes what is missing.
# docs/HIGH_AVAILABILITY.md explains each line.
set -eu

POOL=tank
ADDRESS=192.0.2.10
PREFIX=24
NODE_A=nas-a
NODE_B=nas-b

refuse() {
    printf 'pair.sh: %s\n' "$1" >&2
    exit 1
}

# A further pool is named by the arguments, however the values above have been edited.
case $# in
0) ;;
2) POOL=$1 ADDRESS=$2 ;;
*) refuse "usage: sh pair.sh [POOL ADDRESS]" ;;
esac
CONFIG=/$POOL/zgate/zgate.toml
STATE=/$POOL/zgate/state

# has XPATH: the configuration of the cluster has such an element.
has() {
    code=0
    cibadmin --query --xpath "/cib/configuration$1" >/dev/null 2>&1 || code=$?
    case $code in
    0) ;;
    105) return 1 ;; # no such element
    *) refuse "cibadmin does not read the configuration ($code): does Pacemaker run here?" ;;
    esac
}
there() { has "//*[@id='$1']"; }

# unused PARAMETER VALUE: no resource outside of the group has it.
unused() {
    ! has "//primitive[not(../@id='$POOL')]/*/nvpair[@name='$1' and @value='$2']" ||
        refuse "a resource that is not in the group $POOL has $1=$2: \`pcs resource config\`"
}

# fits RESOURCE PARAMETER VALUE: it is in the group with this value, or not there.
fits() {
    ! there "$1" ||
        has "//group[@id='$POOL']/*[@id='$1']/*/nvpair[@name='$2' and @value='$3']" ||
        refuse "$1 is there, and not in the group $POOL with $2=$3: \`pcs resource config $1\`"
}

# All that could refuse comes before the first change.

# ZFS takes pools with a colon or a space in their names, Pacemaker no such resources.
case $POOL in
'' | *[!A-Za-z0-9._-]*) refuse "Pacemaker takes no resource with the name of the pool '$POOL'" ;;
esac
case $ADDRESS in
'' | *[!A-Fa-f0-9.:]*) refuse "'$ADDRESS' is no address" ;;
esac
[ $# = 0 ] || has "//primitive[@class='stonith']" ||
    refuse "this cluster has no fencing: run it without arguments first"
# A group that this script has begun has the pool.
! there "$POOL" || has "//group[@id='$POOL']/*[@id='$POOL-pool']" ||
    refuse "$POOL is the name of something else in this cluster: \`pcs config\`"
unused pool "$POOL"
unused ip "$ADDRESS"
unused config "$CONFIG"
unused state_dir "$STATE"
fits "$POOL-pool" pool "$POOL"
fits "$POOL-gateway" config "$CONFIG"
fits "$POOL-gateway" state_dir "$STATE"
fits "$POOL-address" ip "$ADDRESS"
fits "$POOL-handover" config "$CONFIG"

# A resource goes to the end of the group, where what starts before it must be already.
missing=
for part in pool gateway address handover; do
    if ! there "$POOL-$part"; then
        missing=$part
    elif [ "$missing" ]; then
        refuse "$POOL-$missing is not there, and $POOL-$part, which starts later, is: delete it"
    fi
done

# The pool protects itself: a node does not import it while another one writes to
# it. It needs a hostid of its own on each node (`zgenhostid`).
there "$POOL-pool" || [ "$(zpool get -H -o value multihost "$POOL")" = on ] ||
    refuse "zpool set multihost=on $POOL, with a hostid of its own on each node"

# Fencing: a node that does not answer is switched off before the other one takes
# over. Replace the addresses and passwords by those of your management boards. When
# each node takes the other one for gone, the one that does not serve waits for 15 s,
# so that the one that serves stays; where nobody serves, or each one serves a pool,
# fence-b's 5 s decide.
if [ $# = 0 ]; then
    has "/crm_config//nvpair[@name='priority-fencing-delay']" ||
        pcs property set stonith-enabled=true priority-fencing-delay=15s
    there fence-a ||
        pcs stonith create fence-a fence_ipmilan pcmk_host_list="$NODE_A" \
            ip=192.0.2.101 username=fence password_script=/etc/cluster/fence-a lanplus=1 \
            op start timeout=60s op monitor interval=60s timeout=60s
    there fence-b ||
        pcs stonith create fence-b fence_ipmilan pcmk_host_list="$NODE_B" \
            ip=192.0.2.102 username=fence password_script=/etc/cluster/fence-b lanplus=1 \
            pcmk_delay_base=5s \
            op start timeout=60s op monitor interval=60s timeout=60s

    # Nobody moves back by itself, and one failure of the monitor moves the group; the
    # gateway has a threshold of its own, below. A cluster that pcs has just made can have a
    # stickiness of 1 already.
    has "/rsc_defaults//nvpair[@name='migration-threshold']" ||
        pcs resource defaults update resource-stickiness=100 migration-threshold=1 \
            failure-timeout=10min
fi

# The resources of one group. It starts in this order, stops in the other, and stays
# together: one that is not in it yet would start by itself, anywhere.

# The pool. An import after a crash watches the disks for activity first, which
# takes longer than the agent's usual timeout. Encrypted datasets need -l in importargs,
# and their keys in files on both nodes.
there "$POOL-pool" ||
    pcs resource create "$POOL-pool" ocf:heartbeat:ZFS pool="$POOL" \
        importargs="-d /dev/disk/by-id" \
        op start timeout=120s op stop timeout=120s op monitor interval=10s timeout=30s \
        --group "$POOL"

# The gateway, before the address: clients find it ready. One that ends starts again
# where it was, and moves with its third failure: with a threshold of 1, the second one
# could leave no node, until the first is 10 minutes old.
there "$POOL-gateway" ||
    pcs resource create "$POOL-gateway" ocf:zgate:zgate config="$CONFIG" state_dir="$STATE" \
        op start timeout=120s op stop timeout=45s op monitor interval=10s timeout=20s \
        meta migration-threshold=3 --group "$POOL"

# The address. It tells switches and hosts where it is now.
there "$POOL-address" ||
    pcs resource create "$POOL-address" ocf:heartbeat:IPaddr2 ip="$ADDRESS" cidr_netmask="$PREFIX" \
        op start timeout=60s op stop timeout=60s op monitor interval=10s timeout=20s \
        --group "$POOL"

# Planned switches: it is stopped first, and has the gateway answer what runs while
# replies still reach their clients.
there "$POOL-handover" ||
    pcs resource create "$POOL-handover" ocf:zgate:zgate-handover config="$CONFIG" \
        op start timeout=60s op stop timeout=45s op monitor interval=60s timeout=20s \
        --group "$POOL"

# What makes a node the one that serves, to priority-fencing-delay.
has "//group[@id='$POOL']/meta_attributes/nvpair[@name='priority']" ||
    pcs resource meta "$POOL" priority=10
