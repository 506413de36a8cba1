//! Sizes of zvols whose devices are not there, as ZFS tells them. A host that finds such a disk
//! before its device comes is to learn its size at once: Linux takes one that it is not told within
//! 100 s for 0, and does not look again by itself.
//!
//! A pool that hangs keeps each program that asks it, and thousands of zvols may be absent at once.
//! So a question is for all zvols directly below a dataset, each pool has one at a time, and one
//! that has not answered in time has a pause.

use super::zvol_identity::guid_of;
use crate::iscsi::limits::{ZVOL_SIZES_AGE, ZVOL_SIZES_PAUSE, ZVOL_SIZES_SECONDS};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use zgate_block::zvol_geometry;
use zgate_config::{LunConfig, NaaId};
use zgate_control::health::kstat;
use zgate_control::{DatasetName, PoolName, SystemTool, Tool, ToolError};
use zgate_store::block_store::BlockGeometry;

/// Properties that are asked for.
const COLUMNS: &str = "name,guid,volsize,volblocksize";

/// A zvol, as ZFS tells it.
#[derive(Clone, Copy)]
struct Zvol {
    guid: u64,
    size_bytes: u64,
    block_bytes: u32,
}

/// Zvols directly below a dataset, by their names; `None` if ZFS does not tell them.
type Zvols = Option<Arc<BTreeMap<String, Zvol>>>;

/// Answers of one pool.
#[derive(Default)]
struct PoolAnswers {
    /// A question is under way.
    is_asked: bool,
    /// It has not answered in time, and is not asked until then.
    paused_until: Option<Instant>,
    /// Answers about datasets, and when each came.
    parents: BTreeMap<DatasetName, (Instant, Zvols)>,
}

/// Sizes of zvols, as ZFS tells them.
pub(crate) struct ZvolSizes {
    tool: Arc<dyn Tool>,
    /// Directory with one of each imported pool.
    pools: PathBuf,
    /// Longest wait for a question to the same pool that is under way.
    patience: Duration,
    /// Age up to which an answer is used.
    max_age: Duration,
    answers: Mutex<BTreeMap<PoolName, PoolAnswers>>,
    /// A question has ended.
    ended: Condvar,
    /// Latest geometries of absent logical units, with the paths that they are of.
    told: Mutex<BTreeMap<NaaId, (PathBuf, BlockGeometry)>>,
}

/// A question that is under way, until it is dropped: also if the program cannot be run.
struct Question<'a> {
    sizes: &'a ZvolSizes,
    pool: PoolName,
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        if let Some(of_pool) = self.sizes.answers().get_mut(&self.pool) {
            of_pool.is_asked = false;
        }
        self.sizes.ended.notify_all();
    }
}

impl ZvolSizes {
    /// Asks ZFS of this machine.
    pub(super) fn new() -> Self {
        let tool = SystemTool { limit_seconds: ZVOL_SIZES_SECONDS };
        Self::with(Arc::new(tool), kstat::ROOT.into())
    }

    /// Asks this tool about zvols of the pools that have a directory in `pools`.
    pub(in crate::iscsi) fn with(tool: Arc<dyn Tool>, pools: PathBuf) -> Self {
        Self {
            tool,
            pools,
            patience: Duration::from_secs(ZVOL_SIZES_SECONDS),
            max_age: ZVOL_SIZES_AGE,
            answers: Mutex::default(),
            ended: Condvar::new(),
            told: Mutex::default(),
        }
    }

    fn answers(&self) -> MutexGuard<'_, BTreeMap<PoolName, PoolAnswers>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn all_told(&self) -> MutexGuard<'_, BTreeMap<NaaId, (PathBuf, BlockGeometry)>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for the size of a logical unit that is absent, and keeps what ZFS tells. Blocks for
    /// twice [`ZVOL_SIZES_SECONDS`] at most.
    pub(super) fn ask(&self, lun: &LunConfig, naa: NaaId) {
        if let Some(geometry) = self.geometry(lun) {
            self.tell(naa, &lun.path, geometry);
        }
    }

    /// Keeps what ZFS tells of the logical unit at this path.
    pub(in crate::iscsi) fn tell(&self, naa: NaaId, path: &Path, geometry: BlockGeometry) {
        self.all_told().insert(naa, (path.to_owned(), geometry));
    }

