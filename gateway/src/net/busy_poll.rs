//! Polling after traffic. A client that sends one request at a time answers
//! within microseconds, and putting a thread to sleep and waking it takes
//! longer than most requests: a core that has just had traffic polls its
//! sockets for a while before it sleeps.
//!
//! It learns whether that pays. A poll that ends without traffic makes it skip
//! the next requests, each time twice as many, so that a client that computes
//! between its requests costs next to nothing.

use std::cell::Cell;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Most requests skipped between two polls. A client that begins to wait for
/// each reply is noticed after as many; a poll in vain is dear, but not to one
/// in so many.
const MAX_SKIPPED: u32 = 64;

/// Polling state of a core.
#[derive(Debug)]
pub(crate) struct BusyPoll {
    window: Duration,
    traffic: Cell<u64>,
    watching: Cell<bool>,
    patience: Cell<Patience>,
    begin: Notify,
}

/// Rate of polling.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Patience {
    /// Number of requests to skip before the next poll.
    skip: u32,
    /// Number of requests to skip if that poll is in vain.
    penalty: u32,
}

impl Patience {
    fn may_watch(&mut self) -> bool {
        match self.skip.checked_sub(1) {
            Some(less) => {
                self.skip = less;
                false
            }
            None => true,
        }
    }

    /// Records the end of a poll with `hits` arrivals of traffic.
    fn learn(&mut self, hits: u64) {
        // A few hits pay for the unsuccessful end of every poll.
        self.penalty = if hits >= 8 { 0 } else { (self.penalty * 2).clamp(1, MAX_SKIPPED) };
        self.skip = self.penalty;
    }
}

impl BusyPoll {
    /// Polls for `microseconds` after traffic; with 0, never.
    pub(crate) fn new(microseconds: u32) -> Self {
        Self {
            window: Duration::from_micros(u64::from(microseconds)),
            traffic: Cell::new(0),
            watching: Cell::new(false),
            patience: Cell::new(Patience::default()),
            begin: Notify::new(),
        }
    }

    /// Records that a connection of this core received data.
    pub(crate) fn traffic(&self) {
        self.traffic.set(self.traffic.get().wrapping_add(1));
        if self.watching.get() || self.window.is_zero() {
            return;
        }
        let mut patience = self.patience.get();
        if patience.may_watch() {
            self.watching.set(true);
            self.begin.notify_one();
        }
        self.patience.set(patience);
    }

    /// Polls; runs as long as the core.
    pub(crate) async fn watch(&self) {
        loop {
            self.begin.notified().await;
            let hits = self.watch_once().await;
            self.watching.set(false);
            let mut patience = self.patience.get();
            patience.learn(hits);
            self.patience.set(patience);
        }
    }

    async fn watch_once(&self) -> u64 {
        let mut hits = 0;
        let mut seen = self.traffic.get();
        let mut until = Instant::now() + self.window;
        loop {
            // Lets the runtime check its sockets without waiting.
            tokio::task::yield_now().await;
            let now = Instant::now();
            if self.traffic.get() != seen {
                seen = self.traffic.get();
                until = now + self.window;
                hits += 1;
            } else if now >= until {
                return hits;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watching_in_vain_becomes_rare_and_traffic_brings_it_back() {
        let mut patience = Patience::default();
        let mut watched = 0;
        for _ in 0..10_000 {
            if patience.may_watch() {
                watched += 1;
                patience.learn(0);
            }
        }
        assert!(watched < 2 * 10_000 / MAX_SKIPPED, "{watched} watches in vain");
        while !patience.may_watch() {}
        patience.learn(100);
        assert!(patience.may_watch());
    }

    #[test]
    fn a_watch_ends_after_its_window() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let busy_poll = BusyPoll::new(50);
        busy_poll.traffic();
        assert!(busy_poll.watching.get());
        let hits = runtime.block_on(busy_poll.watch_once());
        assert_eq!(hits, 0);
        assert!(!BusyPoll::new(0).watching.get());
    }
}
