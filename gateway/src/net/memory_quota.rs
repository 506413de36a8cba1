//! Limit of the memory of requests and replies of all protocols, and each
//! client's share of it.
//!
//! While most of the memory is free, clients take it without a limit. Beyond
//! that, only clients below their share may take more: the share is the
//! client's weight among the clients that hold any memory, with one further
//! share kept for the next client. A client on a gigabit link, whose replies
//! are sent slowly, thus cannot block a client on a fast link, nor the other
//! way round, regardless of the number of connections and the protocol.
//!
//! A small request waits for nobody's memory: a connection that holds none may
//! always take one. One that waits asks again when one of its own requests ends;
//! those may hang, so that iSCSI asks again a moment later, too. A large message
//! needs room for all of its bytes before the first one is received, so that the
//! budget is not exceeded, however many clients begin one at once. A part of the
//! budget is left to clients that hold nothing. Where somebody waits for room,
//! others may not stop in the middle of a message for long ([`MemoryReservation::refusals`]).
//!
//! Memory is counted with atomics, without a lock: a request updates the
//! counter of its client and the total.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use zgate_store::BufferPool;

/// Part of the budget up to which no client is limited.
const PLENTY: (usize, usize) = (1, 2);
/// Part of the budget up to which clients that hold memory, and messages larger
/// than the least share, may take more; the rest is for the others.
const FOR_ALL: (usize, usize) = (2, 3);
/// Nothing takes more at once: where there is so much, nobody's share is looked at.
const AMPLE_BYTES: usize = 64 << 20;
/// A reservation may be wrong by so much, so that small requests cost nothing.
const UNCOUNTED_BYTES: usize = 64 << 10;
/// Least share: one request of the largest size and its reply.
const LEAST_SHARE_BYTES: usize = 2 << 20;

// Requests begin by the count of buffers that may be too small by this error: it lets no more
// through than one request of the largest size.
const _: () = assert!(BufferPool::MAX_ERROR_BYTES <= LEAST_SHARE_BYTES);

/// Memory of the whole process beside its budget, as measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum MemoryLevel {
    /// There is enough.
    #[default]
    Plenty = 0,
    /// Nobody takes more besides what it holds.
    Short = 1,
    /// Nothing new is accepted.
    Full = 2,
}

/// Memory quota of all clients.
#[derive(Debug)]
pub(crate) struct MemoryQuota {
    budget_bytes: usize,
    /// Pool of the buffers: all buffers in use are at most the budget, and
    /// [`BufferPool::MAX_ERROR_BYTES`].
    pool: BufferPool,
    /// Each client has a share.
    has_shares: bool,
    held_bytes: AtomicUsize,
    /// Sum of the weights of clients that hold anything.
    active_weight: AtomicUsize,
    /// A [`MemoryLevel`].
    level: AtomicU8,
    /// Times that a large message found no room.
    refusals: AtomicU64,
    clients: Mutex<HashMap<IpAddr, Weak<Client>>>,
}

/// One client with all its connections and transports.
#[derive(Debug)]
struct Client {
    weight: usize,
    held_bytes: AtomicUsize,
}

/// Memory held by one connection, released on drop.
#[derive(Debug)]
pub(crate) struct MemoryReservation {
    all: Arc<MemoryQuota>,
    client: Arc<Client>,
    bytes: usize,
}

impl MemoryQuota {
    /// A quota of `budget_bytes`, most of which are buffers of `pool`. Without
    /// shares any client may take all of it.
    pub(crate) fn new(budget_bytes: usize, has_shares: bool, pool: BufferPool) -> Arc<Self> {
        Arc::new(Self {
            budget_bytes,
            pool,
            has_shares,
            held_bytes: AtomicUsize::new(0),
            active_weight: AtomicUsize::new(0),
            level: AtomicU8::new(MemoryLevel::Plenty as u8),
            refusals: AtomicU64::new(0),
            clients: Mutex::default(),
        })
    }

