//! Registry of commands that may still change the logical unit, by I_T nexus. A
//! command is registered before its reservation check, until its last store
//! call has returned. The registry belongs to the unit, because commands may
//! outlive their session.
//!
//! A reset, a preempt or a login that must wait for commands first marks those
//! it ends and then waits for those registered. A command registers first and
//! then checks for the mark, so that it is either waited for or does nothing.

use crate::nexus::{Nexus, NexusId};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zgate_store::signal::Signal;

/// Number of locks over which I_T nexuses are spread, to reduce contention.
const SHARDS: usize = 16;

#[derive(Debug)]
struct Entry {
    number: u64,
    nexus: Arc<Nexus>,
}

#[derive(Debug, Default)]
struct Shard {
    next_number: u64,
    entries: Vec<Entry>,
}

/// Running commands of one logical unit. A unit that replaces another one over
/// the same storage takes them over.
#[derive(Debug, Default)]
pub struct RunningCommands {
    shards: [Mutex<Shard>; SHARDS],
    waiters: AtomicUsize,
    ended: Signal,
}

/// A registered command; it may change the unit while this exists.
#[derive(Debug)]
#[must_use]
pub(crate) struct RunningCommand<'a> {
    all: &'a RunningCommands,
    shard: usize,
    number: u64,
}

/// Counts a waiting task while it exists.
struct Waiter<'a>(&'a AtomicUsize);

impl RunningCommands {
    fn shard(&self, shard: usize) -> MutexGuard<'_, Shard> {
        self.shards[shard % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a command until the guard is dropped.
    pub(crate) fn begin(&self, nexus: &Arc<Nexus>) -> RunningCommand<'_> {
        let shard = (nexus.id.0 % SHARDS as u64) as usize;
        let mut inner = self.shard(shard);
        let number = inner.next_number;
        inner.next_number += 1;
        inner.entries.push(Entry { number, nexus: Arc::clone(nexus) });
        RunningCommand { all: self, shard, number }
    }

    /// Returns whether a command of a selected I_T nexus is registered.
    pub fn any(&self, which: impl Fn(&Nexus) -> bool) -> bool {
        (0..SHARDS).any(|shard| self.shard(shard).entries.iter().any(|one| which(&one.nexus)))
    }

    /// Returns the selected I_T nexuses that have commands registered.
    pub fn nexuses(&self, which: impl Fn(&Nexus) -> bool) -> Vec<NexusId> {
        let mut found = Vec::new();
        for shard in 0..SHARDS {
            let shard = self.shard(shard);
            let wanted = shard.entries.iter().filter(|one| which(&one.nexus));
            found.extend(wanted.map(|one| one.nexus.id));
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Waits until the commands of the selected I_T nexuses that are registered
    /// now have ended. Later ones are not waited for. Takes as long as the
    /// store does.
    pub async fn left(&self, which: impl Fn(&Nexus) -> bool) {
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let _waiter = Waiter(&self.waiters);
        let now: [u64; SHARDS] = std::array::from_fn(|shard| self.shard(shard).next_number);
        let stays = |(shard, next): (usize, &u64)| {
            let before = |one: &Entry| one.number < *next && which(&one.nexus);
            self.shard(shard).entries.iter().any(before)
        };
        self.ended.wait_for(|| (!now.iter().enumerate().any(stays)).then_some(())).await;
    }
}

impl Drop for RunningCommand<'_> {
    fn drop(&mut self) {
        let mut shard = self.all.shard(self.shard);
        if let Some(at) = shard.entries.iter().position(|one| one.number == self.number) {
            shard.entries.swap_remove(at);
        }
        drop(shard);
        // A waiting task counts itself before it examines the shard.
        if self.all.waiters.load(Ordering::SeqCst) > 0 {
            self.all.ended.raise();
        }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sense::ScsiStatus;
    use crate::testing::{Bench, nexus};
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    /// Also as seen by the disk that replaces this one.
    #[test]
    fn a_write_is_here_until_the_store_has_returned() {
        let bench = Bench::new();
        let after = bench.reopened().disk;
        bench.store.pause_calls(true);
        let write = bench.command(&bench.nexus, &[0x2A, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[1; 512]);
        let mut write = pin!(bench.disk.execute(write));
        let mut context = Context::from_waker(Waker::noop());
        assert!(write.as_mut().poll(&mut context).is_pending());
        assert!(after.running().any(|nexus| nexus.id == bench.nexus.id));
        assert_eq!(bench.block_on(write).status, ScsiStatus::Good);
        assert!(!after.running().any(|_| true));
    }

    #[test]
    fn only_earlier_commands_of_those_named_are_waited_for() {
        let running = RunningCommands::default();
        let (one, two) = (nexus(1), nexus(2));
        let first = running.begin(&one);
        let other = running.begin(&two);
        let mut left = pin!(running.left(|nexus| nexus.id == one.id));
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(left.as_mut().poll(&mut context), Poll::Pending);
        let later = running.begin(&one);
        assert_eq!(left.as_mut().poll(&mut context), Poll::Pending);
        assert_eq!(running.nexuses(|_| true), [one.id, two.id]);
        drop(first);
        assert_eq!(left.as_mut().poll(&mut context), Poll::Ready(()));
        assert!(running.any(|nexus| nexus.id == two.id));
        drop((other, later));
        assert!(!running.any(|_| true));
    }
}
