"""Sends what kernel clients seldom or never send, encoded by pynfs.

Run by `cargo xtask golden record` in the folder nfs4.1 of a built copy of pynfs, with the
address and port of a recording proxy before a gateway that exports /export.
"""
import sys
import threading

sys.path.insert(0, ".")
import nfs4client  # noqa: E402  (the folder of pynfs is known only now)
import nfs_ops  # noqa: E402
import rpc.rpc as rpc  # noqa: E402
from nfs4commoncode import cb_encode_status_by_name  # noqa: E402
from xdrdef.mnt3_const import *  # noqa: E402, F403
from xdrdef.mnt3_pack import MNT3Packer, MNT3Unpacker  # noqa: E402
from xdrdef.nfs3_const import *  # noqa: E402, F403
from xdrdef.nfs3_pack import NFS3Packer, NFS3Unpacker  # noqa: E402
from xdrdef.nfs3_type import (  # noqa: E402
    LOOKUP3args,
    READDIR3args,
    READLINK3args,
    diropargs3,
    nfs_fh3,
)
from xdrdef.nfs4_const import *  # noqa: E402, F403
from xdrdef.nfs4_type import *  # noqa: E402, F403

op = nfs_ops.NFS4ops()
op3 = nfs_ops.NFS3ops()
HOST, PORT = sys.argv[1].encode(), int(sys.argv[2])
CREDENTIAL = rpc.security.AuthSys().init_cred(uid=0, gid=0, name=b"pynfs")
ROOT_STATEID = stateid4(0, b"\0" * 12)
ATTRIBUTES = {FATTR4_MODE: 0o644}
# Longer than any answer or callback takes here.
WAIT_SECONDS = 30
# Shorter copies end before COPY is answered.
COPY_BYTES = 128 << 20


def require(result, *statuses):
    """Checks the status of a COMPOUND."""
    if result.status not in (statuses or (NFS4_OK,)):
        raise SystemExit(f"answered {nfsstat4[result.status]}: {result}")
    return result


class Client(nfs4client.NFS4Client):
    """A client whose callbacks can be waited for."""

    def __init__(self, minor):
        super().__init__(HOST, PORT, minor)
        self.set_cred(CREDENTIAL)
        self.called = {}

    def session_of(self, name):
        record = self.new_client(name, cred=CREDENTIAL)
        session = record.create_session()
        require(session.compound([op.reclaim_complete(False)]))
        return session

    def await_callback(self, name, session):
        """Waits until a callback is answered. The call that follows ensures that the answer
        is on the wire: both are sent in order."""
        if not self.called.setdefault(name, threading.Event()).wait(WAIT_SECONDS):
            raise SystemExit(f"no {name} within {WAIT_SECONDS} s")
        require(session.compound([op.putrootfh()]))

    def answer(self, name, env, status=NFS4_OK, body=()):
        # pynfs calls this when the reply is in the queue of the connection.
        env.notify = self.called.setdefault(name, threading.Event()).set
        return cb_encode_status_by_name(name, status, *body)

    def op_cb_recall(self, arg, env):
        return self.answer("cb_recall", env)

    def op_cb_getattr(self, arg, env):
        attributes = {FATTR4_CHANGE: 7, FATTR4_SIZE: 4711}
        return self.answer("cb_getattr", env, body=(CB_GETATTR4resok(attributes),))

    def op_cb_notify_lock(self, arg, env):
        return self.answer("cb_notify_lock", env)

    def op_cb_offload(self, arg, env):
        return self.answer("cb_offload", env)


def create(name, clientid=0, seqid=0, access=OPEN4_SHARE_ACCESS_BOTH):
    """OPEN of a file of the export, which is created if there is none."""
    how = openflag4(OPEN4_CREATE, createhow4(UNCHECKED4, ATTRIBUTES))
    opening = op.open(
        seqid,
        access,
        OPEN4_SHARE_DENY_NONE,
        open_owner4(clientid, b"owner"),
        how,
        open_claim4(CLAIM_NULL, name),
    )
    return [op.putrootfh(), op.lookup(b"export"), opening, op.getfh()]


