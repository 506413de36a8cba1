//! State shared by the connections of all protocols, and state of each core.

use super::busy_poll::{BusyPoll, Pollers};
use super::connection_end::{Ends, Slow};
use super::connections::Connections;
use super::drain::Drain;
use super::interfaces::Interfaces;
use super::memory_quota::{MemoryQuota, MemoryReservation};
use super::rdma::state::RdmaState;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use zgate_store::BufferPool;
use zgate_tls::TlsOffer;

/// Returns whether any export names a host.
pub(crate) type NamesHost = Box<dyn Fn(IpAddr) -> bool + Send + Sync>;

/// State of the process.
pub(crate) struct Network {
    pub connections: Arc<Connections>,
    /// Ends of connections, by fault.
    pub ends: Ends,
    pub pool: BufferPool,
    /// The interfaces announced to clients.
    pub interfaces: Interfaces,
    /// State of RDMA.
    pub rdma: Arc<RdmaState>,
    /// Time without completed work after which an RDMA client's connection is
    /// closed.
    pub rdma_stall: Duration,
    /// Memory quota of requests and replies.
    pub quota: Arc<MemoryQuota>,
    /// Time for which a core polls after a reply, in microseconds.
    pub poll_microseconds: u32,
    /// The cores that poll.
    pub pollers: Arc<Pollers>,
    pub drain: Drain,
    /// TLS for clients that ask for it.
    pub tls: Arc<TlsOffer>,
    pub names_host: NamesHost,
}

/// State of one core.
pub(crate) struct Core {
    pub number: usize,
    pub network: Arc<Network>,
    pub busy_poll: BusyPoll,
}

impl Network {
    /// Creates the memory accounting of a new connection of this client.
    pub(crate) fn reservation(&self, client: IpAddr) -> MemoryReservation {
        self.quota.connect(client, self.interfaces.weight_of(client))
    }

    /// Checks the time since an RDMA client last completed work.
    pub(crate) fn check_stall(&self, stalled: Duration) -> Result<(), Slow> {
        if stalled > self.rdma_stall { Err(Slow::Stalled) } else { Ok(()) }
    }
}

impl Core {
    pub(crate) fn new(number: usize, network: Arc<Network>) -> Self {
        let busy_poll = BusyPoll::new(network.poll_microseconds, Arc::clone(&network.pollers));
        Self { number, network, busy_poll }
    }
}
