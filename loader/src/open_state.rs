//! What a server knows of an open file, and getting it back when it forgot.

use crate::client::Client;
use crate::compound::Ops;
use crate::error::ClientError;
use crate::session::Session;
use crate::transport::Connection;
use std::sync::{Mutex, PoisonError};
use zgate_nfs::namespace::Fh;
use zgate_nfs::v4::op::open::{self, Args, Claim, How};
use zgate_nfs::v4::wire::{ClientId, OpNum, StateOwner, Stateid, Status};
use zgate_xdr::Opaque;

/// OPEN4_SHARE_ACCESS_WANT_NO_DELEG.
const WANT_NO_DELEGATION: u32 = 0x0400;

/// An open file.
#[derive(Debug)]
pub(crate) struct OpenState {
    pub(crate) fh: Fh,
    /// OPEN4_SHARE_ACCESS_*.
    access: u32,
    /// None: it has to be opened again.
    stateid: Mutex<Option<Stateid>>,
}

/// Arguments of OPEN.
pub(crate) fn open_args(access: u32, how: How, claim: Claim) -> Args {
    Args {
        seqid: 0,
        access: access | WANT_NO_DELEGATION,
        deny: 0,
        owner: StateOwner { clientid: ClientId(0), owner: Opaque(b"zgate".to_vec()) },
        how,
        claim,
    }
}

impl OpenState {
    pub(crate) fn new(fh: Fh, access: u32, stateid: Stateid) -> Self {
        Self { fh, access, stateid: Mutex::new(Some(stateid)) }
    }

    fn known(&self) -> Option<Stateid> {
        *self.stateid.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, stateid: Option<Stateid>) {
        *self.stateid.lock().unwrap_or_else(PoisonError::into_inner) = stateid;
    }

    /// The server does not know `stateid` any more.
    pub(crate) fn forget(&self, stateid: Stateid) {
        let mut known = self.stateid.lock().unwrap_or_else(PoisonError::into_inner);
        if *known == Some(stateid) {
            *known = None;
        }
    }

    /// The stateid; the file is opened again if that is needed.
    pub(crate) async fn stateid(&self, client: &Client) -> Result<Stateid, ClientError> {
        if let Some(stateid) = self.known() {
            return Ok(stateid);
        }
        let args = open_args(self.access, How::NoCreate, Claim::Fh);
        let ops = Ops::new().putfh(&self.fh).op(OpNum::Open, &args);
        let mut results = client.call(ops, true).await?;
        results.skip(OpNum::Putfh)?;
        let opened: open::Res = results.next(OpNum::Open)?;
        self.set(Some(opened.stateid));
        Ok(opened.stateid)
    }

    /// Reclaims it in a new session after a restart of the server (RFC 8881
    /// §8.4.2.1). Where there is nothing to reclaim, it is opened again later.
    pub(crate) async fn reclaim(
        &self,
        session: &Session,
        connection: &Connection,
    ) -> Result<(), ClientError> {
        let args = open_args(self.access, How::NoCreate, Claim::Previous(0));
        let ops = Ops::new().putfh(&self.fh).op(OpNum::Open, &args);
        let mut results = session.call(connection, &ops, true).await?;
        let opened = results.skip(OpNum::Putfh).and_then(|()| results.next(OpNum::Open));
        match opened.map(|opened: open::Res| opened.stateid) {
            Ok(stateid) => self.set(Some(stateid)),
            Err(error) if error.status() == Some(Status::Delay) => return Err(error),
            Err(error) => {
                tracing::debug!(%error, "an open file is not reclaimed: it is opened again");
                self.set(None);
            }
        }
        Ok(())
    }
}
