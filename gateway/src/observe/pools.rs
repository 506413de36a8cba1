//! Health of the machine's pools, queried in the background by a separate
//! thread, with a time limit for every query. Readers get the latest values and
//! their age; a suspended pool delays no reader.

use super::panics::caught_blocking;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use utoipa::ToSchema;
use zgate_control::health::{
    ArcStats, Change, Device, Kstat, PoolHealth, PoolState, Scan, Watch, ZilStats, kstat, sample,
};
use zgate_control::{Discovery, PoolName, SystemTool, ToolError, VdevClass};

/// Time limit of each query, in seconds.
const QUESTION_SECONDS: u64 = 10;
/// Duration of the latency measurement in each round, in seconds.
const LATENCY_SECONDS: u64 = 2;
/// Most devices of a pool that are shown.
const MAX_VDEVS: usize = 1000;
/// Age from which figures that `zpool` does not renew are a problem.
const SILENCE: Duration = Duration::from_secs(300);
/// Largest factor by which rounds become rarer: a query without an answer
/// leaves a process behind that hangs in the kernel.
const MAX_PAUSE_FACTOR: u32 = 16;

/// Known state of the machine's pools.
#[derive(Debug, Default)]
pub(crate) struct PoolWatch {
    view: Mutex<View>,
}

/// Latest values.
#[derive(Debug, Default)]
pub(super) struct View {
    pub(super) pools: BTreeMap<String, Seen>,
    /// ARC statistics; none if ZFS is not loaded.
    pub(super) arc: Option<ArcStats>,
    pub(super) zil: ZilStats,
    pub(super) failures: u64,
}

/// Known state of a pool.
#[derive(Debug)]
pub(super) struct Seen {
    /// State reported by the kernel in the latest round.
    pub(super) state: PoolState,
    /// Health when `zpool` last answered.
    pub(super) health: Option<PoolHealth>,
    pub(super) sampled: Option<Instant>,
    /// Reason for which it did not answer in the latest round.
    trouble: Option<String>,
    pub(super) watch: Watch,
}

impl Default for Seen {
    fn default() -> Self {
        let (health, sampled, trouble) = (None, None, None);
        Self { state: PoolState::Unknown, health, sampled, trouble, watch: Watch::default() }
    }
}

impl Seen {
    /// Returns the age of [`Self::health`], in seconds.
    pub(super) fn age_seconds(&self) -> Option<u64> {
        self.sampled.map(|sampled| sampled.elapsed().as_secs())
    }

    /// Returns the state reported by the kernel if it is worse than the one
    /// that `zpool` reported earlier.
    pub(super) fn state(&self) -> PoolState {
        match (&self.health, self.state) {
            (_, PoolState::Suspended) | (None, _) => self.state,
            (Some(health), _) => health.state(),
        }
    }

    /// Returns the problem of figures that are as old as `silence`, because `zpool` has not
    /// answered since. A suspended pool has a warning of its own.
    fn silence(&self, silence: Duration) -> Option<String> {
        let age = self.sampled?.elapsed();
        let is_silent = age >= silence && self.state != PoolState::Suspended;
        let trouble = self.trouble.as_ref().filter(|_| is_silent)?;
        Some(format!("what is told of it is {} min old: {trouble}", age.as_secs() / 60))
    }
}

/// A pool in `zgate status`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PoolReport {
    pub name: String,
    #[schema(value_type = String)]
    pub state: PoolState,
    /// Age of the other values in seconds; absent if there never was an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<u64>,
    /// Reason for which there was no answer in the latest round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    pub warnings: Vec<String>,
    #[serde(flatten)]
    pub figures: Option<Figures>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PoolFigures)]
pub(crate) struct Figures {
    pub size_bytes: u64,
    pub allocated_bytes: u64,
    pub data_errors: u64,
    pub device_errors: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub scan: Option<Scan>,
    /// Devices and groups of them, each behind the group that it is in.
    pub vdevs: Vec<VdevReport>,
}

/// A device of a pool, or a group of them.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Vdev)]
pub(crate) struct VdevReport {
    pub name: String,
    #[schema(value_type = String)]
    pub state: PoolState,
    /// `data`, `special`, `dedup`, `log`, `cache` or `spare`.
    #[schema(value_type = String)]
    pub class: VdevClass,
    /// 1: directly below the pool; 2: in a group there; and so on.
    pub depth: usize,
    pub read_errors: u64,
    pub write_errors: u64,
    pub checksum_errors: u64,
}

/// The caches and the intent log in `zgate status`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CacheReport {
    pub arc_bytes: u64,
    pub arc_max_bytes: u64,
    pub arc_hit_percent: Option<u64>,
    pub l2arc_bytes: u64,
    pub l2arc_hit_percent: Option<u64>,
    pub log_device_bytes_written: u64,
    pub log_bytes_written_elsewhere: u64,
}

fn vdev(device: &Device) -> VdevReport {
    VdevReport {
        name: device.name.clone(),
        state: device.state,
        class: device.class,
        depth: device.depth,
        read_errors: device.read_errors,
        write_errors: device.write_errors,
        checksum_errors: device.checksum_errors,
    }
}

