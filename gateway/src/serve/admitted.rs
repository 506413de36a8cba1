//! Which connections come from hosts that an export names: looked up once for
//! each connection and version of the exports, not for each call.

use std::cell::Cell;
use zgate_nfs::Peer;
use zgate_nfs::v4::Server;

/// Connections of one core that are remembered; those whose numbers meet in one
/// place are looked up more often, and that is all.
const PLACES: usize = 1024;

/// What was found for one connection.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    connection: u64,
    /// [`Server::namespace_version`] it was found in, plus one: 0 is no answer.
    version: u64,
    admitted: bool,
}

/// One core's memory of who may call.
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
    /// Whether any export names the peer's host now.
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
