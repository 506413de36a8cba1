//! Bookmarks, rollbacks and promotions of the model of ZFS.

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

    pub(super) fn promote(&mut self, clone: &str) -> Said {
        let origin = self.datasets.get(clone).and_then(|one| one.origin);
        let found = origin.and_then(|guid| {
            let mut all = self.snapshots.iter();
            all.find(|(_, one)| one.guid == guid).map(|(name, _)| name.clone())
        });
        let (Some(guid), Some(snapshot)) = (origin, found) else {
            return Err(format!("cannot promote '{clone}': not a cloned filesystem"));
        };
        let former = snapshot.split('@').next().unwrap_or_default().to_owned();
        let moves = |name: &str, one: &ModelSnapshot| {
            name.split('@').next() == Some(former.as_str()) && one.guid <= guid
        };
        let names: Vec<String> = self
            .snapshots
            .iter()
            .filter(|(name, one)| moves(name, one))
            .map(|(name, _)| name.clone())
            .collect();
        if names.iter().any(|name| self.busy.contains(name)) {
            return Err(format!("cannot promote '{clone}': dataset is busy"));
        }
        let new_name = |name: &str| name.replacen(&format!("{former}@"), &format!("{clone}@"), 1);
        if let Some(name) = names.iter().find(|name| self.snapshots.contains_key(&new_name(name))) {
            return Err(format!("cannot promote '{clone}': snapshot name conflict: '{name}'"));
        }
        for name in names {
            if let Some(one) = self.snapshots.remove(&name) {
                self.snapshots.insert(new_name(&name), one);
            }
        }
        let above = self.datasets.get(&former).and_then(|one| one.origin);
        if let Some(one) = self.datasets.get_mut(clone) {
            one.origin = above;
        }
        if let Some(one) = self.datasets.get_mut(&former) {
            one.origin = Some(guid);
        }
        Ok(String::new())
    }
}
