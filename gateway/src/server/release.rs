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
            self.must_exist(&name)?;
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

    /// Checks that a dataset exists, whether or not anything exports it.
    fn must_exist(&self, name: &DatasetName) -> io::Result<()> {
        let listed = self.tool().run("zfs", &["list", "-H", "-o", "name", name.as_str()]);
        match listed {
            Ok(_) => Ok(()),
            // It exists as far as anybody can tell; its files are closed.
            Err(error) if error.is_late() => {
                tracing::warn!(dataset = %name, %error, "cannot list a dataset to be released");
                Ok(())
            }
            Err(error) => Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!(
                    "there is no dataset {name} to release: {error}; `zgate datasets` lists what \
                     there is"
                ),
            )),
        }
    }

    /// Serves a released dataset again.
    ///
    /// # Errors
    /// If datasets cannot be queried.
    pub(crate) fn resume(&self, gateway: &Gateway, name: &str) -> io::Result<()> {
        let name: DatasetName = name
            .parse()
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, format!("{error}")))?;
        self.state().memory.resume(&name);
        self.scan(gateway).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exports::open::Opening;
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
