//! Connections that a gateway leaves behind when its machine is reset or its address moves.
//!
//! The list of TCP connections is kept in the state directory, without those of hosts that no
//! export names and that have not logged in. A gateway that starts asks the peers in the list of
//! the one before, as soon as this machine has the address of their connection, whether they are
//! there ([`tickle`]): those whose connection ended without a word connect again at once, instead
//! of after their own timers.

use super::limits::{
    ADDRESS_PATIENCE, ADDRESS_POLL, CONNECTIONS_POLL, FIRST_TICKLE_PAUSE, LIST_PAUSE,
    MAX_LISTED_ADDRESSES, MAX_LISTED_CONNECTIONS, TICKLES,
};
use super::run::Gateway;
use crate::net::accept::is_local;
use crate::net::core::Network;
use crate::net::drain::Phase;
use crate::net::peer::TcpEnds;
use crate::net::tickle::tickle;
use crate::observe::throttle::warn_seldom;
use crate::state_dir::StateDir;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The running thread; it ends when this is dropped, a moment later.
pub(super) struct ConnectionList {
    stop: Arc<AtomicBool>,
}

impl ConnectionList {
    /// Starts the thread. To be called when the gateway listens: peers connect again at once.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(super) fn start(gateway: &Gateway) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let dir = Arc::clone(&gateway.state_dir);
        let network = Arc::clone(&gateway.shared.network);
        let run = move || follow(&dir, &network, &stopped);
        std::thread::Builder::new().name("zgate-list".to_owned()).spawn(run)?;
        Ok(Self { stop })
    }
}

impl Drop for ConnectionList {
    fn drop(&mut self) {
        // Not waited for: the disk may hang.
        self.stop.store(true, Ordering::Release);
    }
}

/// Asks the peers of the gateway before, and keeps the list, until the gateway stops.
fn follow(dir: &StateDir, network: &Network, stopped: &AtomicBool) {
    let begun = Instant::now();
    let list = dir.connections().unwrap_or_else(|error| {
        tracing::warn!(%error, "clients of the gateway before may come back late");
        String::new()
    });
    let mut left = LeftConnections::of(&list);
    let mut kept = KeptList::of(list);
    let connections = &network.connections;
    while !stopped.load(Ordering::Acquire) {
        let now = begun.elapsed();
        for mut due in left.due(now, is_local) {
            due.leave_out(&connections.tcp_ends().1);
            if let Err(error) = ask(&due) {
                left = LeftConnections::default();
                tracing::info!(
                    %error,
                    "clients of the gateway before come back by their own timers; with \
                     CAP_NET_RAW they are asked to connect again"
                );
                break;
            }
        }
        if kept.is_due(connections.changes(), network.drain.phase(), now) {
            let (changes, mut ends) = connections.tcp_ends();
            ends.extend(left.all());
            let put = |list: &str| dir.put_connections(list);
            // A stop that has begun meanwhile ends connections that clients have.
            if network.drain.phase() != Phase::Draining
                && let Err(error) = kept.keep(changes, text(&ends), now, put)
            {
                warn_seldom!(%error, "the list of connections is not kept");
            }
        }
        std::thread::sleep(if left.is_empty() { CONNECTIONS_POLL } else { ADDRESS_POLL });
    }
}

/// Asks peers once.
///
/// # Errors
/// If this process has not the right to. After other errors peers are asked again.
fn ask(due: &Due) -> io::Result<()> {
    if due.connections.is_empty() {
        return Ok(());
    }
    match tickle(due.local, &due.connections) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(error),
        Err(error) => tracing::debug!(%error, address = %due.local, "peers are not asked"),
        Ok(()) if due.is_first => tracing::info!(
            address = %due.local,
            connections = due.connections.len(),
            "clients of the gateway before are asked to connect again"
        ),
        Ok(()) => {}
    }
    Ok(())
}

/// Returns the text of a list: one connection a line.
fn text(ends: &BTreeSet<TcpEnds>) -> String {
    ends.iter().take(MAX_LISTED_CONNECTIONS).fold(String::new(), |mut text, one| {
        // A text takes everything.
        let _ = writeln!(text, "{one}");
        text
    })
}

/// Connections of the gateway before whose peers are still to be asked, by its addresses.
#[derive(Debug, Default)]
struct LeftConnections(BTreeMap<IpAddr, Left>);

/// Those of one address.
#[derive(Debug, Default)]
struct Left {
    connections: Vec<TcpEnds>,
    /// Number of times that their peers were asked.
    asked: u32,
    /// Time of the next time, from the start of the gateway.
    next: Duration,
}

