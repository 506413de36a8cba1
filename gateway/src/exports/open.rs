//! Opens exports: builds the protocol's namespace and informs the stores of
//! datasets.

use super::absent::{AbsentItem, AbsentKind, Fault};
use super::attempts::{Attempts, Job, Progress, Wake};
use super::clients;
use super::dataset::known::DatasetExport;
use super::exposed;
use super::hosts::{self, HostTable, Hosts};
use super::limits::{OPEN_PATIENCE, RELOAD_PATIENCE, START_PATIENCE};
use super::overlap;
use super::settings::{ExportSet, ExportSettings};
use super::stores::{OpenStore, OpenStores, open_store};
use crate::qos::{Limiter, limited_files};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use zgate_config::Rates;
use zgate_nfs::namespace::{AbsentExport, Export, ExportId, Namespace, StableNames};
use zgate_posix::PosixOptions;
use zgate_store::FileStore;

/// Occasion on which exports or logical units are opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    /// The gateway starts.
    Start,
    /// The gateway starts, and nothing may be absent.
    StrictStart,
    /// The configuration was read again.
    Reload,
    /// Datasets were added, removed or moved.
    Scan,
    /// An attempt at something absent has succeeded.
    Retry,
}

impl Opening {
    /// Returns whether host names are resolved and absent paths attempted.
    pub(crate) fn attempts_all(self) -> bool {
        matches!(self, Self::Start | Self::StrictStart | Self::Reload)
    }

    /// Returns the time for which attempts are waited for.
    pub(crate) fn patience(self) -> Duration {
        match self {
            Self::Start => START_PATIENCE,
            Self::StrictStart | Self::Scan => OPEN_PATIENCE,
            Self::Reload => RELOAD_PATIENCE,
            Self::Retry => Duration::ZERO,
        }
    }
}

/// Means to open exports.
pub(crate) struct Opener {
    pub options: PosixOptions,
    /// Directory that no export may serve.
    state_dir: PathBuf,
    hosts: Hosts,
    stores: Attempts<OpenStore>,
    /// Limiters of exports, by their numbers.
    limiters: Mutex<BTreeMap<u32, Arc<Limiter>>>,
    /// Exports that were said to share files, each with another one.
    sharing: Mutex<BTreeMap<String, String>>,
}

/// Exports that were opened, not yet in service.
pub(crate) struct Opened {
    pub namespace: Namespace,
    pub stores: OpenStores,
    /// Exports and host names that are absent.
    pub absent: Vec<AbsentItem>,
}

impl Opener {
    /// No export serves `state_dir`. The end of an attempt wakes `wake`.
    pub(crate) fn new(options: PosixOptions, state_dir: &Path, wake: &Wake) -> Self {
        let hosts = Hosts::new(wake.clone());
        let stores = Attempts::new(wake.clone());
        let (limiters, sharing) = (Mutex::default(), Mutex::default());
        Self { options, state_dir: state_dir.to_owned(), hosts, stores, limiters, sharing }
    }

    fn job(&self, exports: &ExportSet, export: &ExportSettings, begins: bool) -> Job<OpenStore> {
        let id = export.number();
        let key = OpenStores::key(id, export);
        let (export, options, count) = (export.clone(), self.options.clone(), exports.len());
        let state_dir = self.state_dir.clone();
        let work = move || {
            let store = open_store(&export, id, &options, count)?;
            exposed::refuse(&export.path, &state_dir)?;
            Ok(store)
        };
        Job { key, work: Box::new(work), begins }
    }

