//! Leaving a server: it need not keep for a lease what nobody comes back for.

use crate::compound::Ops;
use crate::errand::{Holding, Way, give_back};
use crate::error::ClientError;
use crate::link::Link;
use crate::session::{Session, SessionRequest, alone};
use crate::transport::Connection;
use futures_util::future::join_all;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use zgate_nfs::v4::op::{destroy_clientid, destroy_session};
use zgate_nfs::v4::wire::{OpNum, Status};

/// How long leaving may take; the server forgets by itself later.
const LEAVE_PATIENCE: Duration = Duration::from_secs(2);
/// Pause while the server is busy with a request that was given up.
const PAUSE: Duration = Duration::from_millis(20);

/// Gives back what is held, and destroys the session and the client (RFC 8881
/// §18.37, §18.50), as far as connections that are up allow it: none is made for
/// that.
pub(crate) async fn leave(
    links: &[Arc<Link>],
    session: &Session,
    request: &SessionRequest,
    held: &[Arc<Holding>],
) {
    let left = async {
        for link in links {
            let Some(connection) = link.existing().await else { continue };
            // Somebody who wants to write would wait for a lease otherwise.
            let way = Way::Once(session, &connection);
            let given = join_all(held.iter().map(|holding| give_back(&way, holding))).await;
            if let Some(error) = given.into_iter().find_map(Result::err) {
                tracing::debug!(%error, "not given back");
            }
            match destroy(&connection, session, request).await {
                Ok(()) => return,
                Err(error) => tracing::debug!(%error, "not left over this connection"),
            }
        }
    };
    if tokio::time::timeout(LEAVE_PATIENCE, left).await.is_err() {
        tracing::debug!("the server does not say that the client has left");
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
            // It knows no such session: the same.
            Err(error) if error.status() == Some(Status::Badsession) => break,
            result => break result?,
        }
    }
    let args = destroy_clientid::Args { clientid: session.clientid };
    one(OpNum::DestroyClientid, Ops::new().op(OpNum::DestroyClientid, &args)).await
}
