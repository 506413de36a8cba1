//! Order of jobs: every store has its own queue and its own share of the
//! workers. A store that hangs fills its own queue and workers only.

use crate::hang_detector::HangDetector;
use std::collections::VecDeque;

/// Number of a store, given by the engine in the order of their first use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct StoreSlot(pub(crate) usize);

/// Limits of a pool for its stores.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Most workers of one store.
    pub(crate) per_store: usize,
    /// Most workers of all stores together. Each store may have one beyond it, and another
    /// one in a long call.
    pub(crate) total: usize,
    /// Most jobs of one store that wait for a worker.
    pub(crate) queued: usize,
}

/// Treatment of a job when its store is overloaded or hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demand {
    /// The job may be refused: its caller waits and receives the error.
    Refusable,
    /// The job waits as long as it takes: closing a file, a command of an
    /// initiator.
    Certain,
}

/// State of a job that was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobState {
    /// A worker can begin it now.
    Ready {
        /// Set if its store has no worker and no other job waiting.
        first: bool,
    },
    /// It waits for one of its store's workers.
    Waiting,
}

struct Queue<J> {
    jobs: VecDeque<(Demand, J)>,
    in_flight: HangDetector,
    /// Set while one more worker is not in `in_flight`: it is in a long call, or the store
    /// had no place for it after that.
    in_long_call: bool,
    /// Set while the store stands in `line`.
    in_line: bool,
}

/// The queues of all stores.
pub(crate) struct Queues<J> {
    limits: Limits,
    stores: Vec<Queue<J>>,
    /// Stores with a job that may begin, served in turn.
    line: VecDeque<StoreSlot>,
    /// Number of running jobs, with those in long calls.
    running: usize,
    /// Number of stores with `in_long_call` set.
    in_long_calls: usize,
}

/// A store that was found hanging, and its waiting jobs.
pub(crate) struct Hanging<J> {
    pub(crate) store: StoreSlot,
    /// Number of calls that do not return.
    pub(crate) in_flight: usize,
    pub(crate) refused: Vec<J>,
}

