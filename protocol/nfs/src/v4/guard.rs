//! What NFSv4 clients were promised, as NFSv3 must respect it.

use crate::namespace::ExportId;
use crate::runtime::Call;
use crate::v3::guard::{ConflictGuard, LocalBox};
use crate::v4::cx::FileKey;
use crate::v4::server::Server;
use crate::v4::state::io::IoAccess;
use std::sync::{Arc, OnceLock, Weak};
use zgate_store::NodeHandle;

/// Stands between NFSv3 and the NFSv4 state. Made before the server it asks,
/// and connected to it afterwards.
#[derive(Default)]
pub struct StateGuard {
    server: OnceLock<Weak<Server>>,
}

impl StateGuard {
    /// Names the server to ask.
    pub fn connect(&self, server: &Arc<Server>) {
        // Connecting twice would be a mistake of ours; the first stays.
        let _ = self.server.set(Arc::downgrade(server));
    }

    fn server(&self) -> Option<Arc<Server>> {
        self.server.get().and_then(Weak::upgrade)
    }

    fn free(&self, key: FileKey, access: IoAccess) -> bool {
        let Some(server) = self.server() else { return true };
        let now = server.runtime.now().seconds();
        let modifies = access != IoAccess::Read;
        server.state.foreign_access(&server, &key, modifies, now)
            && server.state.check_anonymous(&key, access, now).is_ok()
    }
}

impl ConflictGuard for StateGuard {
    fn idle(&self) -> bool {
        self.server().is_none_or(|server| server.state.lock().files.is_empty())
    }

    fn before_change<'a>(
        &'a self,
        _: &'a Call,
        export: ExportId,
        node: NodeHandle,
    ) -> LocalBox<'a, bool> {
        Box::pin(std::future::ready(self.free(FileKey { export, node }, IoAccess::Write)))
    }

    fn before_read<'a>(
        &'a self,
        _: &'a Call,
        export: ExportId,
        node: NodeHandle,
    ) -> LocalBox<'a, bool> {
        Box::pin(std::future::ready(self.free(FileKey { export, node }, IoAccess::Read)))
    }
}
