//! Exports and logical units that are datasets: found by name or pattern, and
//! followed while they are created, mounted, renamed, unmounted and destroyed.
//!
//! [`plan`] says what is to be served, given what there is; [`store`] serves a
//! dataset without keeping it busy; [`watch`] waits for changes and puts them
//! into effect.

pub(crate) mod facts;
mod file;
pub(crate) mod forward;
pub(crate) mod numbers;
pub(crate) mod plan;
pub(crate) mod release;
pub(crate) mod store;
#[cfg(test)]
mod store_tests;
pub(crate) mod watch;

use facts::Facts;
use plan::{Memory, Outcome, Plan, Sight};
use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use zgate_config::Config;
use zgate_control::tool::SystemTool;
use zgate_control::{Dataset, Discovery, PoolName, ToolError};

/// What is followed, and what is known of it.
pub(crate) struct Follow {
    discovery: Discovery,
    /// One change of what is served at a time.
    changing: Mutex<()>,
    state: Mutex<State>,
}

struct State {
    plan: Arc<Plan>,
    memory: Memory,
    /// What was put into effect last.
    shown: Shown,
}

/// What tells whether anything changed.
#[derive(Default, PartialEq)]
struct Shown {
    exports: Vec<(String, std::path::PathBuf, Option<plan::DatasetRef>, bool)>,
    volumes: Vec<plan::Volume>,
}

impl Shown {
    fn of(outcome: &Outcome) -> Self {
        let export = |export: &crate::lifecycle::run::ExportSettings| {
            let (pseudo, path) = (export.pseudo_path.clone(), export.path.clone());
            (pseudo, path, export.dataset.clone(), export.read_only)
        };
        Self {
            exports: outcome.exports.iter().map(export).collect(),
            volumes: outcome.volumes.clone(),
        }
    }
}

/// What there is, as far as a plan needs it.
struct Found {
    datasets: Vec<Dataset>,
    pools: BTreeSet<PoolName>,
}

/// A configuration that was read and looked up, but is not in effect.
pub(crate) struct Prepared {
    pub(crate) plan: Arc<Plan>,
    pub(crate) outcome: Outcome,
    memory: Memory,
}

impl Follow {
    /// Follows nothing yet.
    pub(crate) fn new() -> Arc<Self> {
        Self::with(Discovery::new(Arc::new(SystemTool::default())))
    }

    fn with(discovery: Discovery) -> Arc<Self> {
        let plan = Plan::of(&Config::default()).expect("nothing is asked for");
        let state =
            State { plan: Arc::new(plan), memory: Memory::default(), shown: Shown::default() };
        Arc::new(Self { discovery, changing: Mutex::default(), state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a configuration and looks for what it names.
    ///
    /// # Errors
    /// Naming the export or target, the reason and the next step.
    pub(crate) fn prepare(&self, config: &Config) -> io::Result<Prepared> {
        let plan = Plan::of(config)?;
        let found = self.find(&plan).map_err(|error| {
            let what = plan.first_pattern().unwrap_or_default();
            let hint =
                if error.is_missing() { ", or name a path instead of a dataset" } else { "" };
            io::Error::other(format!("{what}: {error}{hint}"))
        })?;
        // Entries may be others now; what is away is remembered by them.
        let mut memory = self.state().memory.holds_only();
        let outcome = plan.apply(&mut memory, &found.sight(Instant::now()));
        for name in plan.missing(&memory) {
            tracing::warn!(
                export = name,
                "its dataset is not there or not mounted; it is served once it is"
            );
        }
        Ok(Prepared { plan: Arc::new(plan), outcome, memory })
    }

    /// Reads a configuration, looks for what it names, and has `put` put it
    /// into effect.
    ///
    /// # Errors
    /// As [`Self::prepare`], and what `put` says.
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

    /// What was prepared is in effect.
    pub(crate) fn adopt(&self, prepared: Prepared) {
        let mut state = self.state();
        state.shown = Shown::of(&prepared.outcome);
        state.plan = prepared.plan;
        state.memory = prepared.memory;
    }

    fn find(&self, plan: &Plan) -> Result<Found, ToolError> {
        let bases = plan.bases();
        if bases.is_empty() {
            return Ok(Found { datasets: Vec::new(), pools: BTreeSet::new() });
        }
        let listed = self.discovery.tool().run("zpool", &["list", "-H", "-o", "name"])?;
        let listed: BTreeSet<&str> = listed.lines().collect();
        let mut datasets = Vec::new();
        for base in &bases {
            datasets.extend(self.discovery.datasets_below(base)?);
        }
        // Last: while a pool is being exported it is listed, and its datasets are
        // not, or some of them. Where the first one of all can be opened
        // afterwards, what was not listed is not there.
        let mut pools: BTreeSet<PoolName> = bases.iter().map(|base| base.pool()).collect();
        pools.retain(|pool| listed.contains(pool.as_str()) && self.is_open(pool));
        Ok(Found { datasets, pools })
    }

    fn is_open(&self, pool: &PoolName) -> bool {
        let name = self.discovery.tool().run("zfs", &["list", "-H", "-o", "name", pool.as_str()]);
        name.is_ok()
    }

    /// Asks about all datasets, for people who look.
    fn refresh(&self, facts: &Facts) {
        if !std::path::Path::new("/dev/zfs").exists() {
            return;
        }
        match self.discovery.datasets() {
            Ok(datasets) => facts.set(datasets),
            Err(error) => tracing::debug!(%error, "datasets cannot be listed"),
        }
    }
}

impl Found {
    fn sight(&self, now: Instant) -> Sight<'_> {
        Sight { datasets: &self.datasets, pools: &self.pools, now }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zgate_control::Tool;

    struct NotInstalled;

    impl Tool for NotInstalled {
        fn run(&self, program: &str, _: &[&str]) -> Result<String, ToolError> {
            let source = io::ErrorKind::NotFound.into();
            Err(ToolError::Start { program: program.to_owned(), source })
        }
    }

    #[test]
    fn without_zfs_paths_work_and_a_dataset_is_one_clear_error() {
        let follow = Follow::with(Discovery::new(Arc::new(NotInstalled)));
        let config = |text: &str| zgate_config::parse(text, std::path::Path::new("x")).unwrap();
        let path = config("[[export]]\npath = \"/srv\"\npseudo = \"/srv\"\n");
        assert_eq!(follow.prepare(&path).unwrap().outcome.exports.len(), 1);
        let dataset = config("[[export]]\ndataset = \"zfast/m/**\"\npseudo = \"/m\"\n");
        let said = follow.prepare(&dataset).err().unwrap().to_string();
        for part in ["export /m", "zfast/m/**", "zfsutils-linux", "path instead"] {
            assert!(said.contains(part), "{said}");
        }
    }

    /// A pool on its way out: it is listed, and nothing in it is.
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

    #[test]
    fn a_pool_that_is_being_exported_is_away_and_not_empty() {
        let config = "[[export]]\ndataset = \"lab/data/*\"\npseudo = \"/d\"\n";
        let config = zgate_config::parse(config, std::path::Path::new("x")).unwrap();
        let plan = Plan::of(&config).unwrap();
        for root_opens in [false, true] {
            let follow = Follow::with(Discovery::new(Arc::new(Leaving { root_opens })));
            let found = follow.find(&plan).unwrap();
            assert!(found.datasets.is_empty());
            assert_eq!(found.pools.len(), usize::from(root_opens));
        }
    }
}
