//! Volumes for programs: each request of the API about them. `zfs` has the
//! record ([`zgate_control::volume`]); what is served follows from it
//! ([`serving`]). A request that was cut short anywhere is completed by the same
//! request.

mod access;
mod confirm;
mod list;
mod pool_locks;
pub(crate) mod serving;
mod snapshots;
#[cfg(test)]
pub(crate) mod tests;
mod view;

use crate::exports::granted::ParentPlan;
use crate::server::limits::{BUSY_PATIENCE, BUSY_PAUSE};
use confirm::Due;
pub(crate) use list::Page;
use pool_locks::PoolLocks;
use serving::Serving;
use std::io;
use std::sync::Arc;
use std::time::Instant;
use zgate_api::{ApiError, ChangeVolume, CreateVolume, ErrorCode, Source, Volume};
use zgate_control::volume::{
    self, Change, Fault, Found, NewVolume, Origin, Promotion, RateLimits, VolumeError, VolumeKind,
    VolumeRecord,
};
use zgate_control::{DatasetName, DatasetPattern, SnapshotName, Tool};

/// Requests about volumes.
pub(crate) struct VolumeService {
    tool: Arc<dyn Tool>,
    serving: Arc<dyn Serving>,
    locks: PoolLocks,
    due: Due,
}

type Answer<T> = Result<T, ApiError>;

pub(super) fn error(found: VolumeError) -> ApiError {
    let code = match found.fault {
        Fault::Invalid => ErrorCode::Invalid,
        Fault::Forbidden => ErrorCode::Forbidden,
        Fault::NotFound => ErrorCode::NotFound,
        Fault::Exists => ErrorCode::Exists,
        Fault::InUse => ErrorCode::InUse,
        Fault::NoSpace => ErrorCode::NoSpace,
        Fault::Storage => ErrorCode::Storage,
    };
    ApiError::new(code, found.message, found.next_step)
}

fn not_served(found: &io::Error) -> ApiError {
    let message = format!("the change is made, but what is served could not follow: {found}");
    ApiError::new(ErrorCode::Storage, message, "send the same request again")
}

fn absent(id: &DatasetName) -> ApiError {
    ApiError::new(ErrorCode::NotFound, format!("there is no volume {id}"), "check its id")
}

/// Translates an error of a question about a parent.
fn of_parent(parent: &DatasetName, failed: VolumeError) -> ApiError {
    error(if failed.fault == Fault::NotFound { volume::away(parent) } else { failed })
}

impl VolumeService {
    /// Creates the service on `zfs` as `tool` runs it.
    pub(crate) fn new(tool: Arc<dyn Tool>, serving: Arc<dyn Serving>) -> Self {
        Self { tool, serving, locks: PoolLocks::default(), due: Due::default() }
    }

    fn tool(&self) -> &dyn Tool {
        &*self.tool
    }

    /// Returns the parent of a volume's id.
    fn parent_of(&self, id: &str) -> Answer<(DatasetName, ParentPlan)> {
        let name: DatasetName = id.parse().map_err(|error| {
            ApiError::new(ErrorCode::Invalid, format!("{error}"), "give the id of a volume")
        })?;
        let above = name.parent();
        let parents = self.serving.parents();
        let found = parents.into_iter().find(|parent| Some(&parent.dataset) == above.as_ref());
        found.map(|parent| (name.clone(), parent)).ok_or_else(|| outside(&name))
    }

    /// Reads a volume of this owner.
    fn owned(&self, id: &DatasetName, owner: &str) -> Answer<Option<VolumeRecord>> {
        let found = volume::read(self.tool(), id).map_err(error)?;
        if let Some(volume) = &found {
            volume.check_owner(owner).map_err(error)?;
        }
        Ok(found)
    }

    /// Reads volumes of this owner, by as few commands as if they were one.
    fn all_owned(&self, ids: &[DatasetName], owner: &str) -> Answer<Vec<VolumeRecord>> {
        let volumes = match volume::read_all(self.tool(), ids) {
            // One of them is not there, or its pool is not.
            Err(absent_one) if absent_one.fault == Fault::NotFound => {
                let one = |id| self.owned(id, owner)?.ok_or_else(|| absent(id));
                return ids.iter().map(one).collect();
            }
            found => found.map_err(error)?,
        };
        volumes.iter().try_for_each(|one| one.check_owner(owner)).map_err(error)?;
        Ok(volumes)
    }

    /// Refuses to say that something is not there while its parent is not, either: the
    /// pool is elsewhere, and comes back with the volume and its access. To be asked
    /// afterwards, because of a pool that is just being exported.
    fn require_parent(&self, id: &DatasetName) -> Answer<()> {
        let (_, parent) = self.parent_of(id.as_str())?;
        let space = volume::capacity(self.tool(), &parent.dataset);
        space.map(drop).map_err(|failed| of_parent(&parent.dataset, failed))
    }

    fn flush(&self, dataset: &DatasetName) -> Result<(), VolumeError> {
        self.serving.flush(dataset).map_err(|error| {
            VolumeError::new(
                Fault::Storage,
                format!("{dataset}: acknowledged writes cannot be flushed: {error}"),
                "check the pool, then send the request again",
            )
        })
    }

