//! NFSv3 keeps no state, but must not step on what NFSv4 clients were
//! promised: delegations, share reservations and locks.

use crate::namespace::ExportId;
use crate::runtime::Call;
use std::future::Future;
use std::pin::Pin;
use zgate_store::NodeHandle;

/// A boxed future that stays on its core and may borrow.
pub type LocalBox<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Asked before NFSv3 touches an object; NFSv4 state stands behind it.
pub trait ConflictGuard: Send + Sync {
    /// Whether nobody holds anything: then objects that are looked up only to
    /// be asked about need no look-up.
    fn idle(&self) -> bool;

    /// Before data, attributes or names of `node` change (REMOVE, RENAME and
    /// LINK included, RFC 8881 §10.4). Recalls what stands in the way; `false`
    /// means "not now": the client gets NFS3ERR_JUKEBOX and comes again.
    fn before_change<'a>(
        &'a self,
        call: &'a Call,
        export: ExportId,
        node: NodeHandle,
    ) -> LocalBox<'a, bool>;

    /// Before data of `node` is read (a write delegation may hide newer data).
    fn before_read<'a>(
        &'a self,
        call: &'a Call,
        export: ExportId,
        node: NodeHandle,
    ) -> LocalBox<'a, bool>;
}

/// The guard of a server without NFSv4.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoConflicts;

impl ConflictGuard for NoConflicts {
    fn idle(&self) -> bool {
        true
    }

    fn before_change<'a>(&'a self, _: &'a Call, _: ExportId, _: NodeHandle) -> LocalBox<'a, bool> {
        Box::pin(std::future::ready(true))
    }

    fn before_read<'a>(&'a self, _: &'a Call, _: ExportId, _: NodeHandle) -> LocalBox<'a, bool> {
        Box::pin(std::future::ready(true))
    }
}
