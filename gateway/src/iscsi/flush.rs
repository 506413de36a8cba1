//! Flush of acknowledged writes to zvols, before a snapshot.

use super::change::wait_for;
use super::limits::FLUSH_PATIENCE;
use super::luns::unit::Unit;
use super::service::IscsiService;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use zgate_control::snapshot::{Policy, volumes};
use zgate_control::{DatasetName, Tool};

/// A logical unit that was flushed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Flushed {
    /// Name of its target.
    pub target: String,
    /// Its number.
    pub lun: u16,
    /// The zvol of the unit.
    pub zvol: String,
}

/// A flush that has not ended in time. It goes on: the kernel tells a lost write to
/// whoever asks first, and an initiator that flushes later has to learn of it.
#[derive(Debug, Default)]
pub(crate) struct LateFlush(Mutex<Weak<()>>);

impl LateFlush {
    fn running(&self) -> MutexGuard<'_, Weak<()>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_under_way(&self) -> bool {
        self.running().strong_count() > 0
    }

    /// Runs `flush` on a thread of its own and waits for it, at most `patience`. While
    /// an earlier one is late, none begins, so that threads do not accumulate.
    ///
    /// # Errors
    /// The error of the flush, or that it is late.
    fn run(
        &self,
        patience: Duration,
        flush: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let late = |reason: String| {
            let next_step = "check its pool with `zpool status`";
            io::Error::new(io::ErrorKind::TimedOut, format!("{reason}; {next_step}"))
        };
        if self.is_under_way() {
            return Err(late("an earlier flush has not ended".to_owned()));
        }
        let (done, ended) = channel();
        let runs = Arc::new(());
        let running = Arc::downgrade(&runs);
        std::thread::Builder::new().name("zgate-flush".to_owned()).spawn(move || {
            let result = flush();
            drop(runs);
            // Nobody waits for one that is late.
            let _ = done.send(result);
        })?;
        ended.recv_timeout(patience).unwrap_or_else(|error| match error {
            RecvTimeoutError::Timeout => {
                *self.running() = running;
                Err(late(format!("the volume has not answered for {} s", patience.as_secs())))
            }
            RecvTimeoutError::Disconnected => Err(io::Error::other("the flush panicked")),
        })
    }
}

/// Returns whether two paths lead to one device.
fn same_device(a: &Path, b: &Path) -> bool {
    a == b
        || std::fs::canonicalize(a)
            .ok()
            .is_some_and(|a| std::fs::canonicalize(b).is_ok_and(|b| a == b))
}

/// Returns whether a unit's data lies in a zvol. The name that the kernel has for
/// an open zvol decides: while it is open, udev may keep its link under the name
/// that it had before.
fn lies_in(name: Option<&str>, path: &Path, zvol: &DatasetName) -> bool {
    match name {
        Some(name) => name == zvol.as_str(),
        None => same_device(path, &zvol.device()),
    }
}

impl IscsiService {
    /// Returns whether any logical unit is served.
    fn has_units(&self) -> bool {
        self.rules().catalog.units().next().is_some()
    }

    /// Flushes the logical units of a policy's zvols, before a snapshot of
    /// them.
    ///
    /// # Errors
    /// The unit, or the reason for which its zvols cannot be listed.
    pub(crate) fn flush_policy(&self, tool: &dyn Tool, policy: &Policy) -> Result<(), String> {
        if !self.has_units() {
            return Ok(());
        }
        let zvols = volumes(tool, &policy.dataset, policy.recursive).map_err(|e| e.to_string())?;
        self.flush_volumes(&zvols).map(drop).map_err(|error| error.to_string())
    }

    /// Flushes the logical units whose data lies in these zvols, each for
    /// [`FLUSH_PATIENCE`] at most.
    ///
    /// # Errors
    /// The unit; acknowledged writes may not be on disk then.
    pub(crate) fn flush_volumes(&self, zvols: &[DatasetName]) -> io::Result<Vec<Flushed>> {
        let mut flushed = Vec::new();
        for zvol in zvols {
            let rules = self.rules();
            let backed = |unit: &&Arc<Unit>| {
                lies_in(unit.volume.zvol_name().as_deref(), &unit.config.path, zvol)
            };
            for unit in rules.catalog.units().filter(backed) {
                let place = format!("target {} lun {}", unit.target, unit.config.number);
                let volume = Arc::clone(&unit.volume);
                let flush =
                    move || wait_for(async move { volume.flush().await.map_err(io::Error::other) });
                unit.late_flush.run(FLUSH_PATIENCE, flush).map_err(|error| {
                    io::Error::new(error.kind(), format!("{place}: cannot flush: {error}"))
                })?;
                flushed.push(Flushed {
                    target: unit.target.to_string(),
                    lun: unit.config.number,
                    zvol: zvol.to_string(),
                });
            }
        }
        Ok(flushed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zvols_device_is_found_by_any_name() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("zd0"), dir.path().join("vol"));
        std::fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(same_device(&file, &link));
        assert!(same_device(Path::new("/dev/zvol/x"), Path::new("/dev/zvol/x")));
        assert!(!same_device(Path::new("/dev/zvol/x"), &link));
    }

    #[test]
    fn a_flush_that_does_not_end_is_an_error_and_no_second_one_begins() {
        let (late, long) = (LateFlush::default(), Duration::from_secs(60));
        let (ends, waits) = channel::<()>();
        let hangs = move || {
            let _ = waits.recv();
            Ok(())
        };
        let error = late.run(Duration::ZERO, hangs).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().contains("not answered for 0 s; check its pool"), "{error}");
        let error = late.run(long, || panic!("one at a time")).unwrap_err();
        assert!(error.to_string().contains("an earlier flush"), "{error}");
        drop(ends);
        while late.is_under_way() {
            std::thread::yield_now();
        }
        late.run(long, || Ok(())).unwrap();
        let error = late.run(long, || Err(io::Error::other("lost"))).unwrap_err();
        assert_eq!(error.to_string(), "lost");
    }

    #[test]
    fn a_renamed_zvol_is_found_by_its_name_and_not_by_its_old_path() {
        let (old, new) = ("lab/vm/a".parse().unwrap(), "lab/vm/b".parse().unwrap());
        let path = Path::new("/dev/zvol/lab/vm/a");
        assert!(lies_in(Some("lab/vm/b"), path, &new));
        assert!(!lies_in(Some("lab/vm/b"), path, &old), "it may be another one's name by now");
        assert!(lies_in(None, path, &old) && !lies_in(None, path, &new));
    }
}
