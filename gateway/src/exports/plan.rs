//! Plan: exports and logical units derived from a configuration and the
//! existing datasets.

use super::absent::{AbsentItem, AbsentKind, Fault};
use super::granted::{AwaitedTargets, GrantedDisk, ParentPlan};
use super::looks::Looks;
use super::settings::{DatasetRef, ExportSet, ExportSettings};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use zgate_config::{Config, VolumesConfig};
use zgate_control::volume::VolumeRecord;
use zgate_control::{Dataset, DatasetName, DatasetPattern, PoolName};

/// An export entry that selects datasets.
struct ExportPattern {
    pattern: DatasetPattern,
    template: ExportSettings,
}

/// A target entry that selects zvols.
pub(crate) struct VolumePattern {
    pub(crate) target: usize,
    target_name: String,
    pattern: DatasetPattern,
    pub(crate) template: VolumesConfig,
}

/// A zvol to be served as a logical unit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Volume {
    pub target: usize,
    pub guid: u64,
    pub name: DatasetName,
    pub device: PathBuf,
    pub template: VolumesConfig,
}

/// Entries of a configuration; evaluated again whenever datasets may have
/// changed.
pub(crate) struct Plan {
    fixed: Vec<ExportSettings>,
    exports: Vec<ExportPattern>,
    volumes: Vec<VolumePattern>,
    parents: Vec<ParentPlan>,
    pub away: Duration,
    pub rescan: Duration,
}

/// An export of a dataset as last seen.
#[derive(Clone)]
struct Served {
    settings: ExportSettings,
    away_since: Option<Instant>,
}

/// Present datasets and mounts.
pub(crate) struct Inventory<'a> {
    pub datasets: &'a [Dataset],
    /// Volumes that the API made.
    pub made: &'a [VolumeRecord],
    /// Pools of which it is certain that a served dataset that is not listed does not exist.
    pub pools: &'a BTreeSet<PoolName>,
    /// Pools of which nobody knows what they have.
    pub untold: &'a BTreeSet<PoolName>,
    /// Set while a pool has not told its datasets yet.
    pub incomplete: bool,
    pub now: Instant,
}

/// A dataset that is held until then, unless it moves earlier.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    pub(crate) until: Instant,
    /// Its mount point when it was held; none for a zvol.
    pub(crate) at: Option<PathBuf>,
    pub(crate) name: DatasetName,
}

/// State kept between evaluations.
#[derive(Default)]
pub(crate) struct Memory {
    served: BTreeMap<(usize, u64), Served>,
    /// Zvols that were found, by their guids.
    volumes: BTreeMap<u64, Volume>,
    /// Disks of the API that were found, by their guids.
    granted: BTreeMap<u64, GrantedDisk>,
    pub(crate) holds: BTreeMap<u64, Hold>,
    pub(crate) looks: Looks,
}

/// Exports and targets to be served now.
pub(crate) struct Outcome {
    pub exports: ExportSet,
    pub volumes: Vec<Volume>,
    /// Disks that the API made and gave nodes access to.
    pub granted: Vec<GrantedDisk>,
    /// Targets that further disks of the API may have.
    pub awaited: AwaitedTargets,
    /// Guids of those of these zvols and disks that have no device yet, as for a moment
    /// after the import of their pool. Initiators may know them.
    pub missing: BTreeSet<u64>,
    /// Set if a zvol has no device yet, or still has that of its old name: it appears a
    /// moment later.
    pub pending: bool,
}