impl<J> Queues<J> {
    pub(crate) fn new(limits: Limits) -> Self {
        let limits = Limits { per_store: limits.per_store.max(1), ..limits };
        Self { limits, stores: Vec::new(), line: VecDeque::new(), running: 0, in_long_calls: 0 }
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    fn queue(&mut self, store: StoreSlot) -> &mut Queue<J> {
        if self.stores.len() <= store.0 {
            self.stores.resize_with(store.0 + 1, || Queue {
                jobs: VecDeque::new(),
                in_flight: HangDetector::default(),
                in_long_call: false,
                in_line: false,
            });
        }
        &mut self.stores[store.0]
    }

    /// Accepts a job.
    ///
    /// # Errors
    /// The job, if its store hangs or too many jobs wait for it already.
    pub(crate) fn push(&mut self, store: StoreSlot, demand: Demand, job: J) -> Result<JobState, J> {
        let Limits { per_store, queued, .. } = self.limits;
        let queue = self.queue(store);
        let busy = queue.in_flight.count() >= per_store;
        let full = queue.jobs.len() >= queued || (busy && queue.in_flight.is_hanging());
        if full && demand == Demand::Refusable {
            return Err(job);
        }
        queue.jobs.push_back((demand, job));
        if queue.in_flight.count() + queue.jobs.len() > per_store {
            return Ok(JobState::Waiting);
        }
        let first = queue.in_flight.count() == 0 && queue.jobs.len() == 1;
        self.line_up(store);
        Ok(JobState::Ready { first })
    }

    /// Returns whether a job of the store could begin at once.
    pub(crate) fn has_room(&self, store: StoreSlot) -> bool {
        let Some(queue) = self.stores.get(store.0) else { return true };
        queue.in_flight.count() + queue.jobs.len() < self.limits.per_store
    }

    fn line_up(&mut self, store: StoreSlot) {
        let per_store = self.limits.per_store;
        let queue = self.queue(store);
        let may = !queue.jobs.is_empty() && queue.in_flight.count() < per_store;
        if may && !queue.in_line {
            queue.in_line = true;
            self.line.push_back(store);
        }
    }

    /// Returns whether a store that has a worker may have another one. Long calls do not
    /// count: they leave the store that makes them the workers by which it is found hanging.
    pub(crate) fn has_room_in_total(&self) -> bool {
        self.running() < self.limits.total
    }

    /// Returns whether the store may use another worker. A job that waits has been promised
    /// the last free one.
    fn has_free_worker(&mut self, store: StoreSlot) -> bool {
        let per_store = self.limits.per_store;
        let queue = self.queue(store);
        queue.jobs.is_empty() && queue.in_flight.count() < per_store
    }

    /// Takes the next job to run.
    pub(crate) fn take(&mut self) -> Option<(StoreSlot, J)> {
        let room = self.has_room_in_total();
        let may = |store: &StoreSlot| room || self.stores[store.0].in_flight.count() == 0;
        let at = self.line.iter().position(may)?;
        let store = self.line.remove(at)?;
        let queue = self.queue(store);
        queue.in_line = false;
        let (_, job) = queue.jobs.pop_front()?;
        queue.in_flight.begin();
        self.running += 1;
        self.line_up(store);
        Some((store, job))
    }

    /// Records that a job of the store has ended. Returns whether the store was
    /// considered hanging.
    pub(crate) fn end(&mut self, store: StoreSlot) -> bool {
        self.running = self.running.saturating_sub(1);
        let hung = self.queue(store).in_flight.end();
        self.line_up(store);
        hung
    }

    /// Lets the worker of a job go on with a long call, as if the job had ended: the store has
    /// all its workers beside that one, so that no job waits for the call, and the call does
    /// not count for its hanging. Refused while the store has one in a long call, or none
    /// that is free.
    pub(crate) fn begin_long_call(&mut self, store: StoreSlot) -> bool {
        let has_free = self.has_free_worker(store);
        let queue = self.queue(store);
        if queue.in_long_call || !has_free {
            return false;
        }
        queue.in_long_call = true;
        // A store with a free worker does not count as hanging.
        queue.in_flight.end();
        self.in_long_calls += 1;
        true
    }

    /// Counts the worker as one of the store's again, after its long call. Refused while jobs
    /// wait, or there are as many workers as there may be: the worker counts again when its
    /// job has ended, which `end_long_call` records.
    pub(crate) fn return_from_long_call(&mut self, store: StoreSlot) -> bool {
        if !self.has_free_worker(store) || !self.has_room_in_total() {
            return false;
        }
        let queue = self.queue(store);
        queue.in_long_call = false;
        queue.in_flight.begin();
        self.in_long_calls = self.in_long_calls.saturating_sub(1);
        true
    }

    /// Records that a job that went on with a long call has ended, and that its worker was
    /// not counted again after the call.
    pub(crate) fn end_long_call(&mut self, store: StoreSlot) {
        self.running = self.running.saturating_sub(1);
        self.in_long_calls = self.in_long_calls.saturating_sub(1);
        self.queue(store).in_long_call = false;
    }

    /// Returns the number of workers that would have work now.
    pub(crate) fn busy_workers(&self) -> usize {
        let may_begin = |store: &StoreSlot| {
            let queue = &self.stores[store.0];
            queue.jobs.len().min(self.limits.per_store - queue.in_flight.count())
        };
        self.running + self.line.iter().map(may_begin).sum::<usize>()
    }

    /// Returns the number of running jobs, without those in long calls.
    pub(crate) fn running(&self) -> usize {
        self.running - self.in_long_calls
    }

    /// Returns the number of workers that are not counted because of long calls.
    pub(crate) fn in_long_calls(&self) -> usize {
        self.in_long_calls
    }

    /// Returns whether jobs wait for workers of their stores.
    pub(crate) fn has_waiting(&self) -> bool {
        self.stores.iter().any(|queue| !queue.jobs.is_empty())
    }

    /// Checks the stores that jobs wait for; returns those found hanging, with
    /// the jobs to be refused.
    pub(crate) fn look(&mut self) -> Vec<Hanging<J>> {
        let per_store = self.limits.per_store;
        let mut hanging = Vec::new();
        for (number, queue) in self.stores.iter_mut().enumerate() {
            let waits = !queue.jobs.is_empty() && queue.in_flight.count() >= per_store;
            if !waits || !queue.in_flight.look() {
                continue;
            }
            let jobs = std::mem::take(&mut queue.jobs);
            let mut refused = Vec::new();
            for (demand, job) in jobs {
                match demand {
                    Demand::Certain => queue.jobs.push_back((demand, job)),
                    Demand::Refusable => refused.push(job),
                }
            }
            let in_flight = queue.in_flight.count();
            hanging.push(Hanging { store: StoreSlot(number), in_flight, refused });
        }
        hanging
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hang_detector::HANGING_LOOKS;

    const HUNG: StoreSlot = StoreSlot(0);
    const SOUND: StoreSlot = StoreSlot(1);
    const LIMITS: Limits = Limits { per_store: 2, total: 3, queued: 4 };

    fn look_until_hanging(queues: &mut Queues<u32>) -> Vec<Hanging<u32>> {
        (1..HANGING_LOOKS).for_each(|_| assert!(queues.look().is_empty()));
        queues.look()
    }

    #[test]
    fn a_store_has_its_own_workers_and_no_others() {
        let mut queues = Queues::new(LIMITS);
        assert_eq!(queues.push(HUNG, Demand::Refusable, 1), Ok(JobState::Ready { first: true }));
        assert_eq!(queues.push(HUNG, Demand::Refusable, 2), Ok(JobState::Ready { first: false }));
        assert_eq!(queues.push(HUNG, Demand::Refusable, 3), Ok(JobState::Waiting));
        assert_eq!((queues.take(), queues.take()), (Some((HUNG, 1)), Some((HUNG, 2))));
        assert_eq!(queues.take(), None, "the third waits for one of the two");
        assert_eq!(queues.push(SOUND, Demand::Refusable, 4), Ok(JobState::Ready { first: true }));
        assert_eq!(queues.take(), Some((SOUND, 4)));
        assert!(!queues.end(HUNG));
        assert_eq!(queues.take(), Some((HUNG, 3)));
    }

    #[test]
    fn whatever_the_others_take_each_store_has_one_worker() {
        let mut queues = Queues::new(Limits { total: 2, ..LIMITS });
        for job in 0..2 {
            queues.push(HUNG, Demand::Refusable, job).unwrap();
            queues.take().unwrap();
        }
        for job in 2..4 {
            queues.push(SOUND, Demand::Refusable, job).unwrap();
        }
        assert_eq!(queues.take(), Some((SOUND, 2)));
        assert_eq!(queues.take(), None, "more than one only when there is room");
        queues.end(SOUND);
        assert_eq!(queues.take(), Some((SOUND, 3)));
    }

    #[test]
    fn what_waits_for_a_hanging_store_is_sent_away() {
        let mut queues = Queues::new(LIMITS);
        for job in 0..4 {
            queues.push(HUNG, Demand::Refusable, job).unwrap();
        }
        queues.push(HUNG, Demand::Certain, 9).unwrap();
        (0..2).for_each(|_| assert!(queues.take().is_some()));
        let found = look_until_hanging(&mut queues);
        assert_eq!((found[0].store, found[0].in_flight), (HUNG, 2));
        assert_eq!(found[0].refused, [2, 3]);
        assert_eq!(queues.push(HUNG, Demand::Refusable, 5), Err(5), "nobody waits again");
        assert!(queues.look().is_empty(), "said once");
        // The store answers again.
        assert!(queues.end(HUNG));
        assert_eq!(queues.take(), Some((HUNG, 9)), "a file is closed all the same");
        assert_eq!(queues.push(HUNG, Demand::Refusable, 6), Ok(JobState::Waiting));
    }

    #[test]
    fn a_store_that_ends_something_is_slow_and_does_not_hang() {
        let mut queues = Queues::new(LIMITS);
        (0..4).for_each(|job| assert!(queues.push(HUNG, Demand::Refusable, job).is_ok()));
        (0..2).for_each(|_| assert!(queues.take().is_some()));
        for job in 4..20 {
            (1..HANGING_LOOKS).for_each(|_| assert!(queues.look().is_empty()));
            queues.end(HUNG);
            queues.take().unwrap();
            queues.push(HUNG, Demand::Refusable, job).unwrap();
        }
    }

    #[test]
    fn a_store_has_all_its_workers_beside_one_in_a_long_call() {
        let mut queues = Queues::new(LIMITS);
        queues.push(HUNG, Demand::Refusable, 1).unwrap();
        assert_eq!(queues.take(), Some((HUNG, 1)));
        assert!(queues.begin_long_call(HUNG));
        assert_eq!((queues.running(), queues.busy_workers()), (0, 1));
        assert_eq!(queues.push(HUNG, Demand::Refusable, 2), Ok(JobState::Ready { first: true }));
        assert_eq!(queues.take(), Some((HUNG, 2)));
        assert!(!queues.begin_long_call(HUNG), "one at a time");
        assert_eq!(queues.push(HUNG, Demand::Refusable, 3), Ok(JobState::Ready { first: false }));
        assert_eq!(queues.take(), Some((HUNG, 3)));
        assert_eq!((queues.running(), queues.busy_workers()), (2, 3));
        assert_eq!(queues.push(HUNG, Demand::Refusable, 4), Ok(JobState::Waiting));
        // What hangs are the other two.
        let found = look_until_hanging(&mut queues);
        assert_eq!((found[0].in_flight, &found[0].refused[..]), (2, &[4][..]));
        queues.end_long_call(HUNG);
        assert_eq!(queues.push(HUNG, Demand::Refusable, 5), Err(5), "they still hang");
        assert!(queues.end(HUNG), "it answers again");
        assert!(queues.begin_long_call(HUNG), "another one may go on");
    }

    #[test]
    fn a_long_call_alone_is_no_storage_that_hangs() {
        let mut queues = Queues::new(LIMITS);
        queues.push(HUNG, Demand::Refusable, 0).unwrap();
        queues.take().unwrap();
        assert!(queues.begin_long_call(HUNG));
        for job in 1..3 {
            queues.push(HUNG, Demand::Refusable, job).unwrap();
            assert_eq!(queues.take(), Some((HUNG, job)), "beside the long call");
        }
        for job in 3..20 {
            assert_eq!(queues.push(HUNG, Demand::Refusable, job), Ok(JobState::Waiting));
            (1..HANGING_LOOKS).for_each(|_| assert!(queues.look().is_empty()));
            assert!(!queues.end(HUNG), "short calls end");
            assert_eq!(queues.take(), Some((HUNG, job)));
        }
    }

    #[test]
    fn long_calls_leave_all_workers_to_short_ones() {
        let mut queues = Queues::new(Limits { total: 2, ..LIMITS });
        for (job, store) in [(0, SOUND), (1, HUNG)] {
            queues.push(store, Demand::Refusable, job).unwrap();
            assert_eq!(queues.take(), Some((store, job)));
            assert!(queues.begin_long_call(store), "as many as there are stores");
        }
        assert_eq!((queues.running(), queues.in_long_calls()), (0, 2));
        for job in 2..5 {
            queues.push(HUNG, Demand::Refusable, job).unwrap();
        }
        assert_eq!((queues.take(), queues.take()), (Some((HUNG, 2)), Some((HUNG, 3))));
        queues.push(SOUND, Demand::Refusable, 5).unwrap();
        assert_eq!(queues.take(), Some((SOUND, 5)));
        // A store that hangs is found although it hangs in a long call, too.
        let found = look_until_hanging(&mut queues);
        assert_eq!((found[0].store, found[0].in_flight), (HUNG, 2));
        assert_eq!(found[0].refused, [4]);
    }

    #[test]
    fn a_worker_counts_again_after_its_long_call() {
        let mut queues = Queues::new(LIMITS);
        queues.push(HUNG, Demand::Refusable, 1).unwrap();
        queues.take().unwrap();
        assert!(queues.begin_long_call(HUNG));
        assert!(queues.return_from_long_call(HUNG));
        assert_eq!((queues.running(), queues.in_long_calls()), (1, 0));
        queues.push(HUNG, Demand::Refusable, 2).unwrap();
        assert_eq!(queues.take(), Some((HUNG, 2)));
        assert_eq!(queues.push(HUNG, Demand::Refusable, 3), Ok(JobState::Waiting));
        assert_eq!((queues.take(), queues.busy_workers()), (None, 2));
        assert!(!queues.end(HUNG));
        assert_eq!(queues.take(), Some((HUNG, 3)));
        assert!(!queues.end(HUNG));
        assert!(queues.begin_long_call(HUNG), "none is in a long call any more");
    }

    #[test]
    fn no_worker_counts_again_where_there_are_enough() {
        let mut queues = Queues::new(LIMITS);
        queues.push(HUNG, Demand::Refusable, 1).unwrap();
        queues.take().unwrap();
        assert!(queues.begin_long_call(HUNG));
        for job in 2..4 {
            queues.push(HUNG, Demand::Refusable, job).unwrap();
            queues.take().unwrap();
        }
        assert!(!queues.return_from_long_call(HUNG), "the store has both of its workers");
        // A job is about to begin.
        assert!(!queues.end(HUNG));
        queues.push(HUNG, Demand::Refusable, 4).unwrap();
        assert!(!queues.return_from_long_call(HUNG));
        assert_eq!(queues.busy_workers(), 3);
        assert_eq!(queues.take(), Some((HUNG, 4)));
        assert_eq!(queues.busy_workers(), 3);
        queues.end_long_call(HUNG);
        assert_eq!((queues.running(), queues.busy_workers()), (2, 2));
        // Another store has all that there may be.
        let mut queues = Queues::new(Limits { total: 1, ..LIMITS });
        queues.push(HUNG, Demand::Refusable, 1).unwrap();
        queues.take().unwrap();
        assert!(queues.begin_long_call(HUNG));
        queues.push(SOUND, Demand::Refusable, 2).unwrap();
        queues.take().unwrap();
        assert!(!queues.return_from_long_call(HUNG));
        assert!(!queues.end(SOUND));
        assert!(queues.return_from_long_call(HUNG));
    }

    #[test]
    fn no_worker_that_others_need_goes_on_with_a_long_call() {
        // The last one of the store.
        let mut queues = Queues::new(LIMITS);
        for job in 0..2 {
            queues.push(HUNG, Demand::Refusable, job).unwrap();
            queues.take().unwrap();
        }
        assert!(!queues.begin_long_call(HUNG));
        // One that is free, but about to begin.
        assert!(!queues.end(HUNG));
        queues.push(HUNG, Demand::Refusable, 2).unwrap();
        assert!(!queues.begin_long_call(HUNG));
    }

    #[test]
    fn queues_are_bounded() {
        let mut queues = Queues::new(LIMITS);
        let taken = (0..10).filter(|job| queues.push(HUNG, Demand::Refusable, *job).is_ok());
        assert_eq!(taken.count(), LIMITS.queued);
        assert!(queues.push(HUNG, Demand::Certain, 10).is_ok());
    }
}
