"""An NFS client over TLS (RFC 9289) with Python's ssl module, which is OpenSSL.

Usage: tls_judge.py HOST PORT CA EXPORT [CERTIFICATE KEY]
Asks for TLS, then calls NFSv3, MOUNT, NFSv4.0 and NFSv4.1 on that connection.
The last line is "judged: " and what was seen.
"""

import os
import socket
import ssl
import struct
import sys

NFS, MOUNT = 100003, 100005
SIZE = 1 << 20


def opaque(data):
    return struct.pack(">I", len(data)) + data + bytes(-len(data) % 4)


class Words:
    """Reader of XDR."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def word(self):
        self.at += 4
        return struct.unpack_from(">I", self.data, self.at - 4)[0]

    def opaque(self):
        length = self.word()
        start = self.at
        self.at += length + -length % 4
        return self.data[start : start + length]

    def skip(self, length):
        self.at += length

    def rest(self):
        return self.data[self.at :]


class Connection:
    def __init__(self, host, port):
        self.stream = socket.create_connection((host, port), timeout=30)
        self.xid = 0

    def record(self, body):
        self.stream.sendall(struct.pack(">I", 0x80000000 | len(body)) + body)

    def exactly(self, length):
        data = b""
        while len(data) < length:
            some = self.stream.recv(min(length - len(data), 1 << 16))
            assert some, "the server closed the connection"
            data += some
        return data

    def reply(self):
        data = b""
        while True:
            mark = struct.unpack(">I", self.exactly(4))[0]
            data += self.exactly(mark & 0x7FFFFFFF)
            if mark >> 31:
                return data

    def call(self, program, version, procedure, args=b"", flavor=1):
        self.xid += 1
        credential = b""
        if flavor == 1:
            credential = struct.pack(">I", 0) + opaque(b"judge") + struct.pack(">III", 0, 0, 0)
        head = struct.pack(">6I", self.xid, 0, 2, program, version, procedure)
        head += struct.pack(">I", flavor) + opaque(credential) + struct.pack(">II", 0, 0)
        self.record(head + args)
        reply = Words(self.reply())
        assert reply.word() == self.xid and reply.word() == 1
        return reply

    def results(self, *call, **how):
        reply = self.call(*call, **how)
        accepted = [reply.word() for _ in range(4)]
        assert accepted == [0, 0, 0, 0], f"refused: {accepted} {call[:3]}"
        return reply


def begin_tls(connection, context):
    reply = connection.call(NFS, 4, 0, flavor=7)
    assert [reply.word(), reply.word()] == [0, 0], "not accepted, or a verifier of another flavor"
    assert reply.opaque() == b"STARTTLS"
    connection.stream = context.wrap_socket(connection.stream, server_hostname="localhost")


def context_of(ca, certificate=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(ca)
    context.set_alpn_protocols(["sunrpc"])
    if certificate:
        context.load_cert_chain(*certificate)
    return context


def status_of(results):
    status = results.word()
    assert status == 0, f"status {status}"
    return results


def version_3(connection, export):
    connection.results(NFS, 3, 0, flavor=0)
    root = status_of(connection.results(MOUNT, 3, 1, opaque(export))).opaque()
    # CREATE, UNCHECKED, with nothing set but the mode.
    how = struct.pack(">III", 0, 1, 0o644) + struct.pack(">5I", 0, 0, 0, 0, 0)
    made = status_of(connection.results(NFS, 3, 8, opaque(root) + opaque(b"judged") + how))
    assert made.word() == 1, "a file handle"
    file = made.opaque()
    content = os.urandom(SIZE)
    args = opaque(file) + struct.pack(">QII", 0, SIZE, 2) + opaque(content)
    status_of(connection.results(NFS, 3, 7, args))
    read = status_of(connection.results(NFS, 3, 6, opaque(file) + struct.pack(">QI", 0, SIZE)))
    if read.word():
        read.skip(84)
    assert read.word() == SIZE
    read.word()
    assert read.opaque() == content, "other content"


def compound(connection, minor, operations):
    args = opaque(b"") + struct.pack(">II", minor, len(operations)) + b"".join(operations)
    return status_of(connection.results(NFS, 4, 1, args))


def operation(number, args=b""):
    return struct.pack(">I", number) + args


def lookups(export):
    names = [name for name in export.split(b"/") if name] + [b"judged"]
    size = struct.pack(">II", 1, 1 << 4)
    walk = [operation(15, opaque(name)) for name in names]
    return [operation(24), *walk, operation(9, size)]


def size_of(results):
    """The size in the GETATTR at the end of a COMPOUND."""
    return struct.unpack(">Q", results.rest()[-8:])[0]


def version_4_0(connection, export):
    assert size_of(compound(connection, 0, lookups(export))) == SIZE


def version_4_1(connection, export):
    owner = os.urandom(8) + opaque(b"judge")
    known = compound(connection, 1, [operation(42, owner + struct.pack(">III", 0, 0, 0))])
    known.opaque()
    known.skip(4 + 8)
    client = known.data[known.at : known.at + 8]
    known.skip(8)
    sequence = known.word()
    channel = struct.pack(">7I", 0, SIZE + 4096, SIZE + 4096, 4096, 16, 8, 0)
    args = client + struct.pack(">II", sequence, 0) + channel + channel
    args += struct.pack(">III", 0x40000000, 1, 0)
    made = compound(connection, 1, [operation(43, args)])
    made.opaque()
    made.skip(4 + 8)
    session = made.data[made.at : made.at + 16]
    sequenced = operation(53, session + struct.pack(">IIII", 1, 0, 0, 0))
    assert size_of(compound(connection, 1, [sequenced, *lookups(export)])) == SIZE


def main():
    host, port, ca, export = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4].encode()
    certificate = sys.argv[5:7] or None
    connection = Connection(host, port)
    begin_tls(connection, context_of(ca, certificate))
    seen = [connection.stream.version(), connection.stream.selected_alpn_protocol()]
    assert seen == ["TLSv1.3", "sunrpc"], seen
    version_3(connection, export)
    version_4_0(connection, export)
    version_4_1(connection, export)
    again = connection.call(NFS, 4, 0, flavor=7)
    assert [again.word() for _ in range(3)] == [1, 1, 1], "AUTH_BADCRED within TLS"
    older = context_of(ca, certificate)
    older.maximum_version = ssl.TLSVersion.TLSv1_2
    try:
        begin_tls(Connection(host, port), older)
        raise AssertionError("TLS 1.2 was accepted")
    except ssl.SSLError as error:
        assert "PROTOCOL_VERSION" in str(error).upper(), error
    print("judged:", *seen, connection.stream.cipher()[0], ssl.OPENSSL_VERSION)


if __name__ == "__main__":
    main()
