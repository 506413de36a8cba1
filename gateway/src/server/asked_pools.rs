//! Pools that are asked for their datasets at the same time.

use super::reconcile::{PoolAnswers, Reconciler};
use crate::exports::plan::Plan;
use std::collections::BTreeSet;
use std::panic::resume_unwind;
use std::thread;
use zgate_control::{DatasetName, PoolName, ToolError};

impl Reconciler {
    /// Asks pools for the datasets of a plan; returns their answers in the order of the pools.
    /// However many of them do not answer, a search, and with it a start, waits for one time
    /// limit: a service manager ends a start that takes longer, again and again.
    ///
    /// # Errors
    /// That of the first pool which has one.
    pub(super) fn ask_all(
        &self,
        pools: &BTreeSet<PoolName>,
        bases: &[DatasetName],
        plan: &Plan,
    ) -> Result<Vec<PoolAnswers>, ToolError> {
        thread::scope(|scope| {
            let further = pools.iter().skip(1).map(|pool| {
                let thread = thread::Builder::new().name("zgate-ask".to_owned());
                let asking = thread.spawn_scoped(scope, move || self.answers_of(pool, bases, plan));
                (pool, asking)
            });
            // All of them begin before the first is waited for.
            let further: Vec<_> = further.collect();
            let first = pools.first().map(|pool| self.answers_of(pool, bases, plan));
            let further = further.into_iter().map(|(pool, asking)| match asking {
                Ok(asking) => asking.join().unwrap_or_else(|panic| resume_unwind(panic)),
                // Without a thread it is asked here.
                Err(_) => self.answers_of(pool, bases, plan),
            });
            first.into_iter().chain(further).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Condvar, Mutex};
    use std::time::Duration;
    use zgate_control::{Discovery, Tool};

    /// Pools that do not answer; each question waits until all are asked.
    #[derive(Default)]
    struct AllHang {
        asked: Mutex<usize>,
        is_asked: Condvar,
        was_alone: AtomicBool,
    }

    impl Tool for AllHang {
        fn run(&self, program: &str, _: &[&str]) -> Result<String, ToolError> {
            if program == "zpool" {
                return Ok("one\ntwo\nthree\n".to_owned());
            }
            let mut asked = self.asked.lock().unwrap();
            *asked += 1;
            self.is_asked.notify_all();
            let limit = Duration::from_secs(10);
            let waited = self.is_asked.wait_timeout_while(asked, limit, |asked| *asked < 3);
            self.was_alone.fetch_or(waited.unwrap().1.timed_out(), Ordering::Relaxed);
            Err(ToolError::TimedOut { command: "zfs list".to_owned(), seconds: 30 })
        }
    }

    #[test]
    fn pools_that_hang_are_waited_for_at_the_same_time() {
        let tool = Arc::new(AllHang::default());
        let discovery = || Discovery::new(Arc::<AllHang>::clone(&tool));
        let follow = Reconciler::with(discovery(), discovery());
        let entry =
            |pool: &str| format!("[[export]]\ndataset = \"{pool}/m/*\"\npseudo = \"/{pool}\"\n");
        let config = ["one", "two", "three"].map(entry).concat();
        let config = zgate_config::parse(&config, Path::new("x")).unwrap();
        let found = follow.find(&Plan::of(&config).unwrap()).unwrap();
        assert_eq!((found.late.len(), found.datasets.len()), (3, 0));
        assert!(!tool.was_alone.load(Ordering::Relaxed), "one was asked after the other");
    }
}
