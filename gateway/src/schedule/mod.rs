//! Snapshot schedules of a running gateway: a thread of its own that looks at
//! the clock and lets the planner of `zgate-control` decide.

mod runner;

use crate::block::service::BlockService;
#[cfg(test)]
pub(crate) use runner::Figures;
use runner::Runner;
pub(crate) use runner::View;
use std::io;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use zgate_config::{Config, SnapshotConfig};
use zgate_control::snapshot::{Moment, Policy, volumes};
use zgate_control::{SystemTool, Tool};

/// How long the clock is not looked at, at most: it may be set.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long `zfs snapshot` and `zfs destroy` may take.
const TOOL_SECONDS: u64 = 300;

/// The policy of an entry of the configuration.
///
/// # Errors
/// When the dataset's name is none.
pub(crate) fn policy(schedule: &SnapshotConfig) -> io::Result<Policy> {
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

/// The policies of a configuration.
///
/// # Errors
/// When a dataset's name is none.
pub(crate) fn policies(config: &Config) -> io::Result<Vec<Policy>> {
    config.snapshots.iter().map(policy).collect()
}

/// The tool schedules and commands about snapshots use.
pub(crate) fn tool() -> SystemTool {
    SystemTool { limit_seconds: TOOL_SECONDS }
}

/// What the clock of this machine says.
pub(crate) fn now() -> Moment {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Moment(since.as_secs().try_into().unwrap_or(i64::MAX))
}

/// Before a snapshot: what initiators were told is written reaches the zvols.
fn flush(tool: &dyn Tool, block: &BlockService, policy: &Policy) -> Result<(), String> {
    if !block.has_units() {
        return Ok(());
    }
    let zvols = volumes(tool, &policy.dataset, policy.recursive).map_err(|e| e.to_string())?;
    block.flush_volumes(&zvols).map(drop).map_err(|error| error.to_string())
}

/// What each schedule did last and does next, for whoever shows it.
pub(crate) type Views = Arc<Mutex<Vec<View>>>;

/// The thread that keeps the schedules.
#[derive(Debug)]
pub(crate) struct Schedule {
    changes: Mutex<mpsc::Sender<Vec<Policy>>>,
    views: Views,
}

impl Schedule {
    /// Starts it; what is due is taken at once. What becomes of it is told in
    /// `views`.
    ///
    /// # Errors
    /// When the system starts no thread.
    pub(crate) fn start(
        policies: Vec<Policy>,
        block: Arc<BlockService>,
        views: Views,
    ) -> io::Result<Self> {
        let (changes, changed) = mpsc::channel();
        let shown = Arc::clone(&views);
        std::thread::Builder::new().name("zgate-schedule".to_owned()).spawn(move || {
            let tool = tool();
            let mut flush = |policy: &Policy| flush(&tool, &block, policy);
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

    /// Other policies from now on.
    pub(crate) fn replace(&self, policies: Vec<Policy>) {
        let changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        if changes.send(policies).is_err() {
            tracing::error!("the thread of the snapshot schedules has ended");
        }
    }

    /// What each schedule did last and does next.
    pub(crate) fn views(&self) -> Vec<View> {
        self.views.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