impl Plan {
    /// Reads a configuration, without queries.
    ///
    /// # Errors
    /// The export or target, the reason and the next step.
    pub(crate) fn of(config: &Config) -> io::Result<Self> {
        let wrong = |place: String, error: zgate_control::PatternError| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("{place}: {error}"))
        };
        let mut exports = Vec::new();
        let mut fixed = Vec::new();
        for export in &config.exports {
            let template = super::settings::export(export);
            match &export.dataset {
                Some(dataset) if export.path.is_none() => {
                    let pattern = dataset
                        .parse()
                        .map_err(|error| wrong(format!("export {}", export.pseudo), error))?;
                    exports.push(ExportPattern { pattern, template });
                }
                _ => fixed.push(template),
            }
        }
        let mut volumes = Vec::new();
        for (target, settings) in config.targets.iter().enumerate() {
            for template in &settings.volumes {
                let pattern = template
                    .dataset
                    .parse()
                    .map_err(|error| wrong(format!("target {}", settings.name), error))?;
                let target_name = settings.name.clone();
                volumes.push(VolumePattern {
                    target,
                    target_name,
                    pattern,
                    template: template.clone(),
                });
            }
        }
        let parents = config.volumes.parents.iter().map(ParentPlan::of);
        Ok(Self {
            fixed,
            exports,
            volumes,
            parents: parents.collect::<io::Result<_>>()?,
            away: Duration::from_secs(config.server.away_seconds.into()),
            rescan: Duration::from_secs(config.server.rescan_seconds.into()),
        })
    }

    /// Returns the datasets below which matches may exist; none contains
    /// another.
    pub(crate) fn bases(&self) -> Vec<DatasetName> {
        let exports = self.exports.iter().map(|export| &export.pattern);
        let all: BTreeSet<_> = exports
            .chain(self.volumes.iter().map(|volumes| &volumes.pattern))
            .map(DatasetPattern::base)
            .chain(self.parents.iter().map(|parent| &parent.dataset))
            .collect();
        let covered = |base: &DatasetName| all.iter().any(|b| *b != base && base.is_within(b));
        all.iter().filter(|base| !covered(base)).map(|base| (*base).clone()).collect()
    }

    /// Returns the parents of volumes that the API makes.
    pub(crate) fn parents(&self) -> &[ParentPlan] {
        &self.parents
    }

    /// Returns the first name in the configuration, for messages.
    pub(crate) fn first_pattern(&self) -> Option<String> {
        let export = self
            .exports
            .first()
            .map(|export| format!("export {}: {}", export.template.pseudo_path, export.pattern));
        let zvols = || {
            let volumes = self.volumes.first()?;
            Some(format!("target {}: {}", volumes.target_name, volumes.pattern))
        };
        let parent = || Some(format!("volumes parent {}", self.parents.first()?.dataset));
        export.or_else(zvols).or_else(parent)
    }

    /// Returns exports of a single dataset that is not served.
    pub(crate) fn missing<'a>(
        &'a self,
        memory: &'a Memory,
    ) -> impl Iterator<Item = AbsentItem> + 'a {
        let entries = self.exports.iter().enumerate();
        let missing = entries.filter(|(index, entry)| {
            entry.pattern.is_exact() && !memory.served.keys().any(|(known, _)| known == index)
        });
        missing.map(|(_, entry)| {
            let fault = Fault::absent(
                format!("dataset {} does not exist or is not mounted", entry.pattern),
                "import its pool and mount it, or correct the dataset",
            );
            let name = format!("export {}", entry.template.pseudo_path);
            AbsentItem::new(AbsentKind::Dataset, name, fault)
        })
    }

    /// Returns the state for an evaluation of these entries in the place of those of `before`:
    /// the holds, and the exports of datasets that entries select still. What is away stays away
    /// for as long as it would have: a reload is no reason for its clients to lose it.
    pub(crate) fn take_over(&self, before: &Self, memory: &Memory) -> Memory {
        let mut served = BTreeMap::new();
        for ((index, guid), Served { settings, away_since }) in &memory.served {
            for (index, settings) in self.exports_still(before, *index, settings) {
                served.insert((index, *guid), Served { settings, away_since: *away_since });
            }
        }
        Memory { served, holds: memory.holds.clone(), ..Memory::default() }
    }

    /// Returns what these entries make of an export of that entry of `before`, by their places.
    /// One of a volume stays as it is, if its parent does.
    fn exports_still(
        &self,
        before: &Self,
        index: usize,
        settings: &ExportSettings,
    ) -> Vec<(usize, ExportSettings)> {
        if let Some(parent) = index.checked_sub(before.exports.len()) {
            let config = before.parents.get(parent).map(|parent| &parent.config);
            let now = self.parents.iter().position(|parent| Some(&parent.config) == config);
            let still = now.map(|now| (self.exports.len() + now, settings.clone()));
            return still.into_iter().collect();
        }
        let entries = self.exports.iter().enumerate();
        let still = entries.filter_map(|(index, entry)| {
            let dataset = settings.dataset.clone()?;
            Some((index, entry.export_at(&settings.path, dataset, settings.read_only)?))
        });
        still.collect()
    }

    /// Evaluates the entries against the present datasets.
    pub(crate) fn apply(&self, memory: &mut Memory, inventory: &Inventory<'_>) -> Outcome {
        memory.lift_holds(inventory);
        let before: Vec<_> = memory.away().collect();
        let mut served = BTreeMap::new();
        for (index, entry) in self.exports.iter().enumerate() {
            for dataset in inventory.datasets {
                if let Some(settings) = entry.export_of(dataset) {
                    let held = memory.holds.contains_key(&dataset.guid);
                    let mut found = Served { settings, away_since: None };
                    if held && let Some(followed) = &mut found.settings.dataset {
                        followed.away = true;
                    }
                    served.insert((index, dataset.guid), found);
                }
            }
        }
        self.serve_made(memory, inventory, &mut served);
        for (key, before) in std::mem::take(&mut memory.served) {
            if !served.contains_key(&key)
                && key.0 < self.exports.len() + self.parents.len()
                && let Some(kept) = self.keep_away(before, key.1, inventory)
            {
                served.insert(key, kept);
            }
        }
        memory.served = served;
        let is_other = !memory.away().eq(before);
        memory.looks.note(inventory.now, is_other);
        let mut missing = BTreeSet::new();
        let (volumes, pending) = self.volumes(memory, inventory, &mut missing);
        let (granted, awaits_device) = self.granted(memory, inventory, &mut missing);
        let has_device = |guid: u64| !missing.contains(&guid);
        let found = volumes.iter().filter(|volume| has_device(volume.guid));
        memory.volumes = found.map(|volume| (volume.guid, volume.clone())).collect();
        let found = granted.iter().filter(|disk| has_device(disk.guid));
        memory.granted = found.map(|disk| (disk.guid, disk.clone())).collect();
        let pending = pending || awaits_device;
        let exports = ExportSet { incomplete: inventory.incomplete, ..self.arrange(memory) };
        let awaited = self.awaited(inventory);
        Outcome { exports, volumes, granted, awaited, missing, pending }
    }

    /// Returns the targets that disks in pools may have of which nobody knows what they have.
    fn awaited(&self, inventory: &Inventory<'_>) -> AwaitedTargets {
        let is_untold = |dataset: &DatasetName| inventory.untold.contains(&dataset.pool());
        let parents = self.parents.iter().filter(|parent| is_untold(&parent.dataset));
        let patterns = self.volumes.iter().filter(|entry| is_untold(entry.pattern.base()));
        let targets = patterns.map(|entry| entry.target_name.as_str());
        AwaitedTargets::below(parents).with_patterns_of(targets)
    }

    /// Adds the exports of file systems that the API made. Their keys follow
    /// those of the entries.
    fn serve_made(
        &self,
        memory: &Memory,
        inventory: &Inventory<'_>,
        served: &mut BTreeMap<(usize, u64), Served>,
    ) {
        for (parent, volume, dataset) in self.made(inventory) {
            let number = number_of(dataset.guid);
            let export = self.parents[parent].export_of(volume, dataset, number);
            if let Some(mut settings) = export {
                let held = memory.holds.contains_key(&dataset.guid);
                if held && let Some(followed) = &mut settings.dataset {
                    followed.away = true;
                }
                let key = (self.exports.len() + parent, dataset.guid);
                served.insert(key, Served { settings, away_since: None });
            }
        }
    }

    /// Returns the volumes of parents with their parents and datasets.
    fn made<'a>(
        &'a self,
        inventory: &Inventory<'a>,
    ) -> impl Iterator<Item = (usize, &'a VolumeRecord, &'a Dataset)> {
        let datasets: BTreeMap<u64, &Dataset> =
            inventory.datasets.iter().map(|dataset| (dataset.guid, dataset)).collect();
        inventory.made.iter().filter_map(move |volume| {
            let above = volume.dataset.parent()?;
            let parent = self.parents.iter().position(|parent| parent.dataset == above)?;
            Some((parent, volume, *datasets.get(&volume.guid)?))
        })
    }

    /// Returns the disks of the API, and whether one waits for its device. Adds those
    /// without any to `missing`.
    fn granted(
        &self,
        memory: &Memory,
        inventory: &Inventory<'_>,
        missing: &mut BTreeSet<u64>,
    ) -> (Vec<GrantedDisk>, bool) {
        let mut pending = false;
        let mut found = Vec::new();
        for (parent, volume, dataset) in self.made(inventory) {
            let Some(disk) = self.parents[parent].disk_of(volume, dataset) else { continue };
            if memory.holds.contains_key(&dataset.guid) {
                continue;
            }
            if disk.device.exists() {
                found.push(disk);
                continue;
            }
            pending = true;
            // After a rename the device has the old name for a moment.
            let known = memory.granted.get(&disk.guid);
            found.push(match known {
                Some(known) => GrantedDisk { grants: disk.grants, ..known.clone() },
                None => {
                    missing.insert(disk.guid);
                    disk
                }
            });
        }
        (found, pending)
    }

    /// Keeps an export whose dataset is not mounted for some time, unless the
    /// dataset was destroyed or renamed to a name that no entry matches.
    fn keep_away(&self, before: Served, guid: u64, inventory: &Inventory<'_>) -> Option<Served> {
        let mut kept = before;
        let followed = kept.settings.dataset.as_mut()?;
        let listed = inventory.datasets.iter().find(|dataset| dataset.guid == guid);
        match listed {
            Some(dataset) if dataset.mounted_at().is_some() || dataset.name != followed.name => {
                return None;
            }
            None if inventory.pools.contains(&followed.name.pool()) => return None,
            _ => {}
        }
        let since = *kept.away_since.get_or_insert(inventory.now);
        followed.away = true;
        (inventory.now.saturating_duration_since(since) < self.away).then_some(kept)
    }

    /// Returns all exports except those that are reached through another one, and those of
    /// datasets whose place an entry with a path has: with both, none could be served.
    fn arrange(&self, memory: &Memory) -> ExportSet {
        let mut exports = self.fixed.clone();
        let mut ids = HashSet::new();
        let mut followed: Vec<_> = memory.served.values().map(|served| &served.settings).collect();
        followed.sort_by(|a, b| a.pseudo_path.cmp(&b.pseudo_path));
        let mut tops: Vec<&ExportSettings> = Vec::new();
        for export in followed {
            let is_nested = |fixed: &&ExportSettings| {
                is_below(&export.pseudo_path, &fixed.pseudo_path)
                    || is_below(&fixed.pseudo_path, &export.pseudo_path)
            };
            if let Some(fixed) = self.fixed.iter().find(is_nested) {
                tracing::error!(
                    export = export.pseudo_path,
                    other = fixed.pseudo_path,
                    "not exported: its path and that of another export are the same or nested; \
                     give the other export another pseudo path"
                );
                continue;
            }
            let below = |top: &&&ExportSettings| is_below(&export.pseudo_path, &top.pseudo_path);
            if let Some(top) = tops.iter().find(below) {
                let child = export.path.starts_with(&top.path);
                if !child {
                    tracing::warn!(
                        export = export.pseudo_path,
                        inside = top.pseudo_path,
                        "not exported: its path lies inside another dataset's export, but it is \
                         not mounted there"
                    );
                }
                continue;
            }
            if export.id.is_some_and(|id| !ids.insert(id)) {
                tracing::error!(
                    export = export.pseudo_path,
                    "not exported: another dataset has the same number; export it by name with an \
                     fsid"
                );
                continue;
            }
            tops.push(export);
        }
        exports.extend(tops.into_iter().cloned());
        let clients = self.exports.iter().flat_map(|pattern| &pattern.template.clients);
        ExportSet { exports, pattern_clients: clients.cloned().collect(), incomplete: false }
    }

    /// Returns the zvols, and whether one waits for its device. Adds those without any
    /// to `missing`.
    fn volumes(
        &self,
        memory: &Memory,
        inventory: &Inventory<'_>,
        missing: &mut BTreeSet<u64>,
    ) -> (Vec<Volume>, bool) {
        let mut pending = false;
        let mut found: Vec<Volume> = Vec::new();
        for entry in &self.volumes {
            for dataset in inventory.datasets {
                let Some(device) = dataset.device() else { continue };
                let known = found.iter().any(|volume| volume.guid == dataset.guid);
                let held = memory.holds.contains_key(&dataset.guid);
                if known || held || !entry.pattern.matches(&dataset.name) {
                    continue;
                }
                if !device.exists() {
                    pending = true;
                    // After a rename the device has the old name for a moment,
                    // and initiators use it.
                    let before = memory.volumes.get(&dataset.guid);
                    if let Some(known) = before.filter(|v| v.template == entry.template) {
                        found.push(known.clone());
                        continue;
                    }
                    missing.insert(dataset.guid);
                }
                found.push(Volume {
                    target: entry.target,
                    guid: dataset.guid,
                    name: dataset.name.clone(),
                    device,
                    template: entry.template.clone(),
                });
            }
        }
        (found, pending)
    }
}

