//! Follows datasets: finds those of a configuration, and puts changes into
//! effect while datasets are created, mounted, renamed, unmounted and
//! destroyed.

use crate::exports::absent::AbsentItem;
use crate::exports::dataset::known::KnownDatasets;
use crate::exports::granted::GrantedDisk;
use crate::exports::plan::{Inventory, Memory, Outcome, Plan, Volume};
use crate::exports::settings::DatasetRef;
use crate::exports::settings::ExportSettings;
use crate::iscsi::settings::{IscsiSettings, settings};
use crate::server::pool_datasets::PoolDatasets;
use crate::server::searches::Searches;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use zgate_config::{Config, ExportClient, LiveChange};
use zgate_control::tool::SystemTool;
use zgate_control::volume::VolumeRecord;
use zgate_control::{Dataset, DatasetName, Discovery, PoolName, Tool, ToolError};
use zgate_iscsi::names::IscsiName;

/// Time limit of each query of a pool that did not answer the last time, in
/// seconds: a change of another pool waits for it.
const LATE_POOL_SECONDS: u64 = 2;
/// Pause between questions with the full time limit to such a pool: one whose answer
/// takes longer as a rule comes back by them.
pub(super) const LATE_POOL_PAUSE: Duration = Duration::from_secs(60);

/// Followed datasets and their known state.
pub(crate) struct Reconciler {
    pub(super) discovery: Discovery,
    /// The same with a short time limit, for pools that did not answer.
    pub(super) hasty: Discovery,
    /// Answers of each pool.
    answers: Mutex<BTreeMap<PoolName, PoolAnswers>>,
    /// When this gateway began to follow datasets.
    pub(super) started: Instant,
    /// Serializes changes of what is served.
    pub(super) changing: Mutex<()>,
    /// Order of those who wait for a search.
    pub(super) searches: Searches,
    state: Mutex<State>,
}

pub(super) struct State {
    pub(super) plan: Arc<Plan>,
    /// Targets without their zvols.
    pub(super) block: Arc<IscsiSettings>,
    pub(super) memory: Memory,
    /// State put into effect last.
    pub(super) shown: Shown,
    /// Set if a device was awaited when the configuration came into effect.
    pub(super) pending: bool,
    /// Set if the last search has not put all zvols of patterns into effect.
    pub(super) leaves_zvols: bool,
}

/// State from which a change is detected.
#[derive(Default, PartialEq)]
pub(super) struct Shown {
    pub(super) exports: Vec<ShownExport>,
    /// Set while clients are told to retry, because there may be other exports.
    pub(super) incomplete: bool,
    /// With whether it has no device yet.
    pub(super) volumes: Vec<(Volume, bool)>,
    pub(super) granted: Vec<(GrantedDisk, bool)>,
}

/// Parts of an export that datasets change.
#[derive(PartialEq)]
pub(super) struct ShownExport {
    pub(super) pseudo_path: String,
    pub(super) path: std::path::PathBuf,
    pub(super) dataset: Option<DatasetRef>,
    read_only: bool,
    rates: zgate_config::Rates,
    /// Nodes with access, of a volume that the API made.
    clients: Vec<ExportClient>,
}

impl Shown {
    pub(super) fn of(outcome: &Outcome) -> Self {
        let export = |export: &ExportSettings| ShownExport {
            pseudo_path: export.pseudo_path.clone(),
            path: export.path.clone(),
            dataset: export.dataset.clone(),
            read_only: export.read_only,
            rates: export.rates,
            clients: export.clients.clone(),
        };
        let is_missing = |guid: u64| outcome.missing.contains(&guid);
        let volume = |volume: &Volume| (volume.clone(), is_missing(volume.guid));
        let disk = |disk: &GrantedDisk| (disk.clone(), is_missing(disk.guid));
        Self {
            exports: outcome.exports.iter().map(export).collect(),
            incomplete: outcome.exports.incomplete,
            volumes: outcome.volumes.iter().map(volume).collect(),
            granted: outcome.granted.iter().map(disk).collect(),
        }
    }
}

/// Result of a search for datasets.
#[derive(Default)]
pub(super) struct Found {
    pub(super) datasets: Vec<Dataset>,
    /// Volumes that the API made.
    made: Vec<VolumeRecord>,
    /// See [`Inventory::pools`].
    pools: BTreeSet<PoolName>,
    /// Pools that did not answer in time: what is found of them may be old.
    pub(super) late: BTreeSet<PoolName>,
    /// Pools of which nobody knows what they have.
    untold: BTreeSet<PoolName>,
    /// Set while a pool has never answered, for as long as clients wait for it.
    incomplete: bool,
}

