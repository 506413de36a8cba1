# Two machines with one disk and one pool on it, as a cluster of Pacemaker: one of
# them serves. A, which carries the plan, also has the clients: the kernel's NFS in
# the name space of the second client, its initiator in the machine's own.
# Sourced after peer.sh.
# shellcheck shell=bash

export POOL=tank
export NODE_A=zgate-lab NODE_B=zgate-lab-b
export SERVICE=10.8.0.10
CLIENT_ADDRESS=10.8.0.3
export POOL_DEVICE=/dev/mapper/shared
POOL_MIB=4096
# A cluster that changes starts many programs, each of which costs an emulated
# machine a tenth of a second, on a busy host several of them. How long a switch takes
# is a figure, not a condition.
export CLUSTER_SECONDS=720

# --- a node ----------------------------------------------------------------

is_b() { [ "$HOSTNAME" = "$NODE_B" ]; }

# node_prepare: everything that a node has before its cluster starts.
node_prepare() {
    local hostid=0a11ce0a
    ! is_b || hostid=0a11ce0b
    . /lab/guest/slow.sh
    modprobe zfs || skip "this image has no ZFS"
    echo $((128 << 20)) >/sys/module/zfs/parameters/zfs_arc_max
    zgenhostid -f $hostid
    echo 0x$hostid >/sys/module/spl/parameters/spl_hostid
    same "$hostid" "$(hostid)" "hostid"
    install -m 755 /lab/zgate /usr/bin/zgate
    install -d /usr/lib/ocf/resource.d/zgate
    install -m 755 /lab/deploy/ocf/zgate /lab/deploy/ocf/zgate-handover /usr/lib/ocf/resource.d/zgate/
    install -m 755 /lab/guest/fence_lab /usr/sbin/fence_lab
    install -D -m 755 /lab/guest/ocf-knfsd /usr/lib/ocf/resource.d/lab/knfsd
    # Its lease; the gateway's is in the configuration on the pool.
    mkdir -p /run/lab
    echo "$LEASE_SECONDS" >/run/lab/lease
    # What the agents know of a scenario before.
    rm -rf /run/resource-agents
    install -d -m 1755 /run/resource-agents
    install -d -m 750 -o hacluster -g haclient /run/crm
    install -d /var/log/corosync /var/lib/corosync /etc/corosync
    # The second machine keeps its disk over a reset, and is a new node after it.
    rm -f /var/lib/pacemaker/cib/* /var/lib/corosync/*
    [ -b $POOL_DEVICE ] || slow_device shared /dev/disk/by-id/virtio-shared $POOL_MIB
    # The root has no journal: a reset before this is written leaves blocks that belong to
    # two files.
    ! is_b || sync -f /
}
export POOL_MIB

# node_start: corosync and Pacemaker.
node_start() {
    cat >/etc/corosync/corosync.conf <<END
totem {
    version: 2
    cluster_name: pair
    transport: knet
    token: 10000
}
quorum {
    provider: corosync_votequorum
    two_node: 1
}
nodelist {
    node {
        name: $NODE_A
        nodeid: 1
        ring0_addr: $A_ADDRESS
    }
    node {
        name: $NODE_B
        nodeid: 2
        ring0_addr: $B_ADDRESS
    }
}
logging {
    to_stderr: no
    to_syslog: no
    to_logfile: yes
    logfile: /var/log/corosync/corosync.log
}
END
    corosync
    eventually 60 corosync-cmapctl -g totem.cluster_name
    setsid pacemakerd >/var/log/pacemaker/pacemakerd.out 2>&1 </dev/null &
    eventually 300 cibadmin -Q -o nodes
}

# node_kill: the cluster's programs end at once, what they started goes on.
node_kill() {
    pkill -9 -x pacemakerd || true
    pkill -9 'pacemaker-' || true
    pkill -9 -x corosync || true
}

# --- the pair --------------------------------------------------------------

# pair_network: A's end of the wire becomes a switch with the machine itself and
# the client, which has an address in the network of the service.
pair_network() {
    ip link add br0 type bridge
    ip address flush dev eth0
    ip link set eth0 master br0
    ip link set br0 mtu 9000 up
    ip address add $A_ADDRESS/24 dev br0
    ip link add pair-a mtu 9000 type veth peer name pair-b mtu 9000 netns client-b
    ip link set pair-a master br0 up
    ip -n client-b address add $CLIENT_ADDRESS/24 dev pair-b
    ip -n client-b link set pair-b up
    eventually 30 ping -c 1 -w 2 $B_ADDRESS
    eventually 30 nsenter --net=/run/netns/client-b ping -c 1 -w 2 $B_ADDRESS
}

# pair_pool: the pool with the gateway's dataset and an export, and nobody has it.
pair_pool() {
    zpool create -f -o ashift=12 -o multihost=on -o cachefile=none -O atime=off \
        -O xattr=sa -O acltype=posixacl -O mountpoint=/$POOL $POOL $POOL_DEVICE
    zfs create $POOL/zgate
    zfs create $POOL/data
    chmod 1777 /$POOL/data
    install -d -m 700 /$POOL/zgate/state
    install -d -m 755 /$POOL/zgate/conf.d
    cat >/$POOL/zgate/zgate.toml <<END
[server]
listen = ["0.0.0.0:2049"]
state_dir = "/$POOL/zgate/state"
admin_socket = "/run/zgate/$POOL.sock"
lease_seconds = $LEASE_SECONDS
grace_seconds = $LEASE_SECONDS

[[export]]
path = "/$POOL/data"
pseudo = "/export"
clients = [{ match = "10.8.0.0/24", access = "rw", squash = "none" }]
${MORE_CONFIG:-}
END
    zgate config check /$POOL/zgate/zgate.toml
    zpool export $POOL
}

# pair_configuration [SERVER]: what is shipped, with the names and the fencing of the
# lab; with the kernel's server in place of the gateway, if SERVER is knfsd.
pair_configuration() {
    python3 - /lab/deploy/pacemaker/pair.xml "${1:-zgate}" <<'END' >/tmp/pair.xml
import os, sys
import xml.etree.ElementTree as tree

shipped = tree.parse(sys.argv[1]).getroot()
if sys.argv[2] == "knfsd":
    group = next(shipped.iter("group"))
    for resource in list(group):
        if resource.get("id") == "tank-gateway":
            resource.set("provider", "lab")
            resource.set("type", "knfsd")
            resource.remove(resource.find("instance_attributes"))
        if resource.get("id") == "tank-handover":
            # Nothing in its place; it says where the group runs.
            resource.set("provider", "heartbeat")
            resource.set("type", "Dummy")
            resource.remove(resource.find("instance_attributes"))
node = {"fence-a": os.environ["NODE_A"], "fence-b": os.environ["NODE_B"]}
for resource in shipped.iter("primitive"):
    name = resource.get("id")
    values = resource.find("instance_attributes")
    if name in node:
        resource.set("type", "fence_lab")
        for value in list(values):
            if value.get("name") == "pcmk_host_list":
                value.set("value", node[name])
            elif not value.get("name").startswith("pcmk_"):
                values.remove(value)
        # The first machine carries the plan: when both want the other one gone,
        # it is the second that goes, whoever serves. A board that is asked first is B's.
        for value in list(values):
            if value.get("name") == "pcmk_delay_base":
                values.remove(value)
        if name == "fence-a":
            tree.SubElement(values, "nvpair", id="fence-a-delay", name="pcmk_delay_base", value="20s")
    for value in [] if values is None else values:
        if value.get("name") == "importargs":
            # Not the directory: an import would read the initiator's multipath device,
            # too, which waits for this very pool.
            value.set("value", "-d " + os.environ["POOL_DEVICE"])
        if value.get("name") == "ip":
            value.set("value", os.environ["SERVICE"])
options = shipped.find("crm_config/cluster_property_set")
for value in list(options):
    if value.get("name") == "priority-fencing-delay":
        options.remove(value)
# An emulated processor is always busy, and Pacemaker then starts one agent at a time,
# also for the monitor of what the next one waits for.
tree.SubElement(options, "nvpair",
                id="pair-options-load-threshold", name="load-threshold", value="10000%")
# Programs start slowly on an emulated processor: times of the agents by three.
for operation in shipped.iter("op"):
    operation.set("timeout", f"{int(operation.get('timeout')[:-1]) * 3}s")
print(tree.tostring(shipped, encoding="unicode"))
END
    cibadmin -c -M -o configuration -x /tmp/pair.xml
}

pair_online() { [ "$(crm_mon -1 --output-as=xml 2>/dev/null | grep -c '<node .*online="true".*expected_up="true"')" = 2 ]; }

# pair_start: both nodes, without resources.
pair_start() {
    node_start
    on_b node_start
    eventually $CLUSTER_SECONDS pair_online || { crm_mon -1; return 1; }
}

# pair_node: the node on which all of the group runs, or nothing.
pair_node() {
    crm_resource --locate --resource tank-handover 2>/dev/null | sed -n 's/.*is running on: \([^ ]*\).*/\1/p'
}
pair_serves_at() { [ "$(pair_node)" = "$1" ]; }

