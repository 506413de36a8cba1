//! Flush of acknowledged writes to zvols, before a snapshot.

use super::change::wait_for;
use super::limits::FLUSH_PATIENCE;
use super::luns::unit::Unit;
use super::service::IscsiService;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use std::sync::Arc;
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

    /// Returns the work that flushes all logical units; it returns whether all of them
    /// have flushed, and takes as long as their storage does.
    pub(crate) fn flush_all(&self) -> impl FnOnce() -> bool + Send + 'static {
        let rules = self.rules();
        let units: Vec<Arc<Unit>> = rules.catalog.units().cloned().collect();
        move || {
            let mut flushed = true;
            for unit in &units {
                flushed &= flush(unit);
            }
            flushed
        }
    }
}

/// Flushes a unit; returns false if that fails.
fn flush(unit: &Unit) -> bool {
    let flushed = wait_for(async { unit.volume.flush().await.map_err(io::Error::other) });
    if let Err(error) = &flushed {
        tracing::warn!(
            target_name = %unit.target, lun = unit.config.number, %error, "cannot flush a LUN"
        );
    }
    flushed.is_ok()
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
    fn a_renamed_zvol_is_found_by_its_name_and_not_by_its_old_path() {
        let (old, new) = ("lab/vm/a".parse().unwrap(), "lab/vm/b".parse().unwrap());
        let path = Path::new("/dev/zvol/lab/vm/a");
        assert!(lies_in(Some("lab/vm/b"), path, &new));
        assert!(!lies_in(Some("lab/vm/b"), path, &old), "it may be another one's name by now");
        assert!(lies_in(None, path, &old) && !lies_in(None, path, &new));
    }
}
