#!/usr/bin/env python3
"""Appends numbered records, fsyncs each, then notes the number in a local
file: what is noted was acknowledged. writer.py PATH NOTES SECONDS; SIGTERM ends it
earlier, after the record that is under way."""
import os
import signal
import sys
import time

path, notes, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
noted = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
end = time.time() + seconds


def stop(*_):
    global end
    end = 0


signal.signal(signal.SIGTERM, stop)
longest = 0.0
n = 0
while time.time() < end:
    began = time.time()
    os.pwrite(fd, b"%08d:" % n + bytes([65 + n % 26]) * 4086 + b"\n", n * 4096)
    os.fsync(fd)
    longest = max(longest, time.time() - began)
    n += 1
    os.pwrite(noted, b"%d %.2f\n" % (n, longest), 0)
os.close(fd)
