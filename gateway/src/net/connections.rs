//! All connections by number, and their admission.

use super::limits::{MAX_OUTSIDER_CONNECTIONS_PER_HOST, outsider_connections};
use super::peer::{ConnectionId, TcpEnds};
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zgate_store::HostKey;

/// Standing of the host at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// An export names it.
    Named,
    /// No export names it.
    Unnamed,
    /// It uses iSCSI and has not logged in.
    LoggingIn,
    /// It has logged in to a target.
    LoggedIn,
}

impl Standing {
    /// Returns whether the host may be unknown to the configuration.
    fn is_outsider(self) -> bool {
        matches!(self, Self::Unnamed | Self::LoggingIn)
    }
}

/// Key by which connections are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Counted {
    /// Connections of one address that is no outsider's.
    Address(IpAddr),
    /// The same for all addresses that one host may have.
    Host(HostKey),
    /// Connections of one host that is an outsider.
    Outsider(HostKey),
}

impl Counted {
    fn of(address: IpAddr, standing: Standing) -> [Option<Self>; 2] {
        let host = HostKey::from(address);
        if standing.is_outsider() {
            [Some(Self::Outsider(host)), None]
        } else {
            [Some(Self::Address(address)), Some(Self::Host(host))]
        }
    }
}

#[derive(Debug)]
struct Entry {
    address: IpAddr,
    standing: Standing,
    /// Ends of a TCP connection, once they are known.
    ends: Option<TcpEnds>,
}

/// Limits of the number of connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    pub total: usize,
    pub per_client: usize,
}

impl ConnectionLimits {
    fn most(self, counted: Counted) -> usize {
        match counted {
            Counted::Address(_) => self.per_client,
            // The other half is reserved for other hosts.
            Counted::Host(_) => self.per_client.max(self.total / 2),
            Counted::Outsider(_) => self.per_client.min(MAX_OUTSIDER_CONNECTIONS_PER_HOST),
        }
    }
}

/// Slot of one connection, returned on drop.
#[derive(Debug)]
pub(crate) struct Slot {
    connections: Arc<Connections>,
    pub id: ConnectionId,
}

impl Slot {
    /// Counts the connection as one of a host that has logged in. One that `replaces` others
    /// counts beside them until they have ended.
    ///
    /// # Errors
    /// The limit that the host has reached.
    pub(crate) fn log_in(&self, replaces: bool) -> Result<(), String> {
        self.connections.lock().log_in(self.id, self.connections.limits, replaces)
    }

    /// Notes the ends of a TCP connection ([`Connections::tcp_ends`]).
    pub(crate) fn set_ends(&self, ends: TcpEnds) {
        self.connections.lock().set_ends(self.id, ends);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.connections.remove(self.id);
    }
}

/// All connections.
#[derive(Debug)]
pub(crate) struct Connections {
    next: AtomicU64,
    table: Mutex<Table>,
    limits: ConnectionLimits,
    refused: AtomicU64,
    /// Set while there is no memory for more.
    is_full: AtomicBool,
}

/// Connections and their counts.
#[derive(Debug, Default)]
struct Table {
    entries: HashMap<ConnectionId, Entry>,
    counts: HashMap<Counted, usize>,
    unnamed: usize,
    logging_in: usize,
    /// Number of changes of [`Connections::tcp_ends`], at least.
    changes: u64,
}

impl Table {
    fn count_of(&self, counted: Counted) -> usize {
        self.counts.get(&counted).copied().unwrap_or(0)
    }

    fn has_room(&self, address: IpAddr, standing: Standing, limits: ConnectionLimits) -> bool {
        let outsiders = outsider_connections(limits.total);
        let of_kind = match standing {
            Standing::Unnamed => self.unnamed < outsiders,
            Standing::LoggingIn => self.logging_in < outsiders,
            Standing::Named | Standing::LoggedIn => true,
        };
        let mut counted = Counted::of(address, standing).into_iter().flatten();
        self.entries.len() < limits.total
            && of_kind
            && counted.all(|counted| self.count_of(counted) < limits.most(counted))
    }

