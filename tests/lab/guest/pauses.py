"""Figures of the pauses of writers: pauses.py SERVER ADDRESS NEIGHBOURS PACKETS PAUSES.
NEIGHBOURS is what `ip -ts monitor neigh` printed at the client, PACKETS what tcpdump wrote at
its interface, PAUSES has lines "KIND VERSION SECONDS ENDED" of a writer's longest fsync. The
address of the service is there once the client has its new neighbour: the last change of its
hardware address before the fsync was acknowledged."""
import datetime
import re
import struct
import sys

server, address, neighbours, capture, pauses = sys.argv[1:]
LINE = re.compile(r"\[(\S+?)\] (\S+) dev \S+ lladdr (\S+)")
PORT = 2049


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


def segments():
    """Time, ports of both ends and data of each TCP segment in Ethernet frames."""
    with open(capture, "rb") as file:
        fractions = 1e9 if file.read(24)[:4] == b"\x4d\x3c\xb2\xa1" else 1e6
        while len(record := file.read(16)) == 16:
            seconds, fraction, kept, _ = struct.unpack("<IIII", record)
            frame = file.read(kept)
            if frame[12:14] != b"\x08\x00" or len(frame) < 54 or frame[23] != 6:
                continue
            tcp = frame[14 + (frame[14] & 15) * 4:]
            ends = struct.unpack(">HH", tcp[:4])
            yield seconds + fraction / fractions, *ends, tcp[(tcp[12] >> 4) * 4:]


def answers():
    """Times of the replies to calls of NFS, by its version."""
    versions, found = {}, {3: [], 4: []}
    for at, source, destination, data in segments():
        if len(data) < 28 or PORT not in (source, destination):
            continue
        # RFC 5531, sections 9 and 11: a record's mark, then its transaction and kind.
        xid, kind = struct.unpack(">II", data[4:12])
        if destination == PORT and kind == 0:
            program, version = struct.unpack(">II", data[16:24])
            if program == 100003:
                versions[source, xid] = version
        elif source == PORT and kind == 1 and (destination, xid) in versions:
            found[versions[destination, xid]].append(at)
    return found


def figure(name, values):
    values.sort()
    for what, part in (("median", 0.5), ("p99", 0.99)):
        value = values[min(len(values) - 1, int(part * len(values)))]
        print(f"{server}: {name}, {what} of {len(values)}\t{value:.2f}\ts")


def main():
    there, answered = arrivals(), answers()
    found = [line.split() for line in open(pauses)]
    unseen = []
    for kind in ("planned", "reset"):
        for label, versions in (("v4", ("4.2", "4.1", "4.0")), ("v3", ("3",))):
            whole, after, first = [], [], {}
            for _, _, seconds, ended in (one for one in found if one[0] == kind and one[1] in versions):
                seconds, ended = float(seconds), float(ended)
                whole.append(seconds)
                before = [at for at in there if ended - seconds < at < ended]
                if before:
                    after.append(ended - before[-1])
                    # Of each switch once, whichever writer's request it was.
                    replies = [at for at in answered[int(label[1])] if at > before[-1]]
                    first[before[-1]] = min(replies, default=ended) - before[-1]
            if whole:
                figure(f"{kind}, {label}, longest fsync", whole)
            if after:
                figure(f"{kind}, {label}, from the address to the first answer", list(first.values()))
                figure(f"{kind}, {label}, from the address to the write", after)
            elif whole:
                unseen.append(f"{kind}, {label}")
    if unseen:
        raise SystemExit(f"the client did not see the address arrive: {'; '.join(unseen)}")


main()