impl ExportPattern {
    /// Returns the export of a dataset that matches and is mounted.
    fn export_of(&self, dataset: &Dataset) -> Option<ExportSettings> {
        let path = dataset.mounted_at()?;
        let (name, guid) = (dataset.name.clone(), dataset.guid);
        self.export_at(path, DatasetRef { name, guid, away: false }, dataset.readonly)
    }

    /// Returns the export of a dataset that matches, with the path where it is or was mounted.
    fn export_at(
        &self,
        path: &Path,
        dataset: DatasetRef,
        read_only: bool,
    ) -> Option<ExportSettings> {
        let relative = self.pattern.relative(&dataset.name)?;
        let pseudo = &self.template.pseudo_path;
        let (pseudo_path, id) = if relative.is_empty() {
            (pseudo.clone(), self.template.id)
        } else {
            (format!("{}/{relative}", pseudo.trim_end_matches('/')), Some(number_of(dataset.guid)))
        };
        Some(ExportSettings {
            path: path.to_owned(),
            pseudo_path,
            id,
            read_only: self.template.read_only || read_only,
            dataset: Some(dataset),
            ..self.template.clone()
        })
    }
}

impl Memory {
    /// Holds a dataset and everything below it. Returns their names.
    pub(crate) fn hold(
        &mut self,
        name: &DatasetName,
        datasets: &[Dataset],
        until: Instant,
    ) -> Vec<DatasetName> {
        let within = datasets.iter().filter(|dataset| dataset.name.is_within(name));
        within
            .map(|dataset| {
                let at = dataset.mounted_at().map(ToOwned::to_owned);
                let name = dataset.name.clone();
                self.holds.insert(dataset.guid, Hold { until, at, name });
                dataset.name.clone()
            })
            .collect()
    }

