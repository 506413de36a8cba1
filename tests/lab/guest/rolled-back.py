"""The content of a file system or disk is replaced below the gateway by a command, while a
client has something that it relies on.

rolled-back.py file EXPORT COMMAND: a client has written without a COMMIT. A COMMIT tells
    it soon, by another verifier, and it writes again.
rolled-back.py other EXPORT COMMAND: the same, but this export is not concerned.
rolled-back.py disk BEFORE COMMAND: an initiator unmaps blocks between the two commands, and
    the second one brings them back. The disk soon says that they are mapped."""

import os
import struct
import subprocess
import sys
import time

import nfs3
from initiator import Session, read16, transfer, write16

# Of the gateway, which starts `zpool events` again within a few seconds where it has ended.
LIMIT_SECONDS = 20
# An export that is not concerned has not been told after this time.
QUIET_SECONDS = 5
BLOCKS = 64


def shell(command):
    subprocess.run(["bash", "-euc", "set -o pipefail; " + command], check=True)


def soon(what, holds):
    """Waits until it holds, and prints for how long."""
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > LIMIT_SECONDS:
            raise SystemExit(f"not within {LIMIT_SECONDS} s: {what}")
        time.sleep(0.02)
    print(f"{time.monotonic() - began:.2f}")


class Writer:
    """An NFS client that has written 64 KiB and not committed them."""

    def __init__(self, export):
        self.host = nfs3.Host("127.0.0.2", export)
        self.file = self.host.lookup("file")
        self.write()

    def write(self):
        self.written = self.host.write_unstable(self.file, 0, b"A" * 65536)

    def is_told(self):
        return self.host.commit(self.file) != self.written


def file(export, command):
    writer = Writer(export)
    shell(command)
    soon("another verifier", writer.is_told)
    writer.write()
    while writer.is_told():
        writer.write()


def other(export, command):
    writer = Writer(export)
    shell(command)
    time.sleep(QUIET_SECONDS)
    if writer.is_told():
        raise SystemExit("a client of another export was told")


def unmap(session):
    blocks = struct.pack(">HHIQII", 22, 16, 0, 0, BLOCKS, 0)
    session.run(struct.pack(">BBIBHB", 0x42, 0, 0, 0, len(blocks), 0), blocks)


def is_mapped(session):
    """GET LBA STATUS of the first block."""
    answer = session.run(transfer(0x9E, 0, 24, 0x12), read=24)
    return answer[20] & 15 == 0


def disk(before, command):
    session = Session(os.environ["TARGET"], "iqn.2026-11.org.example:rolled-back")
    data = b"A" * (BLOCKS * 512)
    session.run(bytes(6))
    session.run(write16(0, BLOCKS, fua=True), data)
    shell(before)
    unmap(session)
    if is_mapped(session):
        raise SystemExit("nothing was unmapped")
    shell(command)
    soon("mapped again", lambda: is_mapped(session))
    if session.run(read16(0, BLOCKS), read=len(data)) != data:
        raise SystemExit("the data has not come back")


kind, first, second = sys.argv[1:]
{"file": file, "other": other, "disk": disk}[kind](first, second)
