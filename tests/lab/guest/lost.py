"""Two hosts write without a sync, the disk fails, the first one syncs, the disk
is mended, the second one syncs. Both are told of the loss: by an error, over NFS
also by another verifier than that of the write.

lost.py disk FAIL MEND
lost.py file FAIL MEND"""

import os
import subprocess
import sys

import nfs3
from initiator import Failed, Session, synchronize16, write16


def words(line):
    subprocess.run(["bash", "-c", ". /lab/guest/lib.sh; . /lab/guest/slow.sh; set -eu; " + line], check=True)


class DiskHost:
    """An initiator that has written 4 KiB."""

    def __init__(self, number):
        self.session = Session(os.environ["TARGET"], f"iqn.2026-11.org.example:host{number}")
        self.session.run(bytes(6))
        self.session.run(write16(number * 2048, 8), bytes([64 + number]) * 4096)

    def told_by_sync(self):
        try:
            self.session.run(synchronize16())
        except Failed as error:
            print("told:", error)
            return True
        return False


class FileHost:
    """An NFS client that has written 64 KiB."""

    def __init__(self, number):
        self.host = nfs3.Host(f"127.0.0.{number + 1}")
        self.file = self.host.lookup("file")
        data = bytes([64 + number]) * 65536
        self.written = self.host.write_unstable(self.file, number << 20, data)

    def told_by_sync(self):
        try:
            verifier = self.host.commit(self.file)
        except nfs3.Failed as error:
            print("told:", error)
            return True
        if verifier != self.written:
            print("told: another verifier")
        return verifier != self.written


def main():
    kind, fail, mend = sys.argv[1:]
    hosts = [{"disk": DiskHost, "file": FileHost}[kind](number) for number in (1, 2)]
    try:
        words(fail)
        first = hosts[0].told_by_sync()
        words(mend)
        second = hosts[1].told_by_sync()
    finally:
        words(mend)
    print("told of the loss:", [first, second])
    if not (first and second):
        raise SystemExit("a host was told that its write is on disk")


main()
