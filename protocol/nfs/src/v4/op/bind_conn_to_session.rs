//! BIND_CONN_TO_SESSION (RFC 8881 §18.34).

use super::{Failure, Operation};
use crate::v4::cx::Cx;
use crate::v4::wire::{OpNum, SessionId, Status};
use zgate_xdr::{xdr_enum, xdr_struct};

xdr_enum! {
    /// channel_dir_from_client4.
    pub enum Direction {
        /// CDFC4_FORE.
        Fore = 1,
        /// CDFC4_BACK.
        Back = 2,
        /// CDFC4_FORE_OR_BOTH.
        ForeOrBoth = 3,
        /// CDFC4_BACK_OR_BOTH.
        BackOrBoth = 7,
    }
}

xdr_struct! {
    /// BIND_CONN_TO_SESSION4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// bctsa_sessid.
        pub session: SessionId,
        /// bctsa_dir.
        pub direction: Direction,
        /// bctsa_use_conn_in_rdma_mode.
        pub rdma_mode: bool,
    }
}

xdr_struct! {
    /// BIND_CONN_TO_SESSION4resok; directions are CDFS4_FORE 1, BACK 2, BOTH 3.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Res {
        /// bctsr_sessid.
        pub session: SessionId,
        /// bctsr_dir.
        pub direction: u32,
        /// bctsr_use_conn_in_rdma_mode.
        pub rdma_mode: bool,
    }
}

/// The operation.
pub struct BindConnToSession;

impl Operation for BindConnToSession {
    const NUM: OpNum = OpNum::BindConnToSession;
    type Args = Args;
    type Res = Res;

    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<Res, Failure> {
        let session = cx.server.state.sessions.get(args.session).ok_or(Status::Badsession)?;
        // To others the session does not exist; the RFC has no error for them.
        let connection = cx.call.peer.connection;
        if !session.is_bound(connection) && !cx.server.state.may_use(&session, cx.call) {
            return Err(Status::Badsession.into());
        }
        let direction = match args.direction {
            Direction::Fore => 1,
            Direction::Back => 2,
            Direction::ForeOrBoth | Direction::BackOrBoth => 3,
        };
        if direction & 1 != 0 {
            session.bind_fore(connection);
        }
        if direction & 2 != 0 {
            session.bind_back(connection);
            let state = &cx.server.state;
            let now = cx.now.seconds();
            state.resend_recalls(cx.server, &state.lock(), session.client, now);
        }
        session.lease.renew(cx.now.seconds());
        Ok(Res { session: args.session, direction, rdma_mode: false })
    }
}
