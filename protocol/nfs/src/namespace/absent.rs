//! Exports that are configured, but whose trees cannot be opened now. They are
//! not in the pseudo file system; their clients are known, and are told to
//! retry when they use a file handle from before.

use super::export::{ExportId, Versions};
use super::policy::ClientRule;
use crate::runtime::Peer;
use std::net::IpAddr;

/// An export without a tree.
#[derive(Clone, Debug)]
pub struct AbsentExport {
    /// Its number.
    pub id: ExportId,
    /// Path in the pseudo file system; normalized, absolute.
    pub pseudo_path: String,
    /// Access rules, first match wins; empty: no access.
    pub clients: Vec<ClientRule>,
    /// Protocol versions.
    pub versions: Versions,
    /// Offered over TCP.
    pub tcp: bool,
    /// Offered over RDMA.
    pub rdma: bool,
}

impl AbsentExport {
    /// True if any rule names the client over this transport.
    #[must_use]
    pub fn names(&self, peer: &Peer) -> bool {
        let offered = if peer.rdma { self.rdma } else { self.tcp };
        offered && self.names_host(peer.address)
    }

    /// True if any rule names the host, over any transport.
    #[must_use]
    pub fn names_host(&self, address: IpAddr) -> bool {
        self.clients.iter().any(|rule| rule.matches(address))
    }
}
