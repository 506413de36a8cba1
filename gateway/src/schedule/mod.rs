//! Snapshot schedules of a running gateway: a thread that reads the clock and
//! lets the planner of `zgate-control` decide.

pub(crate) mod metrics;
mod runner;

#[cfg(test)]
pub(crate) use runner::Figures;
use runner::Runner;
pub(crate) use runner::View;
use std::io;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use zgate_config::{Config, SnapshotConfig};
use zgate_control::snapshot::{Moment, Policy};
use zgate_control::{SystemTool, Tool};

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
pub(crate) type Flush = Box<dyn FnMut(&dyn Tool, &Policy) -> Result<(), String> + Send>;

/// Last and next run of each schedule, for display.
pub(crate) type Views = Arc<Mutex<Vec<View>>>;

/// Thread of the schedules.
#[derive(Debug)]
pub(crate) struct Schedule {
    changes: Mutex<mpsc::Sender<Vec<Policy>>>,
    views: Views,
}

impl Schedule {
    /// Starts the thread; snapshots that are due are taken at once. Results are
    /// stored in `views`.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn start(policies: Vec<Policy>, mut flush: Flush, views: Views) -> io::Result<Self> {
        let (changes, changed) = mpsc::channel();
        let shown = Arc::clone(&views);
        std::thread::Builder::new().name("zgate-schedule".to_owned()).spawn(move || {
            let tool = tool();
            let mut flush = |policy: &Policy| flush(&tool, policy);
            let mut runner = Runner::new(policies);
            loop {
                let at = now();
                runner.step(&tool, at, &mut flush);
                *shown.lock().unwrap_or_else(PoisonError::into_inner) = runner.views();
                let pause = runner.pause(at).min(LONGEST_PAUSE);
                match changed.recv_timeout(pause) {
                    Ok(policies) => runner.replace(policies),
                    Err(mpsc::RecvTimeoutError::Timeout) => {}
                    Err(mpsc::RecvTimeoutError::Disconnected) => return,
                }
            }
        })?;
        Ok(Self { changes: Mutex::new(changes), views })
    }

    /// Replaces the policies.
    pub(crate) fn replace(&self, policies: Vec<Policy>) {
        let changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        if changes.send(policies).is_err() {
            tracing::error!("the thread of the snapshot schedules has ended");
        }
    }

    /// Returns the last and next run of each schedule.
    pub(crate) fn views(&self) -> Vec<View> {
        self.views.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
