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
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use zgate_config::{Config, ExportClient, LiveChange};
use zgate_control::tool::SystemTool;
use zgate_control::volume::{self, VolumeRecord};
use zgate_control::{Dataset, DatasetName, Discovery, PoolName, Tool, ToolError};
use zgate_iscsi::names::IscsiName;

/// Time limit of each query of a pool that did not answer the last time, in
/// seconds: a change of another pool waits for it.
const LATE_POOL_SECONDS: u64 = 2;

/// Followed datasets and their known state.
pub(crate) struct Reconciler {
    discovery: Discovery,
    /// The same with a short time limit, for pools that did not answer.
    hasty: Discovery,
    /// Answers of each pool.
    answers: Mutex<BTreeMap<PoolName, PoolAnswers>>,
    /// Serializes changes of what is served.
    pub(super) changing: Mutex<()>,
    state: Mutex<State>,
}

pub(super) struct State {
    pub(super) plan: Arc<Plan>,
    /// Targets without their zvols.
    pub(super) block: Arc<IscsiSettings>,
    pub(super) memory: Memory,
    /// State put into effect last.
    pub(super) shown: Shown,
}

/// State from which a change is detected.
#[derive(Default, PartialEq)]
pub(super) struct Shown {
    pub(super) exports: Vec<ShownExport>,
    pub(super) volumes: Vec<Volume>,
    pub(super) granted: Vec<GrantedDisk>,
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
        Self {
            exports: outcome.exports.iter().map(export).collect(),
            volumes: outcome.volumes.clone(),
            granted: outcome.granted.clone(),
        }
    }
}

/// Result of a search for datasets.
pub(super) struct Found {
    pub(super) datasets: Vec<Dataset>,
    /// Volumes that the API made.
    made: Vec<VolumeRecord>,
    pools: BTreeSet<PoolName>,
}

/// Datasets of one pool, as it told them last.
#[derive(Clone, Default)]
struct PoolAnswers {
    datasets: Vec<Dataset>,
    made: Vec<VolumeRecord>,
    /// It did not answer the last time: what is here may be old.
    is_late: bool,
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

    fn with(discovery: Discovery, hasty: Discovery) -> Arc<Self> {
        let plan = Plan::of(&Config::default()).expect("no datasets are configured");
        let state = State {
            plan: Arc::new(plan),
            block: Arc::default(),
            memory: Memory::default(),
            shown: Shown::default(),
        };
        Arc::new(Self {
            discovery,
            hasty,
            answers: Mutex::default(),
            changing: Mutex::default(),
            state: Mutex::new(state),
        })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
        // Entries may have changed; datasets that are away are remembered by
        // their entries.
        let mut memory = self.state().memory.holds_only();
        let outcome = plan.apply(&mut memory, &found.inventory(Instant::now()));
        Ok(Prepared { plan: Arc::new(plan), block, outcome, memory })
    }

    /// Reads a configuration, finds its datasets, and puts it into effect by
    /// `put`.
    ///
    /// # Errors
    /// As [`Self::prepare`], and the error of `put`.
    pub(crate) fn replace(
        &self,
        config: &Config,
        put: impl FnOnce(&Prepared) -> io::Result<()>,
    ) -> io::Result<()> {
        let _one = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let prepared = self.prepare(config)?;
        put(&prepared)?;
        self.adopt(prepared);
        Ok(())
    }

    /// Records that a prepared configuration is in effect.
    pub(crate) fn adopt(&self, prepared: Prepared) {
        let mut state = self.state();
        state.shown = Shown::of(&prepared.outcome);
        state.plan = prepared.plan;
        state.block = prepared.block;
        state.memory = prepared.memory;
    }

    /// Returns the datasets of exports that do not exist or are not mounted.
    pub(crate) fn missing(&self) -> Vec<AbsentItem> {
        let state = self.state();
        state.plan.missing(&state.memory).collect()
    }

