"""Figures of the pauses of writers: pauses.py SERVER ADDRESS NEIGHBOURS PAUSES.
NEIGHBOURS is what `ip -ts monitor neigh` printed at the client, PAUSES has lines "KIND
VERSION SECONDS ENDED" of a writer's longest fsync. The address of the service is there
once the client has its new neighbour: the last change of its hardware address before
the fsync was acknowledged."""
import datetime
import re
import sys

server, address, neighbours, pauses = sys.argv[1:]
LINE = re.compile(r"\[(\S+?)\] (\S+) dev \S+ lladdr (\S+)")


def arrivals():
    """When the address was at another machine than before, as the client saw it."""
    found, before = [], None
    for line in open(neighbours):
        match = LINE.match(line)
        if match and match[2] == address and match[3] != before:
            if before:
                found.append(datetime.datetime.fromisoformat(match[1]).timestamp())
            before = match[3]
    return found


def figure(name, values):
    values.sort()
    for what, part in (("median", 0.5), ("p99", 0.99)):
        value = values[min(len(values) - 1, int(part * len(values)))]
        print(f"{server}: {name}, {what} of {len(values)}\t{value:.2f}\ts")


def main():
    there = arrivals()
    found = [line.split() for line in open(pauses)]
    unseen = []
    for kind in ("planned", "reset"):
        for label, versions in (("v4", ("4.2", "4.1", "4.0")), ("v3", ("3",))):
            whole, after = [], []
            for _, _, seconds, ended in (one for one in found if one[0] == kind and one[1] in versions):
                seconds, ended = float(seconds), float(ended)
                whole.append(seconds)
                before = [at for at in there if ended - seconds < at < ended]
                if before:
                    after.append(ended - before[-1])
            if whole:
                figure(f"{kind}, {label}, longest fsync", whole)
            if after:
                figure(f"{kind}, {label}, from the address to the write", after)
            elif whole:
                unseen.append(f"{kind}, {label}")
    if unseen:
        raise SystemExit(f"the client did not see the address arrive: {'; '.join(unseen)}")


main()