    /// Makes a volume, or finds it. True: it is new.
    #[cfg(test)]
    pub(crate) fn create(&self, asked: &CreateVolume) -> Answer<(Volume, bool)> {
        self.create_within(asked, None)
    }

    fn make(&self, asked: &CreateVolume, unconfirmed_until: Option<i64>) -> Answer<(Volume, bool)> {
        let id = format!("{}/{}", asked.parent, asked.name);
        volume::check_name("volume", &asked.name).map_err(error)?;
        let (dataset, parent) = self.parent_of(&id)?;
        let kind = match asked.kind {
            zgate_api::VolumeKind::Filesystem => VolumeKind::Filesystem,
            zgate_api::VolumeKind::Block => VolumeKind::Block,
        };
        let (has, key) = match kind {
            VolumeKind::Filesystem => (parent.config.pseudo.is_some(), "pseudo"),
            VolumeKind::Block => (parent.config.target.is_some(), "target"),
        };
        if !has {
            let message = format!("parent {} has no volumes of this kind", parent.dataset);
            let next = format!("set `{key}` of its [[volumes.parent]], or choose another parent");
            return Err(ApiError::new(ErrorCode::Invalid, message, next));
        }
        self.destroy_unconfirmed(&parent);
        let origin = asked.source.as_ref().and_then(dataset_of);
        let _one = self.locks.lock_clone(&dataset, origin.as_ref())?;
        if let Some(until) = unconfirmed_until {
            self.is_due_at(&parent, until);
        }
        let found = volume::look(self.tool(), &dataset).map_err(error)?;
        let is_there = matches!(found, Found::Volume(_));
        let new = NewVolume {
            origin: self.origin(asked, &dataset, &parent, is_there)?,
            is_origin_own: !matches!(asked.source, Some(Source::Dataset(_))),
            source: asked.source.as_ref().map(view::source_text),
            name: asked.name.clone(),
            owner: asked.owner.clone(),
            kind,
            size_bytes: asked.size_bytes,
            properties: asked.properties.clone(),
            read_only: asked.read_only,
            unconfirmed_until,
            thin: parent.config.thin,
            dataset,
        };
        let made = volume::create(self.tool(), &new, found, &mut |origin| self.flush(origin));
        let made = made.map_err(error)?;
        if unconfirmed_until.is_none() {
            volume::confirm(self.tool(), &made.volume).map_err(error)?;
        }
        Ok((self.view(&parent, made.volume), !made.existed))
    }

    /// Checks where the source of a volume is. Volumes and snapshots are read when it is made.
    fn origin(
        &self,
        asked: &CreateVolume,
        dataset: &DatasetName,
        parent: &ParentPlan,
        is_there: bool,
    ) -> Answer<Option<Origin>> {
        let Some(source) = &asked.source else { return Ok(None) };
        let (text, made_here) = match source {
            Source::Volume(text) | Source::Snapshot(text) => (text, true),
            Source::Dataset(text) => (text, false),
        };
        let invalid = |error: zgate_control::NameError| {
            ApiError::new(ErrorCode::Invalid, format!("source: {error}"), "check its id")
        };
        let origin = match text.contains('@') {
            true => Origin::Snapshot(text.parse::<SnapshotName>().map_err(invalid)?),
            false => Origin::Dataset(text.parse().map_err(invalid)?),
        };
        let from = match &origin {
            Origin::Snapshot(snapshot) => snapshot.dataset(),
            Origin::Dataset(dataset) => dataset.clone(),
        };
        if from.pool() != dataset.pool() {
            let message = format!("source {text} is in another pool than {dataset}");
            let next = "choose a parent of the pool of the source";
            return Err(ApiError::new(ErrorCode::Invalid, message, next));
        }
        // A repeated request finds its volume, also when the source is not allowed any more.
        if is_there {
            return Ok(Some(origin));
        }
        if made_here {
            self.parent_of(from.as_str())?;
        } else if !parent.config.sources.iter().any(|text| matches(text, &from)) {
            let message = format!("source {text} is not allowed");
            let next = format!("add it to `sources` of parent {}", parent.dataset);
            return Err(ApiError::new(ErrorCode::Forbidden, message, next));
        }
        Ok(Some(origin))
    }

    /// Changes size and properties of a volume.
    pub(crate) fn change(&self, id: &str, asked: &ChangeVolume) -> Answer<Volume> {
        let (dataset, parent) = self.parent_of(id)?;
        let lock = self.locks.lock_volume(&dataset)?;
        let mut volume = self.owned(&dataset, &asked.owner)?.ok_or_else(|| absent(&dataset))?;
        let wanted = Change { size_bytes: asked.size_bytes, properties: asked.properties.clone() };
        if volume::change(self.tool(), &volume, &wanted).map_err(error)? {
            // ZFS has its own form of values, and tells the space that is left.
            volume = self.owned(&dataset, &asked.owner)?.ok_or_else(|| absent(&dataset))?;
        }
        drop(lock);
        if RateLimits::are_among(&asked.properties) {
            self.serving.apply(&dataset).map_err(|error| not_served(&error))?;
        }
        // Also after a request whose reply was lost: initiators learn it now.
        if asked.size_bytes.is_some()
            && let Some(target) = parent.target(&volume)
            && self.serving.serves(&target)
        {
            self.serving.resized(&target).map_err(|error| not_served(&error))?;
        }
        Ok(self.view(&parent, volume))
    }

