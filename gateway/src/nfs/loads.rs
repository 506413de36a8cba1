//! Load of NFS by client and by export, for `zgate top`.
//!
//! Each connection has counters of its own, and each export some for several
//! threads, so that threads seldom share a cache line; a reader adds them up.

use super::limits::{MAX_COUNTED_CLIENTS, MAX_COUNTED_EXPORTS};
use crate::observe::load::{FinishedRequest, Load, LoadFigures};
use std::cell::RefCell;
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zgate_nfs::Peer;
use zgate_nfs::runtime::{ConnectionId, EnteredExport};
use zgate_store::thread_shard;

type Map<K, V> = HashMap<K, V, ahash::RandomState>;

/// Number of counters of one export. There may be thousands of exports: some threads share
/// one.
const SHARDS: usize = 16;

/// Load of one export, counted by several threads.
type ExportLoad = [Load; SHARDS];

/// Load of all connections.
#[derive(Debug)]
pub(crate) struct Loads {
    /// Distinguishes the gateways of a process.
    id: u64,
    tables: Mutex<Tables>,
}

#[derive(Debug, Default)]
struct Tables {
    /// By address; clients beyond the limit are at `None`.
    clients: Map<Option<IpAddr>, ClientEntry>,
    /// By the number of the export.
    exports: Map<u32, Arc<ExportLoad>>,
}

/// Load of one client while it is connected.
#[derive(Debug, Default)]
struct ClientEntry {
    /// Load of connections that have ended.
    ended: LoadFigures,
    connections: Map<ConnectionId, Arc<Load>>,
}

/// Load of one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientLoad {
    /// Its address; `None`: all clients beyond the limit together.
    pub address: Option<IpAddr>,
    pub connections: usize,
    pub figures: LoadFigures,
}

impl Default for Loads {
    fn default() -> Self {
        static CREATED: AtomicU64 = AtomicU64::new(0);
        let id = CREATED.fetch_add(1, Ordering::Relaxed);
        Self { id, tables: Mutex::default() }
    }
}

/// Counters by gateway and export; `None`: not counted, because there are too
/// many exports.
type UsedExports = Map<(u64, u32), Option<Arc<ExportLoad>>>;

thread_local! {
    /// Counters of exports that this thread has used.
    static USED: RefCell<UsedExports> = RefCell::default();
}

/// Returns the index of the thread's counters in an [`ExportLoad`].
fn shard() -> usize {
    thread_shard() % SHARDS
}

impl Loads {
    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to count the load of a connection.
    pub(crate) fn connected(self: &Arc<Self>, peer: &Peer) -> ConnectionLoad {
        let (address, connection) = (peer.address, peer.connection);
        let load = Arc::<Load>::default();
        let mut tables = self.lock();
        let known = tables.clients.contains_key(&Some(address));
        let separate = known || tables.clients.len() < MAX_COUNTED_CLIENTS;
        let client = separate.then_some(address);
        let entry = tables.clients.entry(client).or_default();
        entry.connections.insert(connection, Arc::clone(&load));
        ConnectionLoad { loads: Arc::clone(self), client, connection, load }
    }

    fn closed(&self, client: Option<IpAddr>, connection: ConnectionId) {
        let mut tables = self.lock();
        let Some(entry) = tables.clients.get_mut(&client) else { return };
        if let Some(load) = entry.connections.remove(&connection) {
            entry.ended += LoadFigures { running: 0, ..load.figures() };
        }
        if entry.connections.is_empty() {
            tables.clients.remove(&client);
        }
    }

    fn with_export(&self, number: u32, count: impl FnOnce(&ExportLoad)) {
        USED.with_borrow_mut(|used| {
            let key = (self.id, number);
            if let Some(known) = used.get(&key) {
                if let Some(export) = known {
                    count(export);
                }
                return;
            }
            if used.len() >= MAX_COUNTED_EXPORTS {
                used.clear();
            }
            let found = used.entry(key).or_insert_with(|| self.export(number));
            if let Some(export) = found {
                count(export);
            }
        });
    }

