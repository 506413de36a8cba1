//! State of an open file on the server, and its recovery.

use super::delegation::Delegations;
use super::returns::HeldState;
use crate::compound::Ops;
use crate::error::ClientError;
use crate::session::Session;
use crate::transport::Connection;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zgate_nfs_wire::v4::Fh;
use zgate_nfs_wire::v4::op::open::{self, Args, Claim, Delegated, How};
use zgate_nfs_wire::v4::{ClientId, OpNum, StateOwner, Stateid, Status};
use zgate_xdr::Opaque;

/// OPEN_DELEGATE_NONE and OPEN_DELEGATE_READ.
const DELEGATE_NONE: u32 = 0;
const DELEGATE_READ: u32 = 1;

/// Owner of one open. A server keeps one open of a file for each owner, however
/// often it is opened, and the first CLOSE ends it (RFC 8881 §18.2, §18.16): files
/// that are opened twice need two owners, or one of them is reclaimed after a
/// restart of the server although it had been closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenOwner(u64);

/// Source of owners of one client.
#[derive(Debug, Default)]
pub(crate) struct OpenOwners(AtomicU64);

impl OpenOwners {
    /// Returns another owner.
    pub(crate) fn next(&self) -> OpenOwner {
        OpenOwner(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

/// An open file. Its state is returned to the server on drop.
#[derive(Debug)]
pub(crate) struct OpenState {
    pub(crate) fh: Fh,
    owner: OpenOwner,
    /// OPEN4_SHARE_ACCESS_*.
    access: u32,
    /// Change attribute of the file when it was opened.
    change: u64,
    delegations: Arc<Delegations>,
    held: Mutex<Held>,
}

#[derive(Debug)]
struct Held {
    /// Stateid of the open; none: it must be opened again.
    open: Option<Stateid>,
    delegation: Option<Stateid>,
    /// Set if a delegation was lost, so that the file may have changed since.
    lost: bool,
}

/// Builds the arguments of OPEN.
pub(crate) fn open_args(
    owner: OpenOwner,
    (access, delegate): (u32, bool),
    how: How,
    claim: Claim,
) -> Args {
    let want = if delegate { open::WANT_READ } else { open::WANT_NO_DELEGATION };
    let owner = [&b"zgate"[..], &owner.0.to_be_bytes()].concat();
    Args {
        seqid: 0,
        access: access | want,
        deny: 0,
        owner: StateOwner { clientid: ClientId(0), owner: Opaque(owner) },
        how,
        claim,
    }
}

impl Drop for OpenState {
    fn drop(&mut self) {
        if let Some(state) = self.take() {
            self.delegations.returns().push(state);
        }
    }
}

impl OpenState {
    pub(crate) fn new(
        fh: Fh,
        (owner, access): (OpenOwner, u32),
        stateid: Stateid,
        change: u64,
        delegations: &Arc<Delegations>,
    ) -> Self {
        let held = Held { open: Some(stateid), delegation: None, lost: false };
        let delegations = Arc::clone(delegations);
        Self { fh, owner, access, change, delegations, held: Mutex::new(held) }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the stateid of the open, if the server knows it.
    pub(crate) fn known(&self) -> Option<Stateid> {
        self.held().open
    }

    /// Returns the stateid of the delegation, if there is one.
    pub(crate) fn delegation(&self) -> Option<Stateid> {
        self.held().delegation
    }

    /// Returns whether there was a delegation and is none.
    pub(crate) fn has_lost_delegation(&self) -> bool {
        self.held().lost
    }

    /// Returns the change attribute of the file when it was opened.
    pub(crate) fn change(&self) -> u64 {
        self.change
    }

    pub(crate) fn set_delegation(&self, stateid: Stateid) {
        self.held().delegation = Some(stateid);
    }

    /// Takes the delegation, if it is this one: the file uses its open stateid
    /// from now on.
    pub(crate) fn take_delegation(&self, stateid: Stateid) -> Option<Stateid> {
        let taken = {
            let mut held = self.held();
            let taken = held.delegation.take_if(|known| known.other == stateid.other);
            held.lost |= taken.is_some();
            taken
        };
        if let Some(stateid) = taken {
            self.delegations.remove(stateid);
        }
        taken
    }

    /// Takes all held state, to return it.
    pub(crate) fn take(&self) -> Option<HeldState> {
        let (open, delegation) = {
            let mut held = self.held();
            (held.open.take(), held.delegation.take())
        };
        if let Some(stateid) = delegation {
            self.delegations.remove(stateid);
        }
        let any = open.is_some() || delegation.is_some();
        any.then(|| HeldState { fh: self.fh.clone(), open, delegation })
    }

    /// Records that the server no longer knows `stateid`.
    pub(crate) fn forget(&self, stateid: Stateid) {
        {
            let mut held = self.held();
            if held.open == Some(stateid) {
                held.open = None;
            }
            if held.delegation != Some(stateid) {
                return;
            }
        }
        // It may have been revoked, which must be acknowledged.
        self.delegations.count_lost();
        self.delegations.give_back(self, stateid);
    }

    /// Builds the calls that open the file again.
    pub(crate) fn open_again(&self) -> Ops {
        let args = open_args(self.owner, (self.access, false), How::NoCreate, Claim::Fh);
        Ops::new().putfh(&self.fh).op(OpNum::Open, &args)
    }

    /// Sets the stateid of a file that was opened again.
    pub(crate) fn set_open(&self, stateid: Stateid) {
        self.held().open = Some(stateid);
    }

    /// Reclaims the open in a new session after a restart of the server, with
    /// its delegation (RFC 8881 §8.4.2.1, §10.2.1). If there is nothing to
    /// reclaim, the file is opened again later.
    pub(crate) async fn reclaim(
        self: &Arc<Self>,
        session: &Session,
        connection: &Connection,
    ) -> Result<(), ClientError> {
        let before = self.delegation();
        let kind = if before.is_some() { DELEGATE_READ } else { DELEGATE_NONE };
        let how = (self.access, before.is_some());
        let args = open_args(self.owner, how, How::NoCreate, Claim::Previous(kind));
        let ops = Ops::new().putfh(&self.fh).op(OpNum::Open, &args);
        let asking = self.delegations.asking();
        let mut results = session.call(connection, &ops, true).await?;
        let opened = results.skip(OpNum::Putfh).and_then(|()| results.next(OpNum::Open));
        if opened.as_ref().is_err_and(|error| error.status() == Some(Status::Delay)) {
            return opened.map(|_: open::Res| ());
        }
        if let Some(stateid) = before {
            self.take_delegation(stateid);
        }
        match opened {
            Ok(opened) => {
                {
                    let mut held = self.held();
                    held.open = Some(opened.stateid);
                    // A reclaimed delegation was not granted to another client
                    // meanwhile.
                    held.lost &= !matches!(opened.delegated, Delegated::Read { .. });
                }
                self.delegations.accept(self, &opened.delegated);
            }
            Err(error) => {
                tracing::debug!(%error, "cannot reclaim an open file: it is opened again");
                self.held().open = None;
            }
        }
        drop(asking);
        if before.is_some() && self.has_lost_delegation() {
            self.delegations.count_lost();
        }
        Ok(())
    }
}