    /// Deletes a volume that is not in use; nothing if there is none.
    pub(crate) fn delete(&self, id: &str, owner: &str) -> Answer<()> {
        self.delete_if(id, owner, |_| Ok(()))
    }

    /// Deletes a volume to which no node has access; nothing if there is none.
    pub(crate) fn delete_detached(&self, id: &str, owner: &str) -> Answer<()> {
        self.delete_if(id, owner, |volume| {
            let Some(grant) = volume.grants.first() else { return Ok(()) };
            let (id, count, node) = (&volume.dataset, volume.grants.len(), &grant.node);
            let message = format!("{count} nodes have access to volume {id}, such as {node}");
            Err(ApiError::new(ErrorCode::InUse, message, "withdraw their access first"))
        })
    }

    fn delete_if(
        &self,
        id: &str,
        owner: &str,
        check: fn(&VolumeRecord) -> Answer<()>,
    ) -> Answer<()> {
        let (dataset, parent) = self.parent_of(id)?;
        self.destroy_unconfirmed(&parent);
        let lock = self.locks.lock_volume(&dataset)?;
        let Some(volume) = self.owned(&dataset, owner)? else { return Ok(()) };
        check(&volume)?;
        self.refuse_if_used(&parent, &volume)?;
        let mut promotion = Promotion::Allowed;
        if volume.grants.is_empty() {
            if self.destroy(volume.clone(), owner, Promotion::Excluded)? {
                return Ok(());
            }
            promotion = Promotion::Needed;
            drop(lock);
        } else {
            volume::refuse_if_snapshots(self.tool(), &volume).map_err(error)?;
            for grant in &volume.grants {
                self.end_access(&volume, &grant.node)?;
            }
            drop(lock);
            self.serving.apply(&dataset).map_err(|error| not_served(&error))?;
        }
        // Clones of its snapshots are promoted.
        let _alone = self.locks.lock(&dataset.pool())?;
        // It may be another volume by now, or others may have access.
        match self.owned(&dataset, owner)? {
            Some(now) if now.guid == volume.guid => {
                check(&now)?;
                self.destroy(now, owner, promotion).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Destroys a volume that is not served. False: its clones would have to be promoted first.
    fn destroy(&self, volume: VolumeRecord, owner: &str, promotion: Promotion) -> Answer<bool> {
        // Files and devices of ended requests are closed a moment later.
        let deadline = Instant::now() + BUSY_PATIENCE;
        let (mut now, mut pause) = (volume, BUSY_PAUSE);
        loop {
            if now.kind == VolumeKind::Filesystem {
                self.serving.release();
            }
            let busy = match volume::delete(self.tool(), &now, promotion) {
                Err(busy) if busy.fault == Fault::InUse && busy.message.contains("busy") => busy,
                outcome => return outcome.map_err(error),
            };
            if Instant::now() >= deadline {
                return Err(error(busy));
            }
            std::thread::sleep(pause);
            // Each look at who has it open is a line in the history of the pool.
            pause *= 2;
            match self.owned(&now.dataset, owner)? {
                Some(again) if again.guid == now.guid => now = again,
                _ => return Ok(true),
            }
        }
    }

    pub(super) fn refuse_if_used(&self, parent: &ParentPlan, volume: &VolumeRecord) -> Answer<()> {
        let users = match volume.kind {
            VolumeKind::Block => {
                let target = parent.target(volume);
                target.map(|target| self.serving.logged_in(&target)).unwrap_or_default()
            }
            VolumeKind::Filesystem => {
                let path = parent.pseudo_path(volume);
                path.map(|path| self.serving.holders(&path)).unwrap_or_default()
            }
        };
        let Some(first) = users.first() else { return Ok(()) };
        let message =
            format!("volume {} is in use by {}, such as {first}", volume.dataset, users.len());
        let next = "let them log out or close their files, or withdraw their access";
        Err(ApiError::new(ErrorCode::InUse, message, next))
    }
}

/// Returns the dataset that a source is, or is a snapshot of; none if it has no such name.
fn dataset_of(source: &Source) -> Option<DatasetName> {
    let (Source::Volume(text) | Source::Snapshot(text) | Source::Dataset(text)) = source;
    text.split('@').next()?.parse().ok()
}

fn outside(name: &DatasetName) -> ApiError {
    ApiError::new(
        ErrorCode::Forbidden,
        format!("{name} is not directly below a parent of volumes"),
        "name a parent of [[volumes.parent]] in the configuration",
    )
}

fn matches(pattern: &str, dataset: &DatasetName) -> bool {
    pattern.parse::<DatasetPattern>().is_ok_and(|pattern| pattern.matches(dataset))
}