    fn export(&self, number: u32) -> Option<Arc<ExportLoad>> {
        let mut tables = self.lock();
        if !tables.exports.contains_key(&number) && tables.exports.len() >= MAX_COUNTED_EXPORTS {
            return None;
        }
        Some(Arc::clone(tables.exports.entry(number).or_default()))
    }

    /// Returns the load of each connected client.
    pub(crate) fn clients(&self) -> Vec<ClientLoad> {
        let tables = self.lock();
        let show = tables.clients.iter().map(|(address, entry)| {
            let mut figures = entry.ended;
            entry.connections.values().for_each(|load| figures += load.figures());
            ClientLoad { address: *address, connections: entry.connections.len(), figures }
        });
        let mut clients: Vec<_> = show.collect();
        clients.sort_by_key(|client| client.address);
        clients
    }

    /// Returns the number of calls to all exports.
    pub(crate) fn calls(&self) -> u64 {
        let tables = self.lock();
        let all = tables.exports.values().flat_map(|load| load.iter());
        all.map(|load| load.figures().requests).sum()
    }

    /// Returns the load of an export.
    pub(crate) fn of_export(&self, number: u32) -> LoadFigures {
        let mut figures = LoadFigures::default();
        let tables = self.lock();
        let load = tables.exports.get(&number);
        load.into_iter().flat_map(|load| load.iter()).for_each(|one| figures += one.figures());
        figures
    }
}

/// Counters of one connection.
#[derive(Debug)]
pub(crate) struct ConnectionLoad {
    loads: Arc<Loads>,
    /// Client that the connection is counted with.
    client: Option<IpAddr>,
    connection: ConnectionId,
    load: Arc<Load>,
}

impl Drop for ConnectionLoad {
    fn drop(&mut self) {
        self.loads.closed(self.client, self.connection);
    }
}

impl ConnectionLoad {
    /// Counts a call that begins, until the returned value is dropped.
    pub(crate) fn begin(&self) -> Tally<'_> {
        self.load.begin();
        Tally { connection: self, waits_for: None }
    }
}

/// One call in progress.
pub(crate) struct Tally<'a> {
    connection: &'a ConnectionLoad,
    /// Export with which the call is counted as in progress, and the index of
    /// the counters.
    waits_for: Option<(u32, usize)>,
}

impl Tally<'_> {
    /// Runs a call; counts it with the export that it has entered while it
    /// waits.
    pub(crate) async fn during<T>(
        &mut self,
        entered: &EnteredExport,
        mut work: Pin<&mut (impl Future<Output = T> + Send)>,
    ) -> T {
        poll_fn(|task| {
            let polled = work.as_mut().poll(task);
            if polled.is_pending() && self.waits_for.is_none() {
                self.waits_for = entered.get().map(|number| self.begin_at(number));
            }
            polled
        })
        .await
    }

    fn begin_at(&self, number: u32) -> (u32, usize) {
        let shard = shard();
        self.connection.loads.with_export(number, |export| export[shard].begin());
        (number, shard)
    }

    /// Counts the finished call.
    pub(crate) fn finish(self, entered: Option<u32>, request: FinishedRequest) {
        self.connection.load.finish(request);
        if let Some(number) = entered {
            let load = |export: &ExportLoad| export[shard()].finish(request);
            self.connection.loads.with_export(number, load);
        }
    }
}