    fn count(&mut self, address: IpAddr, standing: Standing) {
        for counted in Counted::of(address, standing).into_iter().flatten() {
            *self.counts.entry(counted).or_default() += 1;
        }
        self.unnamed += usize::from(standing == Standing::Unnamed);
        self.logging_in += usize::from(standing == Standing::LoggingIn);
    }

    fn uncount(&mut self, address: IpAddr, standing: Standing) {
        for counted in Counted::of(address, standing).into_iter().flatten() {
            match self.counts.get_mut(&counted) {
                Some(count) if *count > 1 => *count -= 1,
                _ => drop(self.counts.remove(&counted)),
            }
        }
        self.unnamed -= usize::from(standing == Standing::Unnamed);
        self.logging_in -= usize::from(standing == Standing::LoggingIn);
    }

    fn set_standing(&mut self, id: ConnectionId, standing: Standing) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let (address, before) = (entry.address, entry.standing);
        if before != standing {
            entry.standing = standing;
            self.changes += u64::from(entry.ends.is_some());
            self.uncount(address, before);
            self.count(address, standing);
        }
    }

    fn log_in(
        &mut self,
        id: ConnectionId,
        limits: ConnectionLimits,
        replaces: bool,
    ) -> Result<(), String> {
        let Some(entry) = self.entries.get(&id) else { return Ok(()) };
        for counted in Counted::of(entry.address, Standing::LoggedIn).into_iter().flatten() {
            let (count, most) = (self.count_of(counted), limits.most(counted));
            // Each of the others may be replaced.
            let times = if replaces { 2 } else { 1 };
            if count >= times * most {
                let option = match counted {
                    Counted::Host(_) => "max_connections",
                    _ => "max_connections_per_client",
                };
                let has = format!("its host has {count} connections");
                return Err(format!("{has}; server.{option} allows {most} to one"));
            }
        }
        self.set_standing(id, Standing::LoggedIn);
        Ok(())
    }

    fn set_ends(&mut self, id: ConnectionId, ends: TcpEnds) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.ends = Some(ends);
            self.changes += 1;
        }
    }

    fn tcp_ends(&self) -> (u64, Vec<TcpEnds>) {
        let known = self.entries.values().filter(|entry| !entry.standing.is_outsider());
        (self.changes, known.filter_map(|entry| entry.ends).collect())
    }
}

impl Connections {
    pub(crate) fn new(limits: ConnectionLimits) -> Self {
        Self {
            next: AtomicU64::new(1),
            table: Mutex::default(),
            limits,
            refused: AtomicU64::new(0),
            is_full: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses all new connections while `is_full`.
    pub(crate) fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::Relaxed);
    }

    /// Admits a new connection; `None` if there are too many, or no memory.
    pub(crate) fn admit(self: &Arc<Self>, address: IpAddr, standing: Standing) -> Option<Slot> {
        let address = address.to_canonical();
        if self.is_full.load(Ordering::Relaxed) {
            return None;
        }
        let mut table = self.lock();
        if !table.has_room(address, standing, self.limits) {
            return None;
        }
        let id = ConnectionId(self.next.fetch_add(1, Ordering::Relaxed));
        table.entries.insert(id, Entry { address, standing, ends: None });
        table.count(address, standing);
        Some(Slot { connections: Arc::clone(self), id })
    }

    /// Determines the standing of RPC connections again after the exports have
    /// changed.
    pub(crate) fn exports_changed(&self, names_host: impl Fn(IpAddr) -> bool) {
        let mut table = self.lock();
        let of_rpc = |entry: &Entry| matches!(entry.standing, Standing::Named | Standing::Unnamed);
        let found: Vec<_> = table
            .entries
            .iter()
            .filter(|(_, entry)| of_rpc(entry))
            .map(|(id, entry)| (*id, names_host(entry.address)))
            .collect();
        for (id, named) in found {
            table.set_standing(id, if named { Standing::Named } else { Standing::Unnamed });
        }
    }

    pub(crate) fn remove(&self, id: ConnectionId) {
        let mut table = self.lock();
        if let Some(entry) = table.entries.remove(&id) {
            table.uncount(entry.address, entry.standing);
            table.changes += u64::from(entry.ends.is_some());
        }
    }

