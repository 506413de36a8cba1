//! One exported tree.

use super::policy::ClientRule;
use std::sync::Arc;
use zgate_store::FileStore;

/// Number of an export inside file handles; stable over restarts (derived from
/// the pseudo path unless the configuration sets an fsid).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExportId(pub u32);

/// Protocol versions over which an export is offered.
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

    /// True if NFSv4 is offered with this minor version.
    #[must_use]
    pub fn has_minor(&self, minor: u8) -> bool {
        self.v4.get(usize::from(minor)).copied().unwrap_or(false)
    }
}

/// One exported tree.
pub struct Export {
    /// Its number.
    pub id: ExportId,
    /// Path in the pseudo file system; normalized, absolute.
    pub pseudo_path: String,
    /// The path the store was opened at, for `status` and MOUNT.
    pub source: String,
    /// The tree.
    pub store: Arc<dyn FileStore>,
    /// Access rules, first match wins; empty: no access.
    pub clients: Vec<ClientRule>,
    /// Refuses every modification, regardless of the client rule.
    pub read_only: bool,
    /// Largest READ or WRITE in bytes.
    pub max_transfer_bytes: u32,
    /// Protocol versions.
    pub versions: Versions,
    /// Offered over TCP.
    pub tcp: bool,
    /// Offered over RDMA.
    pub rdma: bool,
    /// Grant delegations.
    pub delegations: bool,
    /// Grant delegations with time stamps where clients request them (RFC
    /// 9754).
    pub delegated_times: bool,
    /// Only clients that call from a port below 1024 have access.
    pub reserved_port_only: bool,
    /// Some of its files may be served, and delegated, by another export as well.
    pub shares_files: bool,
}

impl Export {
    /// Returns whether delegations with time stamps are granted.
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
