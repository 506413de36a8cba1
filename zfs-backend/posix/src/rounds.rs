//! Work that comes again: one thread goes through all things of a kind, at intervals.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Work of one kind, and what it is done for.
pub(crate) struct Rounds<T: 'static> {
    /// Name of the thread.
    pub(crate) thread: &'static str,
    /// Time between two rounds.
    pub(crate) interval: Duration,
    /// Consequence if the thread cannot start.
    pub(crate) without: &'static str,
    /// Work for one of them, which must not wait for storage: others come after it. Returns
    /// whether it is still there.
    pub(crate) work: fn(&mut T) -> bool,
    pub(crate) all: OnceLock<Mutex<Vec<T>>>,
}

impl<T: Send> Rounds<T> {
    /// Has the work done for this one, too, beginning after an interval.
    pub(crate) fn add(&'static self, one: T) {
        let all = self.all.get_or_init(|| {
            let thread = std::thread::Builder::new().name(self.thread.into());
            if let Err(error) = thread.spawn(move || self.run()) {
                tracing::warn!(%error, "{}", self.without);
            }
            Mutex::default()
        });
        all.lock().unwrap_or_else(PoisonError::into_inner).push(one);
    }

    fn run(&self) {
        loop {
            std::thread::sleep(self.interval);
            let Some(all) = self.all.get() else { continue };
            all.lock().unwrap_or_else(PoisonError::into_inner).retain_mut(self.work);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};

    #[test]
    fn work_is_done_again_until_its_thing_is_gone() {
        static COUNTS: Rounds<(u32, Sender<u32>)> = Rounds {
            thread: "test",
            interval: Duration::from_millis(1),
            without: "nothing",
            work: |(left, done)| {
                done.send(*left).unwrap();
                *left -= 1;
                *left > 0
            },
            all: OnceLock::new(),
        };
        let (one, of_one) = channel();
        let (other, of_other) = channel();
        COUNTS.add((2, one));
        COUNTS.add((3, other));
        // Each channel ends with the last of its work.
        assert_eq!(of_one.iter().collect::<Vec<_>>(), [2, 1]);
        assert_eq!(of_other.iter().collect::<Vec<_>>(), [3, 2, 1]);
    }
}