    /// Returns the number of changes of [`Self::tcp_ends`] so far, or more.
    pub(crate) fn changes(&self) -> u64 {
        self.lock().changes
    }

    /// Returns the ends of all TCP connections but those of outsiders, and the number of changes
    /// until then.
    pub(crate) fn tcp_ends(&self) -> (u64, BTreeSet<TcpEnds>) {
        let (changes, ends) = self.lock().tcp_ends();
        // Sorted without the lock, for which each connection waits.
        (changes, ends.into_iter().collect())
    }

    pub(crate) fn contains(&self, id: ConnectionId) -> bool {
        self.lock().entries.contains_key(&id)
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().entries.len()
    }

    /// Counts a connection that was refused.
    pub(crate) fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of refused connections.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connections(total: usize, per_client: usize) -> Arc<Connections> {
        Arc::new(Connections::new(ConnectionLimits { total, per_client }))
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Admits as many connections as possible.
    fn fill(
        connections: &Arc<Connections>,
        standing: Standing,
        addresses: impl Iterator<Item = IpAddr>,
    ) -> Vec<Slot> {
        addresses.filter_map(|address| connections.admit(address, standing)).collect()
    }

    #[test]
    fn admission_is_bounded_in_total_and_per_client() {
        let connections = connections(3, 2);
        let (a, b) = (address("10.0.0.1"), address("10.0.0.2"));
        let first = connections.admit(a, Standing::Named).unwrap();
        let _second = connections.admit(address("::ffff:10.0.0.1"), Standing::Named).unwrap();
        assert!(connections.admit(a, Standing::Named).is_none());
        let _third = connections.admit(b, Standing::Named).unwrap();
        assert!(connections.admit(b, Standing::Named).is_none());
        drop(first);
        let _fourth = connections.admit(b, Standing::Named).unwrap();
        assert_eq!(connections.len(), 3);
    }

    #[test]
    fn outsiders_leave_room_for_hosts_that_are_named() {
        let connections = connections(400, 400);
        let many = |net: u8| (0..4000_u16).map(move |n| [10, net, (n >> 8) as u8, n as u8].into());
        let unnamed = fill(&connections, Standing::Unnamed, many(1));
        let logging_in = fill(&connections, Standing::LoggingIn, many(2));
        assert_eq!((unnamed.len(), logging_in.len()), (100, 100));
        // A host that logs in or becomes named no longer counts as an outsider.
        assert_eq!(logging_in[0].log_in(false), Ok(()));
        assert!(connections.admit(address("10.2.3.4"), Standing::LoggingIn).is_some());
        assert_eq!(fill(&connections, Standing::Named, many(3)).len(), 200);
        drop((unnamed, logging_in));
        let table = connections.lock();
        assert!(table.entries.is_empty() && table.counts.is_empty());
        assert_eq!((table.unnamed, table.logging_in), (0, 0));
    }

    #[test]
    fn a_host_that_logs_in_has_no_more_connections_than_others() {
        let connections = connections(40, 2);
        let host = address("10.0.0.1");
        let nfs = connections.admit(host, Standing::Named).unwrap();
        let logging_in = || connections.admit(host, Standing::LoggingIn).unwrap();
        let first = logging_in();
        assert_eq!(first.log_in(false), Ok(()));
        let second = logging_in();
        let full = "its host has 2 connections; server.max_connections_per_client allows 2 to one";
        assert_eq!(second.log_in(false), Err(full.to_owned()));
        // Those whose places they take have not ended yet.
        assert_eq!(second.log_in(true), Ok(()));
        let third = logging_in();
        assert_eq!(third.log_in(true), Ok(()));
        let fourth = logging_in();
        assert!(fourth.log_in(true).is_err());
        drop((nfs, first, second));
        assert_eq!(fourth.log_in(false), Ok(()));
        let other = connections.admit(address("10.0.0.2"), Standing::LoggingIn).unwrap();
        assert_eq!(other.log_in(false), Ok(()));
        drop(third);
    }

    #[test]
    fn a_network_of_one_ipv6_host_is_one_host() {
        let connections = connections(400, 256);
        let many =
            |net: u32| (1..4000_u32).map(move |n| address(&format!("2001:db8:0:{net}::{n:x}")));
        let outsider = fill(&connections, Standing::Unnamed, many(1));
        assert_eq!(outsider.len(), MAX_OUTSIDER_CONNECTIONS_PER_HOST);
        let other = fill(&connections, Standing::Unnamed, many(2));
        assert_eq!(outsider.len() + other.len(), 100);
        // A named network is not one client, but must not take all connections
        // either.
        let named = fill(&connections, Standing::Named, many(3));
        assert_eq!(named.len(), 256);
        assert!(connections.admit(address("2001:db8:0:4::1"), Standing::Named).is_some());
    }

    #[test]
    fn a_reload_counts_hosts_anew_and_leaves_logins_alone() {
        let connections = connections(40, 40);
        let (a, b) = (address("10.0.0.1"), address("10.0.0.2"));
        let slots = [
            connections.admit(a, Standing::Named).unwrap(),
            connections.admit(b, Standing::Unnamed).unwrap(),
            connections.admit(a, Standing::LoggedIn).unwrap(),
        ];
        connections.exports_changed(|host| host == b);
        let standings = |slot: &Slot| connections.lock().entries[&slot.id].standing;
        let expected = [Standing::Unnamed, Standing::Named, Standing::LoggedIn];
        assert_eq!(slots.each_ref().map(standings), expected);
        assert_eq!(connections.lock().unnamed, 1);
    }

    #[test]
    fn the_ends_of_tcp_connections_are_known_while_they_last() {
        let all = connections(10, 10);
        let ends = |port: u16| {
            let (local, peer) = (address("10.0.0.1"), address("10.0.0.2"));
            TcpEnds::new((local, 2049).into(), (peer, port).into()).unwrap()
        };
        let slots = [1, 2, 3].map(|_| all.admit(address("10.0.0.2"), Standing::Named).unwrap());
        assert_eq!(all.tcp_ends(), (0, BTreeSet::new()), "RDMA has none");
        slots[0].set_ends(ends(700));
        slots[1].set_ends(ends(701));
        assert_eq!(all.tcp_ends(), (2, BTreeSet::from([ends(700), ends(701)])));
        let [first, second, third] = slots;
        drop((first, third));
        assert_eq!(all.changes(), 3);
        assert_eq!(all.tcp_ends(), (3, BTreeSet::from([ends(701)])));
        drop(second);
    }

    #[test]
    fn the_ends_of_outsiders_connections_are_known_once_they_have_logged_in() {
        let all = connections(10, 10);
        let ends = |port: u16| {
            let (local, peer) = (address("10.0.0.1"), address("10.0.0.2"));
            TcpEnds::new((local, 3260).into(), (peer, port).into()).unwrap()
        };
        let unnamed = all.admit(address("10.0.0.2"), Standing::Unnamed).unwrap();
        let initiator = all.admit(address("10.0.0.2"), Standing::LoggingIn).unwrap();
        unnamed.set_ends(ends(700));
        initiator.set_ends(ends(701));
        assert_eq!(all.tcp_ends(), (2, BTreeSet::new()));
        assert_eq!(initiator.log_in(false), Ok(()));
        assert_eq!(all.tcp_ends(), (3, BTreeSet::from([ends(701)])));
        all.exports_changed(|_| true);
        assert_eq!(all.tcp_ends(), (4, BTreeSet::from([ends(700), ends(701)])));
        drop((unnamed, initiator));
    }

    #[test]
    fn full_memory_refuses_new_connections_and_keeps_the_others() {
        let limits = ConnectionLimits { total: 10, per_client: 10 };
        let all = Arc::new(Connections::new(limits));
        let address = IpAddr::from([10, 0, 0, 1]);
        let held = all.admit(address, Standing::Named);
        all.set_full(true);
        assert!(held.is_some() && all.admit(address, Standing::Named).is_none());
        all.set_full(false);
        assert!(all.admit(address, Standing::Named).is_some());
    }
}
