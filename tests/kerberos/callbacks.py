"""An NFSv4.0 client whose callback service is MIT's own acceptor.

callbacks.py PORT KDC_PID: the gateway at 127.0.0.1, the process of the KDC. Prints a
line for each check; the environment names realm, tickets and the client's keys
(KRB5_CONFIG, KRB5CCNAME, CLIENT_KEYTAB).
"""

import os
import signal
import socket
import struct
import sys
import threading
import time

import gssapi

PORT, KDC = int(sys.argv[1]), int(sys.argv[2])
KEYTAB = os.environ["CLIENT_KEYTAB"]
NFS, CALLBACK, RPCSEC_GSS = 100003, 0x40000000, 6
DATA, INIT = 0, 1
NONE, INTEGRITY, PRIVACY = 1, 2, 3
SERVICES = {"krb5": NONE, "krb5i": INTEGRITY, "krb5p": PRIVACY}
CREDENTIAL_PROBLEM, BAD_CREDENTIAL = 13, 1
RECALL, DELAY = 4, 10008
WINDOW = 128
SERVER = "nfs/127.0.0.1@ZGATE.TEST"


def opaque(data):
    return struct.pack(">I", len(data)) + data + bytes(-len(data) % 4)


def taken(data):
    """An opaque, and what follows it."""
    length = struct.unpack(">I", data[:4])[0]
    return data[4 : 4 + length], data[4 + length + -length % 4 :]


def read(connection, length):
    data = b""
    while len(data) < length:
        part = connection.recv(length - len(data))
        if not part:
            raise ConnectionError("closed")
        data += part
    return data


def record_of(connection):
    return read(connection, struct.unpack(">I", read(connection, 4))[0] & 0x7FFFFFFF)


def send(connection, record):
    connection.sendall(struct.pack(">I", 0x80000000 | len(record)) + record)


def protect(context, service, sequence, body):
    data = struct.pack(">I", sequence) + body
    if service == INTEGRITY:
        return opaque(data) + opaque(context.get_signature(data))
    if service == PRIVACY:
        return opaque(context.wrap(data, True).message)
    return body


def opened(context, service, sequence, body):
    if service == NONE:
        return body
    data, rest = taken(body)
    if service == INTEGRITY:
        context.verify_signature(data, taken(rest)[0])
    else:
        unwrapped = context.unwrap(data)
        assert unwrapped.encrypted
        data = unwrapped.message
    assert struct.unpack(">I", data[:4])[0] == sequence
    return data[4:]


