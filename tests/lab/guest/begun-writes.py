"""Hosts that begin an NFSv3 WRITE of 4 MiB on each of their connections, and never
send the end of its data: begun-writes.py HOSTS CONNECTIONS. Until it is killed.
Writes the bytes that the server has taken, each second, to its standard output."""

import selectors
import socket
import struct
import sys
import time

WRITE_BYTES = 4 << 20
# Not to be sent.
KEPT_BYTES = 4096
PIECE = b"\3" * (64 << 10)


def opaque(data):
    return struct.pack(">I", len(data)) + data + b"\0" * (-len(data) % 4)


def begun():
    root = struct.pack(">I", 0) + opaque(b"lab") + struct.pack(">III", 0, 0, 0)
    head = struct.pack(">IIIIII", 8, 0, 2, 100003, 3, 7)
    head += struct.pack(">I", 1) + opaque(root) + bytes(8)
    head += opaque(b"\5" * 28) + struct.pack(">QIII", 0, WRITE_BYTES, 0, WRITE_BYTES)
    return struct.pack(">I", 1 << 31 | len(head) + WRITE_BYTES) + head


class Connection:
    def __init__(self, host, selector):
        self.host, self.selector, self.taken = host, selector, 0
        self.begin()

    def begin(self):
        self.left = WRITE_BYTES - KEPT_BYTES
        self.first = begun()
        self.socket = socket.create_connection(("127.0.0.1", 2049), 10, (f"127.0.3.{self.host}", 0))
        self.socket.setblocking(False)
        self.selector.register(self.socket, selectors.EVENT_WRITE, self)

    def end(self):
        self.selector.unregister(self.socket)
        self.socket.close()

    def send(self):
        try:
            if self.first:
                self.first = self.first[self.socket.send(self.first):]
                return
            sent = self.socket.send(PIECE[:min(len(PIECE), self.left)])
        except BlockingIOError:
            return
        except OSError:
            # Closed by a server that is full: it stays away.
            self.end()
            return
        self.taken += sent
        self.left -= sent
        if not self.left:
            self.selector.unregister(self.socket)


def main():
    hosts, connections = (int(text) for text in sys.argv[1:])
    selector = selectors.DefaultSelector()
    all_of_them = []
    for host in range(1, hosts + 1):
        for _ in range(connections):
            try:
                all_of_them.append(Connection(host, selector))
            except OSError:
                pass
    told = time.monotonic()
    while True:
        for key, _ in selector.select(0.1) if selector.get_map() else []:
            key.data.send()
        if not selector.get_map():
            time.sleep(0.1)
        if time.monotonic() - told > 1:
            told = time.monotonic()
            print(sum(one.taken for one in all_of_them), flush=True)


main()
