"""A small NFSv3 client, which commits when it is told to: the kernel's commits
soon after it has written."""

import socket
import struct

MOUNT, NFS = 100005, 100003
MNT, LOOKUP, WRITE, COMMIT = 1, 3, 7, 21
UNSTABLE = 0
REPLY_HEAD_BYTES = 24


class Failed(Exception):
    """The server answered with an error."""


def opaque(data):
    return struct.pack(">I", len(data)) + data + b"\0" * (-len(data) % 4)


class Host:
    """A host with an address of the loopback range, as root."""

    def __init__(self, address, export="/export"):
        self.socket = socket.create_connection(("127.0.0.1", 2049), 100, (address, 0))
        self.xid = 0
        reply = self.call(MOUNT, MNT, opaque(export.encode()))
        self.root = self.handle(reply)

    def exactly(self, count):
        got = b""
        while len(got) < count:
            part = self.socket.recv(count - len(got))
            if not part:
                raise ConnectionError("the server closed the connection")
            got += part
        return got

    def call(self, program, procedure, args):
        """The results of a call, behind their status."""
        self.xid += 1
        root = struct.pack(">I", 0) + opaque(b"lab") + struct.pack(">III", 0, 0, 0)
        head = struct.pack(">IIIIII", self.xid, 0, 2, program, 3, procedure)
        call = head + struct.pack(">I", 1) + opaque(root) + bytes(8) + args
        self.socket.sendall(struct.pack(">I", 1 << 31 | len(call)) + call)
        reply, last = b"", False
        while not last:
            mark = struct.unpack(">I", self.exactly(4))[0]
            last = bool(mark >> 31)
            reply += self.exactly(mark & 0x7FFFFFFF)
        if reply[4:REPLY_HEAD_BYTES] != struct.pack(">IIIII", 1, 0, 0, 0, 0):
            raise Failed(f"the call was not accepted: {reply.hex()}")
        status = struct.unpack(">I", reply[REPLY_HEAD_BYTES:REPLY_HEAD_BYTES + 4])[0]
        if status != 0:
            raise Failed(f"procedure {procedure}: status {status}")
        return reply[REPLY_HEAD_BYTES + 4:]

    @staticmethod
    def handle(results):
        length = struct.unpack(">I", results[:4])[0]
        return results[4:4 + length]

    def lookup(self, name):
        return self.handle(self.call(NFS, LOOKUP, opaque(self.root) + opaque(name.encode())))

    def write_unstable(self, file, offset, data):
        """The verifier that a COMMIT has to repeat."""
        args = struct.pack(">QII", offset, len(data), UNSTABLE) + opaque(data)
        results = self.call(NFS, WRITE, opaque(file) + args)
        count, committed = struct.unpack(">II", results[-16:-8])
        if (count, committed) != (len(data), UNSTABLE):
            raise Failed(f"{count} bytes were written, committed {committed}: nothing is tried here")
        return results[-8:]

    def commit(self, file):
        return self.call(NFS, COMMIT, opaque(file) + struct.pack(">QI", 0, 0))[-8:]
