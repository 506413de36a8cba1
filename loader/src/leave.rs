//! Unregistering from a server, so that it need not keep state that nobody
//! uses: a server may keep an open file of a vanished client for a day.
//!
//! The client closes its files and destroys its session and itself over a
//! connection that it has. If that is impossible (the connection is lost or
//! silent, or the server knows more of the client than the client itself, such
//! as a file whose OPEN was abandoned), it registers once more as a client that
//! has restarted: the server must discard everything of the one before
//! (RFC 8881 §18.35.4), and the new one has nothing to close.

use crate::background::give_back::{CallPath, give_back};
use crate::backoff::Backoff;
use crate::channel::{Channel, Link, Start};
use crate::compound::Ops;
use crate::error::ClientError;
use crate::session::{Session, SessionRequest, alone};
use crate::state::returns::HeldState;
use crate::transport::Connection;
use futures_util::future::join_all;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use zgate_nfs_wire::v4::op::{create_session, destroy_clientid, destroy_session};
use zgate_nfs_wire::v4::{ClientId, OpNum, SessionId, Status};

/// Time limit of unregistering, whether the server answers or not.
pub const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);
/// Part of it for the connections that exist; the rest is for a fresh one.
const EXISTING_TIMEOUT: Duration = Duration::from_secs(1);
/// Part of it for one of these connections, and for a recovery to end.
const CONNECTION_TIMEOUT: Duration = Duration::from_millis(500);
/// Time for which the server may be busy with an abandoned request before the
/// client replaces itself instead.
const BUSY_TIMEOUT: Duration = Duration::from_millis(250);
const _: () = assert!(
    BUSY_TIMEOUT.as_millis() < CONNECTION_TIMEOUT.as_millis()
        && CONNECTION_TIMEOUT.as_millis() < EXISTING_TIMEOUT.as_millis()
        && EXISTING_TIMEOUT.as_millis() < LEAVE_TIMEOUT.as_millis()
);

/// Clients of this process that are unregistering.
static LEAVING: LazyLock<TaskTracker> = LazyLock::new(|| {
    let leaving = TaskTracker::new();
    // Waiting ends when there are none, though more may come.
    leaving.close();
    leaving
});

/// Waits until all clients that were closed or dropped before have
/// unregistered, at most for [`LEAVE_TIMEOUT`]. A program calls this before it
/// ends.
pub async fn all_left() {
    // A child created by fork has its parent's count, but not its tasks.
    let _ = tokio::time::timeout(LEAVE_TIMEOUT, LEAVING.wait()).await;
}

/// Unregisters a client in the background: on the caller's runtime, or on
/// `home`, the one it was made on.
pub(crate) fn in_background(
    home: &Handle,
    leaving: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    let runtime = Handle::try_current().unwrap_or_else(|_| home.clone());
    let bounded = async {
        if tokio::time::timeout(LEAVE_TIMEOUT, leaving).await.is_err() {
            tracing::debug!("the server did not confirm that the client unregistered");
        }
    };
    runtime.spawn(LEAVING.track_future(bounded))
}

/// Returns held state, and destroys the session and the client.
pub(crate) async fn leave(channel: &Channel, held: &[Arc<HeldState>]) {
    let begun = Instant::now();
    // A recovery may register the client again.
    let recovering = channel.may_be_recovering(begun + CONNECTION_TIMEOUT).await;
    let (session, request) = (channel.session(), channel.request());
    let existing = async {
        for link in channel.links() {
            let Some(connection) = link.existing() else { continue };
            let over = async {
                if recovering || orderly(&connection, &session, request, held).await.is_err() {
                    return replace(&connection, request).await;
                }
                Ok(())
            };
            match tokio::time::timeout(CONNECTION_TIMEOUT, over).await {
                Ok(Ok(())) => return true,
                Ok(Err(error)) => tracing::debug!(%error, "cannot unregister over a connection"),
                Err(_) => tracing::debug!("no answer over a connection while unregistering"),
            }
        }
        false
    };
    if !tokio::time::timeout_at(begun + EXISTING_TIMEOUT, existing).await.unwrap_or(false) {
        freshly(channel.links().first(), request).await;
    }
}

