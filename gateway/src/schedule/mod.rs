//! Snapshot schedules of a running gateway: for each pool a thread that reads the
//! clock and lets the planner of `zgate-control` decide. A pool that hangs keeps the
//! schedules of no other waiting.

pub(crate) mod metrics;
mod runner;

use crate::observe::panics::caught_blocking;
#[cfg(test)]
pub(crate) use runner::Figures;
use runner::Runner;
pub(crate) use runner::View;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use zgate_config::{Config, SnapshotConfig};
use zgate_control::snapshot::{Moment, Policy};
use zgate_control::{PoolName, SystemTool, Tool};

/// Longest pause between two reads of the clock, which may be set.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Time limit of `zfs snapshot` and `zfs destroy`, in seconds.
const TOOL_SECONDS: u64 = 300;

/// Returns the policy of an entry of the configuration.
///
/// # Errors
/// If the dataset's name is invalid.
pub fn policy(schedule: &SnapshotConfig) -> io::Result<Policy> {
    let dataset = schedule.dataset.parse().map_err(|error| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("[[snapshot]] dataset: {error}"))
    })?;
    Ok(Policy {
        dataset,
        recursive: schedule.recursive,
        keep: [
            schedule.frequently,
            schedule.hourly,
            schedule.daily,
            schedule.weekly,
            schedule.monthly,
            schedule.yearly,
        ],
        frequent_minutes: schedule.frequent_period_minutes,
        autosnap: schedule.autosnap,
        autoprune: schedule.autoprune,
    })
}

/// Returns the policies of a configuration.
///
/// # Errors
/// If a dataset's name is invalid.
pub fn policies(config: &Config) -> io::Result<Vec<Policy>> {
    config.snapshots.iter().map(policy).collect()
}

/// Returns the tool for schedules and commands about snapshots.
pub fn tool() -> SystemTool {
    SystemTool { limit_seconds: TOOL_SECONDS }
}

/// Returns the time of this machine's clock.
pub fn now() -> Moment {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Moment(since.as_secs().try_into().unwrap_or(i64::MAX))
}

/// Flushes acknowledged writes to the zvols of a policy, before a snapshot of
/// them.
pub(crate) type Flush = Box<dyn Fn(&dyn Tool, &Policy) -> Result<(), String> + Send + Sync>;

/// Last and next run of each schedule, for display.
pub(crate) type Views = Arc<Mutex<Vec<View>>>;

/// Tool, flush and views, which the threads share.
struct Means {
    tool: Arc<dyn Tool>,
    flush: Flush,
    views: Views,
}

/// Threads of the schedules. The thread of a pool stays when its last schedule goes,
/// so that there are never two for one pool.
pub(crate) struct Schedule {
    means: Arc<Means>,
    pools: Mutex<BTreeMap<PoolName, mpsc::Sender<Vec<Policy>>>>,
}

