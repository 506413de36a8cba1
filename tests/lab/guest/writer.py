#!/usr/bin/env python3
"""Appends numbered records, fsyncs each, then notes the number in a local
file: what is noted was acknowledged. writer.py PATH NOTES SECONDS [PAUSE_SECONDS],
the pause between two records; SIGTERM ends it earlier, after the record that is under
way. The notes: records, seconds of the longest fsync, when that ended."""
import os
import signal
import sys
import time

path, notes, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
pause = float(sys.argv[4]) if len(sys.argv) > 4 else 0.0
fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
noted = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
end = time.time() + seconds


def stop(*_):
    global end
    end = 0


signal.signal(signal.SIGTERM, stop)
longest, longest_ended = 0.0, 0.0
n = 0
while time.time() < end:
    began = time.time()
    os.pwrite(fd, b"%08d:" % n + bytes([65 + n % 26]) * 4086 + b"\n", n * 4096)
    os.fsync(fd)
    acknowledged = time.time()
    if acknowledged - began > longest:
        longest, longest_ended = acknowledged - began, acknowledged
    n += 1
    os.pwrite(noted, b"%d %.2f %.2f\n" % (n, longest, longest_ended), 0)
    time.sleep(pause)
os.close(fd)
