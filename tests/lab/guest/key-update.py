#!/usr/bin/env python3
"""Changes of TLS keys (RFC 8446, 4.6.3) on connections of OpenSSL's s_client, which
decrypts every reply:

key-update.py AUTHORITY served LETTERS ROUNDS   each round: these letters, then a call
key-update.py AUTHORITY busy COUNT              COUNT times a letter and a call, without waiting
key-update.py AUTHORITY flood COUNT             COUNT letters without a call: the gateway ends it
key-update.py AUTHORITY ended ROUNDS            the gateway ends whoever asks it for keys

The letters are those of s_client: `k` changes the client's keys, `K` asks for the
gateway's as well. `busy` and `flood` report the slowest call of another connection."""

import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

GATEWAY, NAME = ("127.0.0.1", 2049), "nas.lab"
NFS, AUTH_TLS = 100003, 7
# Time for anything, on an emulated processor.
PATIENCE = 60
# Longest call of another connection.
SLOWEST = 5
# A record's content: the message of 5 bytes, its type, and the tag. Of a NULL's reply: 45.
KEY_UPDATE_BYTES = 22
REPLY_BYTES = 28


class Failed(Exception):
    """Not what the gateway has to do."""


def call(xid, flavor=0):
    """NULL of NFSv4, as a record."""
    body = struct.pack(">IIIIIIIIII", xid, 0, 2, NFS, 4, 0, flavor, 0, 0, 0)
    return struct.pack(">I", 1 << 31 | len(body)) + body


def exactly(source, count):
    data = b""
    while len(data) < count:
        part = source.recv(count - len(data))
        if not part:
            raise Failed("the gateway closed the connection in the clear")
        data += part
    return data


def tls_requested():
    """A connection on which the gateway waits for the handshake (RFC 9289, 4.1)."""
    server = socket.create_connection(GATEWAY, PATIENCE)
    server.sendall(call(1, AUTH_TLS))
    reply = exactly(server, 36)
    wanted = struct.pack(">IIIIII8sI", 1 << 31 | 32, 1, 1, 0, 0, 8, b"STARTTLS", 0)
    if reply != wanted:
        raise Failed(f"TLS is not offered: {reply.hex()}")
    server.settimeout(None)
    return server


