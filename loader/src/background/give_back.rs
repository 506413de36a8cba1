//! Return of state to the server in the background.

use crate::backoff::Backoff;
use crate::channel::Channel;
use crate::compound::{Ops, Results};
use crate::error::ClientError;
use crate::session::Session;
use crate::state::returns::HeldState;
use crate::transport::Connection;
use std::sync::{Arc, Weak};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;
use zgate_nfs_wire::v4::op::{close, delegreturn, free_stateid};
use zgate_nfs_wire::v4::{OpNum, Stateid, Status};

/// Starts the task that returns the state.
pub(crate) fn start(channel: &Arc<Channel>) -> AbortOnDropHandle<()> {
    let more = channel.delegations().returns().added();
    AbortOnDropHandle::new(tokio::spawn(run(Arc::downgrade(channel), more)))
}

async fn run(channel: Weak<Channel>, more: Arc<Notify>) {
    let mut running = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = more.notified() => {}
            Some(_) = running.join_next() => continue,
        }
        let Some(channel) = channel.upgrade() else { return };
        for state in channel.delegations().returns().fresh() {
            let channel = Arc::clone(&channel);
            running.spawn(async move {
                if let Err(error) = patiently(&channel, &state).await {
                    tracing::debug!(%error, "cannot return state to the server");
                }
                channel.delegations().returns().done(&state);
            });
        }
    }
}

/// Returns the state; retries while the server answers NFS4ERR_DELAY or NFS4ERR_GRACE.
pub(crate) async fn patiently(channel: &Channel, state: &HeldState) -> Result<(), ClientError> {
    let mut backoff = Backoff::new(channel.patience());
    loop {
        match give_back(&CallPath::Channel(channel), state).await {
            Err(error) if error.asks_for_patience() => backoff.next(error).await?,
            result => return result,
        }
    }
}

/// Method of sending a COMPOUND.
pub(crate) enum CallPath<'a> {
    /// Over the channel, with recovery.
    Channel(&'a Channel),
    /// Over this connection only, without recovery.
    Once(&'a Session, &'a Connection),
}

impl CallPath<'_> {
    async fn call(&self, ops: Ops) -> Result<Results, ClientError> {
        match self {
            Self::Channel(channel) => channel.call(ops, true).await,
            Self::Once(session, connection) => session.call(connection, &ops, true).await,
        }
    }
}

/// Sends DELEGRETURN and CLOSE. State unknown to the server counts as returned.
pub(crate) async fn give_back(path: &CallPath<'_>, state: &HeldState) -> Result<(), ClientError> {
    let close = |ops: Ops| match state.open {
        Some(stateid) => ops.op(OpNum::Close, &close::Args { seqid: 0, stateid }),
        None => ops,
    };
    let ops = Ops::new().putfh(&state.fh);
    if let Some(stateid) = state.delegation {
        let ops = ops.clone().op(OpNum::Delegreturn, &delegreturn::Args { stateid });
        let mut results = path.call(close(ops)).await?;
        match results.skip(OpNum::Putfh).and_then(|()| results.skip(OpNum::Delegreturn)) {
            Ok(()) => return closed(state, &mut results),
            Err(error) if error.asks_for_patience() || error.status().is_none() => {
                return Err(error);
            }
            Err(error) if error.is_revoked() => free(path, stateid).await?,
            Err(_) => {}
        }
    }
    if state.open.is_none() {
        return Ok(());
    }
    let mut results = path.call(close(ops)).await?;
    results.skip(OpNum::Putfh)?;
    closed(state, &mut results)
}

fn closed(state: &HeldState, results: &mut Results) -> Result<(), ClientError> {
    if state.open.is_none() {
        return Ok(());
    }
    match results.next::<close::Res>(OpNum::Close) {
        Err(error) if !error.is_state_lost() => Err(error),
        _ => Ok(()),
    }
}

/// Acknowledges that a stateid was revoked (RFC 8881 §18.38).
pub(crate) async fn free(path: &CallPath<'_>, stateid: Stateid) -> Result<(), ClientError> {
    let ops = Ops::new().op(OpNum::FreeStateid, &free_stateid::Args { stateid });
    match path.call(ops).await?.skip(OpNum::FreeStateid) {
        Err(error) if matches!(error.status(), None | Some(Status::Delay)) => Err(error),
        // Unknown to the server: nothing to do.
        _ => Ok(()),
    }
}
