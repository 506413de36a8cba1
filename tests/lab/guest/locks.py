#!/usr/bin/env python3
"""Locks from scripts: locks.py hold PATH SECONDS [START LENGTH [MARK]] and
locks.py try PATH [START LENGTH]: exit 0 when the lock was free, 3 when not.
locks.py flock-hold and flock-try do the same for flock(2)."""
import fcntl
import os
import sys
import time


def take(fd, how, start, length, wait):
    flags = fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB)
    if how.startswith("flock"):
        fcntl.flock(fd, flags)
    else:
        fcntl.lockf(fd, flags, length, start)


def main():
    how, path = sys.argv[1:3]
    holds = how.endswith("hold")
    rest = sys.argv[3:]
    seconds = float(rest.pop(0)) if holds else 0
    start, length = (int(rest[0]), int(rest[1])) if len(rest) >= 2 else (0, 0)
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        take(fd, how, start, length, wait=holds)
    except BlockingIOError:
        sys.exit(3)
    if holds:
        if len(rest) > 2:
            open(rest[2], "w").close()
        time.sleep(seconds)


main()