    /// Remembers a zvol as one that was found.
    #[cfg(test)]
    pub(crate) fn remember(&mut self, volume: Volume) {
        self.volumes.insert(volume.guid, volume);
    }

    /// Ends the holds of a dataset and of everything below it. Returns their names.
    pub(crate) fn resume(&mut self, name: &DatasetName) -> Vec<DatasetName> {
        let names = self.holds.values().map(|hold| &hold.name);
        let ended = names.filter(|held| held.is_within(name)).cloned().collect();
        self.holds.retain(|_, hold| !hold.name.is_within(name));
        ended
    }

    /// Returns the pools of served datasets that are not among these.
    pub(crate) fn pools_of_unlisted(&self, listed: &[Dataset]) -> BTreeSet<PoolName> {
        let known: BTreeSet<u64> = listed.iter().map(|dataset| dataset.guid).collect();
        let unlisted = self.served.iter().filter(|((_, guid), _)| !known.contains(guid));
        let pool = |served: &Served| Some(served.settings.dataset.as_ref()?.name.pool());
        unlisted.filter_map(|(_, served)| pool(served)).collect()
    }

    /// Returns the exports of datasets that are away, and since when.
    fn away(&self) -> impl Iterator<Item = ((usize, u64), Instant)> {
        self.served.iter().filter_map(|(key, served)| Some((*key, served.away_since?)))
    }

