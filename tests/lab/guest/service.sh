# A service manager for scenarios that need one: systemd with processes, mounts
# and control groups of its own, in the machine whose first program it is not.
# Files and network are those of the machine.
# shellcheck shell=bash

MANAGER_CGROUP=/sys/fs/cgroup/scenario/manager
MANAGER_PID=/tmp/manager.pid

# The start of the manager, in its name spaces. Nothing of the machine's own boot
# is repeated: what the first units would start is masked, except for the journal.
manager_boot() {
    mount --make-rprivate /
    mount -t proc proc /proc
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    mount -t tmpfs -o mode=755 run /run
    mkdir -p /run/systemd/system
    local unit
    for unit in /{etc,usr/lib}/systemd/system/{sysinit,local-fs}.target.wants/*; do
        unit=${unit##*/}
        case $unit in
            systemd-journald.service | '*') ;;
            *) ln -sf /dev/null "/run/systemd/system/$unit" ;;
        esac
    done
    exec env -i PATH="$PATH" container=lab /lib/systemd/systemd --unit=sysinit.target
}

# manager_start: back when it takes commands.
manager_start() {
    mkdir -p "$MANAGER_CGROUP"
    (
        echo "$BASHPID" >"$MANAGER_CGROUP/cgroup.procs"
        exec unshare --pid --mount --cgroup --ipc --uts --fork \
            bash -c "$(declare -f manager_boot); manager_boot"
    ) >"$RESULT/manager.log" 2>&1 </dev/null &
    local outer=$!
    eventually 20 pgrep -P $outer
    pgrep -P $outer >$MANAGER_PID
    eventually 60 under_manager systemctl is-active sysinit.target
}

# under_manager COMMAND…: as on a machine that the manager has booted.
under_manager() { nsenter --target "$(cat $MANAGER_PID)" --pid --mount --cgroup --ipc --uts "$@"; }
