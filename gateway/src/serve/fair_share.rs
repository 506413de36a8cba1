//! Who may take in more work when memory gets short: every client has a share
//! of the bytes that requests and replies may hold at the same time, by its
//! weight among the clients that hold any. While there is plenty, all take what
//! they like; beyond that, only clients below their share do, and the share of
//! one more is kept for who comes next. A client of a gigabit link, whose replies
//! leave slowly, thus cannot keep a client of a fast one waiting, nor the other
//! way round, however many connections each has.
//!
//! Counted with atomics: a request touches its client's and the total's counter,
//! and no lock.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Up to this part of the budget nobody is held back.
const PLENTY: (usize, usize) = (1, 2);
/// Shares are not smaller than one request of the largest size and its reply.
const LEAST_SHARE_BYTES: usize = 2 << 20;

/// All clients.
#[derive(Debug)]
pub(crate) struct FairShare {
    budget_bytes: usize,
    held_bytes: AtomicUsize,
    /// Weights of the clients that hold anything.
    active_weight: AtomicUsize,
    clients: Mutex<HashMap<IpAddr, Weak<Client>>>,
}

/// One client, all its connections and transports.
#[derive(Debug)]
struct Client {
    weight: usize,
    held_bytes: AtomicUsize,
}

/// What one connection holds. Dropping it gives all of it back.
#[derive(Debug)]
pub(crate) struct Held {
    all: Arc<FairShare>,
    client: Arc<Client>,
    bytes: usize,
}

impl FairShare {
    /// Shares of so many bytes.
    pub(crate) fn new(budget_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            budget_bytes,
            held_bytes: AtomicUsize::new(0),
            active_weight: AtomicUsize::new(0),
            clients: Mutex::default(),
        })
    }

    /// A connection of the client at `address`. The weight counts that the
    /// client's first connection had.
    pub(crate) fn connect(self: &Arc<Self>, address: IpAddr, weight: u16) -> Held {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let known = clients.get(&address).and_then(Weak::upgrade);
        let client = known.unwrap_or_else(|| {
            clients.retain(|_, client| client.strong_count() > 0);
            let weight = usize::from(weight.max(1));
            let client = Arc::new(Client { weight, held_bytes: AtomicUsize::new(0) });
            clients.insert(address, Arc::downgrade(&client));
            client
        });
        Held { all: Arc::clone(self), client, bytes: 0 }
    }

    fn share(&self, weight: usize) -> usize {
        // One more than there are: who holds much gives it back slowly, and
        // must not have it all when the next one comes.
        let active = self.active_weight.load(Ordering::Relaxed).max(weight).saturating_add(1);
        let share = (self.budget_bytes as u128 * weight as u128 / active as u128) as usize;
        share.max(LEAST_SHARE_BYTES)
    }
}

impl Held {
    /// What the connection holds now: requests in flight and replies that the
    /// client does not have yet.
    pub(crate) fn set(&mut self, bytes: usize) {
        let before = std::mem::replace(&mut self.bytes, bytes);
        if bytes > before {
            let more = bytes - before;
            self.all.held_bytes.fetch_add(more, Ordering::Relaxed);
            if self.client.held_bytes.fetch_add(more, Ordering::Relaxed) == 0 {
                self.all.active_weight.fetch_add(self.client.weight, Ordering::Relaxed);
            }
        } else if bytes < before {
            let less = before - bytes;
            self.all.held_bytes.fetch_sub(less, Ordering::Relaxed);
            if self.client.held_bytes.fetch_sub(less, Ordering::Relaxed) == less {
                self.all.active_weight.fetch_sub(self.client.weight, Ordering::Relaxed);
            }
        }
    }

    /// Whether it may take in another request. A client that holds nothing
    /// always may; one that may not holds something, whose end will tell.
    pub(crate) fn may_take(&self) -> bool {
        // Other connections of the client may hold all of it: then this one
        // would not learn of its end.
        self.bytes == 0 || self.may_take_more()
    }

    /// Whether the client is below its share, or there is plenty.
    pub(crate) fn may_take_more(&self) -> bool {
        let own = self.client.held_bytes.load(Ordering::Relaxed);
        let (part, of) = PLENTY;
        own < self.all.share(self.client.weight)
            || self.all.held_bytes.load(Ordering::Relaxed) < self.all.budget_bytes / of * part
    }