    /// Returns whether an evaluation is due at `now` although nothing has happened, if datasets
    /// may be away for so long.
    pub(crate) fn is_due(&self, now: Instant, away: Duration) -> bool {
        let holds = || self.holds.values().map(|hold| hold.until);
        let mut ends = holds().chain(self.away().map(|(_, since)| since + away));
        // A look that failed has ended no hold.
        let is_left = || self.away().next().is_some() || holds().any(|until| until <= now);
        ends.any(|end| self.looks.has_passed(end, now)) || is_left() && self.looks.is_due(now)
    }

    /// Ends holds whose time is over, and holds of datasets that have moved,
    /// which was their purpose.
    fn lift_holds(&mut self, inventory: &Inventory<'_>) {
        self.holds.retain(|guid, hold| {
            let now = inventory.datasets.iter().find(|dataset| dataset.guid == *guid);
            let same = now.is_some_and(|dataset| {
                dataset.name == hold.name && dataset.mounted_at() == hold.at.as_deref()
            });
            same && hold.until > inventory.now
        });
    }
}

fn is_below(path: &str, top: &str) -> bool {
    top == "/"
        || path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the number of a dataset's export, derived from its guid, so that
/// handles survive renames and are valid on another host with the same pool.
fn number_of(guid: u64) -> u32 {
    ((guid.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as u32).max(16)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