    /// Opens the exports. What cannot be opened is absent.
    ///
    /// # Errors
    /// Two exports that cannot both exist; at a start and a reload, an export that the
    /// configuration names by its path and that never can be served.
    pub(crate) fn open(
        &self,
        exports: &ExportSet,
        generation: u64,
        kept: &OpenStores,
        how: Opening,
    ) -> io::Result<Opened> {
        let names = hosts::names(exports);
        if how.attempts_all() {
            self.hosts.resolve(&names);
        } else {
            self.hosts.collect(&names);
        }
        let hosts = self.hosts.table();
        let closed = closed(exports, kept);
        let begins = |export: &ExportSettings| {
            how.attempts_all() || how == Opening::Scan && export.dataset.is_some()
        };
        let jobs = closed.iter().map(|export| self.job(exports, export, begins(export)));
        let results = self.stores.attempt(jobs.collect(), how.patience());
        let (mut now, mut present) = (OpenStores::default(), Vec::new());
        let (mut absent, mut items) = (Vec::new(), Vec::new());
        let mut served: Vec<(&ExportSettings, OpenStore)> =
            exports.iter().filter_map(|one| Some((one, kept.find(one.number(), one)?))).collect();
        for (export, result) in closed.into_iter().zip(results) {
            match result {
                Ok(store) => served.push((export, store)),
                Err(fault) if is_refused(export, &fault, how) => {
                    let reason = format!("export {}: {fault}", export.pseudo_path);
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
                }
                Err(fault) => {
                    absent.push(absent_export(export, &hosts));
                    items.push(absent_item(export, fault));
                }
            }
        }
        let sharing = self.sharing(&served, how);
        for (export, store) in &served {
            now.add(export.number(), export, store);
            let store = self.limited(export, store.files());
            let shares_files = sharing.contains_key(&export.pseudo_path);
            let export = protocol_export(export, &hosts, store);
            present.push(Arc::new(if shares_files { sharing_files(export) } else { export }));
        }
        items.extend(self.hosts.absent(&names));
        let invalid = |error: zgate_nfs::namespace::pseudo::PathConflict| {
            io::Error::new(io::ErrorKind::InvalidInput, error.to_string())
        };
        let namespace = Namespace::new(present, generation).map_err(invalid)?;
        let namespace = namespace.with_absent(absent).map_err(invalid)?;
        let others = clients::rules(&exports.pattern_clients, &hosts);
        let namespace = namespace.with_absent_clients(others).with_incomplete(exports.incomplete);
        Ok(Opened { namespace, stores: now, absent: items })
    }

    /// Returns the exports that share files with others. Names them in the log at
    /// a start and reload, and those that have begun to.
    fn sharing(
        &self,
        served: &[(&ExportSettings, OpenStore)],
        how: Opening,
    ) -> BTreeMap<String, String> {
        let sources = served.iter().map(|(export, store)| {
            let path = match store {
                OpenStore::Fixed(store, _) => store.path(),
                OpenStore::Dataset(_) => export.path.as_path(),
            };
            (export.pseudo_path.as_str(), path)
        });
        let sources: Vec<_> = sources.collect();
        let found: BTreeMap<String, String> = overlap::sharing(&sources)
            .into_iter()
            .map(|(name, other)| (name.to_owned(), other.to_owned()))
            .collect();
        let mut known = self.sharing.lock().unwrap_or_else(PoisonError::into_inner);
        for (export, other) in &found {
            if how.attempts_all() || !known.contains_key(export) {
                tracing::info!(
                    export,
                    other,
                    "two exports share files: locks, share reservations and delegations of the \
                     clients of both conflict; if they are not on ZFS, they give no delegations"
                );
            }
        }
        known.clone_from(&found);
        found
    }

    /// Puts the limits of an export before its store. They outlive a reload: what was
    /// taken stays taken. Other limits than before hold from [`Self::in_effect`] on: the exports
    /// may still be refused.
    fn limited(&self, export: &ExportSettings, store: Arc<dyn FileStore>) -> Arc<dyn FileStore> {
        if export.rates.is_unlimited() {
            return store;
        }
        let mut limiters = self.limiters.lock().unwrap_or_else(PoisonError::into_inner);
        let limiter = limiters.entry(export.number().0);
        let limiter = limiter.or_insert_with(|| Arc::new(Limiter::new(export.rates)));
        limited_files(store, Arc::clone(limiter))
    }

    /// Begins the attempts that are due, at exports without a store and names
    /// without an address.
    pub(crate) fn retry(&self, exports: &ExportSet, kept: &OpenStores) -> Progress {
        let closed = closed(exports, kept);
        let jobs = closed.iter().map(|export| self.job(exports, export, true)).collect();
        self.stores.retry(jobs).and(self.hosts.retry(&hosts::names(exports)))
    }

