//! Load of NFS by client and by export, for `zgate top`.
//!
//! Each connection has counters of its own, and each core has some for every
//! export: a core counts without locks and without sharing cache lines with
//! other cores, and a reader adds them up.

use super::limits::{MAX_COUNTED_CLIENTS, MAX_COUNTED_EXPORTS};
use crate::observe::load::{CoreLoad, FinishedRequest, Load, LoadFigures};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use zgate_nfs::Peer;
use zgate_nfs::runtime::ConnectionId;

type Map<K, V> = HashMap<K, V, ahash::RandomState>;

/// Load of all cores.
#[derive(Debug, Default)]
pub(crate) struct Loads {
    tables: Mutex<Tables>,
}

#[derive(Debug, Default)]
struct Tables {
    /// By address; clients beyond the limit are at `None`.
    clients: Map<Option<IpAddr>, ClientEntry>,
    /// By the number of the export, one for each core that served it.
    exports: Map<u32, Vec<Arc<Load>>>,
}

/// Load of one client while it is connected.
#[derive(Debug, Default)]
struct ClientEntry {
    /// Load of connections that have ended.
    ended: LoadFigures,
    connections: Vec<(ConnectionId, Arc<Load>)>,
}

/// Load of one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientLoad {
    /// Its address; `None`: all clients beyond the limit together.
    pub address: Option<IpAddr>,
    pub connections: usize,
    pub figures: LoadFigures,
}

impl Loads {
    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connected(&self, address: IpAddr, connection: ConnectionId) -> Rc<CoreLoad> {
        let (own, shared) = CoreLoad::new();
        let mut tables = self.lock();
        let known = tables.clients.contains_key(&Some(address));
        let separate = known || tables.clients.len() < MAX_COUNTED_CLIENTS;
        let entry = tables.clients.entry(separate.then_some(address)).or_default();
        entry.connections.push((connection, shared));
        own
    }

    fn closed(&self, address: IpAddr, connection: ConnectionId) {
        let mut tables = self.lock();
        for key in [Some(address), None] {
            let Some(entry) = tables.clients.get_mut(&key) else { continue };
            let found = entry.connections.iter().position(|(known, _)| *known == connection);
            let Some(position) = found else { continue };
            let (_, load) = entry.connections.swap_remove(position);
            entry.ended += LoadFigures { running: 0, ..load.figures() };
            if entry.connections.is_empty() {
                tables.clients.remove(&key);
            }
            return;
        }
    }

    fn export(&self, number: u32) -> Option<Rc<CoreLoad>> {
        let mut tables = self.lock();
        if !tables.exports.contains_key(&number) && tables.exports.len() >= MAX_COUNTED_EXPORTS {
            return None;
        }
        let (own, shared) = CoreLoad::new();
        tables.exports.entry(number).or_default().push(shared);
        Some(own)
    }

    /// Returns the load of each connected client.
    pub(crate) fn clients(&self) -> Vec<ClientLoad> {
        let tables = self.lock();
        let show = tables.clients.iter().map(|(address, entry)| {
            let mut figures = entry.ended;
            entry.connections.iter().for_each(|(_, load)| figures += load.figures());
            ClientLoad { address: *address, connections: entry.connections.len(), figures }
        });
        let mut clients: Vec<_> = show.collect();
        clients.sort_by_key(|client| client.address);
        clients
    }

    /// Returns the number of calls to all exports.
    pub(crate) fn calls(&self) -> u64 {
        let tables = self.lock();
        tables.exports.values().flatten().map(|load| load.figures().requests).sum()
    }

    /// Returns the load of an export.
    pub(crate) fn of_export(&self, number: u32) -> LoadFigures {
        let mut figures = LoadFigures::default();
        let tables = self.lock();
        tables.exports.get(&number).into_iter().flatten().for_each(|one| figures += one.figures());
        figures
    }
}

/// A connection with its client's counters.
#[derive(Debug)]
struct Counted {
    address: IpAddr,
    load: Rc<CoreLoad>,
}

/// Load that one core counts.
#[derive(Debug)]
pub(crate) struct CoreLoads {
    all: Arc<Loads>,
    connections: RefCell<Map<ConnectionId, Counted>>,
    /// `None`: not counted, because there are too many exports.
    exports: RefCell<Map<u32, Option<Rc<CoreLoad>>>>,
}

impl CoreLoads {
    pub(crate) fn new(all: Arc<Loads>) -> Self {
        Self { all, connections: RefCell::default(), exports: RefCell::default() }
    }

    /// Counts a call that begins, until the returned value is dropped.
    pub(crate) fn begin(&self, peer: &Peer) -> Tally<'_> {
        let mut connections = self.connections.borrow_mut();
        let counted = connections.entry(peer.connection).or_insert_with(|| Counted {
            address: peer.address,
            load: self.all.connected(peer.address, peer.connection),
        });
        let client = Rc::clone(&counted.load);
        client.begin();
        Tally { loads: self, client, export: RefCell::default(), begun: Instant::now() }
    }

    /// Forgets a connection.
    pub(crate) fn closed(&self, connection: ConnectionId) {
        if let Some(counted) = self.connections.borrow_mut().remove(&connection) {
            self.all.closed(counted.address, connection);
        }
    }

    fn export(&self, number: u32) -> Option<Rc<CoreLoad>> {
        let mut exports = self.exports.borrow_mut();
        if let Some(known) = exports.get(&number) {
            return known.clone();
        }
        let found = self.all.export(number);
        // A number without counters is looked up again once the map is full.
        if exports.len() < MAX_COUNTED_EXPORTS {
            exports.insert(number, found.clone());
        }
        found
    }
}