def every_minor(ask, fh, stateid, seqid, clientid):
    """Operations of all minor versions. Many of them take nothing but a file handle."""
    owner = lock_owner4(clientid, b"other owner")
    wrong = {FATTR4_SIZE: 1 << 40}
    mode = OPEN4_SHARE_ACCESS_READ
    link = createtype4(NF4LNK, linkdata=b"target")
    require(ask([op.putfh(fh), op.lockt(READ_LT, 0, 100, owner)]))
    require(ask([op.putfh(fh), op.open_downgrade(stateid, seqid, mode, OPEN4_SHARE_DENY_NONE)]))
    export = [op.putrootfh(), op.lookup(b"export")]
    require(ask(export + [op.lookupp(), op.getfh()]))
    require(ask(export + [op.create(link, b"link", {})]), NFS4_OK, NFS4ERR_EXIST)
    require(ask(export + [op.lookup(b"link"), op.readlink()]))
    require(ask(export + [op.secinfo(b"link")]))
    require(ask([op.putfh(fh), op.verify(wrong)]), NFS4ERR_NOT_SAME)
    require(ask([op.putfh(fh), op.nverify(wrong), op.getattr(1 << FATTR4_SIZE)]))
    require(ask([op.putfh(fh), op.openattr(False)]), NFS4_OK, NFS4ERR_NOTSUPP, NFS4ERR_NOENT)
    require(ask([op.putpubfh(), op.getfh()]))
    require(ask([op.delegpurge(clientid)]), NFS4_OK, NFS4ERR_NOTSUPP)


def minor_zero():
    client = Client(0)

    def ask(operations):
        return client.compound(operations)

    callback = cb_client4(0x40000000, netaddr4(b"tcp", b"127.0.0.1.0.9"))
    identity = nfs_client_id4(client.verifier, b"pynfs, minor version 0")
    result = require(ask([op.setclientid(identity, callback, 1)]))
    known = result.resarray[0].switch.switch
    require(ask([op.setclientid_confirm(known.clientid, known.setclientid_confirm)]))
    opened = require(ask(create(b"v40", known.clientid, 1, OPEN4_SHARE_ACCESS_READ)))
    fh, stateid = opened.resarray[-1].object, opened.resarray[-2].stateid
    require(ask([op.putfh(fh), op.open_confirm(stateid, 2)]))
    opened = require(ask(create(b"v40", known.clientid, 3)))
    every_minor(ask, fh, opened.resarray[-2].stateid, 4, known.clientid)


def sessions(minor):
    """Operations of minor version 1 and 2."""
    client = Client(minor)
    session = client.session_of(b"pynfs, minor version %d" % minor)
    name = b"v4%d" % minor
    require(session.compound(create(name, access=OPEN4_SHARE_ACCESS_READ)))
    opened = require(session.compound(create(name)))
    fh, stateid = opened.resarray[-1].object, opened.resarray[-2].stateid
    every_minor(session.compound, fh, stateid, 0, 0)
    stateid = require(session.compound(create(name))).resarray[-2].stateid
    bind = op.bind_conn_to_session(session.sessionid, CDFC4_FORE, False)
    require(client.compound([bind], pipe=client.connect(client.server_address)))
    security = [callback_sec_parms4(AUTH_NONE)]
    require(session.compound([op.backchannel_ctl(client.prog, security)]))
    require(session.compound([op.test_stateid([stateid, ROOT_STATEID])]))
    layout = op.layoutget(
        False, LAYOUT4_NFSV4_1_FILES, LAYOUTIOMODE4_RW, 4096, 1 << 20, 8192, stateid, 1000
    )
    require(session.compound([op.putfh(fh), layout]), NFS4ERR_LAYOUTUNAVAILABLE)
    return session, fh, stateid


def minor_one():
    sessions(1)


def minor_two():
    session, fh, stateid = sessions(2)
    refused = (NFS4ERR_NOTSUPP, NFS4ERR_BAD_STATEID, NFS4ERR_NXIO)
    server = netloc4(NL4_NAME, nl_name=b"other.example.org")
    pattern = app_data_block4(0, 512, 8, 0, 1, 8, b"pattern")
    hints = 1 << IO_ADVISE4_SEQUENTIAL | 1 << IO_ADVISE4_WILLNEED
    for operation in [
        op.seek(stateid, 0, NFS4_CONTENT_HOLE),
        op.io_advise(stateid, 0, 4096, hints),
        # pynfs has another name for the field, so its function for the operation fails.
        nfs_argop4(OP_COPY_NOTIFY, opoffload_notify=COPY_NOTIFY4args(stateid, server)),
        op.write_same(stateid, FILE_SYNC4, pattern),
    ]:
        require(session.compound([op.putfh(fh), operation]), NFS4_OK, *refused)


def delegate(name):
    """Two clients. The first has a write delegation of the file."""
    holder, other = Client(2), Client(2)
    mine, theirs = holder.session_of(b"pynfs, holder"), other.session_of(b"pynfs, other")
    wanted = OPEN4_SHARE_ACCESS_BOTH | OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG
    opened = require(mine.compound(create(name, access=wanted)))
    fh, opening = opened.resarray[-1].object, opened.resarray[-2]
    if opening.delegation.delegation_type != OPEN_DELEGATE_WRITE:
        raise SystemExit("no write delegation")
    return holder, mine, theirs, fh, opening


def recall():
    """CB_RECALL: another client opens the file."""
    holder, mine, theirs, fh, opening = delegate(b"delegated")
    theirs.compound(create(b"delegated"), handle_state_errors=False)
    holder.await_callback("cb_recall", mine)
    require(mine.compound([op.putfh(fh), op.delegreturn(opening.delegation.write.stateid)]))
    return holder, mine, theirs, fh, opening.stateid


