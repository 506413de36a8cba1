//! BIND_CONN_TO_SESSION (RFC 8881 §18.34).

use super::Rule;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::op::BindConnToSession;
use zgate_nfs_wire::v4::op::bind_conn_to_session::{Args, Direction, Res};

impl Rule for BindConnToSession {
    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<Res, Failure> {
        let session = cx.server.state.sessions.get(args.session).ok_or(Status::Badsession)?;
        // For other clients the session does not exist; the RFC defines no
        // error for them.
        let connection = cx.call.peer.connection;
        let (fore, back) = (session.is_bound(connection), session.is_bound_back(connection));
        if !fore && !cx.server.state.may_use(&session, cx.call) {
            return Err(Status::Badsession.into());
        }
        if let Some(client) = cx.server.state.lock().clients.get(&session.client) {
            client.check_machine(cx.call)?;
        }
        // A connection keeps the channels that it has (RFC 8881 §18.34.3).
        let takes_a_channel = match args.direction {
            Direction::Fore => back,
            Direction::Back => fore,
            Direction::ForeOrBoth | Direction::BackOrBoth => false,
        };
        if takes_a_channel {
            return Err(Status::Inval.into());
        }
        let direction = match (args.direction, session.may_have_back()) {
            (Direction::Fore, _) | (Direction::ForeOrBoth, false) => 1,
            (Direction::Back, true) => 2,
            (Direction::ForeOrBoth | Direction::BackOrBoth, true) => 3,
            // What it asks for at least cannot be.
            (Direction::Back | Direction::BackOrBoth, false) => return Err(Status::Inval.into()),
        };
        if direction & 1 != 0 {
            session.bind_fore(connection);
        }
        if direction & 2 != 0 {
            session.bind_back(connection);
            let state = &cx.server.state;
            let now = cx.now.seconds();
            state.resend_recalls(&state.lock(), session.client, now);
        }
        session.lease.renew(cx.now.seconds());
        Ok(Res { session: args.session, direction, rdma_mode: false })
    }
}
