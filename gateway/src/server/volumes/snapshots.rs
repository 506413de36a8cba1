//! Snapshots of volumes.

use super::{Answer, VolumeService, absent, error, not_served, view};
use std::collections::BTreeSet;
use zgate_api::snapshot::MAX_GROUP_VOLUMES;
use zgate_api::{
    ApiError, CreateGroupSnapshot, ErrorCode, GroupSnapshot, RollBack, Snapshot, Volume,
};
use zgate_control::volume::{self, VolumeKind};

impl VolumeService {
    /// Makes the content of a snapshot the present content of its volume. Refused
    /// while a host uses the volume, unless it is forced.
    pub(crate) fn roll_back(&self, id: &str, name: &str, asked: &RollBack) -> Answer<Volume> {
        let (dataset, parent) = self.parent_of(id)?;
        let lock = self.locks.lock_volume(&dataset)?;
        let volume = self.owned(&dataset, &asked.owner)?.ok_or_else(|| absent(&dataset))?;
        if !asked.force {
            self.refuse_if_used(&parent, &volume)?;
        }
        let is_file_system = volume.kind == VolumeKind::Filesystem;
        if is_file_system {
            self.serving.release();
        }
        let target = parent
            .target(&volume)
            .filter(|target| volume.kind == VolumeKind::Block && self.serving.serves(target));
        let look_again = || {
            if is_file_system {
                self.serving.content_replaced(&dataset);
            }
            target.as_deref().map_or(Ok(()), |one| self.serving.resized(one))
        };
        // What hosts are told is free may have content again, and what NFS clients have cached or
        // not committed may be gone. First, because a command that times out may still be carried
        // out later; after a failure, for the same reason. One that is refused changes nothing.
        let mut has_begun = false;
        let begins = || {
            has_begun = true;
            let _ = look_again();
        };
        let destroy_scheduled = asked.destroy_scheduled;
        let rolled = volume::roll_back(self.tool(), &volume, name, destroy_scheduled, begins);
        let looked = if has_begun { look_again() } else { Ok(()) };
        rolled.map_err(error)?;
        let volume = self.owned(&dataset, &asked.owner)?.ok_or_else(|| absent(&dataset))?;
        drop(lock);
        // It has the size of that time.
        looked.map_err(|error| not_served(&error))?;
        Ok(self.view(&parent, volume))
    }

    /// Takes a snapshot, or finds it. True: it is new.
    pub(crate) fn snapshot(&self, id: &str, name: &str, owner: &str) -> Answer<(Snapshot, bool)> {
        let group = CreateGroupSnapshot {
            name: name.to_owned(),
            owner: owner.to_owned(),
            volumes: vec![id.to_owned()],
        };
        let (mut group, is_new) = self.group_snapshot(&group)?;
        let one = group.items.pop();
        let gone = || ApiError::new(ErrorCode::Storage, "the snapshot has vanished", "try again");
        one.map(|one| (one, is_new)).ok_or_else(gone)
    }

    /// Takes snapshots of volumes at one moment, or finds them. True: they are
    /// new.
    pub(crate) fn group_snapshot(
        &self,
        asked: &CreateGroupSnapshot,
    ) -> Answer<(GroupSnapshot, bool)> {
        let invalid = |message: String| {
            ApiError::new(ErrorCode::Invalid, message, "name each volume once, of one pool")
        };
        if !(1..=MAX_GROUP_VOLUMES).contains(&asked.volumes.len()) {
            return Err(invalid(format!("a group has 1 to {MAX_GROUP_VOLUMES} volumes")));
        }
        let names = asked.volumes.iter().map(|id| self.parent_of(id).map(|(name, _)| name));
        let names = names.collect::<Answer<Vec<_>>>()?;
        if names.iter().collect::<BTreeSet<_>>().len() < names.len() {
            return Err(invalid("a volume is named twice".to_owned()));
        }
        let _one = match &names[..] {
            [one] => self.locks.lock_volume(one)?,
            _ => self.locks.lock(&names[0].pool())?,
        };
        let volumes = self.all_owned(&names, &asked.owner)?;
        let mut disks = volumes.iter().filter(|one| one.kind == VolumeKind::Block);
        let flush = || disks.try_for_each(|one| self.flush(&one.dataset));
        let taken = volume::group_snapshot(self.tool(), &volumes, &asked.name, flush);
        let taken = taken.map_err(error)?;
        let items = taken.snapshots.into_iter().map(view::snapshot).collect();
        Ok((GroupSnapshot { items }, taken.is_new))
    }

    /// Deletes a snapshot; nothing if there is none.
    pub(crate) fn delete_snapshot(&self, id: &str, name: &str, owner: &str) -> Answer<()> {
        let (dataset, _) = self.parent_of(id)?;
        let _one = self.locks.lock_volume(&dataset)?;
        let was_there = volume::delete_snapshot(self.tool(), &dataset, name, owner);
        if was_there.map_err(error)? { Ok(()) } else { self.require_parent(&dataset) }
    }
}