    /// Whether any connection of the client holds anything.
    pub(crate) fn client_holds_any(&self) -> bool {
        self.client.held_bytes.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    const MIB: usize = 1 << 20;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    /// A client that always has requests of 1 MiB to send, on some connections,
    /// and takes `rate` of their replies in each round.
    struct Greedy {
        connections: Vec<(Held, usize)>,
        queue: VecDeque<usize>,
        rate: usize,
        done: usize,
        most: usize,
    }

    impl Greedy {
        fn new(
            all: &Arc<FairShare>,
            who: u8,
            connections: usize,
            weight: u16,
            rate: usize,
        ) -> Self {
            let connections =
                (0..connections).map(|_| (all.connect(address(who), weight), 0)).collect();
            Self { connections, queue: VecDeque::new(), rate, done: 0, most: 0 }
        }

        /// Takes in at most one request a connection; false: none was let in.
        fn ask(&mut self) -> bool {
            let mut any = false;
            for (index, (held, count)) in self.connections.iter_mut().enumerate() {
                if held.may_take() {
                    *count += 1;
                    held.set(*count * MIB);
                    self.queue.push_back(index);
                    any = true;
                }
            }
            self.most = self.most.max(self.queue.len());
            any
        }

        fn take_replies(&mut self) {
            for _ in 0..self.rate {
                let Some(index) = self.queue.pop_front() else { return };
                let (held, count) = &mut self.connections[index];
                *count -= 1;
                held.set(*count * MIB);
                self.done += 1;
            }
        }
    }

    fn run(clients: &mut [Greedy], rounds: usize) {
        for _ in 0..rounds {
            // All ask until nobody is let in: the worst order.
            loop {
                let let_in = clients.iter_mut().map(Greedy::ask).filter(|any| *any).count();
                let queued: usize = clients.iter().map(|client| client.queue.len()).sum();
                if let_in == 0 || queued > 10_000 {
                    break;
                }
            }
            clients.iter_mut().for_each(Greedy::take_replies);
        }
    }

    #[test]
    fn a_slow_client_with_many_connections_holds_its_share_and_no_more() {
        let all = FairShare::new(384 * MIB);
        // A gigabit client with 16 connections, an RDMA client that takes 100
        // times as much.
        let mut clients = [Greedy::new(&all, 1, 16, 1, 1), Greedy::new(&all, 2, 1, 1, 100)];
        run(&mut clients, 500);
        let [slow, fast] = &clients;
        assert!(slow.most <= 192 + 16, "{} MiB held by the slow one", slow.most);
        assert_eq!(slow.done, 500);
        // Nearly every round the fast one has 100 waiting.
        assert!(fast.done >= 49_000, "{}", fast.done);
    }

    #[test]
    fn who_comes_late_finds_room() {
        let all = FairShare::new(256 * MIB);
        // It has been alone, and gives nothing back.
        let mut clients = [Greedy::new(&all, 1, 16, 1, 0), Greedy::new(&all, 2, 1, 1, 50)];
        run(&mut clients[..1], 10);
        run(&mut clients, 100);
        let [stuck, fast] = &clients;
        assert!(stuck.most <= 128 + 16, "{} MiB held by the stuck one", stuck.most);
        assert_eq!(fast.done, 5000, "it never waits");
        assert!(stuck.most + fast.most <= 256, "{} and {}", stuck.most, fast.most);
    }

    #[test]
    fn a_flood_of_a_fast_client_leaves_a_slow_one_its_share() {
        let all = FairShare::new(64 * MIB);
        let mut clients = [Greedy::new(&all, 1, 64, 1, 40), Greedy::new(&all, 2, 1, 1, 2)];
        run(&mut clients, 300);
        assert_eq!(clients[1].done, 600, "it never waits");
    }

    #[test]
    fn weights_divide_what_is_short() {
        let all = FairShare::new(90 * MIB);
        // Both hold replies for long; the second has twice the weight.
        let mut clients = [Greedy::new(&all, 1, 1, 1, 1), Greedy::new(&all, 2, 1, 2, 1)];
        run(&mut clients, 200);
        let held = |client: &Greedy| client.queue.len() as f64;
        let ratio = held(&clients[1]) / held(&clients[0]);
        assert!((1.8..2.2).contains(&ratio), "{ratio}");
    }

    #[test]
    fn alone_it_takes_half_and_everything_comes_back() {
        let all = FairShare::new(64 * MIB);
        let mut clients = [Greedy::new(&all, 1, 1, 1, 1)];
        run(&mut clients, 1);
        assert!((32..34).contains(&clients[0].most), "{}", clients[0].most);
        drop(clients);
        assert_eq!(all.held_bytes.load(Ordering::Relaxed), 0);
        assert_eq!(all.active_weight.load(Ordering::Relaxed), 0);
        // A connection that holds nothing is always let in.
        let mut hog = all.connect(address(1), 1);
        hog.set(640 * MIB);
        assert!(!hog.may_take());
        assert!(all.connect(address(1), 1).may_take() && all.connect(address(9), 1).may_take());
    }
}
