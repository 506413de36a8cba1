//! DESTROY_SESSION (RFC 8881 §18.37).

use super::Rule;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::op::DestroySession;
use zgate_nfs_wire::v4::op::destroy_session::Args;

impl Rule for DestroySession {
    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<(), Failure> {
        let state = &cx.server.state;
        // In a COMPOUND with its own SEQUENCE it must be the last operation, so
        // that the reply does not need the slot (RFC 8881 §18.37.3).
        let own = cx.slot.as_ref().is_some_and(|slot| slot.session.id == args.session);
        if own && cx.op_index + 1 != cx.op_count {
            return Err(Status::NotOnlyOp.into());
        }
        let session = state.sessions.get(args.session).ok_or(Status::Badsession)?;
        if !session.is_bound(cx.call.peer.connection) {
            return Err(Status::ConnNotBoundToSession.into());
        }
        if let Some(client) = state.lock().clients.get(&session.client) {
            client.check_machine(cx.call)?;
        }
        if session.busy_slots() > usize::from(own) {
            return Err(Status::Delay.into());
        }
        state.sessions.remove(args.session);
        state.back.forget_session(session.client, args.session);
        let mut tables = state.lock();
        if let Some(client) = tables.clients.get_mut(&session.client) {
            client.sessions.retain(|s| s.id != args.session);
            // Its back channel may have been the last one.
            client.lease.note_news();
        }
        Ok(())
    }
}