    /// Adds a connection of the client at `address`. The weight of the client's
    /// first connection applies.
    pub(crate) fn connect(self: &Arc<Self>, address: IpAddr, weight: u16) -> MemoryReservation {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let known = clients.get(&address).and_then(Weak::upgrade);
        let client = known.unwrap_or_else(|| {
            clients.retain(|_, client| client.strong_count() > 0);
            let weight = usize::from(weight.max(1));
            let client = Arc::new(Client { weight, held_bytes: AtomicUsize::new(0) });
            clients.insert(address, Arc::downgrade(&client));
            client
        });
        MemoryReservation { all: Arc::clone(self), client, bytes: 0 }
    }

    fn share(&self, weight: usize) -> usize {
        // One more than present: a client that holds much releases it slowly,
        // and must not hold everything when the next one arrives.
        let active = self.active_weight.load(Ordering::Relaxed).max(weight).saturating_add(1);
        (self.budget_bytes.saturating_mul(weight) / active).max(LEAST_SHARE_BYTES)
    }

    /// Bytes held by all clients.
    pub(crate) fn held(&self) -> usize {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// Sets the state of the whole process's memory.
    pub(crate) fn set_level(&self, level: MemoryLevel) {
        self.level.store(level as u8, Ordering::Relaxed);
    }

    /// Returns the state of the whole process's memory.
    pub(crate) fn level(&self) -> MemoryLevel {
        match self.level.load(Ordering::Relaxed) {
            0 => MemoryLevel::Plenty,
            1 => MemoryLevel::Short,
            _ => MemoryLevel::Full,
        }
    }

    /// Returns true when more buffers are taken than there may be, or the process
    /// has too little memory.
    fn is_short(&self) -> bool {
        self.pool.about_in_use_bytes() > self.budget_bytes || self.level() > MemoryLevel::Plenty
    }

    /// Returns true when `bytes` more come to at most `most_bytes`, or nothing is taken: however
    /// little there may be, it will never be more.
    fn fits(&self, bytes: usize, most_bytes: usize) -> bool {
        let held = self.held();
        let about = self.pool.about_in_use_bytes().saturating_add(BufferPool::MAX_ERROR_BYTES);
        if about.max(held).saturating_add(bytes) <= most_bytes {
            return true;
        }
        // Only now: this takes locks that the requests of all cores take.
        let taken = self.pool.in_use_bytes().max(held);
        taken == 0 || taken.saturating_add(bytes) <= most_bytes
    }
}

impl MemoryReservation {
    /// Sets the bytes the connection holds now: running requests, and replies
    /// that the client has not received.
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

    /// The same for what changes with every small request: small differences are left for
    /// later.
    pub(crate) fn set_about(&mut self, bytes: usize) {
        if bytes.abs_diff(self.bytes) > UNCOUNTED_BYTES || bytes == 0 {
            self.set(bytes);
        }
    }

    /// An empty reservation of the same client.
    pub(crate) fn beside(&self) -> Self {
        Self { all: Arc::clone(&self.all), client: Arc::clone(&self.client), bytes: 0 }
    }

    /// Returns true when a connection with requests under way may take in another one. One
    /// that holds nothing by this reservation may, whatever others of its client hold: it would
    /// not learn of their end.
    pub(crate) fn may_take(&self) -> bool {
        self.may_take_more() || (self.bytes == 0 && !self.all.is_short())
    }

    /// Returns true when a connection without requests under way may take one in. In
    /// need of memory, each client has one connection that may, and when the memory is
    /// full, only while requests hold little of it: others have to end first. It asks
    /// again a moment later.
    pub(crate) fn may_begin(&self) -> bool {
        if !self.all.is_short() {
            return true;
        }
        let is_full = self.all.level() == MemoryLevel::Full;
        !self.client_holds_any() && (!is_full || self.all.held() < self.all.budget_bytes / 2)
    }

    /// Returns true when the client is below its share, or there is plenty.
    pub(crate) fn may_take_more(&self) -> bool {
        !self.all.is_short() && self.share_left(self.all.held()) > 0
    }

