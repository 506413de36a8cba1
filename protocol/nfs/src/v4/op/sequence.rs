//! SEQUENCE (RFC 8881 §18.46): takes a slot, renews the lease.

use super::Immediate;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use crate::v4::tables::client::Client;
use crate::v4::tables::session::{Session, SlotVerdict};
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::op::Sequence;
use zgate_nfs_wire::v4::op::sequence::{
    Args, Res, STATUS_CB_PATH_DOWN, STATUS_CB_PATH_DOWN_SESSION, STATUS_RECALLABLE_STATE_REVOKED,
};

/// Bytes of a result: number of the operation, status, session, five words.
const RESULT_BYTES: usize = 4 + 4 + 16 + 5 * 4;

impl Immediate for Sequence {
    fn run(cx: &mut Cx<'_>, args: Args) -> Result<Res, Failure> {
        let session = cx.server.state.sessions.get(args.session).ok_or(Status::Badsession)?;
        let connection = cx.call.peer.connection;
        let bound = session.is_bound(connection);
        if !bound && !cx.server.state.is_bound_by_use(&session, cx.call) {
            return Err(Status::ConnNotBoundToSession.into());
        }
        check_limits(cx, &session, &args)?;
        let verdict = session.take(args.slot, args.sequence, args.cache_this, cx.request_digest)?;
        // SEQUENCE succeeds from here on, of a retry, too.
        if !bound {
            session.bind_fore(connection);
        }
        session.lease.renew(cx.now.seconds());
        match verdict {
            SlotVerdict::Replay(message) => {
                cx.replay = Some(message);
                return Err(Status::Ok.into());
            }
            SlotVerdict::RanBefore => cx.ran_before = true,
            SlotVerdict::Run(slot) => cx.slot = Some(slot),
        }
        cx.reply_room = session.fore.max_response_bytes as usize;
        Ok(Res {
            session: session.id,
            sequence: args.sequence,
            slot: args.slot,
            highest_slot: session.fore.slots - 1,
            target_highest_slot: session.fore.slots - 1,
            status_flags: status_flags(cx, &session),
        })
    }
}

/// Checks the request against the session's limits, before a slot is taken: an error of
/// SEQUENCE leaves the slot as it is (RFC 8881 §18.46.3).
fn check_limits(cx: &Cx<'_>, session: &Session, args: &Args) -> Result<(), Status> {
    let fore = &session.fore;
    if args.slot >= fore.slots {
        return Err(Status::Badslot);
    }
    if args.highest_slot >= fore.slots {
        return Err(Status::BadHighSlot);
    }
    if cx.request_bytes > fore.max_request_bytes as usize {
        return Err(Status::ReqTooBig);
    }
    if cx.op_count > fore.max_ops as usize {
        return Err(Status::TooManyOps);
    }
    let (limit, too_big) = cx.limit_of_channel(fore, args.cache_this);
    if limit < RESULT_BYTES { Err(too_big) } else { Ok(()) }
}

/// Flags for what the client must know. The tables, which all requests of all clients share,
/// are looked at only after a change, and while there is something to tell.
fn status_flags(cx: &Cx<'_>, session: &Session) -> u32 {
    let Some(news) = session.news() else { return 0 };
    let flags = flags_by_record(cx, session);
    if flags == 0 {
        session.note_nothing_told(news);
    }
    flags
}

fn flags_by_record(cx: &Cx<'_>, session: &Session) -> u32 {
    let state = &cx.server.state;
    let mut tables = state.lock();
    let Some(client) = tables.clients.get_mut(&session.client) else { return 0 };
    let has_lost = client.losses.tell(cx.now.seconds(), state.lease_seconds);
    let revoked = if has_lost { STATUS_RECALLABLE_STATE_REVOKED } else { 0 };
    revoked | back_channel_flags(cx, session, client)
}

/// Flags for a lost back channel, until the client has bound a connection to it
/// (RFC 8881 §18.46.3). A client that never asked for one gets none.
fn back_channel_flags(cx: &Cx<'_>, session: &Session, client: &Client) -> u32 {
    let is_reachable = |session: &Session| {
        session.back_paths().into_iter().any(|path| cx.server.runtime.connected(path))
    };
    if is_reachable(session) {
        return 0;
    }
    let own = if session.wants_back() { STATUS_CB_PATH_DOWN_SESSION } else { 0 };
    if client.sessions.iter().any(|other| is_reachable(other)) {
        return own;
    }
    // The session whose back channel there was may be destroyed.
    let wanted =
        client.sessions.iter().any(|other| other.wants_back()) || !client.delegations.is_empty();
    if wanted { own | STATUS_CB_PATH_DOWN } else { own }
}
