//! Cache of the connections whose hosts an export names: looked up once for
//! each connection and version of the exports, not for each call.

use std::cell::Cell;
use zgate_nfs::Peer;
use zgate_nfs::v4::Server;

/// Number of cached connections of one core; connections that share an index
/// are only looked up more often.
const PLACES: usize = 1024;

/// Cached result of one connection.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    connection: u64,
    /// [`Server::namespace_version`] of the result plus one; 0: no result.
    version: u64,
    admitted: bool,
}

/// One core's cache of hosts that may call.
#[derive(Debug)]
pub(crate) struct Admitted {
    places: Box<[Cell<Found>]>,
}

impl Default for Admitted {
    fn default() -> Self {
        Self { places: (0..PLACES).map(|_| Cell::default()).collect() }
    }
}

impl Admitted {
    /// Returns whether any export names the peer's host now.
    pub(crate) fn admits(&self, server: &Server, peer: &Peer) -> bool {
        let connection = peer.connection.0;
        let place = &self.places[connection as usize % PLACES];
        let (found, version) = (place.get(), server.namespace_version() + 1);
        if found.connection == connection && found.version == version {
            return found.admitted;
        }
        let admitted = server.admits_host(peer.address);
        place.set(Found { connection, version, admitted });
        admitted
    }
}