/// One call in progress.
pub(crate) struct Tally<'a> {
    loads: &'a CoreLoads,
    client: Rc<CoreLoad>,
    /// Export with which the call is counted as in progress.
    export: RefCell<Option<Rc<CoreLoad>>>,
    begun: Instant,
}

impl Tally<'_> {
    /// Runs a call; counts it with the export that it has entered while it
    /// waits.
    pub(crate) async fn during<T>(
        &self,
        entered: &Cell<Option<u32>>,
        mut work: Pin<&mut impl Future<Output = T>>,
    ) -> T {
        poll_fn(|task| {
            let polled = work.as_mut().poll(task);
            if polled.is_pending()
                && self.export.borrow().is_none()
                && let Some(export) = entered.get().and_then(|number| self.loads.export(number))
            {
                export.begin();
                *self.export.borrow_mut() = Some(export);
            }
            polled
        })
        .await
    }

    /// Counts the finished call.
    pub(crate) fn finish(self, entered: Option<u32>, read_bytes: usize, written_bytes: usize) {
        let request = FinishedRequest {
            nanos: self.begun.elapsed().as_nanos() as u64,
            read_bytes: read_bytes as u64,
            written_bytes: written_bytes as u64,
        };
        self.client.finish(request);
        if let Some(export) = entered.and_then(|number| self.loads.export(number)) {
            export.finish(request);
        }
    }
}

impl Drop for Tally<'_> {
    fn drop(&mut self) {
        self.client.end();
        if let Some(export) = self.export.take() {
            export.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::ready;
    use std::pin::pin;
    use std::task::{Context, Waker};

    fn peer(host: u8, connection: u64) -> Peer {
        let connection = ConnectionId(connection);
        Peer { address: [10, 0, 0, host].into(), port: 700, connection, rdma: false }
    }

    #[test]
    fn connections_of_one_host_are_one_client_and_leave_with_it() {
        let all = Arc::<Loads>::default();
        let cores = [CoreLoads::new(Arc::clone(&all)), CoreLoads::new(Arc::clone(&all))];
        for (core, connection) in [(0, 1), (1, 2), (0, 3)] {
            cores[core].begin(&peer(1, connection)).finish(Some(7), 4096, 10);
        }
        let waiting = cores[1].begin(&peer(2, 4));
        let clients = all.clients();
        assert_eq!(clients.iter().map(|c| c.connections).collect::<Vec<_>>(), [3, 1]);
        let figures = clients[0].figures;
        assert_eq!((figures.requests, figures.read_bytes, figures.written_bytes), (3, 12_288, 30));
        assert_eq!((figures.running, clients[1].figures.running), (0, 1));
        assert_eq!(all.of_export(7).requests, 3);
        drop(waiting);
        // The load of a connection that has ended stays with its client.
        cores[0].closed(ConnectionId(1));
        assert_eq!(all.clients()[0].figures, figures);
        cores[1].closed(ConnectionId(2));
        cores[0].closed(ConnectionId(3));
        cores[1].closed(ConnectionId(4));
        assert!(all.clients().is_empty());
        assert_eq!(all.of_export(7).requests, 3, "an export outlives its clients");
    }

    #[test]
    fn a_call_that_waits_is_in_progress_at_its_export() {
        let all = Arc::<Loads>::default();
        let core = CoreLoads::new(Arc::clone(&all));
        let tally = core.begin(&peer(1, 1));
        let entered = Cell::new(Some(3));
        let mut context = Context::from_waker(Waker::noop());
        {
            let mut hangs = pin!(std::future::pending::<()>());
            let mut waiting = pin!(tally.during(&entered, hangs.as_mut()));
            assert!(waiting.as_mut().poll(&mut context).is_pending());
            assert!(waiting.as_mut().poll(&mut context).is_pending());
            assert_eq!(all.of_export(3).running, 1);
        }
        drop(tally);
        assert_eq!((all.of_export(3).running, all.of_export(3).requests), (0, 0));
        let tally = core.begin(&peer(1, 1));
        let mut at_once = pin!(ready(5));
        let mut done = pin!(tally.during(&entered, at_once.as_mut()));
        assert!(done.as_mut().poll(&mut context).is_ready());
        assert_eq!(all.of_export(3).running, 0);
    }

    #[test]
    fn clients_and_exports_beyond_the_limits_need_no_more_memory() {
        let all = Arc::<Loads>::default();
        let core = CoreLoads::new(Arc::clone(&all));
        for number in 0..MAX_COUNTED_CLIENTS as u32 + 5 {
            let address = std::net::Ipv4Addr::from(number).into();
            let connection = ConnectionId(number.into());
            let peer = Peer { address, port: 700, connection, rdma: false };
            core.begin(&peer).finish(None, 1, 0);
        }
        let clients = all.clients();
        assert_eq!(clients.len(), MAX_COUNTED_CLIENTS + 1);
        assert_eq!((clients[0].address, clients[0].connections), (None, 5));
        assert_eq!(clients[0].figures.read_bytes, 5);
        for number in 0..MAX_COUNTED_EXPORTS as u32 + 5 {
            core.begin(&peer(1, 1)).finish(Some(number), 1, 0);
        }
        assert_eq!(all.lock().exports.len(), MAX_COUNTED_EXPORTS);
        assert!(core.exports.borrow().len() <= MAX_COUNTED_EXPORTS);
        assert_eq!(all.of_export(MAX_COUNTED_EXPORTS as u32 + 1).requests, 0);
    }
}
