"""Two hosts write without a sync, the disk fails, the first one syncs, the disk
is mended, the second one syncs: it is told, or its data is on disk.

lost.py disk FAIL MEND
lost.py files PATH-OF-A PATH-OF-B FAIL MEND"""

import ctypes
import os
import subprocess
import sys
import time

SYNC_FILE_RANGE_WRITE = 2


def words(line):
    subprocess.run(["bash", "-c", ". /lab/guest/lib.sh; . /lab/guest/slow.sh; set -eu; " + line], check=True)


def disk(fail, mend):
    from initiator import Failed, Session, read16, synchronize16, write16

    hosts = []
    for number in (1, 2):
        session = Session(os.environ["TARGET"], f"iqn.2026-11.org.example:host{number}")
        session.run(bytes(6))
        session.run(write16(number * 2048, 8), bytes([64 + number]) * 4096)
        hosts.append(session)
    words(fail)
    told = []
    try:
        for session in hosts:
            try:
                session.run(synchronize16())
                told.append(False)
            except Failed as error:
                print("told:", error)
                told.append(True)
            if len(told) == 1:
                words(mend)
    finally:
        words(mend)
    print("told of the loss:", told)
    if told != [True, True]:
        raise SystemExit("a host was told that its write is on disk")


def files(path_a, path_b, fail, mend):
    libc = ctypes.CDLL(None, use_errno=True)
    open_files = []
    for path, letter, offset in ((path_a, b"a", 0), (path_b, b"b", 1 << 20)):
        fd = os.open(path, os.O_RDWR)
        os.pwrite(fd, letter * 65536, offset)
        # An unstable WRITE and no COMMIT; to wait for it would make it a stable one.
        length = ctypes.c_int64(65536)
        if libc.sync_file_range(fd, ctypes.c_int64(offset), length, SYNC_FILE_RANGE_WRITE) != 0:
            raise SystemExit("sync_file_range: " + os.strerror(ctypes.get_errno()))
        open_files.append(fd)
    # Long enough for an emulated machine, less than until the client commits.
    time.sleep(2)
    words(fail)
    told = []
    try:
        for fd in open_files:
            try:
                os.fsync(fd)
                told.append(False)
            except OSError as error:
                print("told:", error)
                told.append(True)
            if len(told) == 1:
                words(mend)
    finally:
        words(mend)
    print("told of the loss:", told)
    if not told[0]:
        raise SystemExit("the first host was not told: nothing is tried here")
    if told[1]:
        # It knows; it writes again.
        os.pwrite(open_files[1], b"b" * 65536, 1 << 20)
        os.fsync(open_files[1])


{"disk": disk, "files": files}[sys.argv[1]](*sys.argv[2:])
