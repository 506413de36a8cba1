"""A small iSCSI initiator: sessions that can be dropped in the middle of a
command and come back under the same name, which the kernel's initiator does
only together with its own retries."""

import socket
import struct
import time

PORTAL = ("127.0.0.1", 3260)
BLOCK = 512
KEYS = {
    "SessionType": "Normal",
    "HeaderDigest": "None",
    "DataDigest": "None",
    "InitialR2T": "No",
    "ImmediateData": "Yes",
    "MaxRecvDataSegmentLength": "262144",
    "FirstBurstLength": "65536",
    "MaxBurstLength": "262144",
    "MaxConnections": "1",
    "MaxOutstandingR2T": "1",
    "ErrorRecoveryLevel": "0",
    "DefaultTime2Wait": "0",
    "DefaultTime2Retain": "0",
    "DataPDUInOrder": "Yes",
    "DataSequenceInOrder": "Yes",
}
LUN_RESET = 5
GOOD, CHECK_CONDITION = 0, 2
UNIT_ATTENTION = 6


class Refused(Exception):
    """The target did not let us in."""


class Failed(Exception):
    """A command ended with another status than GOOD."""


def transfer(opcode, lba, blocks, flags=0):
    return struct.pack(">BBQIBB", opcode, flags, lba, blocks, 0, 0)


def read16(lba, blocks):
    return transfer(0x88, lba, blocks)


def write16(lba, blocks, fua=False):
    return transfer(0x8A, lba, blocks, 8 if fua else 0)


def synchronize16():
    return transfer(0x91, 0, 0)


def reserve_out(action, length=24, kind=5):
    """PERSISTENT RESERVE OUT; kind 5: write exclusive, registrants only."""
    return struct.pack(">BBBBBIB", 0x5F, action, kind, 0, 0, length, 0)


class Session:
    """A session of one connection with one target; its commands are for one unit."""

    def __init__(self, target, name, isid=1, lun=0, seconds=60):
        self.socket = socket.create_connection(PORTAL, timeout=seconds)
        self.lun = lun << 48
        self.itt = 0
        self.cmdsn = 1
        self.expstatsn = 0
        self.ended = {}
        self.read = {}
        self.isid = struct.pack(">BHBH", 0x80, 0, 0, isid)
        self.login(target, name)

    def login(self, target, name):
        keys = dict(KEYS, InitiatorName=name, TargetName=target)
        text = b"".join(f"{key}={value}\0".encode() for key, value in keys.items())
        # Operational negotiation, then full feature phase.
        head = struct.pack(">BBHI6sHIHHII", 0x43, 0x87, 0, len(text), self.isid, 0, 0, 0, 0, self.cmdsn, 0)
        self.send(head.ljust(48, b"\0"), text)
        while True:
            head, _ = self.receive()
            if head[0] & 0x3F != 0x23:
                raise Refused(f"opcode {head[0]:#x} to a login")
            if head[36] or head[37]:
                raise Refused(f"status {head[36]:02x}{head[37]:02x}")
            if head[1] & 0x80:
                return

    def send(self, head, data=b""):
        self.socket.sendall(head + data + b"\0" * (-len(data) % 4))

    def exactly(self, count):
        got = b""
        while len(got) < count:
            part = self.socket.recv(count - len(got))
            if not part:
                raise ConnectionError("the target closed the connection")
            got += part
        return got

    def receive(self):
        head = self.exactly(48)
        length = int.from_bytes(head[5:8], "big")
        data = self.exactly(length + -length % 4)[:length]
        self.expstatsn = struct.unpack(">I", head[24:28])[0] + 1
        return head, data

    def start(self, cdb, write=b"", read=0):
        """Sends a command with all of its data; returns its tag."""
        self.itt += 1
        flags = 0x81 | (0x20 if write else 0) | (0x40 if read else 0)
        head = struct.pack(
            ">BBHIQIIII16s", 0x01, flags, 0, len(write), self.lun, self.itt, len(write) or read,
            self.cmdsn, self.expstatsn, cdb.ljust(16, b"\0"),
        )
        self.cmdsn += 1
        self.read[self.itt] = b""
        self.send(head, write)
        return self.itt

    def answer(self, tag):
        """Waits for the answer of a command or function: its third byte and more."""
        while tag not in self.ended:
            head, data = self.receive()
            opcode, itt = head[0] & 0x3F, struct.unpack(">I", head[16:20])[0]
            if opcode == 0x25:
                self.read[itt] += data
                if head[1] & 1:
                    self.ended[itt] = (head[3], b"")
            elif opcode in (0x21, 0x22):
                self.ended[itt] = (head[3] if opcode == 0x21 else head[2], data)
            elif opcode == 0x20 and head[20:24] != b"\xff" * 4:
                pong = struct.pack(">BBHIQIIII", 0x40, 0x80, 0, 0, 0, 0xFFFFFFFF,
                                   struct.unpack(">I", head[20:24])[0], self.cmdsn, self.expstatsn)
                self.send(pong.ljust(48, b"\0"))
        return self.ended.pop(tag)

    def run(self, cdb, write=b"", read=0):
        """One command to its end; unit attentions are taken and it is tried again."""
        for _ in range(5):
            tag = self.start(cdb, write, read)
            status, sense = self.answer(tag)
            data = self.read.pop(tag)
            if status == CHECK_CONDITION and len(sense) > 4 and sense[4] & 15 == UNIT_ATTENTION:
                continue
            if status != GOOD:
                raise Failed(f"status {status:#x}, sense {sense.hex()}")
            return data
        raise Failed("unit attentions without end")

    def reset_unit(self):
        """LOGICAL UNIT RESET; 0 is "function complete"."""
        self.itt += 1
        head = struct.pack(">BBHIQIIII", 0x42, 0x80 | LUN_RESET, 0, 0, self.lun, self.itt, 0xFFFFFFFF,
                           self.cmdsn, self.expstatsn)
        self.send(head.ljust(48, b"\0"))
        return self.answer(self.itt)[0]

    def drop(self):
        """Gone without a word."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def login_until(target, name, seconds):
    """Tries again while the target refuses or is silent."""
    end = time.monotonic() + seconds
    while True:
        try:
            return Session(target, name, seconds=max(1, end - time.monotonic()))
        except (Refused, OSError) as error:
            if time.monotonic() > end:
                raise
            print(f"login of {name} again: {error}", flush=True)
            time.sleep(1)
