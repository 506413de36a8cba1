"""How a host gets on: one thing after the other, each to its answer.

pace.py files DIRECTORY SECONDS   creates a file, writes 4 KiB, syncs, reads it
                                  past the client's cache, removes it
pace.py disk NUMBER SECONDS       writes 4 KiB with FUA to an iSCSI unit, reads it

Prints steps a second and the longest one in seconds."""

import mmap
import os
import sys
import time


def files(directory):
    buffer = mmap.mmap(-1, 4096)
    number = 0
    while True:
        path = f"{directory}/pace{os.getpid()}-{number}"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        yield
        os.pwrite(fd, b"%4096d" % number, 0)
        os.fsync(fd)
        os.close(fd)
        yield
        fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
        os.preadv(fd, [buffer], 0)
        os.close(fd)
        if int(buffer[:4096]) != number:
            raise SystemExit("another file was read")
        yield
        os.unlink(path)
        yield
        number += 1


def disk(number):
    from initiator import Session, read16, write16

    session = Session(os.environ["TARGET"], f"iqn.2026-11.org.example:pace{number}", lun=int(number))
    session.run(bytes(6))
    step = 0
    while True:
        data = b"%4096d" % step
        lba = step % 64 * 8
        session.run(write16(lba, 8, fua=True), data)
        yield
        if session.run(read16(lba, 8), read=4096) != data:
            raise SystemExit("other data was read")
        yield
        step += 1


def main():
    kind, where, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    steps = {"files": files, "disk": disk}[kind](where)
    next(steps)
    began = last = time.monotonic()
    longest, count = 0.0, 0
    while last < began + seconds:
        next(steps)
        now = time.monotonic()
        longest, last = max(longest, now - last), now
        count += 1
    print(f"{count / (last - began):.1f} {longest:.2f}")


main()