/// Connections whose peers are to be asked now.
#[derive(Debug)]
struct Due {
    local: IpAddr,
    connections: Vec<TcpEnds>,
    is_first: bool,
}

impl Due {
    /// Leaves out connections of this gateway: their clients have come back by themselves.
    fn leave_out(&mut self, own: &BTreeSet<TcpEnds>) {
        self.connections.retain(|ends| !own.contains(ends));
    }
}

impl LeftConnections {
    /// Those in the text of a list. Lines that name no connection are left out, and so are those of
    /// addresses behind the first [`MAX_LISTED_ADDRESSES`], each of which is looked for.
    fn of(list: &str) -> Self {
        let mut left = BTreeMap::<IpAddr, Left>::new();
        for ends in list.lines().take(MAX_LISTED_CONNECTIONS).filter_map(TcpEnds::parse) {
            let address = ends.local.ip();
            if left.len() < MAX_LISTED_ADDRESSES || left.contains_key(&address) {
                left.entry(address).or_default().connections.push(ends);
            }
        }
        Self(left)
    }

    /// Returns the connections whose peers are to be asked, `now` after the start of the gateway.
    /// An acknowledgement may be lost, or meet a network that sends answers to the other machine
    /// still: peers are asked [`TICKLES`] times, with pauses that double.
    fn due(&mut self, now: Duration, is_local: impl Fn(IpAddr) -> bool) -> Vec<Due> {
        if now >= ADDRESS_PATIENCE {
            self.0.clear();
        }
        let mut all = Vec::new();
        for (&local, left) in &mut self.0 {
            if left.next <= now && is_local(local) {
                let (connections, is_first) = (left.connections.clone(), left.asked == 0);
                all.push(Due { local, connections, is_first });
                left.next = now + FIRST_TICKLE_PAUSE * (1 << left.asked);
                left.asked += 1;
            }
        }
        self.0.retain(|_, left| left.asked < TICKLES);
        all
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns all of them: they stay in the list until their peers have been asked.
    fn all(&self) -> impl Iterator<Item = TcpEnds> {
        self.0.values().flat_map(|left| left.connections.iter().copied())
    }
}

/// State of the list on disk.
#[derive(Debug, Default)]
struct KeptList {
    list: String,
    /// Number of changes that it has.
    changes: u64,
    /// Time of the last attempt to write it, from the start of the gateway.
    tried: Option<Duration>,
}

impl KeptList {
    /// The list that the gateway has found.
    fn of(list: String) -> Self {
        Self { list, ..Self::default() }
    }

    /// Returns whether the list is to be written, if it has changed.
    fn is_due(&self, changes: u64, phase: Phase, now: Duration) -> bool {
        let pause = match phase {
            Phase::Serving => LIST_PAUSE,
            // The gateway may be stopped at any moment.
            Phase::Held => CONNECTIONS_POLL,
            // Connections end, and are no longer those that clients have.
            Phase::Draining => return false,
        };
        changes != self.changes && self.tried.is_none_or(|tried| now >= tried + pause)
    }