    /// Returns true when a large message of `bytes` may be received now.
    pub(crate) fn may_receive(&self, bytes: usize) -> bool {
        let may = self.has_room(bytes);
        if !may {
            self.all.refusals.fetch_add(1, Ordering::Relaxed);
        }
        may
    }

    /// The same for a connection whose receives are buffers, too, for as long as it lives. Where
    /// these fill the memory, and not requests, no end of a request makes room: each client may
    /// have one such message.
    pub(crate) fn may_pull(&self, bytes: usize) -> bool {
        let (part, of) = FOR_ALL;
        let of_requests = self.all.held().saturating_add(bytes);
        let is_first = !self.client_holds_any() && of_requests <= self.all.budget_bytes / of * part;
        is_first || self.may_receive(bytes)
    }

    fn has_room(&self, bytes: usize) -> bool {
        let budget_bytes = self.all.budget_bytes;
        let (part, of) = FOR_ALL;
        let holds_any = self.client_holds_any();
        let is_for_all = holds_any || bytes > LEAST_SHARE_BYTES;
        let most = if is_for_all { budget_bytes / of * part } else { budget_bytes };
        self.all.fits(bytes, most) && (!holds_any || self.may_take_more())
    }

    /// Returns how often a large message has found no room, of any client: when
    /// it changes, somebody waits.
    pub(crate) fn refusals(&self) -> u64 {
        self.all.refusals.load(Ordering::Relaxed)
    }

    /// Bytes that may be promised to the client now: the rest of its share, or
    /// more while most of the memory is free, and at most the rest of the whole
    /// quota.
    pub(crate) fn room_bytes(&self) -> usize {
        let held = self.all.held();
        let left = self.all.budget_bytes.saturating_sub(held);
        if self.all.is_short() { 0 } else { self.share_left(held).min(left) }
    }

    /// Bytes left up to the client's share, or up to the limit above which
    /// shares apply; `held` is the total of all clients.
    fn share_left(&self, held: usize) -> usize {
        if !self.all.has_shares {
            return usize::MAX;
        }
        let (part, of) = PLENTY;
        let plenty = (self.all.budget_bytes / of * part).saturating_sub(held);
        if plenty >= AMPLE_BYTES {
            return plenty;
        }
        let own = self.client.held_bytes.load(Ordering::Relaxed);
        plenty.max(self.all.share(self.client.weight).saturating_sub(own))
    }