/// Datasets of one pool, as it told them last.
#[derive(Clone, Default)]
pub(super) struct PoolAnswers {
    datasets: Vec<Dataset>,
    made: Vec<VolumeRecord>,
    /// Set once it has answered: until then nobody knows what it has.
    pub(super) is_known: bool,
    /// Set if it did not answer the last time: what is here may be old. Time of the
    /// next question with the full time limit.
    pub(super) patient_at: Option<Instant>,
}

impl PoolAnswers {
    pub(super) fn is_late(&self) -> bool {
        self.patient_at.is_some()
    }
}

/// A configuration that was read and resolved, but is not in effect.
pub(crate) struct Prepared {
    pub(crate) plan: Arc<Plan>,
    /// Targets without their zvols.
    pub(crate) block: Arc<IscsiSettings>,
    pub(crate) outcome: Outcome,
    memory: Memory,
}

impl Reconciler {
    /// Creates an empty state.
    pub(crate) fn new() -> Arc<Self> {
        let hasty = Discovery::new(Arc::new(SystemTool { limit_seconds: LATE_POOL_SECONDS }));
        Self::with(Discovery::new(Arc::new(SystemTool::default())), hasty)
    }

    /// Creates an empty state that asks late pools by `hasty`.
    pub(super) fn with(discovery: Discovery, hasty: Discovery) -> Arc<Self> {
        let plan = Plan::of(&Config::default()).expect("no datasets are configured");
        let state = State {
            plan: Arc::new(plan),
            block: Arc::default(),
            memory: Memory::default(),
            shown: Shown::default(),
            pending: false,
            leaves_zvols: false,
        };
        Arc::new(Self {
            discovery,
            hasty,
            answers: Mutex::default(),
            started: Instant::now(),
            changing: Mutex::default(),
            searches: Searches::default(),
            state: Mutex::new(state),
        })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether nobody holds the state.
    #[cfg(test)]
    pub(super) fn is_state_free(&self) -> bool {
        self.state.try_lock().is_ok()
    }

    pub(super) fn answers(&self) -> MutexGuard<'_, BTreeMap<PoolName, PoolAnswers>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records which numbers of LUNs are taken after a live change: zvols that
    /// are found later get others.
    pub(super) fn number_around(&self, change: &LiveChange) {
        let (LiveChange::AddLun { target, .. } | LiveChange::RemoveLun { target, .. }) = change
        else {
            return;
        };
        let mut state = self.state();
        let block = Arc::make_mut(&mut state.block);
        let wanted = IscsiName::parse(target);
        let known = block.targets.iter_mut().find(|known| Some(&known.name) == wanted.as_ref());
        match (known, change) {
            (Some(known), LiveChange::AddLun { lun, .. }) => known.luns.push(lun.clone()),
            (Some(known), LiveChange::RemoveLun { number, .. }) => {
                known.luns.retain(|lun| lun.number != *number);
            }
            _ => {}
        }
    }

    /// Reads a configuration and finds its datasets.
    ///
    /// # Errors
    /// The export or target, the reason and the next step.
    pub(crate) fn prepare(&self, config: &Config) -> io::Result<Prepared> {
        let (plan, block) = (Plan::of(config)?, Arc::new(settings(config)?));
        let found = self.find(&plan).map_err(|error| {
            let what = plan.first_pattern().unwrap_or_default();
            let hint = if error.is_missing() { ", or set a path instead of a dataset" } else { "" };
            io::Error::other(format!("{what}: {error}{hint}"))
        })?;
        let mut memory = {
            let state = self.state();
            plan.take_over(&state.plan, &state.memory)
        };
        let outcome = plan.apply(&mut memory, &found.inventory(Instant::now()));
        Ok(Prepared { plan: Arc::new(plan), block, outcome, memory })
    }

    /// Reads a configuration, finds its datasets, and puts it into effect by
    /// `put`, whose result it returns.
    ///
    /// # Errors
    /// As [`Self::prepare`], and the error of `put`.
    pub(crate) fn replace<T>(
        &self,
        config: &Config,
        put: impl FnOnce(&Prepared) -> io::Result<T>,
    ) -> io::Result<T> {
        let _one = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let prepared = self.prepare(config)?;
        let result = put(&prepared)?;
        self.adopt(prepared);
        Ok(result)
    }

    /// Records that a prepared configuration is in effect.
    pub(crate) fn adopt(&self, prepared: Prepared) {
        let mut state = self.state();
        state.shown = Shown::of(&prepared.outcome);
        state.pending = prepared.outcome.pending;
        state.leaves_zvols = false;
        state.plan = prepared.plan;
        state.block = prepared.block;
        // Not the holds of the preparation: a dataset was released or resumed since, and
        // the search that puts this into effect waits. What the preparation has ended,
        // the next search ends again.
        let holds = std::mem::take(&mut state.memory.holds);
        state.memory = prepared.memory;
        state.memory.holds = holds;
    }

    /// Returns the datasets of exports that do not exist or are not mounted.
    pub(crate) fn missing(&self) -> Vec<AbsentItem> {
        let state = self.state();
        state.plan.missing(&state.memory).collect()
    }

    /// Finds the datasets of a plan. The caller holds [`Self::changing`], so that no
    /// older answer of a pool takes the place of a newer one: it may be used later.
    pub(super) fn find(&self, plan: &Plan) -> Result<Found, ToolError> {
        let bases = plan.bases();
        if bases.is_empty() {
            return Ok(Found::default());
        }
        let mut pools: BTreeSet<PoolName> = bases.iter().map(|base| base.pool()).collect();
        let imported = self.list_pools(&pools)?;
        let all = match &imported {
            Some(_) => self.ask_all(&pools, &bases, plan)?,
            None => pools.iter().map(|pool| self.last_answers(pool, true)).collect(),
        };
        let (mut datasets, mut made) = (Vec::new(), Vec::new());
        let (mut late, mut incomplete) = (BTreeSet::new(), false);
        for (pool, answers) in pools.iter().zip(all) {
            late.extend(answers.is_late().then(|| pool.clone()));
            incomplete |= !answers.is_known;
            datasets.extend(answers.datasets);
            made.extend(answers.made);
        }
        let untold = self.untold(&pools, imported.as_ref());
        pools.retain(|pool| !late.contains(pool));
        // Last: a pool may have been away while its datasets were listed.
        match &imported {
            Some(imported) => self.retain_lasting(&mut pools, imported, &datasets),
            None => pools.clear(),
        }
        let incomplete = incomplete && self.has_patience(plan, Instant::now());
        Ok(Found { datasets, made, pools, late, untold, incomplete })
    }

    /// Asks a pool for its datasets. One that does not answer in time has those of
    /// its last answer, so that others can go on; from then on it is asked with a
    /// short limit, until it answers again.
    pub(super) fn answers_of(
        &self,
        pool: &PoolName,
        bases: &[DatasetName],
        plan: &Plan,
    ) -> Result<PoolAnswers, ToolError> {
        let is_late = self.answers().get(pool).is_some_and(PoolAnswers::is_late);
        let discovery = if is_late { &self.hasty } else { &self.discovery };
        match ask(discovery, pool, bases, plan) {
            Err(error) if error.is_late() => {
                tracing::warn!(%pool, %error, "the pool does not answer: its datasets stay as they were");
                // One that was asked with the short limit may have answered with the full one
                // meanwhile: the next search asks it so.
                Ok(self.last_answers(pool, !is_late))
            }
            answers => {
                let answers = answers?;
                self.answers().insert(pool.clone(), answers.clone());
                Ok(answers)
            }
        }
    }

    /// Returns whether an evaluation is due at `now` although nothing has happened.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        let is_due = {
            let State { memory, plan, leaves_zvols, .. } = &*self.state();
            memory.is_due(now, plan.away) || *leaves_zvols && memory.looks.is_due(now)
        };
        is_due || self.gives_up(now)
    }

    /// Returns whether late pools are to be asked with the full time limit at `now`.
    pub(super) fn has_pools_due(&self, now: Instant) -> bool {
        !self.pools_due(now).is_empty()
    }

    /// Returns the late pools that are to be asked with the full time limit.
    fn pools_due(&self, now: Instant) -> Vec<PoolName> {
        let all = self.answers();
        let due = all.iter().filter(|(_, last)| last.patient_at.is_some_and(|at| at <= now));
        due.map(|(pool, _)| pool.clone()).collect()
    }

    /// Asks late pools with the full time limit, each once in [`LATE_POOL_PAUSE`]. True: one
    /// was in time again, and the next search takes its answer. Changes of other pools do
    /// not wait for this: [`Self::changing`] is free.
    pub(super) fn ask_late_pools(&self, now: Instant) -> bool {
        let plan = Arc::clone(&self.state().plan);
        let bases = plan.bases();
        let mut has_answered = false;
        for pool in self.pools_due(now) {
            let asked = ask(&self.discovery, &pool, &bases, &plan);
            let is_late = asked.is_err_and(|error| error.is_late());
            has_answered |= !is_late;
            if let Some(last) = self.answers().get_mut(&pool) {
                // It may have answered a search meanwhile.
                let next = last.patient_at.filter(|_| is_late);
                last.patient_at = next.map(|_| Instant::now() + LATE_POOL_PAUSE);
            }
        }
        has_answered
    }

    /// Returns the runner of `zfs` and `zpool`.
    pub(super) fn tool(&self) -> &dyn Tool {
        &**self.discovery.tool()
    }

    /// Queries all datasets, for display.
    pub(super) fn refresh(&self, known: &KnownDatasets) {
        if !std::path::Path::new("/dev/zfs").exists() {
            return;
        }
        match self.discovery.datasets() {
            Ok(datasets) => known.set(datasets),
            Err(error) => tracing::debug!(%error, "cannot list datasets"),
        }
    }
}

