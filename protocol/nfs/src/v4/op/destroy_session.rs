//! DESTROY_SESSION (RFC 8881 §18.37).

use super::{Failure, Operation};
use crate::v4::cx::Cx;
use crate::v4::wire::{OpNum, SessionId, Status};
use zgate_xdr::xdr_struct;

xdr_struct! {
    /// DESTROY_SESSION4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// dsa_sessionid.
        pub session: SessionId,
    }
}

/// The operation.
pub struct DestroySession;

impl Operation for DestroySession {
    const NUM: OpNum = OpNum::DestroySession;
    type Args = Args;
    type Res = ();

    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<(), Failure> {
        let state = &cx.server.state;
        // Behind its own SEQUENCE it must come last, so that the reply needs
        // no slot any more (RFC 8881 §18.37.3).
        let own = cx.slot.as_ref().is_some_and(|slot| slot.session.id == args.session);
        if own && cx.op_index + 1 != cx.op_count {
            return Err(Status::NotOnlyOp.into());
        }
        let session = state.sessions.get(args.session).ok_or(Status::Badsession)?;
        if !session.is_bound(cx.call.peer.connection) {
            return Err(Status::ConnNotBoundToSession.into());
        }
        if session.busy_slots() > usize::from(own) {
            return Err(Status::Delay.into());
        }
        state.sessions.remove(args.session);
        state.back.forget_session(session.client, args.session);
        let mut tables = state.lock();
        if let Some(client) = tables.clients.get_mut(&session.client) {
            client.sessions.retain(|s| s.id != args.session);
        }
        Ok(())
    }
}
