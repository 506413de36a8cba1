"""A round of turns: two servers, loaded for half a second each, over and over.

turns.py SERVER SERVER, in the order in which they begin. /run/turns/SERVER/LOAD is
the process of a load that stands still, /run/turns/SERVER/target what it reads and
writes. Prints the round's figures: MiB a second while it was a server's turn, and the
whole machine's CPU time a GB of it, the client's and the server's.
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
            here = words[4] == os.path.dirname(target)
        elif here and words[:1] == ["bytes:"]:
            return int(words[5]) + int(words[6])
    raise SystemExit("nothing is mounted for " + target)


def busy():
    """Seconds that all processors have worked so far."""
    user, nice, system, _idle, _wait, irq, softirq, steal = map(
        int, text("/proc/stat").split("\n")[0].split()[1:9]
    )
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def sample(target):
    return moved(target), time.monotonic(), busy()


def on_disk():
    """Returns when all that was written is on the disks."""
    # sync(2) is content with ZFS' intent log.
    if os.path.isdir("/sys/module/zfs"):
        subprocess.run(["zpool", "sync"], check=True)
    os.sync()


def reads(target, process):
    os.kill(process, signal.SIGCONT)
    time.sleep(SETTLE_SECONDS)
    began = sample(target)
    time.sleep(TURN_SECONDS)
    ended = sample(target)
    os.kill(process, signal.SIGSTOP)
    time.sleep(DRAIN_SECONDS)
    return began, ended


def writes(target, process):
    """Until they are on disk: what a file system has taken in and not yet written
    slows down whoever has the next turn, by half and more."""
    began = sample(target)
    os.kill(process, signal.SIGCONT)
    time.sleep(SETTLE_SECONDS + TURN_SECONDS)
    os.kill(process, signal.SIGSTOP)
    time.sleep(DRAIN_SECONDS)
    on_disk()
    return began, sample(target)


TURNS = {"read": reads, "write": writes}


def turn(server, load):
    """Bytes, seconds and seconds of the processors."""
    directory = "/run/turns/" + server
    target = text(directory + "/target").strip()
    process = int(text("%s/%s" % (directory, load)))
    began, ended = TURNS[load](target, process)
    return [after - before for before, after in zip(began, ended)]


def main():
    order = sys.argv[1:]
    for load in TURNS:
        on_disk()
        sums = {server: [0, 0, 0] for server in order}
        for cycle in range(CYCLES):
            for server in order + order[::-1]:
                sums[server] = [a + b for a, b in zip(sums[server], turn(server, load))]
        for server, (moved_bytes, seconds, work) in sums.items():
            if moved_bytes == 0:
                raise SystemExit("nothing moved: %s of %s" % (load, server))
            name = "%s: %s 1 MiB" % (server, load)
            print("%s\t%.2f\tMiB/s" % (name, moved_bytes / (1 << 20) / seconds))
            print("%s\t%.2f\tCPU s/GB" % (name, work / (moved_bytes / 1e9)))


main()