/// Asks a pool for the datasets of a plan.
fn ask(
    discovery: &Discovery,
    pool: &PoolName,
    bases: &[DatasetName],
    plan: &Plan,
) -> Result<PoolAnswers, ToolError> {
    let PoolDatasets { datasets, made } = PoolDatasets::list(discovery, pool, bases, plan)?;
    Ok(PoolAnswers { datasets, made, is_known: true, patient_at: None })
}

impl Found {
    pub(super) fn inventory(&self, now: Instant) -> Inventory<'_> {
        let Self { datasets, made, pools, untold, incomplete, .. } = self;
        Inventory { datasets, made, pools, untold, incomplete: *incomplete, now }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(tool: impl Tool + 'static) -> Arc<Reconciler> {
        let tool: Arc<dyn Tool> = Arc::new(tool);
        Reconciler::with(Discovery::new(Arc::clone(&tool)), Discovery::new(tool))
    }

    struct NotInstalled;

    impl Tool for NotInstalled {
        fn run(&self, program: &str, _: &[&str]) -> Result<String, ToolError> {
            let source = io::ErrorKind::NotFound.into();
            Err(ToolError::Start { program: program.to_owned(), source })
        }
    }

    #[test]
    fn without_zfs_paths_work_and_a_dataset_is_one_clear_error() {
        let follow = with(NotInstalled);
        let config = |text: &str| zgate_config::parse(text, std::path::Path::new("x")).unwrap();
        let path = config("[[export]]\npath = \"/srv\"\npseudo = \"/srv\"\n");
        assert_eq!(follow.prepare(&path).unwrap().outcome.exports.len(), 1);
        let dataset = config("[[export]]\ndataset = \"zfast/m/**\"\npseudo = \"/m\"\n");
        let said = follow.prepare(&dataset).err().unwrap().to_string();
        for part in ["export /m", "zfast/m/**", "zfsutils-linux", "path instead"] {
            assert!(said.contains(part), "{said}");
        }
    }