impl PoolWatch {
    pub(super) fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the pools.
    pub(crate) fn report(&self) -> Vec<PoolReport> {
        let view = self.view();
        let show = view.pools.iter().map(|(name, seen)| PoolReport {
            name: name.clone(),
            state: seen.state(),
            age_seconds: seen.age_seconds(),
            trouble: seen.trouble.clone(),
            warnings: seen.watch.active().map(ToString::to_string).collect(),
            figures: seen.health.as_ref().map(|health| Figures {
                size_bytes: health.pool.size_bytes,
                allocated_bytes: health.pool.allocated_bytes,
                data_errors: health.status.data_errors,
                device_errors: health
                    .status
                    .devices_with_errors()
                    .map(|device| device.errors())
                    .sum(),
                scan: health.status.scan.clone(),
                vdevs: health.status.devices.iter().take(MAX_VDEVS).map(vdev).collect(),
            }),
        });
        show.collect()
    }

    /// Returns the pools with problems: each sentence, and whether the pool is
    /// of no use until it is solved.
    pub(crate) fn problems(&self) -> Vec<(bool, String)> {
        self.problems_after(SILENCE)
    }

    /// The same, with the age from which figures are too old.
    fn problems_after(&self, silence: Duration) -> Vec<(bool, String)> {
        let view = self.view();
        let mut problems = Vec::new();
        for (name, seen) in &view.pools {
            let state = seen.state();
            let (degraded, unusable) = match state {
                PoolState::Online | PoolState::Unknown => (false, false),
                PoolState::Degraded => (true, false),
                _ => (true, true),
            };
            let before = problems.len();
            problems
                .extend(seen.watch.active().map(|one| (unusable, format!("pool {name}: {one}"))));
            if degraded && problems.len() == before {
                problems.push((unusable, format!("pool {name}: {state}; see `zpool status -v`")));
            }
            let silent = seen.silence(silence);
            problems.extend(silent.map(|text| (false, format!("pool {name}: {text}"))));
        }
        problems
    }

    /// Returns the caches and the intent log; none if ZFS is not loaded.
    pub(crate) fn cache_report(&self) -> Option<CacheReport> {
        let view = self.view();
        let percent = |ratio: Option<f64>| ratio.map(|ratio| (ratio * 100.0).round() as u64);
        view.arc.map(|arc| CacheReport {
            arc_bytes: arc.size_bytes,
            arc_max_bytes: arc.max_bytes,
            arc_hit_percent: percent(arc.hit_ratio()),
            l2arc_bytes: arc.l2_size_bytes,
            l2arc_hit_percent: percent(arc.l2_hit_ratio()),
            log_device_bytes_written: view.zil.slog_bytes,
            log_bytes_written_elsewhere: view.zil.normal_bytes,
        })
    }

    /// Queries everything once. False: a query timed out.
    fn round(&self, root: &Path, zfs: &Discovery, latency_seconds: u64) -> bool {
        let Ok(states) = kstat::pool_states(root) else {
            // The module is not loaded (any more).
            let mut view = self.view();
            view.pools.clear();
            view.arc = None;
            return true;
        };
        let arc = Kstat::read(root, "arcstats").map(|counters| ArcStats::new(&counters));
        let zil = Kstat::read(root, "zil").map(|counters| ZilStats::new(&counters));
        self.take_states(&states, arc.ok(), zil.unwrap_or_default());
        let names: Vec<PoolName> = states
            .iter()
            .filter(|(_, state)| *state != PoolState::Suspended)
            .filter_map(|(name, _)| name.parse().ok())
            .collect();
        let mut in_time = true;
        let mut answered = Vec::new();
        for name in &names {
            match PoolHealth::ask(zfs, name) {
                Ok(health) => answered.push((name, health)),
                Err(error) => in_time &= self.take_trouble(name, &error),
            }
        }
        let measured: Vec<&PoolName> = answered.iter().map(|(name, _)| *name).collect();
        let mut latencies = Vec::new();
        match sample::latencies(&**zfs.tool(), &measured, latency_seconds) {
            Ok(found) => latencies = found,
            Err(error) => in_time &= !error.is_late(),
        }
        for (name, mut health) in answered {
            let of_pool = latencies.iter().filter(|one| one.pool == name.as_str());
            health.latencies = of_pool.cloned().collect();
            self.take_health(name, health);
        }
        in_time
    }

    fn take_states(&self, states: &[(String, PoolState)], arc: Option<ArcStats>, zil: ZilStats) {
        let mut view = self.view();
        view.arc = arc;
        view.zil = zil;
        view.pools.retain(|known, _| states.iter().any(|(name, _)| name == known));
        for (name, state) in states {
            let seen = view.pools.entry(name.clone()).or_default();
            seen.state = *state;
            if *state == PoolState::Suspended {
                seen.trouble = Some("suspended".to_owned());
                tell(name, seen.watch.observe_state(*state));
            }
        }
    }

