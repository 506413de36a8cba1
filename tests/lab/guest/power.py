#!/usr/bin/env python3
"""Writers whose every step is synced, and the check of what a power loss left.

power.py write KIND PATH NOTES FIRST: steps, numbered behind FIRST, until it is
killed. A step is noted with the time at which it was acknowledged.
power.py check KIND PATH NOTES FIRST UNTIL: what was acknowledged before UNTIL
must be there, whole. Prints the number of acknowledged steps.

KIND `slots` writes records of one page into a file or disk, round and round;
`names` makes files by another name, syncs and renames them, and removes old
ones. UNTIL and the notes are seconds of the monotonic clock."""
import os
import sys
import time
import zlib

PAGE = 4096
SLOTS = 64
KEPT = 20


def record(number):
    body = (b"%016d" % number) * (PAGE // 16 - 1)
    return b"%08x" % zlib.crc32(body) + bytes(8) + body


def number_of(page):
    """The number of a whole record; 0 of a page that was never written."""
    if page == bytes(PAGE):
        return 0
    try:
        number = int(page[16:32])
    except ValueError:
        return None
    return number if page == record(number) else None


def write_slot(path, number, _):
    handle = os.open(path, os.O_WRONLY)
    try:
        os.pwrite(handle, record(number), number % SLOTS * PAGE)
        os.fsync(handle)
    finally:
        os.close(handle)


def write_name(path, number, first):
    made = f"{path}/being-made"
    handle = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.write(handle, record(number))
    os.fsync(handle)
    os.close(handle)
    os.rename(made, f"{path}/{number}")
    directory = os.open(path, os.O_RDONLY)
    os.fsync(directory)
    if number - KEPT > first:
        os.unlink(f"{path}/{number - KEPT}")
        os.fsync(directory)
    os.close(directory)


def write(kind, path, notes, first):
    step = {"slots": write_slot, "names": write_name}[kind]
    noted = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    number = int(first)
    while True:
        number += 1
        step(path, number, int(first))
        os.write(noted, b"%d %.6f\n" % (number, time.monotonic()))


def acknowledged(notes, first, until):
    """The last step that was acknowledged before this time."""
    last = first
    with open(notes) as lines:
        for line in lines:
            number, at = line.split()
            if float(at) < until:
                last = int(number)
    return last


def check_slots(path, first, last):
    with open(path, "rb") as file:
        for slot in range(SLOTS):
            least = last - (last - slot) % SLOTS
            found = number_of(file.read(PAGE))
            # The next steps were under way: each page is an old or a new one.
            if found is None:
                raise SystemExit(f"slot {slot}: half a record; step {last} was acknowledged")
            if least > first and found < least:
                raise SystemExit(f"slot {slot}: step {least} was acknowledged, and it has {found}")


def check_names(path, first, last):
    found = {int(name) for name in os.listdir(path) if name.isdigit()}
    # Steps behind the last acknowledged one may have happened, in their order.
    newest = max(found, default=first)
    if newest < last:
        raise SystemExit(f"step {last} was acknowledged, and the newest name is {newest}")
    for number in range(max(newest - KEPT + 1, first + 1), newest + 1):
        if number not in found:
            raise SystemExit(f"name {number} is lost, and {newest} is there")
    for number in found:
        # The newest step may not have removed its old name yet.
        if number < newest - KEPT:
            raise SystemExit(f"name {number} is there again; step {last} was acknowledged")
        with open(f"{path}/{number}", "rb") as file:
            if number_of(file.read()) != number:
                raise SystemExit(f"name {number} has lost its data; step {last} was acknowledged")


def check(kind, path, notes, first, until):
    first = int(first)
    last = acknowledged(notes, first, float(until))
    {"slots": check_slots, "names": check_names}[kind](path, first, last)
    print(last - first)


if __name__ == "__main__":
    {"write": write, "check": check}[sys.argv[1]](*sys.argv[2:])
