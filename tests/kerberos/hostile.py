"""A client of Kerberos that breaks the rules of RFC 2203, with real tickets.

hostile.py PORT: the gateway at 127.0.0.1. Prints a line for each check; the
environment names realm and tickets (KRB5_CONFIG, KRB5CCNAME).
"""

import socket
import struct
import sys

import gssapi

PORT = int(sys.argv[1])
NFS, RPCSEC_GSS = 100003, 6
DATA, INIT, DESTROY = 0, 1, 3
NONE, INTEGRITY, PRIVACY = 1, 2, 3
CREDENTIAL_PROBLEM, GARBAGE_ARGS = 13, 4
# Time to wait for an answer that must not come.
SILENCE_SECONDS = 0.7


def opaque(data):
    return struct.pack(">I", len(data)) + data + bytes(-len(data) % 4)


class Connection:
    def __init__(self):
        self.socket = socket.create_connection(("127.0.0.1", PORT), timeout=10)

    def send(self, record):
        self.socket.sendall(struct.pack(">I", 0x80000000 | len(record)) + record)

    def read(self, length):
        data = b""
        while len(data) < length:
            part = self.socket.recv(length - len(data))
            if not part:
                raise ConnectionError("closed")
            data += part
        return data

    def reply(self):
        """('denied', auth_stat) or ('accepted', verifier, accept_stat, results)."""
        mark = struct.unpack(">I", self.read(4))[0]
        record = self.read(mark & 0x7FFFFFFF)
        kind, rest = struct.unpack(">I", record[8:12])[0], record[12:]
        if kind == 1:
            return ("denied", struct.unpack(">II", rest[:8])[1])
        length = struct.unpack(">II", rest[:8])[1]
        verifier, rest = rest[8 : 8 + length], rest[8 + length + -length % 4 :]
        return ("accepted", verifier, struct.unpack(">I", rest[:4])[0], rest[4:])

    def ask(self, record):
        self.send(record)
        return self.reply()

    def is_silent(self, record):
        """No answer comes, and the connection still works."""
        self.send(record)
        self.socket.settimeout(SILENCE_SECONDS)
        try:
            self.reply()
            return False
        except socket.timeout:
            pass
        self.socket.settimeout(10)
        return self.ask(struct.pack(">10I", 1, 0, 2, NFS, 4, 0, 0, 0, 0, 0))[0] == "accepted"


def call(procedure, sequence, service, handle, body, sign=None):
    credential = struct.pack(">4I", 1, procedure, sequence, service) + opaque(handle)
    head = struct.pack(">6I", 7, 0, 2, NFS, 4, 0)
    head += struct.pack(">I", RPCSEC_GSS) + opaque(credential)
    if sign is None:
        return head + bytes(8) + body
    return head + struct.pack(">I", RPCSEC_GSS) + opaque(sign(head)) + body


def begin(service="nfs"):
    name = gssapi.Name(f"{service}@127.0.0.1", gssapi.NameType.hostbased_service)
    flags = gssapi.IntEnumFlagSet(
        gssapi.RequirementFlag, [gssapi.RequirementFlag.mutual_authentication]
    )
    context = gssapi.SecurityContext(name=name, flags=flags, usage="initiate")
    return context, context.step()


def sent(connection, token):
    """(handle, major, window, token, verifier) of INIT; None: garbage."""
    _, verifier, status, results = connection.ask(call(INIT, 0, NONE, b"", opaque(token)))
    if status != 0:
        return None
    length = struct.unpack(">I", results[:4])[0]
    handle, rest = results[4 : 4 + length], results[4 + length + -length % 4 :]
    major, _, window, size = struct.unpack(">4I", rest[:16])
    return handle, major, window, rest[16 : 16 + size], verifier


def established():
    connection, (context, token) = Connection(), begin()
    handle, major, window, answer, verifier = sent(connection, token)
    assert major == 0, major
    context.step(answer)
    context.verify_signature(struct.pack(">I", window), verifier)
    return connection, context, handle, token


def refused(result):
    return result is not None and result[0] == b"" and result[1] != 0


def a_ticket_counts_once():
    connection, _, _, token = established()
    return refused(sent(connection, token)) and refused(sent(Connection(), token))


def damaged_tickets():
    connection = Connection()
    _, token = begin()
    step = max(1, len(token) // 60)
    damaged = (token[:at] + bytes([token[at] ^ 1]) + token[at + 1 :] for at in range(0, len(token), step))
    # A ticket is not sealed as a whole: what counts is that no two of these begin
    # a context, and none without its keys.
    begun = [one for one in (sent(connection, token) for token in damaged) if not refused(one)]
    return len(begun) <= 1


def garbage():
    connection = Connection()
    small = all(refused(sent(connection, b"\x60" * size)) for size in (0, 1, 100, 4000, 65536))
    return small and sent(connection, bytes(65540)) is None


def a_ticket_for_another_service():
    _, token = begin("host")
    return refused(sent(Connection(), token))


def a_call_counts_once():
    connection, context, handle, _ = established()
    record = call(DATA, 5, NONE, handle, b"", context.get_signature)
    first = connection.ask(record)
    context.verify_signature(struct.pack(">I", 5), first[1])
    again = connection.is_silent(record) and Connection().is_silent(record)
    high = connection.ask(call(DATA, 9000, NONE, handle, b"", context.get_signature))
    low = connection.is_silent(call(DATA, 9000 - 1024, NONE, handle, b"", context.get_signature))
    return first[2] == 0 and again and high[2] == 0 and low


def changed_headers():
    connection, context, handle, _ = established()
    record = call(DATA, 1, NONE, handle, b"", context.get_signature)
    for at in (3, 15, 35, 39, len(record) - 1):
        changed = record[:at] + bytes([record[at] ^ 1]) + record[at + 1 :]
        answer = connection.ask(changed)
        if answer[0] == "accepted" and answer[2] == 0:
            return False
    other = established()[1]
    return connection.ask(call(DATA, 2, NONE, handle, b"", other.get_signature)) == (
        "denied",
        CREDENTIAL_PROBLEM,
    )


def weaker_than_it_says():
    connection, context, handle, _ = established()
    signed = context.wrap(struct.pack(">I", 1), False).message
    answer = connection.ask(call(DATA, 1, PRIVACY, handle, opaque(signed), context.get_signature))
    body = struct.pack(">I", 2)
    bare = connection.ask(call(DATA, 2, INTEGRITY, handle, opaque(body) + opaque(b""), context.get_signature))
    other = context.wrap(struct.pack(">I", 77), True).message
    number = connection.ask(call(DATA, 3, PRIVACY, handle, opaque(other), context.get_signature))
    return [one[2] for one in (answer, bare, number)] == [GARBAGE_ARGS] * 3


def an_ended_context():
    connection, context, handle, _ = established()
    ended = connection.ask(call(DESTROY, 1, NONE, handle, b"", context.get_signature))
    after = connection.ask(call(DATA, 2, NONE, handle, b"", context.get_signature))
    return ended[2] == 0 and after == ("denied", CREDENTIAL_PROBLEM)


CHECKS = [
    a_ticket_counts_once,
    damaged_tickets,
    garbage,
    a_ticket_for_another_service,
    a_call_counts_once,
    changed_headers,
    weaker_than_it_says,
    an_ended_context,
]

for check in CHECKS:
    name = check.__name__.replace("_", " ")
    try:
        print("PASS" if check() else "FAIL", name)
    except Exception as error:  # each check is reported, whatever became of it
        print("FAIL", name, repr(error).replace("\n", " "))
