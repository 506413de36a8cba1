//! Release of datasets on request, so that they can be unmounted, renamed,
//! destroyed or exported with their pool while clients use them.

use super::reconcile::Reconciler;
use super::run::Gateway;
use serde::Serialize;
use std::io;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use zgate_control::DatasetName;

/// Time limit for running requests to end.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest time of a release, in seconds.
const MAX_SECONDS: u64 = 3600;

/// Result of a release.
#[derive(Debug, Serialize)]
pub(crate) struct Released {
    /// Released datasets that are exported or may be logical units.
    datasets: Vec<DatasetName>,
    /// Set if nothing uses them any more.
    free: bool,
    /// Number of seconds after which they are served again wherever they are
    /// then.
    seconds: u64,
}

impl Reconciler {
    /// Releases a dataset and everything below it. Clients are told to retry;
    /// its logical units are removed. It is served again when it has moved, on
    /// [`Self::resume`], and at the latest after `seconds`.
    ///
    /// # Errors
    /// If the name is invalid, or datasets cannot be queried.
    pub(crate) fn release(
        &self,
        gateway: &Gateway,
        name: &str,
        seconds: u64,
    ) -> io::Result<Released> {
        let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
        let name: DatasetName = name.parse().map_err(|error| invalid(format!("{error}")))?;
        if !(1..=MAX_SECONDS).contains(&seconds) {
            return Err(invalid(format!("{seconds} s: must be 1 to {MAX_SECONDS}")));
        }
        let plan = Arc::clone(&self.state().plan);
        let found = {
            let _one = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
            self.find(&plan).map_err(|error| io::Error::other(error.to_string()))?
        };
        if !found.datasets.iter().any(|dataset| dataset.name.is_within(&name)) {
            self.must_exist(&name, "release")?;
        }
        let until = Instant::now() + Duration::from_secs(seconds);
        let datasets = self.state().memory.hold(&name, &found.datasets, until);
        self.scan(gateway)?;
        let within = |guid: u64| {
            let mut all = found.datasets.iter();
            all.find(|dataset| dataset.guid == guid).map(|dataset| &dataset.name)
        };
        let mut free = true;
        for (guid, store) in gateway.followed() {
            match within(guid) {
                // The search has closed it. It is not closed here: when its hold has
                // ended meanwhile, nothing would serve it again.
                Some(dataset) if dataset.is_within(&name) => free &= store.is_free(PATIENCE),
                // A file system mounted below an export is part of it.
                Some(dataset) if name.is_within(dataset) => free &= store.let_go(PATIENCE),
                _ => {}
            }
        }
        gateway.release_paths();
        Ok(Released { datasets, free, seconds })
    }

