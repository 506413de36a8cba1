//! Pools and datasets.

use crate::facts::{PoolFacts, ZfsFacts};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use zgate_control::health::{ArcStats, Kstat, PoolHealth, PoolState, kstat, sample};
use zgate_control::{Discovery, Pool, PoolName, SystemTool, Tool, VdevClass};

/// Time limit of each query, in seconds.
const QUESTION_SECONDS: u64 = 15;

/// Reads all facts about ZFS; empty if it is not loaded.
pub(super) fn facts() -> ZfsFacts {
    let root = Path::new(kstat::ROOT);
    let Ok(states) = kstat::pool_states(root) else {
        let problem = "OpenZFS is not loaded (`modprobe zfs`)".to_owned();
        return ZfsFacts { datasets_problem: Some(problem), ..ZfsFacts::default() };
    };
    let zfs = Discovery::new(Arc::new(SystemTool { limit_seconds: QUESTION_SECONDS }));
    let (datasets, datasets_problem) = match zfs.datasets() {
        Ok(datasets) => (datasets, None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    ZfsFacts {
        pools: states.into_iter().map(|(name, state)| pool(&zfs, name, state)).collect(),
        datasets,
        datasets_problem,
        arc: Kstat::read(root, "arcstats").ok().map(|counters| ArcStats::new(&counters)),
    }
}

fn pool(zfs: &Discovery, name: String, state: PoolState) -> PoolFacts {
    let mut facts = PoolFacts {
        name,
        state,
        health: None,
        problem: None,
        ashifts: Vec::new(),
        rotational: None,
        multihost: None,
    };
    let Ok(safe) = facts.name.parse::<PoolName>() else { return facts };
    // Commands on a suspended pool may hang.
    if state == PoolState::Suspended {
        return facts;
    }
    match PoolHealth::ask(zfs, &safe) {
        Ok(health) => {
            facts.rotational = rotational(&health.pool);
            facts.ashifts = sample::ashifts(&**zfs.tool(), &health.pool).unwrap_or_default();
            facts.multihost = multihost(&**zfs.tool(), &safe);
            facts.health = Some(health);
        }
        Err(error) => facts.problem = Some(error.to_string()),
    }
    facts
}

/// Returns the pool's property `multihost`.
pub(super) fn multihost(tool: &dyn Tool, pool: &PoolName) -> Option<bool> {
    let text = tool.run("zpool", &["get", "-Hp", "-o", "value", "multihost", pool.as_str()]);
    match text.ok()?.trim() {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

/// Returns whether any data device is a rotating disk.
fn rotational(pool: &Pool) -> Option<bool> {
    let disks = pool.of_class(VdevClass::Data).flat_map(|vdev| {
        let own = vdev.disks.is_empty().then_some(&vdev.name);
        vdev.disks.iter().chain(own)
    });
    let answers: Vec<bool> = disks.filter_map(|disk| disk_rotates(Path::new(disk))).collect();
    (!answers.is_empty()).then(|| answers.contains(&true))
}

fn disk_rotates(disk: &Path) -> Option<bool> {
    let device = fs::canonicalize(disk).ok()?;
    let class = Path::new("/sys/class/block").join(device.file_name()?);
    // A partition's queue is that of its disk, one directory above.
    let own = fs::canonicalize(class).ok()?;
    let above = own.parent()?;
    [own.join("queue/rotational"), above.join("queue/rotational")]
        .iter()
        .find_map(|file| fs::read_to_string(file).ok())
        .map(|text| text.trim() == "1")
}