impl Drop for Tally<'_> {
    fn drop(&mut self) {
        self.connection.load.end();
        if let Some((number, shard)) = self.waits_for {
            self.connection.loads.with_export(number, |export| export[shard].end());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::ready;
    use std::pin::pin;
    use std::task::{Context, Waker};
    use zgate_nfs::runtime::Protection;

    fn peer(host: u8, connection: u64) -> Peer {
        let connection = ConnectionId(connection);
        let (address, protection) = ([10, 0, 0, host].into(), Protection::Plain);
        let (kernel_encrypts, certificate) = (false, None);
        Peer {
            address,
            port: 700,
            connection,
            rdma: false,
            protection,
            kernel_encrypts,
            certificate,
        }
    }

    fn request(read_bytes: u64, written_bytes: u64) -> FinishedRequest {
        FinishedRequest { nanos: 1, read_bytes, written_bytes }
    }

    fn entered(number: u32) -> EnteredExport {
        let entered = EnteredExport::default();
        entered.set(number);
        entered
    }

    #[test]
    fn connections_of_one_host_are_one_client_and_leave_with_it() {
        let all = Arc::<Loads>::default();
        let mut loads: Vec<_> = (1..=3).map(|number| all.connected(&peer(1, number))).collect();
        for load in &loads {
            load.begin().finish(Some(7), request(4096, 10));
        }
        let other = all.connected(&peer(2, 4));
        let waiting = other.begin();
        let clients = all.clients();
        assert_eq!(clients.iter().map(|c| c.connections).collect::<Vec<_>>(), [3, 1]);
        let figures = clients[0].figures;
        assert_eq!((figures.requests, figures.read_bytes, figures.written_bytes), (3, 12_288, 30));
        assert_eq!((figures.running, clients[1].figures.running), (0, 1));
        assert_eq!(all.of_export(7).requests, 3);
        drop(waiting);
        // The load of a connection that has ended stays with its client.
        drop(loads.pop());
        assert_eq!(all.clients()[0].figures, figures);
        drop((loads, other));
        assert!(all.clients().is_empty());
        assert_eq!(all.of_export(7).requests, 3, "an export outlives its clients");
    }

    #[test]
    fn a_call_that_waits_is_in_progress_at_its_export_on_any_thread() {
        let all = Arc::<Loads>::default();
        let load = all.connected(&peer(1, 1));
        let mut tally = load.begin();
        let mut context = Context::from_waker(Waker::noop());
        let number = entered(3);
        {
            let mut hangs = pin!(std::future::pending::<()>());
            let mut waiting = pin!(tally.during(&number, hangs.as_mut()));
            assert!(waiting.as_mut().poll(&mut context).is_pending());
            assert!(waiting.as_mut().poll(&mut context).is_pending());
            assert_eq!(all.of_export(3).running, 1);
        }
        std::thread::scope(|scope| scope.spawn(|| drop(tally)).join().unwrap());
        assert_eq!((all.of_export(3).running, all.of_export(3).requests), (0, 0));
        let mut tally = load.begin();
        let mut at_once = pin!(ready(5));
        let mut done = pin!(tally.during(&number, at_once.as_mut()));
        assert!(done.as_mut().poll(&mut context).is_ready());
        assert_eq!(all.of_export(3).running, 0);
    }

    #[test]
    fn clients_and_exports_beyond_the_limits_need_no_more_memory() {
        let all = Arc::<Loads>::default();
        let mut loads = Vec::new();
        for number in 0..MAX_COUNTED_CLIENTS as u32 + 5 {
            let address = std::net::Ipv4Addr::from(number).into();
            let connection = ConnectionId(number.into());
            let load = all.connected(&Peer { address, connection, ..peer(0, 0) });
            load.begin().finish(None, request(1, 0));
            loads.push(load);
        }
        let clients = all.clients();
        assert_eq!(clients.len(), MAX_COUNTED_CLIENTS + 1);
        assert_eq!((clients[0].address, clients[0].connections), (None, 5));
        assert_eq!(clients[0].figures.read_bytes, 5);
        for number in 0..MAX_COUNTED_EXPORTS as u32 + 5 {
            loads[0].begin().finish(Some(number), request(1, 0));
        }
        assert_eq!(all.lock().exports.len(), MAX_COUNTED_EXPORTS);
        assert!(USED.with_borrow(Map::len) <= MAX_COUNTED_EXPORTS);
        assert_eq!(all.of_export(MAX_COUNTED_EXPORTS as u32 + 1).requests, 0);
        drop(loads);
        assert!(all.clients().is_empty());
    }
}