/// Removes what a start that failed, or was abandoned, has left on servers.
pub(crate) async fn abandon(start: &Start) {
    for link in start.introduced() {
        let over = async {
            match link.existing() {
                Some(connection) => replace(&connection, start.request()).await.is_ok(),
                None => false,
            }
        };
        if !tokio::time::timeout(EXISTING_TIMEOUT, over).await.unwrap_or(false) {
            freshly(Some(&link), start.request()).await;
        }
    }
}

/// Unregisters over a new connection. It belongs to no session, so the client
/// replaces itself.
async fn freshly(link: Option<&Arc<Link>>, request: &SessionRequest) {
    let Some(link) = link else { return };
    let left = async {
        let connection = link.fresh().await?;
        replace(&connection, request).await
    };
    if let Err(error) = left.await {
        tracing::debug!(%error, "cannot unregister from the server");
    }
}

/// Returns state, and destroys session and client (RFC 8881 §18.37, §18.50).
async fn orderly(
    connection: &Connection,
    session: &Session,
    request: &SessionRequest,
    held: &[Arc<HeldState>],
) -> Result<(), ClientError> {
    let path = CallPath::Once(session, connection);
    let given = join_all(held.iter().map(|state| give_back(&path, state))).await;
    if let Some(error) = given.into_iter().find_map(Result::err) {
        tracing::debug!(%error, "cannot return state to the server");
    }
    destroy_session(connection, request, session.id()).await?;
    destroy_client(connection, request, session.clientid).await
}

/// Registers as the same client after a restart, which discards all state of
/// the one before, and destroys that client.
async fn replace(connection: &Connection, request: &SessionRequest) -> Result<(), ClientError> {
    let request =
        &SessionRequest { verifier: request.verifier.map(|byte| !byte), ..request.clone() };
    let mut backoff = Backoff::new(LEAVE_TIMEOUT);
    let known = loop {
        match request.introduce(connection).await {
            Err(error) if error.asks_for_patience() => backoff.next(error).await?,
            result => break result?,
        }
    };
    let args = request.create_session(&known, false);
    let created = loop {
        match create(connection, request, &args).await {
            Err(error) if error.asks_for_patience() => backoff.next(error).await?,
            result => break result,
        }
    };
    match created {
        Ok(session) => destroy_session(connection, request, session).await?,
        Err(error) => tracing::debug!(%error, "cannot create a session to unregister"),
    }
    destroy_client(connection, request, known.clientid).await
}

async fn create(
    connection: &Connection,
    request: &SessionRequest,
    args: &create_session::Args,
) -> Result<SessionId, ClientError> {
    let ops = Ops::new().op(OpNum::CreateSession, args);
    let credential = request.credential.to_opaque();
    let mut results = alone(connection, &credential, request.minor, ops).await?;
    results.next::<create_session::Res>(OpNum::CreateSession).map(|made| made.session)
}

async fn destroy_session(
    connection: &Connection,
    request: &SessionRequest,
    session: SessionId,
) -> Result<(), ClientError> {
    let args = destroy_session::Args { session };
    let mut backoff = Backoff::new(BUSY_TIMEOUT);
    loop {
        match one(connection, request, OpNum::DestroySession, &args).await {
            // It still runs an abandoned request.
            Err(error) if error.asks_for_patience() => backoff.next(error).await?,
            // The session is unknown to the server: the same result.
            Err(error) if error.status() == Some(Status::Badsession) => return Ok(()),
            result => return result,
        }
    }
}

async fn destroy_client(
    connection: &Connection,
    request: &SessionRequest,
    clientid: ClientId,
) -> Result<(), ClientError> {
    let args = destroy_clientid::Args { clientid };
    one(connection, request, OpNum::DestroyClientid, &args).await
}

/// Sends one operation that needs no session.
async fn one(
    connection: &Connection,
    request: &SessionRequest,
    number: OpNum,
    args: &impl zgate_xdr::Encode,
) -> Result<(), ClientError> {
    let credential = request.credential.to_opaque();
    alone(connection, &credential, request.minor, Ops::new().op(number, args)).await?.skip(number)
}
