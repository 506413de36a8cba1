//! SEQUENCE (RFC 8881 §18.46): takes a slot, renews the lease.

use super::Rule;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use crate::v4::tables::session::{Session, SlotVerdict};
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::op::Sequence;
use zgate_nfs_wire::v4::op::sequence::{
    Args, Res, STATUS_CB_PATH_DOWN, STATUS_RECALLABLE_STATE_REVOKED,
};

impl Rule for Sequence {
    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<Res, Failure> {
        let session = cx.server.state.sessions.get(args.session).ok_or(Status::Badsession)?;
        let connection = cx.call.peer.connection;
        let bound = session.is_bound(connection);
        if !bound && !cx.server.state.may_use(&session, cx.call) {
            return Err(Status::ConnNotBoundToSession.into());
        }
        if args.slot >= session.fore.slots {
            return Err(Status::Badslot.into());
        }
        if args.highest_slot >= session.fore.slots {
            return Err(Status::BadHighSlot.into());
        }
        if cx.request_bytes > session.fore.max_request_bytes as usize {
            return Err(Status::ReqTooBig.into());
        }
        if cx.op_count > session.fore.max_ops as usize {
            return Err(Status::TooManyOps.into());
        }
        match session.take(args.slot, args.sequence, args.cache_this, cx.request_digest)? {
            SlotVerdict::Replay(message) => {
                cx.replay = Some(message);
                return Err(Status::Ok.into());
            }
            SlotVerdict::Run(slot) => cx.slot = Some(slot),
        }
        if !bound {
            session.bind_fore(connection);
        }
        session.lease.renew(cx.now.seconds());
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

fn status_flags(cx: &Cx<'_>, session: &Session) -> u32 {
    let mut flags = 0;
    let state = &cx.server.state;
    if session.lease.wants_attention() {
        let tables = state.lock();
        if let Some(client) = tables.clients.get(&session.client) {
            if !client.revoked.is_empty() {
                flags |= STATUS_RECALLABLE_STATE_REVOKED;
            }
            let reachable = client
                .sessions
                .iter()
                .flat_map(|s| s.back_paths())
                .any(|connection| cx.server.runtime.connected(connection));
            if !reachable && !client.delegations.is_empty() {
                flags |= STATUS_CB_PATH_DOWN;
            }
        }
    }
    flags
}
