"""Sends a server's callbacks, encoded by pynfs.

Run by `cargo xtask golden record` in the folder nfs4.1 of a built copy of pynfs, with the port of a
recording proxy, and the port behind it where this script receives what it sends.
"""
import sys
import threading

sys.path.insert(0, ".")
import use_local  # noqa: E402, F401  (the folder of pynfs is known only now)
import nfs4lib  # noqa: E402
import rpc.rpc as rpc  # noqa: E402
from xdrdef.nfs4_const import *  # noqa: E402, F403
from xdrdef.nfs4_type import *  # noqa: E402, F403

PROXY, PORT = int(sys.argv[1]), int(sys.argv[2])
PROGRAM = 0x40000000
WAIT_SECONDS = 30
SESSION = bytes(range(16))
FILE = bytes(range(100, 128))
STATEID = stateid4(3, b"delegation 1")


def op(name, *arguments):
    """An operation. pynfs's own function for this works for requests only."""
    kind = globals()[f"CB_{name}4args"]
    field = f"opcb{name.lower()}"
    return nfs_cb_argop4(globals()[f"OP_CB_{name}"], **{field: kind(*arguments)})


class Receiver(rpc.Server):
    """Accepts every call."""

    def __init__(self):
        super().__init__(PROGRAM, [1], PORT, "127.0.0.1")

    def handle_0(self, data, info):
        return rpc.SUCCESS, b""

    def handle_1(self, data, info):
        return rpc.SUCCESS, b""


class Sender(rpc.Client):
    """The callback channel of a server."""

    def __init__(self):
        super().__init__(PROGRAM, 1)
        self.pipe = self.connect((b"127.0.0.1", PROXY))
        self.credential = rpc.security.AuthSys().init_cred(uid=0, gid=0, name=b"pynfs")
        self.sequence = 0

    def call(self, procedure, arguments):
        xid = self.send_call(self.pipe, procedure, arguments, self.credential)
        self.pipe.listen(xid, WAIT_SECONDS)

    def compound(self, minor, operations):
        packer = nfs4lib.FancyNFS4Packer()
        packer.pack_CB_COMPOUND4args(CB_COMPOUND4args(b"callback", minor, 17, operations))
        self.call(1, packer.get_buffer())

    def in_session(self, minor, operation):
        """The first CB_SEQUENCE refers to a call that it may overtake."""
        referring = [referring_call_list4(SESSION, [referring_call4(5, 2)])]
        self.sequence += 1
        lists = referring if self.sequence == 1 else []
        taken = op("SEQUENCE", SESSION, self.sequence, 1, 3, True, lists)
        self.compound(minor, [taken, operation])


def every_minor():
    """Operations of all minor versions."""
    return [
        op("GETATTR", FILE, 1 << FATTR4_SIZE | 1 << FATTR4_CHANGE | 1 << FATTR4_TIME_MODIFY),
        op("RECALL", STATEID, True, FILE),
    ]


def sessions_only():
    """Operations of minor version 1."""
    owner = lock_owner4(0x0123456789ABCDEF, b"waits for a lock")
    return [
        op("RECALL_ANY", 12, 1 << RCA4_TYPE_MASK_RDATA_DLG),
        op("NOTIFY_LOCK", FILE, owner),
    ]


def offloads():
    """CB_OFFLOAD of a copy that was made and of one that failed."""
    written = write_response4([], 1 << 33, FILE_SYNC4, b"verifier")
    return [
        op("OFFLOAD", FILE, STATEID, offload_info4(NFS4_OK, written)),
        op("OFFLOAD", FILE, STATEID, offload_info4(NFS4ERR_NOSPC, coa_bytes_copied=4096)),
    ]


receiver = Receiver()
threading.Thread(target=receiver.start, daemon=True).start()
sender = Sender()
sender.call(0, b"")
for operation in every_minor():
    sender.compound(0, [operation])
for operation in every_minor() + sessions_only():
    sender.in_session(1, operation)
for operation in every_minor() + sessions_only() + offloads():
    sender.in_session(2, operation)