    fn take_trouble(&self, name: &PoolName, error: &ToolError) -> bool {
        let mut view = self.view();
        view.failures += 1;
        if let Some(seen) = view.pools.get_mut(name.as_str()) {
            let text = error.to_string();
            if seen.trouble.as_ref() != Some(&text) {
                tracing::warn!(pool = %name, %error, "cannot determine the pool's health");
            }
            seen.trouble = Some(text);
        }
        !error.is_late()
    }

    fn take_health(&self, name: &PoolName, health: PoolHealth) {
        let mut view = self.view();
        let Some(seen) = view.pools.get_mut(name.as_str()) else { return };
        let changes = seen.watch.observe(&health);
        seen.health = Some(health);
        seen.sampled = Some(Instant::now());
        seen.trouble = None;
        drop(view);
        tell(name.as_str(), changes);
    }
}

/// Logs each change once.
fn tell(pool: &str, changes: Vec<Change>) {
    for change in changes {
        match change {
            Change::Raised(warning) => {
                tracing::warn!(pool, kind = ?warning.kind, "pool: {warning}");
            }
            Change::Cleared(kind) => tracing::info!(pool, ?kind, "pool: the warning is cleared"),
        }
    }
}

/// Queries every `seconds` seconds, on a separate thread that ends with the
/// process; 0: never.
///
/// # Errors
/// If the thread cannot be started.
pub(crate) fn start(watch: &Arc<PoolWatch>, seconds: u32) -> io::Result<()> {
    if seconds == 0 {
        return Ok(());
    }
    let watch = Arc::clone(watch);
    let every = Duration::from_secs(seconds.into());
    let latency_seconds = LATENCY_SECONDS.min(u64::from(seconds / 2)).max(1);
    thread::Builder::new().name("zgate-pools".to_owned()).spawn(move || {
        let tool = SystemTool { limit_seconds: QUESTION_SECONDS };
        let zfs = Discovery::new(Arc::new(tool));
        let mut factor = 1;
        loop {
            let began = Instant::now();
            let round = || watch.round(Path::new(kstat::ROOT), &zfs, latency_seconds);
            let in_time = caught_blocking("the look at the pools", round);
            factor = if in_time == Some(true) { 1 } else { (factor * 2).min(MAX_PAUSE_FACTOR) };
            thread::sleep((every * factor).saturating_sub(began.elapsed()));
        }
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn kstats(states: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (pool, state) in states {
            fs::create_dir(root.path().join(pool)).unwrap();
            fs::write(root.path().join(pool).join("state"), state).unwrap();
        }
        fs::write(root.path().join("arcstats"), "hits 4 3\nmisses 4 1\n").unwrap();
        root
    }

    #[test]
    fn a_suspended_pool_is_named_and_not_asked() {
        let root = kstats(&[("llm", "SUSPENDED\n")]);
        let script = zgate_control::tool::Recorded::default();
        let watch = PoolWatch::default();
        assert!(watch.round(root.path(), &Discovery::new(Arc::new(script)), 1));
        let report = serde_json::to_value(watch.report()).unwrap();
        assert_eq!(report[0]["state"], "SUSPENDED");
        assert!(report[0]["warnings"][0].as_str().unwrap().contains("zpool clear"), "{report}");
        assert!(matches!(&watch.problems()[..], [(true, said)] if said.starts_with("pool llm: ")));
        assert_eq!(watch.cache_report().unwrap().arc_hit_percent, Some(75));
    }

    #[test]
    fn figures_that_zpool_does_not_renew_are_a_problem() {
        let root = kstats(&[("llm", "ONLINE\n")]);
        let zfs = Discovery::new(Arc::new(zgate_control::tool::Recorded::default()));
        let watch = PoolWatch::default();
        watch.round(root.path(), &zfs, 1);
        assert!(watch.problems_after(Duration::ZERO).is_empty(), "there never were any");
        watch.view().pools.get_mut("llm").unwrap().sampled = Some(Instant::now());
        let problems = watch.problems_after(Duration::ZERO);
        let [(false, said)] = &problems[..] else { panic!("{problems:?}") };
        assert!(said.starts_with("pool llm: what is told of it is 0 min old: "), "{said}");
        assert!(watch.problems().is_empty(), "they are not that old");
        // One that is suspended has its warning.
        fs::write(root.path().join("llm").join("state"), "SUSPENDED\n").unwrap();
        watch.round(root.path(), &zfs, 1);
        assert_eq!(watch.problems_after(Duration::ZERO).len(), 1);
    }

    #[test]
    fn a_pool_that_is_gone_is_forgotten_and_failures_are_counted() {
        let root = kstats(&[("llm", "ONLINE\n")]);
        let zfs = Discovery::new(Arc::new(zgate_control::tool::Recorded::default()));
        let watch = PoolWatch::default();
        watch.round(root.path(), &zfs, 1);
        assert_eq!(watch.view().failures, 1);
        let report = serde_json::to_value(watch.report()).unwrap();
        assert_eq!((&report[0]["state"], report[0].get("age_seconds")), (&"ONLINE".into(), None));
        watch.round(Path::new("/no/such/folder"), &zfs, 1);
        assert!(watch.report().is_empty());
        assert!(watch.cache_report().is_none());
    }
}