class Session:
    """An s_client, and the connection to the gateway that its bytes are carried to."""

    def __init__(self, authority):
        self.changed = threading.Condition()
        # What the gateway sends: its bytes, and the lengths of its records.
        self.received, self.records, self.rest = 0, [], b""
        self.ended_by_gateway = False
        # What s_client has decrypted: whole replies, and the beginning of the next.
        self.answered, self.plain, self.fault = [], b"", None
        self.exited = False
        self.xid = 1
        self.said = tempfile.TemporaryFile()
        self.messages = tempfile.NamedTemporaryFile()
        listener = socket.create_server(("127.0.0.1", 0))
        # Each message is one read of s_client, as a line that is typed: it looks for
        # a letter at the beginning of what it reads, and drops what follows.
        self.input, inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.process = subprocess.Popen(
            ["openssl", "s_client", "-connect", "127.0.0.1:%d" % listener.getsockname()[1],
             "-tls1_3", "-brief", "-alpn", "sunrpc", "-servername", NAME, "-verify_hostname", NAME,
             "-verify_return_error", "-CAfile", authority, "-msg", "-msgfile", self.messages.name],
            stdin=inside, stdout=subprocess.PIPE, stderr=self.said)
        inside.close()
        listener.settimeout(PATIENCE)
        self.client = listener.accept()[0]
        self.client.settimeout(None)
        self.server = tls_requested()
        self.start(self.carry_out)
        self.start(self.carry_in)
        self.start(self.decrypted)

    @staticmethod
    def start(run):
        threading.Thread(target=run, daemon=True).start()

    def carry_out(self):
        try:
            while data := self.client.recv(65536):
                self.server.sendall(data)
            self.server.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def carry_in(self):
        try:
            while data := self.server.recv(65536):
                with self.changed:
                    self.received += len(data)
                    self.rest += data
                    while len(self.rest) >= 5:
                        length = struct.unpack(">H", self.rest[3:5])[0]
                        if len(self.rest) < 5 + length:
                            break
                        self.records.append(length)
                        self.rest = self.rest[5 + length:]
                self.client.sendall(data)
        except OSError:
            pass
        with self.changed:
            self.ended_by_gateway = True
            self.changed.notify_all()
        try:
            self.client.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def decrypted(self):
        while data := os.read(self.process.stdout.fileno(), 65536):
            with self.changed:
                self.plain += data
                while len(self.plain) >= REPLY_BYTES and self.fault is None:
                    reply, self.plain = self.plain[:REPLY_BYTES], self.plain[REPLY_BYTES:]
                    mark, xid, *others = struct.unpack(">7I", reply)
                    if (mark, others) != (1 << 31 | 24, [1, 0, 0, 0, 0]):
                        self.fault = f"no reply of NULL: {reply.hex()}"
                    self.answered.append(xid)
                self.changed.notify_all()
        with self.changed:
            self.exited = True
            self.changed.notify_all()

    def wait(self, what, condition):
        """Waits until it is true. What ends first is a failure, told by s_client."""
        with self.changed:
            self.changed.wait_for(lambda: condition() or self.fault or self.exited, PATIENCE)
            if self.fault is None and condition():
                return
            fault = self.fault or ("s_client has ended" if self.exited else "no end of waiting")
        raise Failed(f"{what}: {fault}\n{self.words()}")

    def words(self):
        """What s_client says, without the names of the commands."""
        self.said.seek(0)
        text = self.said.read().decode(errors="replace")
        return "\n".join(line for line in text.splitlines() if line and line != "KEYUPDATE")

    def send(self):
        """Sends a call; returns its id."""
        self.xid += 1
        self.input.send(call(self.xid))
        return self.xid

    def ask(self):
        xid = self.send()
        self.wait(f"call {xid}", lambda: xid in self.answered)

    def letters(self, letters):
        for letter in letters:
            self.input.send(letter.encode() + b"\n")

    def close(self):
        """Ends it, if the gateway has not; returns the numbers of changes of keys that
        OpenSSL has sent and received."""
        self.input.close()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise Failed(f"s_client does not end\n{self.words()}") from None
        self.server.close()
        self.client.close()
        with open(self.messages.name) as file:
            lines = file.read().splitlines()
        updates = [line for line in lines if "Handshake" in line and "KeyUpdate" in line]
        sent = sum(line.startswith(">>>") for line in updates)
        return sent, len(updates) - sent


def same(wanted, found, what):
    if wanted != found:
        raise Failed(f"{what}: expected {wanted}, found {found}")


def served(authority, letters, rounds):
    session = Session(authority)
    session.ask()
    asks = "K" in letters
    for number in range(rounds):
        seen = len(session.records)
        session.letters(letters)
        session.ask()
        first = session.records[seen]
        # The gateway's keys change before its next data, and only if that was asked.
        same(asks, first == KEY_UPDATE_BYTES, f"round {number}: a record of {first} bytes changes the keys")
    same(False, session.ended_by_gateway, "the gateway has ended the connection")
    sent, received = session.close()
    print(f"{sent} changes of the client's keys, {received} of the gateway's\n{session.words()}")
    same(rounds * len(letters), sent, "changes that OpenSSL has sent")
    if not asks or len(letters) == 1:
        same(rounds if asks else 0, received, "changes that OpenSSL has received")


class Other:
    """Another connection, which calls over and over."""

    def __init__(self, authority):
        self.session = Session(authority)
        self.session.ask()
        self.slowest, self.calls, self.fault, self.stop = 0, 0, None, False
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        try:
            while not self.stop:
                began = time.monotonic()
                self.session.ask()
                self.slowest = max(self.slowest, time.monotonic() - began)
                self.calls += 1
                time.sleep(0.02)
        except (Failed, OSError) as fault:
            self.fault = fault

    def check(self):
        calls = self.calls
        time.sleep(0.5)
        self.stop = True
        self.thread.join(PATIENCE)
        if self.fault is not None or self.thread.is_alive():
            raise Failed(f"the other connection is not served: {self.fault}")
        if self.calls == calls:
            raise Failed("the other connection waits")
        print(f"other calls: {self.calls}")
        print(f"slowest: {self.slowest:.3f}")
        if self.slowest > SLOWEST:
            raise Failed(f"a call of the other connection took {self.slowest:.1f} s")
        self.session.close()