    /// Puts the limits of these exports into effect, and forgets host names and limits that they
    /// do not have.
    pub(crate) fn in_effect(&self, exports: &ExportSet) {
        let limited = exports.iter().filter(|export| !export.rates.is_unlimited());
        let limited: BTreeMap<u32, Rates> =
            limited.map(|export| (export.number().0, export.rates)).collect();
        let mut limiters = self.limiters.lock().unwrap_or_else(PoisonError::into_inner);
        limiters.retain(|number, limiter| match limited.get(number) {
            Some(rates) => {
                limiter.set(*rates);
                true
            }
            None => false,
        });
        drop(limiters);
        self.hosts.keep(&hosts::names(exports));
    }
}

/// Returns the exports to be opened: not those of datasets that are away.
fn closed<'a>(exports: &'a ExportSet, kept: &OpenStores) -> Vec<&'a ExportSettings> {
    let is_closed = |export: &&ExportSettings| {
        kept.find(export.number(), export).is_none()
            && !export.dataset.as_ref().is_some_and(|dataset| dataset.away)
    };
    exports.iter().filter(is_closed).collect()
}

/// Returns whether a start or reload fails for an export. One of a dataset comes and goes
/// with its mount: it is absent then, whatever the fault.
fn is_refused(export: &ExportSettings, fault: &Fault, how: Opening) -> bool {
    !fault.absent && export.dataset.is_none() && how.attempts_all()
}

fn protocol_export(
    export: &ExportSettings,
    hosts: &HostTable,
    store: Arc<dyn FileStore>,
) -> Export {
    let store: Arc<dyn FileStore> =
        if export.sync_names { Arc::new(StableNames::over(store)) } else { store };
    Export {
        id: export.number(),
        pseudo_path: export.pseudo_path.clone(),
        source: export.path.display().to_string(),
        store,
        clients: clients::rules(&export.clients, hosts),
        read_only: export.read_only,
        max_transfer_bytes: export.max_transfer_bytes,
        versions: export.versions,
        tcp: export.tcp,
        rdma: export.rdma,
        delegations: export.delegations,
        delegated_times: export.delegated_times,
        reserved_port_only: export.reserved_port_only,
        shares_files: false,
    }
}

/// Marks an export that shares files with others. It gives no delegations unless its store
/// is certain which files are the same: without that, a change through another export might
/// recall none.
fn sharing_files(export: Export) -> Export {
    let delegations = export.delegations && export.store.traits().tells_files_apart;
    Export { shares_files: true, delegations, ..export }
}

fn absent_export(export: &ExportSettings, hosts: &HostTable) -> AbsentExport {
    AbsentExport {
        id: export.number(),
        pseudo_path: export.pseudo_path.clone(),
        clients: clients::rules(&export.clients, hosts),
        versions: export.versions,
        tcp: export.tcp,
        rdma: export.rdma,
    }
}

fn absent_item(export: &ExportSettings, fault: Fault) -> AbsentItem {
    let kind = match export.dataset {
        Some(_) => AbsentKind::Dataset,
        None => AbsentKind::Export,
    };
    AbsentItem::new(kind, format!("export {}", export.pseudo_path), fault)
}