    /// Checks that a dataset exists, whether or not anything exports it; `what` is to be
    /// done with it.
    fn must_exist(&self, name: &DatasetName, what: &str) -> io::Result<()> {
        let listed = self.tool().run("zfs", &["list", "-H", "-o", "name", name.as_str()]);
        match listed {
            Ok(_) => Ok(()),
            // It exists as far as anybody can tell; its files are closed.
            Err(error) if error.is_late() => {
                tracing::warn!(dataset = %name, %error, "cannot list a dataset to {what}");
                Ok(())
            }
            Err(error) if error.is_absent() => Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!(
                    "there is no dataset {name} to {what}: {error}; `zgate datasets` lists what \
                     there is"
                ),
            )),
            Err(error) => Err(io::Error::other(format!(
                "cannot tell whether there is a dataset {name} to {what}: {error}"
            ))),
        }
    }

    /// Serves a released dataset again. One that was not released is served as it was; its
    /// clients are told all the same that it may have other content.
    ///
    /// # Errors
    /// If nothing of this name was released or exists, or datasets cannot be queried.
    pub(crate) fn resume(&self, gateway: &Gateway, name: &str) -> io::Result<()> {
        let name: DatasetName = name
            .parse()
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, format!("{error}")))?;
        // A released dataset may be away with its pool by now.
        let is_held = self.state().memory.holds.values().any(|hold| hold.name.is_within(&name));
        if !is_held {
            self.must_exist(&name, "resume")?;
        }
        let mut resumed = self.state().memory.resume(&name);
        let scanned = self.scan(gateway);
        // The store of an export around one of them was never away, and does not tell by itself.
        // Nor is there a hold of what no entry names, or of what was unmounted in between.
        if !resumed.contains(&name) {
            resumed.push(name);
        }
        gateway.content_replaced(&resumed);
        scanned.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exports::open::Opening;
    use crate::exports::plan::Hold;
    use crate::nfs::tcp::tests::gateway_with;
    use crate::server::watch::without_json;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use zgate_control::{Discovery, Tool, ToolError};

    /// A dataset that is mounted at these paths, one after the other, when it is listed.
    struct Moves {
        paths: Vec<PathBuf>,
        lists: AtomicUsize,
    }

    impl Tool for Moves {
        fn run(&self, program: &str, arguments: &[&str]) -> Result<String, ToolError> {
            if arguments.contains(&"-j") {
                return Err(without_json(program));
            }
            if !arguments.contains(&"-r") {
                return Ok("tank\n".to_owned());
            }
            let path = self.paths[self.lists.fetch_add(1, Ordering::Relaxed)].display();
            Ok(format!(
                "tank/m/a\tfilesystem\t7\t1\t1\t1\t1\t131072\t-\t-\tstandard\tlatency\toff\t0\t0\t0\t0\t0\toff\thidden\toff\t-\ton\tyes\t{path}\n"
            ))
        }
    }

    /// A machine without any dataset: `zfs` says so, or it is not installed.
    struct Nothing {
        installed: bool,
    }

    impl Tool for Nothing {
        fn run(&self, program: &str, _: &[&str]) -> Result<String, ToolError> {
            let program = program.to_owned();
            if !self.installed {
                return Err(ToolError::Start { program, source: io::ErrorKind::NotFound.into() });
            }
            let said = "cannot open 'foo/bar': dataset does not exist".to_owned();
            Err(ToolError::Failed { command: program, status: Some(1), said })
        }
    }

    #[test]
    fn what_does_not_exist_is_neither_released_nor_resumed() {
        let dir = tempfile::tempdir().unwrap();
        let gateway = gateway_with(dir.path(), "");
        let said = |installed: bool| {
            let tool: Arc<dyn Tool> = Arc::new(Nothing { installed });
            let follow = Reconciler::with(Discovery::new(Arc::clone(&tool)), Discovery::new(tool));
            let released = follow.release(&gateway, "foo/bar", 60).unwrap_err();
            let resumed = follow.resume(&gateway, "foo/bar").unwrap_err();
            [released, resumed].map(|error| error.to_string())
        };
        let [released, resumed] = said(true);
        assert!(released.starts_with("there is no dataset foo/bar to release: "), "{released}");
        assert!(resumed.starts_with("there is no dataset foo/bar to resume: "), "{resumed}");
        for said in said(false) {
            assert!(said.starts_with("cannot tell whether there is a dataset foo/bar"), "{said}");
            assert!(said.contains("zfsutils-linux"), "{said}");
        }
    }

    #[test]
    fn what_is_held_is_resumed_wherever_its_pool_is() {
        let dir = tempfile::tempdir().unwrap();
        let gateway = gateway_with(dir.path(), "");
        let tool: Arc<dyn Tool> = Arc::new(Nothing { installed: true });
        let follow = Reconciler::with(Discovery::new(Arc::clone(&tool)), Discovery::new(tool));
        let until = Instant::now() + Duration::from_secs(60);
        let hold = Hold { until, at: None, name: "foo/bar".parse().unwrap() };
        follow.state().memory.holds.insert(7, hold);
        follow.resume(&gateway, "foo").unwrap();
        assert!(follow.state().memory.holds.is_empty());
    }

    #[test]
    fn clients_are_told_of_what_is_resumed_though_its_store_was_not_away() {
        let dir = tempfile::tempdir().unwrap();
        let gateway = gateway_with(dir.path(), "");
        let path = dir.path().join("a");
        std::fs::create_dir(&path).unwrap();
        let paths = vec![path.clone(), path];
        let tool: Arc<dyn Tool> = Arc::new(Moves { paths, lists: AtomicUsize::new(0) });
        let follow = Reconciler::with(Discovery::new(Arc::clone(&tool)), Discovery::new(tool));
        let config = "[[export]]\ndataset = \"tank/m/*\"\npseudo = \"/m\"\n";
        let config = zgate_config::parse(config, std::path::Path::new("x")).unwrap();
        follow
            .replace(&config, |prepared| {
                gateway.replace_exports(&prepared.outcome.exports, Opening::Reload)
            })
            .unwrap();
        let losses = || -> Vec<u64> {
            let namespace = gateway.shared.nfs.v4.namespace();
            namespace.exports().map(|export| export.store.losses()).collect()
        };
        let before = losses();
        // A hold under another guid than the export's leaves its store alone.
        let until = Instant::now() + Duration::from_secs(60);
        let hold = Hold { until, at: None, name: "tank/m/a".parse().unwrap() };
        follow.state().memory.holds.insert(8, hold);
        follow.resume(&gateway, "tank/m").unwrap();
        let after = losses();
        assert!(after.len() == 1 && after[0] > before[0], "{before:?} {after:?}");
    }

    #[test]
    fn a_dataset_whose_hold_has_ended_is_not_closed_for_good() {
        let dir = tempfile::tempdir().unwrap();
        let gateway = gateway_with(dir.path(), "");
        let (before, after) = (dir.path().join("before"), dir.path().join("after"));
        std::fs::create_dir(&before).unwrap();
        // It moves between the two searches of the release.
        let paths = vec![before.clone(), before, after];
        let tool: Arc<dyn Tool> = Arc::new(Moves { paths, lists: AtomicUsize::new(0) });
        let follow = Reconciler::with(Discovery::new(Arc::clone(&tool)), Discovery::new(tool));
        let config = "[[export]]\ndataset = \"tank/m/*\"\npseudo = \"/m\"\n";
        let config = zgate_config::parse(config, std::path::Path::new("x")).unwrap();
        follow
            .replace(&config, |prepared| {
                gateway.replace_exports(&prepared.outcome.exports, Opening::Reload)
            })
            .unwrap();
        let condition = || {
            let (guid, store) = gateway.followed().remove(0);
            (guid, store.condition())
        };
        assert_eq!(condition(), (7, "in-use"));
        let released = follow.release(&gateway, "tank/m", 60).unwrap();
        assert_eq!(condition(), (7, "idle"), "at its new place");
        assert!(!released.free && released.datasets.len() == 1);
        assert!(follow.state().memory.holds.is_empty());
    }
}
