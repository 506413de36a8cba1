//! One exported tree.

use super::policy::ClientRule;
use std::sync::Arc;
use zgate_store::FileStore;

/// Number of an export inside file handles; stable over restarts (derived
/// from the pseudo path unless the config names an fsid).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExportId(pub u32);

/// Which protocol versions an export is offered over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// NFSv3.
    pub v3: bool,
    /// NFSv4.0, 4.1, 4.2.
    pub v4: [bool; 3],
}

impl Versions {
    /// All of them.
    pub const ALL: Self = Self { v3: true, v4: [true; 3] };
}

/// One exported tree.
pub struct Export {
    /// Its number.
    pub id: ExportId,
    /// Where it hangs in the pseudo file system; normalized, absolute.
    pub pseudo_path: String,
    /// The path the store was opened at, for `status` and MOUNT.
    pub source: String,
    /// The tree.
    pub store: Arc<dyn FileStore>,
    /// Who may enter, first match wins; empty: nobody.
    pub clients: Vec<ClientRule>,
    /// Refuses every modification, whatever the client rule says.
    pub read_only: bool,
    /// Largest READ or WRITE in bytes.
    pub max_transfer_bytes: u32,
    /// Protocol versions.
    pub versions: Versions,
    /// Offered over TCP.
    pub tcp: bool,
    /// Offered over RDMA.
    pub rdma: bool,
    /// Whether delegations are given.
    pub delegations: bool,
    /// Whether they come with time stamps where clients ask for that
    /// (RFC 9754).
    pub delegated_times: bool,
    /// Only clients that call from a port below 1024 may enter.
    pub reserved_port_only: bool,
}

impl Export {
    /// Whether delegations with time stamps are given.
    #[must_use]
    pub fn gives_delegated_times(&self) -> bool {
        self.delegations && self.delegated_times
    }
}

impl std::fmt::Debug for Export {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Export({} {})", self.id.0, self.pseudo_path)
    }
}