/// Informs the stores of datasets of their mount points. Returns also the exports of those that
/// were away.
pub(crate) fn place_datasets(
    exports: &[ExportSettings],
    stores: &OpenStores,
) -> (Vec<DatasetExport>, BTreeSet<ExportId>) {
    let followed = stores.followed();
    let (mut views, mut returned) = (Vec::new(), BTreeSet::new());
    for export in exports {
        let Some(dataset) = &export.dataset else { continue };
        for (_, store) in followed.iter().filter(|(guid, _)| *guid == dataset.guid) {
            store.set_name(&dataset.name);
            if dataset.away {
                store.hold(Duration::ZERO);
            } else if store.found_at(&export.path) {
                returned.insert(dataset.guid);
            }
            views.push(DatasetExport {
                pseudo_path: export.pseudo_path.clone(),
                dataset: dataset.clone(),
                store: Arc::clone(store),
            });
        }
    }
    let is_back = |export: &&ExportSettings| {
        export.dataset.as_ref().is_some_and(|dataset| returned.contains(&dataset.guid))
    };
    let back = exports.iter().filter(is_back).map(ExportSettings::number).collect();
    (views, back)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exports::replaced::ReplacedDatasets;
    use zgate_store::BufferPool;

    fn opener(state_dir: &Path) -> Opener {
        let engine = zgate_io::IoEngine::new(zgate_io::EngineChoice::Threads, 2).unwrap();
        let options = PosixOptions::new(engine, BufferPool::new(1 << 20));
        Opener::new(options, state_dir, &Wake::default())
    }

    fn exports(text: &str) -> ExportSet {
        let config = zgate_config::parse(text, Path::new("x")).unwrap();
        let exports = config.exports.iter().map(crate::exports::settings::export).collect();
        ExportSet { exports, pattern_clients: Vec::new(), incomplete: false }
    }

    #[test]
    fn no_export_serves_the_state_directory() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        std::fs::create_dir(&state).unwrap();
        let text = format!("[[export]]\npath = {:?}\npseudo = \"/all\"\n", dir.path());
        let mut exports = exports(&text);
        let opener = opener(&state);
        for how in [Opening::Start, Opening::StrictStart, Opening::Reload] {
            let refused = opener.open(&exports, 1, &OpenStores::default(), how);
            let said = refused.err().unwrap().to_string();
            assert!(said.contains("export /all: ") && said.contains("state directory"), "{said}");
            assert!(said.contains("set state_dir to a place outside"), "{said}");
        }
        // A dataset may be mounted there later: the others are served.
        let name = "tank/all".parse().unwrap();
        exports.exports[0].dataset =
            Some(crate::exports::settings::DatasetRef { name, guid: 7, away: false });
        let opened = opener.open(&exports, 1, &OpenStores::default(), Opening::Start).unwrap();
        assert_eq!((opened.namespace.exports().count(), opened.absent.len()), (0, 1));
    }

    #[test]
    fn the_limits_of_a_reload_that_may_be_refused_do_not_hold_yet() {
        let dir = tempfile::tempdir().unwrap();
        let limited = |iops: u64| {
            let path = dir.path();
            exports(&format!("[[export]]\npath = {path:?}\npseudo = \"/a\"\niops_max = {iops}\n"))
        };
        let opener = opener(Path::new("/no-such-pool/state"));
        let open = |exports: &ExportSet, how| {
            drop(opener.open(exports, 1, &OpenStores::default(), how).unwrap());
        };
        let in_force = || -> Vec<Option<u64>> {
            let limiters = opener.limiters.lock().unwrap();
            limiters.values().map(|limiter| limiter.rates().iops_max).collect()
        };
        open(&limited(1000), Opening::Start);
        assert_eq!(in_force(), [Some(1000)]);
        let other = limited(10);
        open(&other, Opening::Reload);
        assert_eq!(in_force(), [Some(1000)], "the reload may be refused");
        opener.in_effect(&other);
        assert_eq!(in_force(), [Some(10)]);
        opener.in_effect(&ExportSet::default());
        assert!(in_force().is_empty());
    }

    #[test]
    fn a_rollback_concerns_all_exports_that_show_the_dataset() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let mut text = String::new();
        for name in ["above", "above/mounted/inside", "above/mounted/foreign", "other"] {
            std::fs::create_dir_all(top.join(name)).unwrap();
            let (path, pseudo) = (top.join(name), name.replace('/', "-"));
            text += &format!("[[export]]\npath = {path:?}\npseudo = \"/{pseudo}\"\n");
        }
        let exports = exports(&text);
        let opener = opener(Path::new("/no-such-pool/state"));
        let opened = opener.open(&exports, 1, &OpenStores::default(), Opening::Start).unwrap();
        let text = format!(
            "1 1 0:9 / {0}/above/mounted rw - zfs tank/a rw\n\
             2 1 0:10 / {0}/above/mounted/foreign rw - zfs tank/c rw\n",
            top.display()
        );
        let mounts = zgate_io::mountinfo::parse(text.as_bytes());
        let losses = || -> Vec<u64> {
            let exports = opened.namespace.exports();
            exports.map(|export| export.store.losses()).collect()
        };
        let before = losses();
        let replaced = |name: &str| {
            let names = [name.parse::<zgate_control::DatasetName>().unwrap()];
            let replaced = ReplacedDatasets::named(&names);
            opened.stores.content_replaced(&replaced, Some(&mounts[..]), &BTreeSet::new())
        };
        assert!(replaced("tank/b").is_empty());
        assert_eq!(losses(), before);
        let concerned = ["/above", "/above-mounted-inside"].map(ExportId::from_pseudo_path);
        let told = replaced("tank/a");
        assert_eq!(told, BTreeSet::from(concerned));
        let changed = losses().iter().zip(&before).filter(|(now, then)| now > then).count();
        assert_eq!(changed, 2, "their clients write again what they have not committed");
        // Which one is not known: all that lie in ZFS.
        let any = |told: &BTreeSet<ExportId>| {
            opened.stores.content_replaced(&ReplacedDatasets::Any, Some(&mounts[..]), told)
        };
        let foreign = BTreeSet::from([ExportId::from_pseudo_path("/above-mounted-foreign")]);
        assert_eq!(any(&told), foreign, "the others know it");
        assert_eq!(any(&BTreeSet::new()), &told | &foreign);
        // Nobody knows the mounts: any export may show it.
        let names = ["tank/b".parse::<zgate_control::DatasetName>().unwrap()];
        let replaced = ReplacedDatasets::named(&names);
        let others = opened.stores.content_replaced(&replaced, None, &told);
        let other = ExportId::from_pseudo_path("/other");
        assert_eq!(others, &foreign | &BTreeSet::from([other]));
        assert!(opened.stores.show_any_dataset(&mounts));
        assert!(!opened.stores.show_any_dataset(&[]), "no mount is ZFS's");
    }

    #[test]
    fn exports_that_share_files_know_it() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a/deep", "b", "c"] {
            std::fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        std::os::unix::fs::symlink(dir.path().join("b"), dir.path().join("link")).unwrap();
        let entry = |name: &str| {
            let path = dir.path().join(name);
            let path = path.display();
            format!("[[export]]\npath = \"{path}\"\npseudo = \"/{}\"\n", name.replace('/', "-"))
        };
        let text: String = ["a", "a/deep", "b", "link", "c"].into_iter().map(entry).collect();
        let exports = exports(&text);
        let opener = opener(Path::new("/no-such-pool/state"));
        let opened = opener.open(&exports, 1, &OpenStores::default(), Opening::Start).unwrap();
        assert!(opened.absent.is_empty());
        let exports: BTreeMap<&str, &Export> = opened
            .namespace
            .exports()
            .map(|export| (export.pseudo_path.as_str(), &**export))
            .collect();
        let sharing = exports.iter().filter(|(_, export)| export.shares_files);
        let sharing: Vec<&str> = sharing.map(|(path, _)| *path).collect();
        assert_eq!(sharing, ["/a", "/a-deep", "/b", "/link"]);
        for (path, export) in &exports {
            let is_certain = export.store.traits().tells_files_apart;
            assert_eq!(export.delegations, *path == "/c" || is_certain, "{path}");
        }
        // The files are the same to the protocols.
        let identity = |path: &str| {
            let store = &exports[path].store;
            store.identity(&store.root()).unwrap()
        };
        assert_eq!(identity("/b"), identity("/link"));
        assert_ne!(identity("/b"), identity("/c"));
    }

    #[test]
    fn exports_that_share_files_give_delegations_if_their_store_tells_files_apart() {
        let exports = exports("[[export]]\npath = \"/tank/a\"\npseudo = \"/a\"\n");
        let store: Arc<dyn FileStore> = Arc::new(zgate_memory::MemoryStore::new());
        let alone = protocol_export(&exports.exports[0], &HostTable::default(), store);
        assert!(alone.store.traits().tells_files_apart && alone.delegations);
        assert!(!alone.shares_files);
        let sharing = sharing_files(alone);
        assert!(sharing.shares_files && sharing.delegations);
        assert!(!sharing_files(Export { delegations: false, ..sharing }).delegations);
    }
}
