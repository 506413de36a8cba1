//! Unregistering from a server, so that it need not keep unused state for a
//! lease.

use crate::background::give_back::{CallPath, give_back};
use crate::channel::Link;
use crate::compound::Ops;
use crate::error::ClientError;
use crate::session::{Session, SessionRequest, alone};
use crate::state::returns::Holding;
use crate::transport::Connection;
use futures_util::future::join_all;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use zgate_nfs_wire::v4::op::{destroy_clientid, destroy_session};
use zgate_nfs_wire::v4::{OpNum, Status};

/// Time limit of unregistering; the server drops the state later by itself.
const LEAVE_PATIENCE: Duration = Duration::from_secs(2);
/// Pause while the server still runs an abandoned request.
const PAUSE: Duration = Duration::from_millis(20);

/// Returns held state, and destroys the session and the client (RFC 8881
/// §18.37, §18.50), over existing connections only.
pub(crate) async fn leave(
    links: &[Arc<Link>],
    session: &Session,
    request: &SessionRequest,
    held: &[Arc<Holding>],
) {
    let left = async {
        for link in links {
            let Some(connection) = link.existing().await else { continue };
            // Otherwise a writer would wait for a lease.
            let path = CallPath::Once(session, &connection);
            let given = join_all(held.iter().map(|holding| give_back(&path, holding))).await;
            if let Some(error) = given.into_iter().find_map(Result::err) {
                tracing::debug!(%error, "cannot return state to the server");
            }
            match destroy(&connection, session, request).await {
                Ok(()) => return,
                Err(error) => tracing::debug!(%error, "cannot unregister over this connection"),
            }
        }
    };
    if tokio::time::timeout(LEAVE_PATIENCE, left).await.is_err() {
        tracing::debug!("the server did not confirm that the client unregistered");
    }
}

async fn destroy(
    connection: &Connection,
    session: &Session,
    request: &SessionRequest,
) -> Result<(), ClientError> {
    let until = Instant::now() + LEAVE_PATIENCE;
    let args = destroy_session::Args { session: session.id() };
    let credential = &request.credential.to_opaque();
    let one = |number, ops| async move {
        alone(connection, credential, request.minor, ops).await?.skip(number)
    };
    loop {
        let ops = Ops::new().op(OpNum::DestroySession, &args);
        match one(OpNum::DestroySession, ops).await {
            Err(error) if error.status() == Some(Status::Delay) && Instant::now() < until => {
                tokio::time::sleep(PAUSE).await;
            }
            // The session is unknown to the server: the same result.
            Err(error) if error.status() == Some(Status::Badsession) => break,
            result => break result?,
        }
    }
    let args = destroy_clientid::Args { clientid: session.clientid };
    one(OpNum::DestroyClientid, Ops::new().op(OpNum::DestroyClientid, &args)).await
}
