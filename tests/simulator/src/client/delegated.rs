//! Delegations of a client over restarts of the server, and the return of what was written
//! under them: the same for NFSv4.0 and 4.1.

use super::Delegations;
use super::delegations::OwnDelegation;
use super::wire::Wire;
use crate::history::{History, Register};
use bytes::Bytes;
use zgate_nfs_wire::v4::op::{Write, open};
use zgate_nfs_wire::v4::{Fh, Stateid, Status};
use zgate_test_harness::nfs::Reply;

/// Kinds of delegation in a CLAIM_PREVIOUS.
const DELEGATE_READ: u32 = 1;
const DELEGATE_WRITE: u32 = 2;

/// A delegation that a new server has given again: of a file, its stateid, and whether it
/// must be returned at once.
pub(super) type Again = (Fh, Stateid, bool);

/// A client with delegations.
pub(super) trait Delegated {
    /// The server that is asked to give delegations again: its session, if there is one.
    type Server: Copy;
    /// The server, its session or the client id is gone before a reclaim is done.
    type Lost;

    /// Transport, history and delegations.
    fn parts(&self) -> (&Wire, &History, &Delegations);

    /// Reclaims a delegation by an OPEN with this access, and closes the open. `None`: the
    /// server refuses.
    async fn reclaim_open_of(
        &self,
        server: Self::Server,
        fh: &Fh,
        kind_and_access: (u32, u32),
    ) -> Result<Option<open::Delegated>, Self::Lost>;

    /// Writes to stable storage under a delegation.
    async fn write_back(&self, held: &OwnDelegation, offset: u64, data: &Bytes) -> Reply;

    /// Asks a new server for the delegations of before.
    async fn reclaim_delegations(&self, server: Self::Server) -> Result<(), Self::Lost> {
        let (_, _, delegations) = self.parts();
        let mut former = delegations.former();
        let mut own = std::mem::take(&mut former.own).into_iter();
        for (file, fh) in std::mem::take(&mut former.read) {
            if let Some(again) = self.reclaim_one(server, &fh, DELEGATE_READ).await? {
                delegations.read_again(file, again, &mut former);
            }
        }
        while let Some(held) = own.next() {
            match self.reclaim_one(server, &held.fh, DELEGATE_WRITE).await {
                Ok(Some((fh, stateid, recall))) => {
                    let again = OwnDelegation { fh, stateid, dirty: held.dirty };
                    delegations.write_again(again, recall);
                }
                Ok(None) => self.lose_blocks(held.dirty.into_keys()),
                Err(lost) => {
                    // Another server has to be asked.
                    delegations.write_again(held, false);
                    own.for_each(|held| delegations.write_again(held, false));
                    return Err(lost);
                }
            }
        }
        Ok(())
    }

    /// Blocks that were written to the cache alone are lost.
    fn lose_blocks(&self, blocks: impl IntoIterator<Item = u32>) {
        let (wire, history, _) = self.parts();
        for block in blocks {
            history.uncached(Register { client: wire.client, block });
        }
    }

    /// All delegations and what was cached under them are lost.
    fn lose_cached(&self) {
        let (_, _, delegations) = self.parts();
        self.lose_blocks(delegations.give_all_up(false));
    }

    /// Reclaims one delegation.
    async fn reclaim_one(
        &self,
        server: Self::Server,
        fh: &Fh,
        kind: u32,
    ) -> Result<Option<Again>, Self::Lost> {
        let access = if kind == DELEGATE_WRITE { 3 } else { 1 };
        Ok(match self.reclaim_open_of(server, fh, (kind, access)).await? {
            Some(open::Delegated::Read { stateid, recall, .. }) if kind == DELEGATE_READ => {
                Some((fh.clone(), stateid, recall))
            }
            Some(open::Delegated::Write { stateid, recall, .. }) if kind == DELEGATE_WRITE => {
                Some((fh.clone(), stateid, recall))
            }
            _ => None,
        })
    }

    /// Writes what lies in the cache under a delegation that is to be returned.
    async fn flush(&self, held: &OwnDelegation) {
        if held.dirty.is_empty() {
            return;
        }
        let (wire, history, delegations) = self.parts();
        let _alone = delegations.writing.lock().await;
        for (block, (version, data)) in &held.dirty {
            let register = Register { client: wire.client, block: *block };
            if history.sent(register) != *version {
                // A newer version has gone to the server meanwhile.
                continue;
            }
            let rollbacks = history.write_begins(register, *version);
            let reply = self.write_back(held, register.offset(), data).await;
            let is_kept = history.write_ends(register, *version) == rollbacks;
            wire.trace.note(&wire.name, format_args!("writes back {version}: {:?}", reply.status));
            let whole =
                reply.status == Status::Ok && reply.get::<Write>().count as usize == data.len();
            match whole && is_kept {
                true => history.written_back(register, *version),
                false => history.uncached(register),
            }
        }
    }
}