    #[test]
    fn numbers_of_live_changes_are_taken() {
        let follow = with(NotInstalled);
        let text = "[iscsi]\nlisten = [\"127.0.0.1:0\"]\n[[target]]\nname = \"iqn.2026-11.test:a\"\n\
            [[target.lun]]\nnumber = 1\npath = \"/1\"\n";
        let config = zgate_config::parse(text, std::path::Path::new("x")).unwrap();
        follow.adopt(follow.prepare(&config).unwrap());
        let numbers = || {
            let state = follow.state();
            state.block.targets[0].luns.iter().map(|lun| lun.number).collect::<Vec<_>>()
        };
        let target = || "IQN.2026-11.test:a".to_owned();
        let lun = zgate_config::LunConfig { number: 7, ..config.targets[0].luns[0].clone() };
        follow.number_around(&LiveChange::AddLun { target: target(), lun });
        assert_eq!(numbers(), [1, 7]);
        follow.number_around(&LiveChange::RemoveLun { target: target(), number: 1 });
        assert_eq!(numbers(), [7]);
    }

    /// Two pools with one dataset each; one of them may hang.
    #[derive(Default)]
    struct TwoPools {
        hangs: std::sync::atomic::AtomicBool,
    }

    impl Tool for TwoPools {
        fn run(&self, program: &str, arguments: &[&str]) -> Result<String, ToolError> {
            use zgate_control::volume::model::Model;
            let asked = arguments.last().copied().unwrap_or_default();
            let hangs = self.hangs.load(std::sync::atomic::Ordering::Relaxed);
            match program {
                "zpool" => Ok("slow\ntank\n".to_owned()),
                _ if hangs && asked.starts_with("slow") => {
                    Err(ToolError::TimedOut { command: "zfs list".to_owned(), seconds: 2 })
                }
                _ => Model::with(&["slow", "slow/m", "slow/m/a", "tank", "tank/m", "tank/m/a"])
                    .run(program, arguments),
            }
        }
    }

