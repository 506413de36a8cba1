# title: a control group with little memory, hosts that take all they can: nobody is killed
# seconds: 420
# ci: no
# 144 connections begin WRITEs of 4 MiB each, 576 MiB together, in a group of 256 MiB.
# In the last step the budget is set above the limit: there the kernel kills the
# gateway, so that the steps before could have failed.

GROUP=/sys/fs/cgroup/limited
LIMIT_MIB=256
HOSTS=24
CONNECTIONS=6
STEP_SECONDS=150

# In a group of its own from its first instruction.
limited() {
    mkdir -p $GROUP
    echo +memory >/sys/fs/cgroup/cgroup.subtree_control
    echo $((LIMIT_MIB << 20)) >$GROUP/memory.max
    [ ! -e $GROUP/memory.swap.max ] || echo 0 >$GROUP/memory.swap.max
    cat >/tmp/limited <<END
#!/bin/bash
echo \$\$ >$GROUP/cgroup.procs
exec $ZGATE "\$@"
END
    chmod 755 /tmp/limited
}
counted() { awk -v name="$1" '$1 == name { print $2 }' $GROUP/memory.events; }
# What the kernel cannot take back from the group, each moment; the largest value.
watch_memory() {
    local most=0 now
    while :; do
        now=$(awk '$1 ~ /^(anon|sock|kernel_stack|pagetables|slab_unreclaimable)$/ { n += $2 }
            END { printf "%d", n }' $GROUP/memory.stat)
        [ "$now" -le "$most" ] || { most=$now; echo "$most" >/tmp/most; }
        sleep 0.1
    done
}
attack_begins() {
    background python3 /lab/guest/begun-writes.py $HOSTS $CONNECTIONS >/tmp/taken
    background watch_memory
}
attack_ends() { tail -n 2 /run/lab-processes | xargs kill; }
# Nothing of a step that has failed stays.
begins() {
    rm -f /tmp/most /tmp/taken
    [ ! -e /run/lab-processes ] || xargs kill </run/lab-processes 2>/dev/null || true
    umount -f -l /mnt/a 2>/dev/null || true
    [ ! -e /run/zgate/pid ] || ! gateway_alive || gateway_kill
    ZGATE=/tmp/limited gateway_start
    eventually 30 "$ZGATE" status
}
attacked() { [ "$(tail -n 1 /tmp/taken)" -ge $((48 << 20)) ]; }

served() { # NAME BUDGET_MIB
    begins
    same "$2" "$("$ZGATE" status --json | jq '.memory.budget_bytes / 1048576')" "budget, MiB"
    client_mount 4.2 /mnt/a
    attack_begins
    eventually 60 attacked
    local number
    pattern /tmp/pattern 4
    for number in $(seq 5); do
        dd if=/tmp/pattern of="/mnt/a/$1-$number" bs=1M conv=fsync status=none
        cmp /tmp/pattern "$STORE/$1-$number"
    done
    # Long enough for all that the hosts can get.
    sleep 5
    attack_ends
    gateway_alive || fail "the gateway is gone"
    same 0 "$(counted oom_kill)" "processes that the kernel killed"
    same 0 "$(counted oom)" "times that the kernel found no memory"
    [ "$(cat /tmp/most)" -lt $((LIMIT_MIB << 20)) ] || fail "$(cat /tmp/most) bytes"
    figure "$1: most memory that the kernel cannot take back" "$(($(cat /tmp/most) >> 20))" MiB
    figure "$1: most memory of the group" "$(($(cat $GROUP/memory.peak) >> 20))" MiB
    figure "$1: taken from the attackers" "$(($(tail -n 1 /tmp/taken) >> 20))" MiB
    eventually 30 plenty
    echo late >/mnt/a/late && same late "$(cat "$STORE/late")"
    umount /mnt/a
    gateway_stop
}
plenty() { "$ZGATE" status --json | jq -e '.memory.level == "plenty"'; }
configured() { served configured 192; }
of_the_group() { served group 224; }
beyond() {
    begins
    attack_begins
    eventually 100 gateway_gone
    attack_ends
    [ "$(counted oom_kill)" -ge 1 ] || fail "the gateway ended by itself: $(tail -n 5 /run/zgate/log)"
}

store_make xfs
need "a control group with $LIMIT_MIB MiB" limited
SERVER_KEYS='memory_max = "192MiB"'
step "with server.memory_max below the limit others are served" configured
SERVER_KEYS=''
step "without the key the limit of the group is the budget" of_the_group
SERVER_KEYS='memory_max = "4GiB"'
step "with a budget beyond the limit the kernel kills the gateway" beyond