    pub(super) fn find(&self, plan: &Plan) -> Result<Found, ToolError> {
        let bases = plan.bases();
        if bases.is_empty() {
            return Ok(Found { datasets: Vec::new(), made: Vec::new(), pools: BTreeSet::new() });
        }
        let listed = self.discovery.tool().run("zpool", &["list", "-H", "-o", "name"])?;
        let listed: BTreeSet<&str> = listed.lines().collect();
        let (mut datasets, mut made) = (Vec::new(), Vec::new());
        let mut pools: BTreeSet<PoolName> = bases.iter().map(|base| base.pool()).collect();
        let mut late = BTreeSet::new();
        for pool in &pools {
            let answers = self.answers_of(pool, &bases, plan)?;
            late.extend(answers.is_late.then(|| pool.clone()));
            datasets.extend(answers.datasets);
            made.extend(answers.made);
        }
        // Last: while a pool is being exported, the pool is listed but some or
        // all of its datasets are not. If the pool's root can be opened
        // afterwards, datasets that were not listed do not exist.
        pools.retain(|pool| {
            listed.contains(pool.as_str()) && !late.contains(pool) && self.is_open(pool)
        });
        Ok(Found { datasets, made, pools })
    }

    /// Asks a pool for its datasets. One that does not answer in time has those of
    /// its last answer, so that others can go on; from then on it is asked with a
    /// short limit, until it answers again.
    fn answers_of(
        &self,
        pool: &PoolName,
        bases: &[DatasetName],
        plan: &Plan,
    ) -> Result<PoolAnswers, ToolError> {
        let last = {
            let all = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
            all.get(pool).cloned().unwrap_or_default()
        };
        let discovery = if last.is_late { &self.hasty } else { &self.discovery };
        let ask = || {
            let mut answers = PoolAnswers::default();
            for base in bases.iter().filter(|base| base.pool() == *pool) {
                answers.datasets.extend(discovery.datasets_below(base)?);
            }
            let parents = plan.parents().iter().filter(|one| one.dataset.pool() == *pool);
            for parent in parents {
                match volume::list(&**discovery.tool(), &parent.dataset) {
                    Err(error) if error.is_absent() => {}
                    found => answers.made.extend(found?),
                }
            }
            Ok(answers)
        };
        let answers = match ask() {
            Err(error) if ToolError::is_late(&error) => {
                tracing::warn!(%pool, %error, "the pool does not answer: its datasets stay as they were");
                PoolAnswers { is_late: true, ..last }
            }
            answers => answers?,
        };
        let mut all = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(pool.clone(), answers.clone());
        Ok(answers)
    }

    fn is_open(&self, pool: &PoolName) -> bool {
        let name = self.discovery.tool().run("zfs", &["list", "-H", "-o", "name", pool.as_str()]);
        name.is_ok()
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

impl Found {
    pub(super) fn inventory(&self, now: Instant) -> Inventory<'_> {
        Inventory { datasets: &self.datasets, made: &self.made, pools: &self.pools, now }
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

    /// A pool that is being exported: it is listed, but its datasets are not.
    struct Leaving {
        root_opens: bool,
    }

    impl Tool for Leaving {
        fn run(&self, program: &str, arguments: &[&str]) -> Result<String, ToolError> {
            let root = ["list", "-H", "-o", "name", "lab"];
            match program {
                "zpool" => Ok("lab\nother\n".to_owned()),
                _ if arguments == root && self.root_opens => Ok("lab\n".to_owned()),
                _ => Err(ToolError::Failed {
                    command: "zfs list".to_owned(),
                    status: Some(1),
                    said: "cannot open 'lab/data': dataset does not exist".to_owned(),
                }),
            }
        }
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
    fn a_pool_that_is_being_exported_is_away_and_not_empty() {
        let config = "[[export]]\ndataset = \"lab/data/*\"\npseudo = \"/d\"\n";
        let config = zgate_config::parse(config, std::path::Path::new("x")).unwrap();
        let plan = Plan::of(&config).unwrap();
        for root_opens in [false, true] {
            let follow = with(Leaving { root_opens });
            let found = follow.find(&plan).unwrap();
            assert!(found.datasets.is_empty());
            assert_eq!(found.pools.len(), usize::from(root_opens));
        }
    }
}