    /// Writes the list by `put`, unless it is there: connections that come and go between two
    /// looks, as those of a monitor do, write nothing. A write that fails is tried again.
    ///
    /// # Errors
    /// Those of `put`.
    fn keep(
        &mut self,
        changes: u64,
        list: String,
        now: Duration,
        put: impl FnOnce(&str) -> io::Result<()>,
    ) -> io::Result<()> {
        self.tried = Some(now);
        if list != self.list {
            put(&list)?;
            self.list = list;
        }
        self.changes = changes;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(local: u8, port: u16) -> TcpEnds {
        let at = |host: u8, port: u16| (IpAddr::from([10, 0, 0, host]), port).into();
        TcpEnds::new(at(local, 2049), at(7, port)).unwrap()
    }

    #[test]
    fn a_list_is_read_as_it_was_written() {
        let all = BTreeSet::from([ends(1, 700), ends(1, 701), ends(2, 700)]);
        let list = text(&all);
        assert_eq!(list.lines().next(), Some("10.0.0.1:2049 10.0.0.7:700"));
        assert_eq!(LeftConnections::of(&list).all().collect::<BTreeSet<_>>(), all);
        let damaged = format!("10.0.0.1\n{}x y\n", list.replacen("701", "70100", 1));
        let whole = BTreeSet::from([ends(1, 700), ends(2, 700)]);
        assert_eq!(LeftConnections::of(&damaged).all().collect::<BTreeSet<_>>(), whole);
        let many: BTreeSet<_> = (1..=u16::MAX).map(|port| ends(1, port)).collect();
        assert_eq!(text(&many).lines().count(), MAX_LISTED_CONNECTIONS);
    }

    #[test]
    fn peers_are_asked_several_times_once_their_address_is_here() {
        let mut left = LeftConnections::of(&text(&BTreeSet::from([ends(1, 700), ends(2, 700)])));
        let here = IpAddr::from([10, 0, 0, 1]);
        let nowhere = |_| false;
        assert!(left.due(Duration::ZERO, nowhere).is_empty());
        let mut asked = Vec::new();
        let mut now = Duration::from_secs(7);
        let until = now + FIRST_TICKLE_PAUSE * (1 << TICKLES);
        while now < until {
            for due in left.due(now, |address| address == here) {
                assert_eq!((due.local, due.connections), (here, vec![ends(1, 700)]));
                assert_eq!(due.is_first, asked.is_empty());
                asked.push(now);
            }
            now += ADDRESS_POLL;
        }
        assert_eq!(asked.len() as u32, TICKLES);
        assert_eq!(asked[0], Duration::from_secs(7), "at once");
        let pauses: Vec<_> = asked.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(pauses[0] >= FIRST_TICKLE_PAUSE, "{pauses:?}");
        assert!(pauses.windows(2).all(|pair| pair[1] > pair[0]), "{pauses:?}");
        // The other address has not come; it is not waited for without an end.
        assert_eq!(left.all().collect::<Vec<_>>(), [ends(2, 700)]);
        assert!(left.due(ADDRESS_PATIENCE, |_| true).is_empty());
        assert!(left.is_empty());
    }

    #[test]
    fn addresses_of_a_list_are_bounded() {
        let local = |number: usize| [10, 1, (number >> 8) as u8, number as u8];
        let line = |number: usize, port: u16| {
            let [a, b, c, d] = local(number);
            format!("{a}.{b}.{c}.{d}:2049 10.0.0.7:{port}\n")
        };
        let mut list: String = (0..2 * MAX_LISTED_ADDRESSES).map(|at| line(at, 700)).collect();
        list.push_str(&line(0, 701));
        let left = LeftConnections::of(&list);
        assert_eq!(left.0.len(), MAX_LISTED_ADDRESSES);
        assert_eq!(left.0[&IpAddr::from(local(0))].connections.len(), 2);
    }

    #[test]
    fn clients_that_have_come_back_are_not_asked() {
        let all = BTreeSet::from([ends(1, 700), ends(1, 701)]);
        let mut due = LeftConnections::of(&text(&all)).due(Duration::ZERO, |_| true).remove(0);
        due.leave_out(&BTreeSet::from([ends(1, 700), ends(1, 702)]));
        assert_eq!(due.connections, [ends(1, 701)]);
        due.leave_out(&all);
        // It would take the right to use raw sockets.
        ask(&due).unwrap();
    }

    #[test]
    fn the_list_is_written_at_most_once_in_a_while_and_at_once_before_a_switch() {
        let mut kept = KeptList::default();
        let second = Duration::from_secs(1);
        assert!(!kept.is_due(0, Phase::Serving, second), "there was no connection");
        assert!(kept.is_due(1, Phase::Serving, second));
        kept.keep(1, "one\n".to_owned(), second, |_| Ok(())).unwrap();
        assert!(!kept.is_due(1, Phase::Serving, second + LIST_PAUSE));
        assert!(!kept.is_due(2, Phase::Serving, second * 2));
        assert!(kept.is_due(2, Phase::Serving, second + LIST_PAUSE));
        assert!(kept.is_due(2, Phase::Held, second * 2));
        assert!(!kept.is_due(2, Phase::Held, second), "not without a pause");
        // What ends now ends in order, or belongs to a switch.
        assert!(!kept.is_due(2, Phase::Draining, second + LIST_PAUSE));
    }

    #[test]
    fn a_list_that_is_there_is_not_written_again_and_one_that_is_not_is() {
        let mut kept = KeptList::of("one\n".to_owned());
        let mut now = Duration::ZERO;
        let mut keep = |changes: u64, list: &str, put: io::Result<()>| {
            now += LIST_PAUSE;
            assert!(kept.is_due(changes, Phase::Serving, now));
            let mut written = None;
            let outcome = kept.keep(changes, list.to_owned(), now, |list| {
                written = Some(list.to_owned());
                put
            });
            (outcome.is_ok(), written)
        };
        assert_eq!(keep(2, "one\n", Ok(())), (true, None), "one has come and gone");
        let full = io::ErrorKind::StorageFull.into();
        assert_eq!(keep(3, "two\n", Err(full)), (false, Some("two\n".to_owned())));
        assert_eq!(keep(3, "two\n", Ok(())), (true, Some("two\n".to_owned())));
        assert_eq!(keep(4, "two\n", Ok(())), (true, None));
    }
}
