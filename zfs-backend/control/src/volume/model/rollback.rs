//! Bookmarks and rollbacks of the model of ZFS.

use super::{ModelSnapshot, Said, State};

impl State {
    pub(super) fn bookmark(&mut self, of: &str, name: &str) -> Said {
        let Some(guid) = self.snapshots.get(of).map(|one| one.guid) else {
            return Err(format!("cannot open '{of}': dataset does not exist"));
        };
        self.bookmarks.insert(name.to_owned(), guid);
        Ok(String::new())
    }

    /// Lists name and transaction group of each bookmark of a dataset.
    pub(super) fn bookmarks_of(&self, dataset: &str) -> Said {
        if !self.datasets.contains_key(dataset) {
            return Err(format!("cannot open '{dataset}': dataset does not exist"));
        }
        let its = self.bookmarks.iter().filter(|(name, _)| name.split('#').next() == Some(dataset));
        Ok(its.map(|(name, txg)| format!("{name}\t{txg}\n")).collect())
    }

    pub(super) fn rollback(&mut self, to: &str) -> Said {
        let Some((guid, volsize)) = self.snapshots.get(to).map(|one| (one.guid, one.volsize))
        else {
            return Err(format!("cannot open '{to}': dataset does not exist"));
        };
        let dataset = to.split('@').next().unwrap_or_default();
        let is_later = |name: &str, one: &ModelSnapshot| {
            name.split('@').next() == Some(dataset) && one.guid > guid
        };
        let mut bookmarks = self.bookmarks.iter();
        if self.snapshots.iter().any(|(name, one)| is_later(name, one))
            || bookmarks.any(|(name, of)| name.split('#').next() == Some(dataset) && *of > guid)
        {
            return Err(format!(
                "cannot rollback to '{to}': more recent snapshots or bookmarks exist"
            ));
        }
        if let Some(found) = self.datasets.get_mut(dataset) {
            found.volsize = volsize;
        }
        Ok(String::new())
    }
}