class Receiver:
    """The callback service of a client."""

    def __init__(self, principal):
        name = gssapi.Name(principal, gssapi.NameType.kerberos_principal)
        self.credential = gssapi.Credentials(name=name, usage="accept", store={"keytab": KEYTAB})
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.contexts, self.recalls, self.services = {}, [], set()
        self.begun = self.calls = 0
        # "good", "lost" (one context), "lost always", "change", "forge", "refuse"
        self.conduct = "good"
        self.errors = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            connection = self.listener.accept()[0]
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        try:
            while True:
                send(connection, self.answer(record_of(connection)))
        except ConnectionError:
            pass
        except Exception as error:  # reported by the check that waits for the call
            self.errors.append(repr(error))
        finally:
            connection.close()

    def answer(self, record):
        xid, _, _, program, version, procedure, flavor = struct.unpack(">7I", record[:28])
        assert (program, version) == (CALLBACK, 1)
        if flavor != RPCSEC_GSS:
            self.services.add("not protected")
            return struct.pack(">IIIII", xid, 1, 1, 1, BAD_CREDENTIAL)
        credential, rest = taken(record[28:])
        signed = record[: len(record) - len(rest)]
        gss_version, gss_procedure, sequence, service = struct.unpack(">4I", credential[:16])
        assert gss_version == 1
        handle = taken(credential[16:])[0]
        verifier, body = taken(rest[4:])
        if gss_procedure == INIT:
            assert procedure == 0 and handle == b""
            return self.begin(xid, taken(body)[0])
        assert gss_procedure == DATA
        if self.conduct == "lost":
            self.contexts.clear()
            self.conduct = "good"
        context = self.contexts.get(handle)
        if context is None or self.conduct == "lost always":
            return struct.pack(">IIIII", xid, 1, 1, 1, CREDENTIAL_PROBLEM)
        context.verify_signature(signed, verifier)
        arguments = opened(context, service, sequence, body)
        self.services.add(service)
        self.calls += 1
        results = self.compound(arguments) if procedure == 1 else b""
        sealed = bytearray(protect(context, service, sequence, results))
        proof = bytearray(context.get_signature(struct.pack(">I", sequence)))
        if self.conduct == "change" and sealed:
            sealed[len(sealed) // 2] ^= 1
        if self.conduct == "forge":
            proof[-1] ^= 1
        head = struct.pack(">IIII", xid, 1, 0, RPCSEC_GSS) + opaque(bytes(proof))
        return head + struct.pack(">I", 0) + bytes(sealed)

    def begin(self, xid, token):
        self.begun += 1
        head = struct.pack(">III", xid, 1, 0)
        if self.conduct == "refuse":
            return head + bytes(8) + struct.pack(">I", 0) + opaque(b"") + struct.pack(">III", 13 << 16, 0, 0) + opaque(b"")
        context = gssapi.SecurityContext(creds=self.credential, usage="accept")
        answer = context.step(token)
        assert context.complete
        # Who calls must be the server that the client has called.
        assert str(context.initiator_name) == SERVER, str(context.initiator_name)
        handle = struct.pack(">I", self.begun)
        self.contexts[handle] = context
        proof = context.get_signature(struct.pack(">I", WINDOW))
        head += struct.pack(">I", RPCSEC_GSS) + opaque(proof) + struct.pack(">I", 0)
        return head + opaque(handle) + struct.pack(">III", 0, 0, WINDOW) + opaque(answer)

    def compound(self, arguments):
        _, rest = taken(arguments)
        minor, _, count = struct.unpack(">3I", rest[:12])
        assert minor == 0
        if count == 0:
            return struct.pack(">I", 0) + opaque(b"") + struct.pack(">I", 0)
        operation = struct.unpack(">I", rest[12:16])[0]
        assert (count, operation) == (1, RECALL), (count, operation)
        self.recalls.append(rest[16:32])
        return struct.pack(">I", 0) + opaque(b"") + struct.pack(">III", 1, RECALL, 0)


class Client:
    """A client of NFSv4.0, as a principal of the keytab or with the ticket."""

    number = 0

    def __init__(self, principal=None, service=INTEGRITY, receiver=None):
        self.connection = socket.create_connection(("127.0.0.1", PORT), timeout=60)
        self.service, self.sequence, self.seqid = service, 0, 0
        target = gssapi.Name("nfs@127.0.0.1", gssapi.NameType.hostbased_service)
        flags = gssapi.IntEnumFlagSet(gssapi.RequirementFlag, [gssapi.RequirementFlag.mutual_authentication])
        credential = None
        if principal:
            name = gssapi.Name(principal, gssapi.NameType.kerberos_principal)
            Client.number += 1
            store = {"client_keytab": KEYTAB, "ccache": f"MEMORY:{Client.number}"}
            credential = gssapi.Credentials(name=name, usage="initiate", store=store)
        self.context = gssapi.SecurityContext(name=target, flags=flags, creds=credential, usage="initiate")
        self.handle = b""
        body = self.ask(INIT, 0, opaque(self.context.step()))
        self.handle, rest = taken(body)
        self.context.step(taken(rest[12:])[0])
        if receiver is not False:
            self.introduce(receiver)

    @classmethod
    def prepared(cls, principal):
        """A client with a context that is not known by SETCLIENTID yet."""
        return cls(principal, INTEGRITY, False)

    def introduce(self, receiver):
        Client.number += 1
        self.name = b"client %d of %d" % (Client.number, os.getpid())
        port = receiver.port if receiver else 9
        address = b"127.0.0.1.%d.%d" % (port >> 8, port & 255)
        arguments = struct.pack(">Q", Client.number) + opaque(self.name)
        arguments += struct.pack(">I", CALLBACK) + opaque(b"tcp") + opaque(address) + struct.pack(">I", 7)
        results = self.compound([(35, arguments)])[1][8:]
        self.id, confirm = results[:8], results[8:16]
        self.compound([(36, self.id + confirm)])

    def ask(self, procedure, number, body):
        credential = struct.pack(">4I", 1, procedure, self.sequence, self.service) + opaque(self.handle)
        head = struct.pack(">6I", 7, 0, 2, NFS, 4, number)
        head += struct.pack(">I", RPCSEC_GSS) + opaque(credential)
        verifier = bytes(8)
        if procedure == DATA:
            verifier = struct.pack(">I", RPCSEC_GSS) + opaque(self.context.get_signature(head))
            body = protect(self.context, self.service, self.sequence, body)
        send(self.connection, head + verifier + body)
        reply = record_of(self.connection)
        assert struct.unpack(">I", reply[8:12])[0] == 0, "denied"
        rest = taken(reply[16:])[1]
        assert struct.unpack(">I", rest[:4])[0] == 0, "not run"
        return rest[4:]

    def compound(self, operations, expected=(0,)):
        """(status, results) behind the number of operations."""
        self.sequence += 1
        body = opaque(b"") + struct.pack(">II", 0, len(operations))
        body += b"".join(struct.pack(">I", number) + arguments for number, arguments in operations)
        results = opened(self.context, self.service, self.sequence, self.ask(DATA, 1, body))
        status, rest = struct.unpack(">I", results[:4])[0], taken(results[4:])[1]
        assert status in expected, (status, expected)
        return status, rest[4:]

    def next_seqid(self):
        self.seqid += 1
        return struct.pack(">I", self.seqid)

    def open(self, file, access, expected=(0,)):
        """(status, handle of the file, stateid of the delegation or None)."""
        arguments = self.next_seqid() + struct.pack(">II", access, 0) + self.id + opaque(b"owner")
        # OPEN4_CREATE, UNCHECKED4, the mode 666 (attribute 33); CLAIM_NULL.
        arguments += struct.pack(">II", 1, 0) + struct.pack(">III", 2, 0, 2) + opaque(struct.pack(">I", 0o666))
        arguments += struct.pack(">I", 0) + opaque(file)
        path = [(24, b""), (15, opaque(b"export"))]
        status, rest = self.compound(path + [(18, arguments), (10, b"")], expected)
        if status != 0:
            return status, None, None
        # Behind PUTROOTFH, LOOKUP, and the heads of OPEN: stateid, change info, flags,
        # bitmap of attributes, delegation.
        rest = rest[8 + 8 + 8 :]
        stateid, flags, words = rest[:16], *struct.unpack(">II", rest[36:44])
        rest = rest[44 + 4 * words :]
        kind, rest = struct.unpack(">I", rest[:4])[0], rest[4:]
        delegation = rest[:16] if kind else None
        if kind:
            # Stateid, recall; of a write delegation the limit; an ACE without a name.
            rest = rest[16 + 4 + (12 if kind == 2 else 0) + 12 :]
            rest = taken(rest)[1]
        handle = taken(rest[8:])[0]
        if flags & 2:
            self.compound([(22, opaque(handle)), (20, stateid + self.next_seqid())])
        return status, handle, delegation

    def give_back(self, handle, delegation):
        self.compound([(22, opaque(handle)), (8, delegation)])


def within(seconds, condition):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def delegated(client, tag, seconds=15):
    """Opens until there is a delegation: the gateway probes the client meanwhile."""
    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        number += 1
        file = b"%s-%d-%d" % (tag, os.getpid(), number)
        _, handle, delegation = client.open(file, 3)
        if delegation:
            return file, handle, delegation
        time.sleep(0.3)
    return None


def recalled(client, receiver, file, handle, delegation):
    """Another client writes; the delegation is recalled, and given back."""
    before = len(receiver.recalls)
    other = Client()
    status = other.open(file, 2, (0, DELAY))[0]
    arrived = within(20, lambda: len(receiver.recalls) > before)
    client.give_back(handle, delegation)
    done = within(10, lambda: other.open(file, 2, (0, DELAY))[0] == 0)
    return status == DELAY and arrived and receiver.recalls[-1] == delegation and done


def each_service():
    for name, service in SERVICES.items():
        receiver = Receiver(CLIENT)
        client = Client(CLIENT, service, receiver)
        held = delegated(client, name.encode())
        if not held or not recalled(client, receiver, *held):
            return False
        # One context, whose service is that of SETCLIENTID.
        if receiver.services != {service} or receiver.begun != 1 or receiver.errors:
            raise AssertionError((name, receiver.services, receiver.begun, receiver.errors))
    return True


def a_lost_context():
    receiver = Receiver(CLIENT)
    client = Client(CLIENT, INTEGRITY, receiver)
    held = delegated(client, b"lost")
    receiver.conduct = "lost"
    return recalled(client, receiver, *held) and receiver.begun == 2


def a_context_that_is_always_lost():
    receiver = Receiver(CLIENT)
    receiver.conduct = "lost always"
    client = Client(CLIENT, INTEGRITY, receiver)
    return delegated(client, b"always", 4) is None and receiver.begun == 1 and not receiver.calls


def changed_and_forged_replies():
    for conduct in ("change", "forge"):
        for service in (INTEGRITY, PRIVACY):
            receiver = Receiver(CLIENT)
            receiver.conduct = conduct
            client = Client(CLIENT, service, receiver)
            if delegated(client, b"forged", 3) or not receiver.calls:
                return False
    return True


def another_principal_at_the_address():
    # The ticket is for the client; whoever is at its address has other keys.
    receiver = Receiver(OTHER)
    client = Client(CLIENT, INTEGRITY, receiver)
    return delegated(client, b"other", 4) is None and receiver.begun > 0 and not receiver.contexts


def a_client_that_refuses_tokens():
    receiver = Receiver(CLIENT)
    receiver.conduct = "refuse"
    client = Client(CLIENT, INTEGRITY, receiver)
    return delegated(client, b"refused", 3) is None and not receiver.calls


def a_silent_kdc():
    known = Receiver(CLIENT)
    client = Client(CLIENT, INTEGRITY, known)
    held = delegated(client, b"known")
    # Its context comes before the KDC stops, its ticket of the gateway is not there yet.
    receiver = Receiver(OTHER)
    late = Client.prepared(OTHER)
    other = Client()
    os.kill(KDC, signal.SIGSTOP)
    try:
        late.introduce(receiver)
        began = time.monotonic()
        # Its opens are answered all the time, beyond the gateway's wait for the KDC.
        nothing = delegated(late, b"silent", 12) is None and receiver.begun == 0
        quick = time.monotonic() - began < 15
        # Who has a context is called as ever.
        before = len(known.recalls)
        other.open(held[0], 2, (0, DELAY))
        answered = within(10, lambda: len(known.recalls) > before)
    finally:
        os.kill(KDC, signal.SIGCONT)
    client.give_back(held[1], held[2])
    again = Receiver(OTHER)
    return nothing and quick and answered and delegated(Client(OTHER, INTEGRITY, again), b"again", 60) is not None


CLIENT, OTHER = "nfs/client.zgate.test@ZGATE.TEST", "nfs/other.zgate.test@ZGATE.TEST"
CHECKS = [
    each_service,
    a_lost_context,
    a_context_that_is_always_lost,
    changed_and_forged_replies,
    another_principal_at_the_address,
    a_client_that_refuses_tokens,
    a_silent_kdc,
]

for check in CHECKS:
    name = "callbacks: " + check.__name__.replace("_", " ")
    try:
        print("PASS" if check() else "FAIL", name, flush=True)
    except Exception as error:  # each check is reported, whatever became of it
        print("FAIL", name, repr(error).replace("\n", " "), flush=True)