impl Schedule {
    /// Starts the threads; snapshots that are due are taken at once. Results are
    /// stored in `views`.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn start(policies: Vec<Policy>, flush: Flush, views: Views) -> io::Result<Self> {
        Self::with(Arc::new(tool()), policies, flush, views)
    }

    fn with(
        tool: Arc<dyn Tool>,
        policies: Vec<Policy>,
        flush: Flush,
        views: Views,
    ) -> io::Result<Self> {
        let means = Arc::new(Means { tool, flush, views });
        let schedule = Self { means, pools: Mutex::default() };
        schedule.put(policies)?;
        Ok(schedule)
    }

    /// Replaces the policies. Those of a pool that hangs are taken when it answers.
    pub(crate) fn replace(&self, policies: Vec<Policy>) {
        if let Err(error) = self.put(policies) {
            tracing::error!(%error, "cannot start a thread for snapshot schedules; reload again");
        }
    }

    fn put(&self, policies: Vec<Policy>) -> io::Result<()> {
        let mut divided: BTreeMap<PoolName, Vec<Policy>> = BTreeMap::new();
        for policy in policies {
            divided.entry(policy.dataset.pool()).or_default().push(policy);
        }
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        for (pool, changes) in pools.iter() {
            if changes.send(divided.remove(pool).unwrap_or_default()).is_err() {
                tracing::error!(%pool, "the thread of the pool's snapshot schedules has ended");
            }
        }
        for (pool, policies) in divided {
            let (changes, changed) = mpsc::channel();
            let (means, of) = (Arc::clone(&self.means), pool.clone());
            let thread = std::thread::Builder::new().name("zgate-schedule".to_owned());
            thread.spawn(move || means.keep(&of, policies, &changed))?;
            pools.insert(pool, changes);
        }
        Ok(())
    }

    /// Returns the last and next run of each schedule.
    pub(crate) fn views(&self) -> Vec<View> {
        self.means.views.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Means {
    /// Keeps the schedules of one pool until nobody changes them any more.
    fn keep(&self, pool: &PoolName, policies: Vec<Policy>, changed: &mpsc::Receiver<Vec<Policy>>) {
        let mut flush = |policy: &Policy| (self.flush)(&*self.tool, policy);
        let mut runner = Runner::new(policies);
        loop {
            let at = now();
            let step = || runner.step(&*self.tool, at, &mut flush);
            let stepped = caught_blocking("a snapshot schedule", step);
            self.show(pool, runner.views());
            // After a panic it may be due at once, again and again.
            let pause = if stepped.is_some() { runner.pause(at) } else { LONGEST_PAUSE };
            let pause = pause.min(LONGEST_PAUSE);
            match changed.recv_timeout(pause) {
                // While the pool hung, there may have been several.
                Ok(policies) => runner.replace(changed.try_iter().last().unwrap_or(policies)),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Replaces what is shown of one pool.
    fn show(&self, pool: &PoolName, now: Vec<View>) {
        let mut views = self.views.lock().unwrap_or_else(PoisonError::into_inner);
        views.retain(|view| pool_of(view) != pool.as_str());
        views.extend(now);
        // In one pool they have the order of the configuration.
        views.sort_by(|a, b| pool_of(a).cmp(pool_of(b)));
    }
}

fn pool_of(view: &View) -> &str {
    view.dataset.split('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use zgate_control::ToolError;

    /// Tells the snapshots that are taken.
    struct Taken(mpsc::Sender<String>);

    impl Tool for Taken {
        fn run(&self, _: &str, arguments: &[&str]) -> Result<String, ToolError> {
            if let ["snapshot", name] = arguments {
                // The test may have ended.
                let _ = self.0.send((*name).to_owned());
            }
            Ok(String::new())
        }
    }

    fn policy(dataset: &str) -> Policy {
        Policy {
            dataset: dataset.parse().unwrap(),
            recursive: false,
            keep: [0, 1, 0, 0, 0, 0],
            frequent_minutes: 15,
            autosnap: true,
            autoprune: true,
        }
    }

    #[test]
    fn a_pool_that_hangs_keeps_no_other_waiting() {
        let (told, taken) = mpsc::channel();
        let (answers, asked) = mpsc::channel::<()>();
        let asked = Mutex::new(asked);
        let flush = move |_: &dyn Tool, policy: &Policy| {
            if policy.dataset.as_str() == "a/x" {
                // It hangs until the test answers for it.
                let _ = asked.lock().unwrap().recv();
            }
            Ok(())
        };
        let views = Views::default();
        let policies = vec![policy("a/x"), policy("b/y")];
        let schedule =
            Schedule::with(Arc::new(Taken(told)), policies, Box::new(flush), views).unwrap();
        let next = || {
            let name: String = taken.recv_timeout(Duration::from_secs(30)).unwrap();
            name.split_once('@').unwrap().0.to_owned()
        };
        assert_eq!(next(), "b/y");
        schedule.replace(vec![policy("a/x"), policy("b/z"), policy("c/u")]);
        let mut both = [next(), next()];
        both.sort();
        assert_eq!(both, ["b/z", "c/u"], "a reload reaches the pools that answer");
        drop(answers);
        assert_eq!(next(), "a/x");
    }

    #[test]
    fn what_is_shown_of_one_pool_replaces_nothing_of_another() {
        let view = |dataset: &str| View { dataset: dataset.to_owned(), ..View::default() };
        let flush = |_: &dyn Tool, _: &Policy| Ok(());
        let (told, _taken) = mpsc::channel();
        let tool = Arc::new(Taken(told));
        let means = Means { tool, flush: Box::new(flush), views: Views::default() };
        let pool = |name: &str| name.parse::<PoolName>().unwrap();
        means.show(&pool("b"), vec![view("b/z"), view("b")]);
        means.show(&pool("a"), vec![view("a/x")]);
        means.show(&pool("bb"), vec![view("bb/x")]);
        means.show(&pool("a"), Vec::new());
        let shown = means.views.lock().unwrap().clone();
        let shown: Vec<&str> = shown.iter().map(|view| view.dataset.as_str()).collect();
        assert_eq!(shown, ["b/z", "b", "bb/x"]);
    }
}