def busy(authority, count):
    other, session = Other(authority), Session(authority)
    session.ask()
    # At most so many are not answered: s_client does not read while it cannot write.
    for number in range(count):
        session.letters("k")
        xid = session.send()
        if number % 50 == 49:
            session.wait(f"call {xid}", lambda: xid in session.answered)
    session.wait(f"call {xid}", lambda: len(session.answered) == count + 1)
    same(sorted(range(2, count + 3)), sorted(session.answered), "answered calls")
    sent, received = session.close()
    same((count, 0), (sent, received), "changes that OpenSSL has sent and received")
    other.check()


def flood(authority, count):
    other, session = Other(authority), Session(authority)
    session.ask()
    given = 0
    try:
        for given in range(count):
            session.letters("k")
    except OSError:
        # s_client has ended, because the gateway has.
        pass
    with session.changed:
        session.changed.wait_for(lambda: session.ended_by_gateway, PATIENCE)
    if not session.ended_by_gateway:
        raise Failed(f"{count} changes of keys without a call: the connection lives")
    sent, received = session.close()
    print(f"{sent} of {given + 1} changes were sent before the gateway ended the connection")
    same(0, received, "changes that OpenSSL has received")
    if sent == 0:
        raise Failed("no change was sent")
    print(session.words())
    other.check()


def ended(authority, rounds):
    for number in range(rounds):
        for before, behind in ((0, 0), (0, 5), (5, 5)):
            end(authority, before, behind)
            began = time.monotonic()
            again = Session(authority)
            again.ask()
            took = time.monotonic() - began
            again.close()
            print(f"round {number}: served again after {took:.2f} s")
            if took > SLOWEST * 4:
                raise Failed("a new connection waits")


def end(authority, before, behind):
    """Calls, a wish for keys, and calls: the gateway ends the connection."""
    session = Session(authority)
    session.ask()
    received = session.received
    first = [session.send() for _ in range(before)]
    session.letters("K")
    try:
        for _ in range(behind):
            session.send()
    except OSError:
        # It has ended by now.
        pass
    with session.changed:
        session.changed.wait_for(lambda: session.ended_by_gateway, PATIENCE)
        if not session.ended_by_gateway:
            raise Failed("the connection lives")
        # It must hear of the end before its input ends: it says nothing of two at a time.
        session.changed.wait_for(lambda: session.exited, PATIENCE)
    sent, changes = session.close()
    print(f"{before} calls, a wish, {behind} calls: {session.received - received} bytes, then the end\n{session.words()}")
    same((1, 0), (sent, changes), "changes that OpenSSL has sent and received")
    same([], [xid for xid in session.answered[1:] if xid not in first], "answered calls behind the wish")
    same(b"", session.plain, "other data")
    if before == 0:
        # Neither a reply nor an alert: whatever it were, it would be under old keys.
        same(0, session.received - received, "bytes after the wish")
    # A close that TLS does not announce, and nothing before it that is not for these keys.
    # One that still has calls to send may find out by these, and says no more than that
    # it is done.
    words = session.words()
    errors = [line for line in words.splitlines() if "error:" in line]
    same([], [line for line in errors if "unexpected eof" not in line], "other errors")
    if not errors and not (behind and "DONE" in words):
        raise Failed("s_client saw another end")


def main():
    authority, step, *others = sys.argv[1:]
    try:
        if step == "served":
            served(authority, others[0], int(others[1]))
        else:
            {"busy": busy, "flood": flood, "ended": ended}[step](authority, int(others[0]))
    except Failed as fault:
        sys.exit(f"FAILED: {fault}")


main()