# pair_serves NODE [SECONDS]: waits for that.
pair_serves() {
    eventually "${2:-$CLUSTER_SECONDS}" pair_serves_at "$1" || { pair_state; return 1; }
}
pair_state() { crm_mon -1 -r -f -t; tail -n 20 /lab/peer/fencing || true; }

# pair_move NODE: a planned switch, to its end.
pair_move() {
    ! pair_serves_at "$1" || return 0
    crm_resource --move --resource tank --node "$1" --quiet
    pair_serves "$1"
    crm_resource --clear --resource tank --quiet
}

# pair_rejoins: B has been reset; it becomes a node again.
pair_rejoins() {
    b_ready
    on_b node_prepare
    on_b node_start
    eventually $CLUSTER_SECONDS pair_online || { crm_mon -1; return 1; }
    # Its fencing is no failure of a resource to be remembered.
    crm_resource --cleanup --quiet || true
}

# power ORDER: reset, stop or continue of B by its switch, without asking it.
power() {
    local number=${EPOCHREALTIME//[!0-9]/}
    echo "$number $1" >"$JOBS/power.$number"
    mv "$JOBS/power.$number" "$JOBS/power"
    eventually 30 power_done "$number"
}
power_done() { [ "$(cat "$JOBS/power.done" 2>/dev/null)" = "$1" ]; }

# pair_logs, node_logs: of A and of B, for the results.
pair_logs() {
    cp /var/log/pacemaker/pacemaker.log "$RESULT/pacemaker-a.log" 2>/dev/null || true
    cp /var/log/corosync/corosync.log "$RESULT/corosync-a.log" 2>/dev/null || true
    cp /lab/peer/fencing "$RESULT/fencing" 2>/dev/null || true
    cat /var/log/zgate-*.log >"$RESULT/zgate-a.log" 2>/dev/null || true
    # What each import watched the disks for, and how long.
    cat /proc/spl/kstat/zfs/dbgmsg >"$RESULT/zfs-a.log" 2>/dev/null || true
}
node_logs() {
    cp /var/log/pacemaker/pacemaker.log "$RESULT/pacemaker-b.log" || true
    cp /var/log/corosync/corosync.log "$RESULT/corosync-b.log" || true
    cat /var/log/zgate-*.log >"$RESULT/zgate-b.log" || true
    cat /proc/spl/kstat/zfs/dbgmsg >"$RESULT/zfs-b.log" || true
}

# pair_ends: the cluster's programs, gateways and the pool go from both machines.
pair_ends() {
    # B may be booting, or hang: it is not waited for as long as in a step.
    local STEP_SECONDS=120
    node_watch_ends
    pair_logs
    # A first: it could have B reset, and B cannot have A reset.
    node_kill
    on_b node_ends || true
    node_clears
}
node_ends() {
    node_watch_ends
    node_logs
    node_kill
    node_clears
}
node_clears() {
    pkill -9 -x zgate || true
    # The kernel's server and its programs hold the pool.
    [ ! -e /proc/fs/nfsd/threads ] || bash /lab/guest/ocf-knfsd stop || true
    ip address delete $SERVICE/24 dev "$(if is_b; then echo eth0; else echo br0; fi)" 2>/dev/null || true
    ! zpool list $POOL 2>/dev/null || eventually 30 zpool export -f $POOL || true
    if ! is_b; then
        ip link delete pair-a || true
        ip link set eth0 nomaster
        ip link delete br0
        ip address add $A_ADDRESS/24 dev eth0
    fi
}

# --- who has the pool ------------------------------------------------------

# pool_watch FILE: once in half a second, whether this machine has imported the
# pool, at the time of the host, whose clock both machines see in the share.
pool_watch() {
    local stamp=$1.stamp at
    while :; do
        : >"$stamp"
        if [ -d /proc/spl/kstat/zfs/$POOL ]; then echo "$(stat -c %.Y "$stamp") $HOSTNAME imported"; fi >>"$1"
        sleep 0.4
    done
}
# node_watch: begins that, until the cluster is ended.
node_watch() {
    setsid bash -c "POOL=$POOL; $(declare -f pool_watch); pool_watch $RESULT/imported-$HOSTNAME" >/dev/null 2>&1 </dev/null &
    echo $! >>/run/pool-watch
}
node_watch_ends() { [ ! -e /run/pool-watch ] || { xargs kill -9 </run/pool-watch || true; rm -f /run/pool-watch; }; }

# pool_once: at no moment both machines had it. Each has it for certain between
# two looks that saw it, with no look that did not see it between them.
pool_once() {
    python3 /lab/guest/imported.py "$RESULT/imported-$NODE_A" "$RESULT/imported-$NODE_B"
}

# --- clients ---------------------------------------------------------------

# service_mount VERSION DIRECTORY [OPTIONS]: from the name space of the client.
service_mount() {
    mkdir -p "$2"
    nsenter --net=/run/netns/client-b \
        mount -t nfs -o "$(nfs_options "$1")${3:+,$3}" "$SERVICE:${EXPORT:-/export}" "$2"
}

# load_start NAME DIRECTORY: a writer that syncs each record, and who holds a lock.
load_start() {
    rm -f "/tmp/held-$1"
    python3 /lab/guest/locks.py posix-hold "$2/locked-$1" 100000 0 0 "/tmp/held-$1" &
    echo $! >"/tmp/holder-$1"
    # A grace period may still run.
    eventually $((8 * LEASE_SECONDS)) test -e "/tmp/held-$1"
    writer_start "$1" "$2"
}
# A pause between two records, or the writers take the emulated processors from the
# cluster.
writer_start() {
    # Those of a writer before say nothing about this one.
    rm -f "/tmp/notes-$1"
    python3 /lab/guest/writer.py "$2/written-$1" "/tmp/notes-$1" 100000 0.2 &
    echo $! >"/tmp/writer-$1"
    eventually 120 test -s "/tmp/notes-$1"
}
# writer_goes_on NAME SECONDS: there is a further record.
writer_goes_on() { eventually "$2" more_records "$1" "$(records "$1")"; }
records() { cut -d' ' -f1 "/tmp/notes-$1"; }
more_records() { [ "$(records "$1")" -gt $(($2 + 1)) ]; }

# load_check NAME OTHER: the writer ended without an error, every record is there for
# another client, and the lock is held.
load_check() {
    local code=0
    kill -TERM "$(cat "/tmp/writer-$1")"
    eventually 60 process_ended "/tmp/writer-$1"
    python3 /lab/guest/records.py "/tmp/notes-$1" "$2/written-$1"
    [ "$1" != 3 ] || return 0
    kill -0 "$(cat "/tmp/holder-$1")" || fail "the holder of the lock died"
    timeout 90 python3 /lab/guest/locks.py posix-try "$2/locked-$1" || code=$?
    same 3 $code "the held lock, tried by another client"
    kill -9 "$(cat "/tmp/holder-$1")"
}
process_ended() { ! kill -0 "$(cat "$1")" 2>/dev/null; }
longest() { cut -d' ' -f2 "/tmp/notes-$1"; }

# --- the usual pair of a scenario -------------------------------------------

VERSIONS="4.2 4.1 4.0"

# pair_with_clients [SERVER]: from nothing to a pair that serves at A, with mounts of all
# versions below /mnt, and the machine itself as another client at /mnt/other.
pair_with_clients() {
    b_ready
    pair_network
    node_prepare
    on_b node_prepare
    pair_pool
    pair_start
    pair_configuration "${1:-zgate}"
    eventually $CLUSTER_SECONDS serves_somewhere || { pair_state; return 1; }
    pair_serves_at $NODE_A || pair_move $NODE_A
    node_watch
    on_b node_watch
    mounts
}
serves_somewhere() { [ -n "$(pair_node)" ]; }
mounts() {
    client_mounts
    other_mount
}
client_mounts() {
    local version
    for version in $VERSIONS 3; do
        service_mount "$version" "/mnt/$version"
        touch "/mnt/$version/here-$version"
    done
}
# Another client, which tries the locks: the machine itself.
other_mount() {
    mkdir -p /mnt/other
    mount -t nfs -o "$(nfs_options 4.2)" "$SERVICE:${EXPORT:-/export}" /mnt/other
}
loads() {
    local version
    for version in $VERSIONS; do load_start "$version" "/mnt/$version"; done
    # Version 3 has no locks here.
    writer_start 3 /mnt/3
}
# goes_on: every writer has a further record.
goes_on() {
    local version
    for version in $VERSIONS 3; do
        writer_goes_on "$version" 360 || fail "v$version: the writer does not go on"
    done
}
# checks: ends the loads; nothing is lost.
checks() {
    local version
    for version in $VERSIONS 3; do load_check "$version" /mnt/other; done
}
# watched: B may still boot after its last reset.
watched() {
    node_watch_ends
    b_ready
    on_b node_watch_ends
    pool_once
}

# reset_rounds N: the pair moves to B as planned, B is reset, A takes over, under loads.
reset_rounds() {
    local n
    for n in $(seq "$1"); do
        step "round $n of $1: planned to B, reset of B, A takes over" reset_round "$n"
        # Not `step || break`, for the reason that `need` has.
        [ $? -eq 0 ] || break
    done
}
reset_round() {
    local began version
    pair_move $NODE_B
    goes_on
    began=$(now)
    power reset
    pair_serves $NODE_A
    figure "round $1: reset to address" "$(since "$began")" s
    goes_on
    figure "round $1: reset to the last writer" "$(since "$began")" s
    # The other machine boots meanwhile.
    for version in $VERSIONS 3; do
        figure "round $1: v$version longest fsync" "$(longest "$version")" s
        load_check "$version" /mnt/other
    done
    pair_rejoins
    on_b node_watch
    loads
}

# pauses SERVER ROUNDS: planned switches and resets under writers; each writer's
# longest fsync, and its part after the address was there, as figures. The client that
# reads what they have written is there for that only: one that is idle notices a switch
# by its next renewal, and changes over version 3 wait for it.
pauses() {
    local n watch packets
    rm -f /tmp/pauses /tmp/pauses.pcap
    nsenter --net=/run/netns/client-b ip -ts monitor neigh >/tmp/neighbours &
    watch=$!
    nsenter --net=/run/netns/client-b \
        tcpdump -i pair-b -s 128 -U -w /tmp/pauses.pcap "tcp port 2049" >/tmp/tcpdump 2>&1 &
    packets=$!
    eventually 60 grep -q listening /tmp/tcpdump
    # The kernel tells of changes, and traffic keeps an entry: where the address is first
    # must be told, or its first move counts for the beginning.
    eventually 120 neighbour_told
    for n in $(seq "$2"); do
        writers
        pair_move $NODE_B
        goes_on
        paused planned
        writers
        goes_on
        power reset
        pair_serves $NODE_A
        goes_on
        paused reset
        # The pair is whole again before the next round only.
        [ "$n" = "$2" ] || { pair_rejoins; on_b node_watch; }
    done
    kill "$watch" "$packets"
    wait "$packets" || true
    cp /tmp/neighbours /tmp/pauses /tmp/pauses.pcap "$RESULT"
    python3 /lab/guest/pauses.py "$1" $SERVICE /tmp/neighbours /tmp/pauses.pcap /tmp/pauses \
        >>"$RESULT/figures.tsv"
}
neighbour_told() {
    ip -n client-b neighbour flush to $SERVICE
    nsenter --net=/run/netns/client-b ping -c 1 -w 2 $SERVICE
    grep "] $SERVICE dev .* lladdr" /tmp/neighbours
}
writers() {
    local version
    for version in $VERSIONS 3; do writer_start "$version" "/mnt/$version"; done
}
# paused KIND: ends the writers; notes their pauses.
paused() {
    local version
    other_mount
    for version in $VERSIONS 3; do
        kill -TERM "$(cat "/tmp/writer-$version")"
        eventually 60 process_ended "/tmp/writer-$version"
        python3 /lab/guest/records.py "/tmp/notes-$version" "/mnt/other/written-$version" 1
        echo "$1 $version $(cut -d' ' -f2- "/tmp/notes-$version")" >>/tmp/pauses
    done
    umount /mnt/other
}