    #[test]
    fn a_pool_that_hangs_keeps_its_datasets_and_delays_no_other() {
        let tool = Arc::new(TwoPools::default());
        let discovery = || Discovery::new(Arc::<TwoPools>::clone(&tool));
        let follow = Reconciler::with(discovery(), discovery());
        let config = "[[export]]\ndataset = \"slow/m/*\"\npseudo = \"/s\"\n\
            [[export]]\ndataset = \"tank/m/*\"\npseudo = \"/t\"\n";
        let config = zgate_config::parse(config, std::path::Path::new("x")).unwrap();
        let plan = Plan::of(&config).unwrap();
        let names = |found: &Found| {
            let mut names: Vec<_> = found.datasets.iter().map(|one| one.name.to_string()).collect();
            names.sort();
            names.retain(|name| name.ends_with("/a"));
            names
        };
        let found = follow.find(&plan).unwrap();
        assert_eq!((names(&found).len(), found.pools.len()), (2, 2));
        tool.hangs.store(true, std::sync::atomic::Ordering::Relaxed);
        for _ in 0..2 {
            let found = follow.find(&plan).unwrap();
            assert_eq!(names(&found), ["slow/m/a", "tank/m/a"], "as they were");
            assert_eq!(found.pools.len(), 1, "what the other one has lost may come back");
        }
        // From the start on: it has nothing, and the other is served.
        let late = Reconciler::with(discovery(), discovery());
        assert_eq!(names(&late.find(&plan).unwrap()), ["tank/m/a"]);
        tool.hangs.store(false, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(names(&late.find(&plan).unwrap()).len(), 2);
    }

    #[test]
    fn a_pool_that_is_slow_as_a_rule_comes_back_after_it_was_late_once() {
        use std::sync::atomic::Ordering::Relaxed;
        let (tool, hasty) = (Arc::new(TwoPools::default()), Arc::new(TwoPools::default()));
        let discovery = |tool: &Arc<TwoPools>| Discovery::new(Arc::<TwoPools>::clone(tool));
        let follow = Reconciler::with(discovery(&tool), discovery(&hasty));
        let config = "[[export]]\ndataset = \"slow/m/*\"\npseudo = \"/s\"\n\
            [[export]]\ndataset = \"tank/m/*\"\npseudo = \"/t\"\n";
        let config = zgate_config::parse(config, std::path::Path::new("x")).unwrap();
        follow.adopt(follow.prepare(&config).unwrap());
        let plan = Arc::clone(&follow.state().plan);
        let late = || follow.find(&plan).unwrap().late.len();
        let before = Instant::now();
        hasty.hangs.store(true, Relaxed);
        tool.hangs.store(true, Relaxed);
        assert_eq!(late(), 1);
        tool.hangs.store(false, Relaxed);
        assert_eq!(late(), 1, "the short limit is not enough for it");
        assert!(!follow.has_pools_due(before));
        assert!(!follow.ask_late_pools(before));
        assert_eq!(late(), 1, "it was asked with the full limit a moment ago");
        let later = Instant::now() + LATE_POOL_PAUSE;
        assert!(follow.has_pools_due(later));
        assert!(follow.ask_late_pools(later));
        for _ in 0..2 {
            assert_eq!(late(), 0);
        }
        assert!(!follow.has_pools_due(later));
    }

    #[test]
    fn a_release_and_its_end_during_a_reload_are_not_forgotten() {
        use zgate_control::volume::model::Model;
        let follow = with(Model::with(&["tank", "tank/m", "tank/m/a"]));
        let config = "[[export]]\ndataset = \"tank/m/*\"\npseudo = \"/m\"\n";
        let config = zgate_config::parse(config, std::path::Path::new("x")).unwrap();
        follow.adopt(follow.prepare(&config).unwrap());
        let plan = Arc::clone(&follow.state().plan);
        let found = follow.find(&plan).unwrap();
        let name = "tank/m".parse().unwrap();
        let until = Instant::now() + Duration::from_secs(3600);
        let release = |_: &Prepared| {
            follow.state().memory.hold(&name, &found.datasets, until);
            Ok(())
        };
        follow.replace(&config, release).unwrap();
        assert_eq!(follow.state().memory.holds.len(), found.datasets.len());
        let resume = |_: &Prepared| {
            follow.state().memory.resume(&name);
            Ok(())
        };
        follow.replace(&config, resume).unwrap();
        assert!(follow.state().memory.holds.is_empty());
    }
}
