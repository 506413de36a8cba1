//! Conflicts of NFSv3 calls with the state of NFSv4 clients.

use crate::changes::ChangeGuard;
use crate::namespace::{Export, FileKey};
use crate::runtime::Call;
use crate::v3::guard::{BorrowingFuture, Change, ConflictGuard};
use crate::v4::server::Server;
use crate::v4::state::shares::IoAccess;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use zgate_nfs_wire::v4::Status;
use zgate_store::NodeHandle;

/// Checks NFSv3 calls against the NFSv4 state. Created before the NFSv4 server,
/// and connected to it afterwards.
#[derive(Default)]
pub struct StateGuard {
    server: OnceLock<Weak<Server>>,
    /// Set while any file has state of NFSv4 clients.
    has_files: OnceLock<Arc<AtomicBool>>,
}

impl StateGuard {
    /// Sets the server.
    pub fn connect(&self, server: &Arc<Server>) {
        // A second call would be a programming error; the first server stays.
        let _ = self.server.set(Arc::downgrade(server));
        let _ = self.has_files.set(Arc::clone(&server.state.has_files));
    }

    fn server(&self) -> Option<Arc<Server>> {
        self.server.get().and_then(Weak::upgrade)
    }

    async fn free(&self, key: FileKey, access: Access) -> bool {
        let Some(server) = self.server() else { return true };
        let state = &server.state;
        if access.waits_for_grace() && state.grace.delays(server.runtime.now().seconds()) {
            return false;
        }
        let modifies = access != Access::Read;
        let attempt = || {
            let (now, mut tables) = (server.runtime.now().seconds(), state.lock());
            if !state.admits_foreign(&mut tables, &key, modifies, now) {
                return Err(Status::Delay.into());
            }
            let Some(kind) = access.data() else { return Ok(()) };
            Ok(state.check_anonymous(&mut tables, &key, kind, now)?)
        };
        state.when_settled(&key, attempt).await.is_ok()
    }
}

/// Kind of an NFSv3 access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Read,
    Change(Change),
}

impl Access {
    /// True if the access must wait for the end of grace: NFSv4 clients may
    /// still reclaim conflicting opens and delegations. Reads do not wait: at
    /// most they miss data that a client holds under a write delegation that it
    /// has not reclaimed yet.
    fn waits_for_grace(self) -> bool {
        matches!(self, Self::Change(Change::Data | Change::Name))
    }

    /// Share reservations apply to data only.
    fn data(self) -> Option<IoAccess> {
        match self {
            Self::Read => Some(IoAccess::Read),
            Self::Change(Change::Data) => Some(IoAccess::Write),
            Self::Change(_) => None,
        }
    }
}

impl ConflictGuard for StateGuard {
    fn idle(&self) -> bool {
        self.server().is_none_or(|server| {
            !server.state.grace.active() && server.state.lock().files.is_empty()
        })
    }

    fn waits_for_grace(&self, what: Change) -> bool {
        Access::Change(what).waits_for_grace()
            && self.server().is_some_and(|server| server.state.grace.active())
    }

    fn end_of_grace(&self, bytes: usize) -> BorrowingFuture<'_, ()> {
        Box::pin(async move {
            if let Some(server) = self.server() {
                server.state.end_of_grace(bytes).await;
            }
        })
    }

    fn begin_change_of_name(&self, export: &Export) -> Option<ChangeGuard> {
        match self.server() {
            Some(server) => server.state.begin_change_of_name(export, None),
            None => Some(ChangeGuard::uncounted()),
        }
    }

    fn begin_change(&self, export: &Export, node: NodeHandle) -> ChangeGuard {
        let Some(server) = self.server() else { return ChangeGuard::uncounted() };
        let now = server.runtime.now().seconds();
        server.state.changes.begin(&FileKey::of(export, &node).id, None, now)
    }

    fn before_change<'a>(
        &'a self,
        _: &'a Call,
        export: &Export,
        node: NodeHandle,
        what: Change,
    ) -> BorrowingFuture<'a, bool> {
        Box::pin(self.free(FileKey::of(export, &node), Access::Change(what)))
    }

    fn before_read<'a>(
        &'a self,
        _: &'a Call,
        export: &Export,
        node: NodeHandle,
    ) -> BorrowingFuture<'a, bool> {
        // No lock: an open that enters the tables meanwhile is one that comes later. A change
        // has to look at them, since a delegation may be granted meanwhile.
        if !self.has_files.get().is_some_and(|any| any.load(Ordering::Acquire)) {
            return Box::pin(std::future::ready(true));
        }
        Box::pin(self.free(FileKey::of(export, &node), Access::Read))
    }
}