    /// Returns what ZFS has told last of the logical unit at this path.
    pub(super) fn told(&self, naa: NaaId, path: &Path) -> Option<BlockGeometry> {
        let all = self.all_told();
        let (of, geometry) = all.get(&naa)?;
        (of == path).then_some(*geometry)
    }

    /// Forgets what it has told of all but the logical units that are absent. Returns whether it
    /// has told anything of these.
    pub(in crate::iscsi) fn keep(&self, absent: impl Iterator<Item = NaaId>) -> bool {
        let mut all = self.all_told();
        if !all.is_empty() {
            let absent: BTreeSet<NaaId> = absent.collect();
            all.retain(|naa, _| absent.contains(naa));
        }
        !all.is_empty()
    }

    /// Returns the geometry that the device of a logical unit will have; none if its path is not
    /// that of a zvol, or of another zvol than it was found for, or ZFS does not tell. While the
    /// pool is not imported, no program is started.
    fn geometry(&self, lun: &LunConfig) -> Option<BlockGeometry> {
        let dataset = DatasetName::of_device(&lun.path)?;
        let parent = dataset.parent()?;
        if !self.pools.join(dataset.pool().as_str()).is_dir() {
            return None;
        }
        let zvols = self.below(&parent)?;
        let zvol = zvols.get(dataset.as_str())?;
        if guid_of(lun).is_some_and(|guid| guid != zvol.guid) {
            return None;
        }
        zvol_geometry(zvol.size_bytes, zvol.block_bytes, lun.read_only)
    }

    /// Returns the zvols directly below a dataset: by an answer that is young enough, else by
    /// a question, which waits for another one to the same pool.
    fn below(&self, parent: &DatasetName) -> Zvols {
        let (pool, deadline) = (parent.pool(), Instant::now() + self.patience);
        let mut all = self.answers();
        loop {
            let now = Instant::now();
            let of_pool = all.entry(pool.clone()).or_default();
            if of_pool.paused_until.is_some_and(|until| now < until) {
                return None;
            }
            if let Some((came, zvols)) = of_pool.parents.get(parent)
                && now.saturating_duration_since(*came) < self.max_age
            {
                return zvols.clone();
            }
            if !of_pool.is_asked {
                of_pool.is_asked = true;
                break;
            }
            let left = deadline.saturating_duration_since(now);
            if left.is_zero() {
                return None;
            }
            all = self.ended.wait_timeout(all, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(all);
        let question = Question { sizes: self, pool };
        let answer = zvols_below(&*self.tool, parent);
        if let Err(error) = &answer {
            tracing::debug!(%error, "the sizes of absent LUNs are not known");
        }
        let is_late = answer.as_ref().is_err_and(ToolError::is_late);
        let zvols = answer.ok().map(Arc::new);
        if let Some(of_pool) = self.answers().get_mut(&question.pool) {
            of_pool.paused_until = is_late.then(|| Instant::now() + ZVOL_SIZES_PAUSE);
            of_pool.parents.retain(|_, (came, _)| came.elapsed() < self.max_age);
            of_pool.parents.insert(parent.clone(), (Instant::now(), zvols.clone()));
        }
        zvols
    }
}

/// Asks for all zvols directly below a dataset.
fn zvols_below(tool: &dyn Tool, parent: &DatasetName) -> Result<BTreeMap<String, Zvol>, ToolError> {
    let arguments = ["list", "-Hp", "-d", "1", "-t", "volume", "-o", COLUMNS, parent.as_str()];
    let said = tool.run("zfs", &arguments)?;
    Ok(said.lines().filter_map(zvol).collect())
}

fn zvol(line: &str) -> Option<(String, Zvol)> {
    let (name, rest) = line.split_once('\t')?;
    let mut values = rest.split('\t').map(|text| text.parse::<u64>().ok());
    let mut next = || values.next().flatten();
    let (guid, size_bytes, block_bytes) = (next()?, next()?, next()?);
    let block_bytes = u32::try_from(block_bytes).ok()?;
    Some((name.to_owned(), Zvol { guid, size_bytes, block_bytes }))
}

#[cfg(test)]
#[path = "zvol_sizes_tests.rs"]
mod tests;
