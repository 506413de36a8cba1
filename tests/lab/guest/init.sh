# Sourced by the image's first program: a small init that runs the plan of the
# share and switches the machine off. No service manager: a boot has to be
# short under emulation.
# shellcheck shell=bash

say() { echo "LAB $*" >/dev/console; }

mount -o remount,rw /
mount -t tmpfs -o mode=755 run /run
mount -t tmpfs -o mode=1777 tmp /tmp
mkdir -p /dev/pts /dev/shm /run/lock/iscsi /run/netns /run/rpc_pipefs
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir -p /sys/fs/cgroup/scenario
mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null
mount -t configfs configfs /sys/kernel/config 2>/dev/null
HOST=$(sed -n 's/.*lab\.host=\([ab]\).*/\1/p' /proc/cmdline)
if [ "$HOST" = b ]; then hostname zgate-lab-b; else hostname zgate-lab; fi
ulimit -n 65536
ip link set lo up
# nfsrahead sets the default of the kernel here, for 178 ms of a processor a mount.
mkdir -p /run/udev/rules.d
ln -s /dev/null /run/udev/rules.d/99-nfs.rules
/lib/systemd/systemd-udevd --daemon 2>/dev/null
udevadm trigger --action=add 2>/dev/null
udevadm settle --timeout=30 2>/dev/null
say "booted $(uname -r) in $(cut -d' ' -f1 /proc/uptime) s"

. /lab/guest/wire.sh
# The second machine never comes back from this.
[ "$HOST" != b ] || . /lab/guest/agent.sh
. /lab/guest/disks.sh
. /lab/guest/clients.sh

if [ "$(cat /lab/mode)" = shell ]; then
    say "shell: scenarios in /lab/scenarios, run one with /lab/guest/run.sh FILE; exit ends the machine"
    cd /lab
    setsid -c bash --rcfile /lab/guest/shell.rc -i </dev/ttyS0 >/dev/ttyS0 2>&1
else
    while read -r name seconds; do
        say "run $name"
        began=$(date +%s.%N)
        mkdir -p "/lab/results/$name"
        # A mount whose server is gone can outlive SIGKILL: the plan goes on.
        # In a control group: what it leaves behind can be ended with it.
        (
            echo $BASHPID >/sys/fs/cgroup/scenario/cgroup.procs
            exec timeout --kill-after=10 "$seconds" bash /lab/guest/run.sh "/lab/scenarios/$name.sh" \
                "/lab/results/$name" >"/lab/results/$name/log" 2>&1 </dev/null
        ) &
        wait $!
        code=$?
        timeout --kill-after=10 180 bash /lab/guest/sweep.sh >>"/lab/results/$name/log" 2>&1 </dev/null &
        wait $! || say "after $name: not all is swept up; see its log"
        dmesg -c >"/lab/results/$name/kernel"
        took=$(echo "$began $(date +%s.%N)" | awk '{ printf "%.1f", $2 - $1 }')
        echo "$code $took" >"/lab/results/$name/exit"
        say "end $name code $code in $took s"
    done </lab/plan
fi
sync
say "done"
echo o >/proc/sysrq-trigger
sleep 60
