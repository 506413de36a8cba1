//! Mounts and holds of the model of ZFS.

use super::{Said, State};
use crate::volume::in_use::{HAS_USERS, SNAPSHOT_HAS_USERS};

impl State {
    pub(super) fn mount(&mut self, name: &str, mounted: bool) -> Said {
        let is_busy = self.busy.iter().any(|one| one == name);
        let Some(found) = self.datasets.get_mut(name) else {
            return Err(format!("cannot open '{name}': dataset does not exist"));
        };
        match (found.mounted, mounted) {
            (true, true) => Err(format!("cannot mount '{name}': filesystem already mounted")),
            (false, false) => Err(format!("cannot unmount '{name}': not currently mounted")),
            (true, false) if is_busy => {
                Err(format!("cannot unmount '/{name}': pool or dataset is busy"))
            }
            _ => {
                found.mounted = mounted;
                Ok(String::new())
            }
        }
    }

    /// Runs the one channel program that is known here.
    pub(super) fn look_for_users(&self, name: &str) -> Said {
        let failed = |said: &str| {
            Err(format!("Channel program execution failed:\n{said}\nstack traceback:"))
        };
        if self.busy.iter().any(|one| one == name) {
            return failed(HAS_USERS);
        }
        let is_its = |one: &&String| one.split_once('@').is_some_and(|(of, _)| of == name);
        if let Some(snapshot) = self.busy.iter().find(is_its) {
            return failed(&format!("{SNAPSHOT_HAS_USERS}{snapshot}"));
        }
        Ok("Channel program fully executed and did not produce output.\n".to_owned())
    }

    pub(super) fn hold(&mut self, name: &str, held: bool) -> Said {
        let Some(found) = self.snapshots.get_mut(name) else {
            return Err(format!("cannot open '{name}': dataset does not exist"));
        };
        found.held = held;
        let (guid, is_deferred) = (found.guid, found.deferred);
        // A deferred snapshot goes with its last hold.
        if !held && is_deferred && self.clones(guid).is_empty() {
            self.snapshots.remove(name);
        }
        Ok(String::new())
    }
}