    /// Returns whether any connection of the client holds memory.
    pub(crate) fn client_holds_any(&self) -> bool {
        self.client.held_bytes.load(Ordering::Relaxed) > 0
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    const MIB: usize = 1 << 20;

    fn quota(bytes: usize) -> Arc<MemoryQuota> {
        MemoryQuota::new(bytes, true, BufferPool::new(0))
    }

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    /// A client that always has requests of 1 MiB to send, on some connections,
    /// and receives `rate` of their replies in each round.
    struct Greedy {
        connections: Vec<(MemoryReservation, usize)>,
        queue: VecDeque<usize>,
        rate: usize,
        done: usize,
        most: usize,
    }

    impl Greedy {
        fn new(
            all: &Arc<MemoryQuota>,
            who: u8,
            connections: usize,
            weight: u16,
            rate: usize,
        ) -> Self {
            let connections =
                (0..connections).map(|_| (all.connect(address(who), weight), 0)).collect();
            Self { connections, queue: VecDeque::new(), rate, done: 0, most: 0 }
        }

        /// Sends at most one request per connection; false: none was accepted.
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
            // All send until none is accepted: the worst order.
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
        let all = quota(384 * MIB);
        // A gigabit client with 16 connections, and an RDMA client that is 100
        // times as fast.
        let mut clients = [Greedy::new(&all, 1, 16, 1, 1), Greedy::new(&all, 2, 1, 1, 100)];
        run(&mut clients, 500);
        let [slow, fast] = &clients;
        assert!(slow.most <= 192 + 16, "{} MiB held by the slow one", slow.most);
        assert_eq!(slow.done, 500);
        // In nearly every round the fast one has 100 waiting.
        assert!(fast.done >= 49_000, "{}", fast.done);
    }

    #[test]
    fn who_comes_late_finds_room() {
        let all = quota(256 * MIB);
        // It has been alone, and releases nothing.
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
        let all = quota(64 * MIB);
        let mut clients = [Greedy::new(&all, 1, 64, 1, 40), Greedy::new(&all, 2, 1, 1, 2)];
        run(&mut clients, 300);
        assert_eq!(clients[1].done, 600, "it never waits");
    }

    #[test]
    fn weights_divide_what_is_short() {
        let all = quota(90 * MIB);
        // Both hold replies for long; the second has twice the weight.
        let mut clients = [Greedy::new(&all, 1, 1, 1, 1), Greedy::new(&all, 2, 1, 2, 1)];
        run(&mut clients, 200);
        let held = |client: &Greedy| client.queue.len() as f64;
        let ratio = held(&clients[1]) / held(&clients[0]);
        assert!((1.8..2.2).contains(&ratio), "{ratio}");
    }

    #[test]
    fn small_differences_are_left_for_later_and_the_end_is_not() {
        let all = quota(64 * MIB);
        let mut held = all.connect(address(1), 1);
        held.set_about(UNCOUNTED_BYTES);
        assert_eq!(all.held(), 0);
        held.set_about(MIB);
        held.set_about(MIB - UNCOUNTED_BYTES);
        assert_eq!(all.held(), MIB);
        held.set_about(MIB - UNCOUNTED_BYTES - 1);
        assert_eq!(all.held(), MIB - UNCOUNTED_BYTES - 1);
        held.set_about(0);
        assert_eq!(all.held(), 0);
    }

    #[test]
    fn no_more_is_promised_than_there_is() {
        for has_shares in [true, false] {
            let all = MemoryQuota::new(64 * MIB, has_shares, BufferPool::new(0));
            let mut clients: Vec<_> = (0..20).map(|who| all.connect(address(who), 1)).collect();
            for _ in 0..3 {
                for client in &mut clients {
                    client.set(client.bytes + client.room_bytes());
                }
            }
            let first = if has_shares { 32 } else { 64 };
            assert_eq!((clients[0].bytes, all.held()), (first * MIB, 64 * MIB));
        }
    }

    #[test]
    fn buffers_that_nobody_counted_are_missing() {
        let pool = BufferPool::new(0);
        let all = MemoryQuota::new(64 * MIB, true, pool.clone());
        let mut held = all.connect(address(1), 1);
        assert_eq!(held.room_bytes(), 32 * MIB);
        held.set(MIB);
        let others: Vec<_> = (0..17).map(|_| pool.take(4 * MIB)).collect();
        assert_eq!((held.room_bytes(), held.may_take()), (0, false));
        drop(others);
        assert!(held.may_take() && held.beside().room_bytes() == 31 * MIB);
    }

    #[test]
    fn large_messages_of_many_clients_stay_within_the_budget() {
        let pool = BufferPool::new(0);
        let all = MemoryQuota::new(64 * MIB, true, pool.clone());
        // Each host begins as many writes of 4 MiB as it may, and ends none.
        let mut begun = Vec::new();
        for host in 1..=24 {
            for _ in 0..6 {
                let mut held = all.connect(address(host), 1);
                if held.may_receive(4 * MIB) {
                    held.set(4 * MIB);
                    begun.push((held, pool.take(4 * MIB)));
                }
            }
        }
        assert!(begun.len() >= 9 && pool.in_use_bytes() <= 64 * MIB, "{}", begun.len());
        // There is room left for another one's usual write, and then for no more.
        let mut good = all.connect(address(99), 1);
        assert!(good.may_receive(2 * MIB));
        good.set(2 * MIB);
        let before = good.refusals();
        assert!(!good.may_receive(MIB) && !all.connect(address(98), 1).may_receive(4 * MIB));
        assert_eq!(good.refusals(), before + 2);
        let _rest: Vec<_> = (0..6).map(|_| pool.take(4 * MIB)).collect();
        assert!(!all.connect(address(98), 1).may_receive(1));
        assert!(all.connect(address(98), 1).may_begin(), "small requests wait for nobody");
    }

    #[test]
    fn receives_that_fill_the_memory_leave_each_client_one_message() {
        let pool = BufferPool::new(0);
        let all = MemoryQuota::new(64 * MIB, true, pool.clone());
        let _receives: Vec<_> = (0..15).map(|_| pool.take(4 * MIB)).collect();
        let mut one = all.connect(address(1), 1);
        assert!(!one.may_receive(4 * MIB) && one.may_pull(4 * MIB));
        one.set(4 * MIB);
        assert!(!one.may_pull(4 * MIB) && !all.connect(address(1), 1).may_pull(4 * MIB));
        let mut others: Vec<_> = (2..20).map(|host| all.connect(address(host), 1)).collect();
        for other in &mut others {
            if other.may_pull(4 * MIB) {
                other.set(4 * MIB);
            }
        }
        assert_eq!(all.held(), 40 * MIB, "two thirds are for requests of this size");
    }

    #[test]
    fn near_the_end_of_the_budget_small_buffers_count_exactly() {
        let pool = BufferPool::new(0);
        let one = MemoryQuota::new(8 * MIB, true, pool.clone()).connect(address(1), 1);
        let _large = [pool.take(4 * MIB), pool.take(MIB), pool.take(MIB)];
        let small = [(); 15].map(|()| pool.take(4096));
        assert_eq!(pool.about_in_use_bytes(), 6 * MIB, "the small ones are not told of yet");
        let room_bytes = 2 * MIB - small.len() * 4096;
        assert!(one.may_receive(room_bytes) && !one.may_receive(room_bytes + 1));
        drop(small);
        assert!(one.may_receive(2 * MIB));
    }

    #[test]
    fn a_message_larger_than_the_budget_passes_alone() {
        let all = quota(MIB);
        let mut one = all.connect(address(1), 1);
        assert!(one.may_receive(4 * MIB));
        one.set(4 * MIB);
        assert!(!all.connect(address(2), 1).may_receive(4 * MIB));
    }

    #[test]
    fn alone_it_takes_half_and_everything_comes_back() {
        let all = quota(64 * MIB);
        let mut clients = [Greedy::new(&all, 1, 1, 1, 1)];
        run(&mut clients, 1);
        assert!((32..34).contains(&clients[0].most), "{}", clients[0].most);
        drop(clients);
        assert_eq!(all.held(), 0);
        assert_eq!(all.active_weight.load(Ordering::Relaxed), 0);
        // A connection that holds nothing is always admitted.
        let mut hog = all.connect(address(1), 1);
        hog.set(640 * MIB);
        assert!(!hog.may_take());
        assert!(all.connect(address(1), 1).may_take() && all.connect(address(9), 1).may_take());
    }

    #[test]
    fn in_need_each_client_has_one_request_and_full_memory_waits_for_the_others() {
        let all = quota(64 * MIB);
        let (mut one, other) = (all.connect(address(1), 1), all.connect(address(1), 1));
        let stranger = all.connect(address(2), 1);
        one.set(MIB);
        assert!(one.may_take() && other.may_begin() && stranger.may_begin());
        for level in [MemoryLevel::Short, MemoryLevel::Full] {
            all.set_level(level);
            assert_eq!(all.level(), level);
            assert!(!one.may_take() && !other.may_begin(), "{level:?}");
            assert_eq!(one.room_bytes(), 0);
            assert!(stranger.may_begin(), "{level:?}");
        }
        one.set(32 * MIB);
        assert!(!stranger.may_begin(), "requests hold too much of a full memory");
        all.set_level(MemoryLevel::Short);
        assert!(stranger.may_begin());
        one.set(0);
        assert!(other.may_begin());
    }
}