def callbacks():
    """Replies to the callbacks of a session."""
    holder, mine, theirs, fh, opening = delegate(b"asked for")
    size = op.getattr(1 << FATTR4_SIZE | 1 << FATTR4_CHANGE)
    require(theirs.compound([op.putfh(fh), size]), NFS4_OK, NFS4ERR_DELAY)
    holder.await_callback("cb_getattr", mine)
    holder, mine, theirs, fh, stateid = recall()
    locks(holder, mine, theirs, fh, stateid)
    copy(holder, mine)


def locks(holder, mine, theirs, fh, stateid):
    """CB_NOTIFY_LOCK: the other client has the lock, the holder asks for it, and it is freed."""

    def lock(stateid):
        first = open_to_lock_owner4(0, stateid, 0, lock_owner4(0, b"locker"))
        return [op.putfh(fh), op.lock(WRITEW_LT, False, 0, 100, locker4(True, first))]

    opened = require(theirs.compound(create(b"delegated")))
    held = require(theirs.compound(lock(opened.resarray[-2].stateid))).resarray[-1].lock_stateid
    require(mine.compound(lock(stateid)), NFS4ERR_DENIED)
    require(theirs.compound([op.putfh(fh), op.locku(WRITE_LT, 0, held, 0, 100)]))
    holder.await_callback("cb_notify_lock", mine)


def copy(holder, mine):
    """CB_OFFLOAD: a copy that goes on behind its reply."""
    files = []
    for name in [b"source", b"destination"]:
        opened = require(mine.compound(create(name)))
        files.append((opened.resarray[-1].object, opened.resarray[-2].stateid))
    (source, source_stateid), (target, target_stateid) = files
    size = {FATTR4_SIZE: COPY_BYTES}
    require(mine.compound([op.putfh(source), op.setattr(source_stateid, size)]))
    copying = op.copy(source_stateid, target_stateid, 0, 0, COPY_BYTES, True, False, [])
    files = [op.putfh(source), op.savefh(), op.putfh(target)]
    answer = require(mine.compound([*files, copying])).resarray[-1]
    going_on = answer.cr_resok4.cr_response.wr_callback_id[0]
    require(mine.compound([op.putfh(target), op.offload_status(going_on)]))
    holder.await_callback("cb_offload", mine)
    ended = require(mine.compound([*files, copying])).resarray[-1]
    again = ended.cr_resok4.cr_response.wr_callback_id[0]
    require(mine.compound([op.putfh(target), op.offload_cancel(again)]))


class Program3(rpc.Client):
    """NFSv3 or MOUNT without a port mapper."""

    def __init__(self, program):
        super().__init__(program, 3)
        self.pipe = self.connect((HOST, PORT))

    def ask(self, procedure, arguments=b"", unpacker=None):
        """The procedure's result, by the name of its type."""
        xid = self.send_call(self.pipe, procedure, arguments, CREDENTIAL)
        _, data = self.pipe.listen(xid, WAIT_SECONDS)
        if unpacker is None:
            return None
        return getattr(Unpacker3(data), f"unpack_{unpacker}")()


class Unpacker3(NFS3Unpacker, MNT3Unpacker):
    """Results of both programs."""


def packed(packer, kind, value):
    """Arguments as pynfs encodes them."""
    getattr(packer, f"pack_{kind}")(value)
    return packer.get_buffer()


def version_three():
    """NFSv3 and MOUNT."""
    mount, nfs = Program3(MOUNT_PROGRAM), Program3(NFS_PROGRAM)
    path = packed(MNT3Packer(), "dirpath", b"/export")
    mounted = mount.ask(MOUNTPROC3_MNT, path, "mountres3")
    root = nfs_fh3(mounted.mountinfo.fhandle)
    name = LOOKUP3args(diropargs3(root, b"link"))
    found = nfs.ask(NFSPROC3_LOOKUP, packed(NFS3Packer(), "LOOKUP3args", name), "LOOKUP3res")
    link = READLINK3args(found.resok.object)
    nfs.ask(NFSPROC3_READLINK, packed(NFS3Packer(), "READLINK3args", link), "READLINK3res")
    names = READDIR3args(root, 0, b"\0" * 8, 4096)
    nfs.ask(NFSPROC3_READDIR, packed(NFS3Packer(), "READDIR3args", names), "READDIR3res")
    mount.ask(MOUNTPROC3_DUMP)
    mount.ask(MOUNTPROC3_EXPORT)
    mount.ask(MOUNTPROC3_UMNT, path)
    mount.ask(MOUNTPROC3_UMNTALL)


for part in [minor_zero, minor_one, minor_two, callbacks, version_three]:
    part()
