"""A round of turns: two servers, loaded for half a second each, over and over.

turns.py SERVER SERVER, in the order in which they begin. /run/turns/SERVER/LOAD is
the process of a load that stands still, /run/turns/SERVER/target what it reads and
writes. Prints the round's figures: MiB or operations a second while it was a server's
turn, and the whole machine's CPU time and context switches for them, the client's and
the server's.
"""

import os
import signal
import subprocess
import sys
import time

# Where a load's threads run is settled when it goes on, and makes a fifth of
# difference for as long as it runs: many short turns, not few long ones.
CYCLES = 5
TURN_SECONDS = 0.5
# The requests of the turn before are then over, and those of its own under way.
SETTLE_SECONDS = 0.15
DRAIN_SECONDS = 0.1


def text(path):
    with open(path, encoding="ascii") as file:
        return file.read()


def moved(target):
    """Bytes that the kernel's client has read and written of it so far."""
    if target.startswith("/dev/"):
        fields = text("/sys/block/%s/stat" % os.path.basename(target)).split()
        return (int(fields[2]) + int(fields[6])) * 512
    here = False
    for line in text("/proc/self/mountstats").splitlines():
        words = line.split()
        if words[:1] == ["device"]:
            here = target.startswith(words[4] + "/")
        elif here and words[:1] == ["bytes:"]:
            return int(words[5]) + int(words[6])
    raise SystemExit("nothing is mounted for " + target)


def busy():
    """Seconds that all processors have worked so far."""
    user, nice, system, _idle, _wait, irq, softirq, steal = map(
        int, text("/proc/stat").split("\n")[0].split()[1:9]
    )
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def switches():
    """Context switches of all processors so far."""
    lines = text("/proc/stat").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("ctxt "))


def sample(count):
    return count(), time.monotonic(), busy(), switches()


def on_disk():
    """Returns when all that was written is on the disks."""
    # sync(2) is content with ZFS' intent log.
    if os.path.isdir("/sys/module/zfs"):
        subprocess.run(["zpool", "sync"], check=True)
    os.sync()


def reads(count, process):
    os.kill(process, signal.SIGCONT)
    time.sleep(SETTLE_SECONDS)
    began = sample(count)
    time.sleep(TURN_SECONDS)
    ended = sample(count)
    os.kill(process, signal.SIGSTOP)
    time.sleep(DRAIN_SECONDS)
    return began, ended


def writes(count, process):
    """Until they are on disk: what a file system has taken in and not yet written
    slows down whoever has the next turn, by half and more."""
    began = sample(count)
    os.kill(process, signal.SIGCONT)
    time.sleep(SETTLE_SECONDS + TURN_SECONDS)
    os.kill(process, signal.SIGSTOP)
    time.sleep(DRAIN_SECONDS)
    on_disk()
    return began, sample(count)


# Of a load: its name, how a turn goes, and the bytes of an operation, or None where
# the load counts its operations itself.
LOADS = {
    "read": ("read 1 MiB", reads, 1 << 20),
    "write": ("write 1 MiB", writes, 1 << 20),
    "read-4k": ("random read 4 KiB", reads, 4 << 10),
    "write-4k": ("random write 4 KiB", writes, 4 << 10),
    "names": ("create, stat, remove", reads, None),
}


def turn(server, load):
    """Bytes or operations, seconds, seconds of the processors, context switches."""
    directory = "/run/turns/" + server
    _name, go, block = LOADS[load]
    if block is None:
        counter = "%s/%s.count" % (directory, load)
        count = lambda: int(text(counter))
    else:
        target = text(directory + "/target").strip()
        count = lambda: moved(target)
    began, ended = go(count, int(text("%s/%s" % (directory, load))))
    return [after - before for before, after in zip(began, ended)]


def report(server, load, figures):
    name, _go, block = LOADS[load]
    amount, seconds, work, switched = figures
    name = "%s: %s" % (server, name)
    operations = amount if block is None else amount / block
    if block == 1 << 20:
        print("%s\t%.2f\tMiB/s" % (name, operations / seconds))
        print("%s\t%.2f\tCPU s/GB" % (name, work / (amount / 1e9)))
    else:
        print("%s\t%.1f\top/s" % (name, operations / seconds))
        print("%s\t%.1f\tCPU µs/op" % (name, work * 1e6 / operations))
    print("%s\t%.2f\tcontext switches/op" % (name, switched / operations))


def main():
    order = sys.argv[1:]
    for load in LOADS:
        if not os.path.exists("/run/turns/%s/%s" % (order[0], load)):
            continue
        on_disk()
        sums = {server: [0, 0, 0, 0] for server in order}
        for _cycle in range(CYCLES):
            for server in order + order[::-1]:
                sums[server] = [a + b for a, b in zip(sums[server], turn(server, load))]
        for server, figures in sums.items():
            if figures[0] == 0:
                raise SystemExit("nothing moved: %s of %s" % (load, server))
            report(server, load, figures)


main()
