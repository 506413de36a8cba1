//! Snapshots of single volumes.

use super::gather::{Ask, gather};
use super::{Controller, Site, is_of_volume};
use crate::gateway::{Of, Page};
use crate::limits::{MAX_PAGE_ENTRIES, MAX_REQUEST_NAME_BYTES, MAX_SEARCHED_PAGES};
use crate::names::{GroupId, SnapshotId, VolumeId, is_of_group, snapshot_name};
use crate::proto;
use crate::status::{invalid, needed, no_volume, not_final, of_gateway};
use prost_types::Timestamp;
use std::collections::BTreeSet;
use tonic::{Code, Status};
use zgate_api::{ErrorCode, Snapshot};

impl Controller {
    /// Takes a snapshot, or finds it.
    pub(super) async fn take_snapshot(
        &self,
        request: &proto::CreateSnapshotRequest,
    ) -> Result<proto::Snapshot, Status> {
        needed("name", &request.name)?;
        needed("source_volume_id", &request.source_volume_id)?;
        check_request(&request.name, request.parameters.keys().next())?;
        let id = &request.source_volume_id;
        let parsed = VolumeId::parse(id).ok_or_else(|| no_volume(id))?;
        let name = snapshot_name(&request.name);
        let _lock = self.locks.take(format!("snapshot {name}"))?;
        // Until it is known that an earlier request has taken none, no error is final.
        let site = self.site(&parsed.gateway).map_err(not_final)?;
        let parents: BTreeSet<&str> = parent_of(&parsed.dataset).into_iter().collect();
        let near = self.named(site, &name, &parents).await.map_err(not_final)?;
        let has_it = near.iter().any(|one| one.volume == parsed.dataset);
        let volumes = std::slice::from_ref(&parsed);
        if !has_it && let Err(error) = self.refuse_if_taken(site, &name, &near).await {
            return Err(self.not_taken(volumes, error).await);
        }
        match site.gateway.create_snapshot(&parsed.dataset, &name, &self.owner).await {
            Ok(taken) => Ok(snapshot_of(site, &taken)),
            Err(error) if has_it => Err(not_final(of_gateway(error))),
            Err(refusal) if is_of_volume(&refusal) => {
                Err(self.not_taken(volumes, of_gateway(refusal)).await)
            }
            Err(error) => Err(of_gateway(error)),
        }
    }

    /// Refuses a name that a snapshot of another volume has, one of those that are known at its
    /// own gateway, or one of other gateways: names are unique among all snapshots, not only
    /// among those of a volume.
    async fn refuse_if_taken(
        &self,
        own: &Site,
        name: &str,
        known: &[Snapshot],
    ) -> Result<(), Status> {
        let taken = |other: &Snapshot| {
            Status::already_exists(format!(
                "snapshot {} has this name, and is of another volume",
                other.id
            ))
        };
        if let Some(other) = known.first() {
            return Err(taken(other));
        }
        let others: Vec<&Site> =
            self.sites.iter().filter(|site| site.settings.name != own.settings.name).collect();
        let no_parents = BTreeSet::new();
        let mut asks = Vec::new();
        for site in others.iter().copied() {
            asks.push(Ask::new(site, self.named(site, name, &no_parents)));
        }
        for (site, all) in others.iter().copied().zip(gather(asks).await) {
            let all = match all {
                Err(late) if late.code() == Code::Unavailable => {
                    warn_of_unsearched(site, name, &late);
                    continue;
                }
                all => all?,
            };
            if let Some(other) = all.first() {
                return Err(taken(other));
            }
        }
        Ok(())
    }

    /// Reads the snapshots of a gateway with a name, as far as it answers: what is away is no
    /// reason to take none of the rest. Those below `parents` are read in any case.
    pub(super) async fn named(
        &self,
        site: &Site,
        name: &str,
        parents: &BTreeSet<&str>,
    ) -> Result<Vec<Snapshot>, Status> {
        let failed = match self.snapshots_of(site, Of::All, name).await {
            Err(error) if error.code() != Code::ResourceExhausted => error,
            found => return found,
        };
        warn_of_unsearched(site, name, &failed);
        let mut found = Vec::new();
        for parent in parents {
            let below = Of::Parent(parent);
            found.extend(self.snapshots_of(site, below, name).await?);
        }
        Ok(found)
    }

    /// Deletes a snapshot; nothing if there is none.
    pub(super) async fn delete_snapshot(&self, id: &str) -> Result<(), Status> {
        needed("snapshot_id", id)?;
        let Some(parsed) = SnapshotId::parse(id) else { return Ok(()) };
        let site = self.site(&parsed.volume.gateway)?;
        let _lock = self.locks.take(id)?;
        let dataset = &parsed.volume.dataset;
        match site.gateway.delete_snapshot(dataset, &parsed.name, &self.owner).await {
            Err(error) if error.code != ErrorCode::NotFound => Err(of_gateway(error)),
            _ => Ok(()),
        }
    }

    /// Returns a snapshot by its id; none if there is none.
    pub(super) async fn snapshot(&self, id: &str) -> Result<Option<proto::Snapshot>, Status> {
        let Some(parsed) = SnapshotId::parse(id) else { return Ok(None) };
        let Ok(site) = self.site(&parsed.volume.gateway) else { return Ok(None) };
        let found = self.find_snapshot(&parsed.volume, &parsed.at_gateway()).await?;
        Ok(found.map(|snapshot| snapshot_of(site, &snapshot)))
    }

    pub(super) async fn find_snapshot(
        &self,
        volume: &VolumeId,
        id: &str,
    ) -> Result<Option<Snapshot>, Status> {
        let Ok(site) = self.site(&volume.gateway) else { return Ok(None) };
        let Some((_, name)) = id.split_once('@') else { return Ok(None) };
        match self.snapshots_of(site, Of::Volume(&volume.dataset), name).await {
            Ok(found) => Ok(found.into_iter().find(|one| one.id == id)),
            Err(error) if error.code() == Code::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads the snapshots of a gateway with a name. One that is older than the driver may not
    /// know the selection by name: all its snapshots are read then.
    pub(super) async fn snapshots_of(
        &self,
        site: &Site,
        of: Of<'_>,
        name: &str,
    ) -> Result<Vec<Snapshot>, Status> {
        let mut found = Vec::new();
        let mut page = Page { after: None, limit: Some(MAX_PAGE_ENTRIES) };
        let mut is_selected = true;
        for _ in 0..MAX_SEARCHED_PAGES {
            let part = match is_selected {
                true => site.gateway.snapshots_named(&self.owner, of, name, &page).await,
                false => site.gateway.snapshots(&self.owner, of, &page).await,
            };
            let part = match part {
                Err(error) if is_selected && error.code == ErrorCode::Invalid => {
                    is_selected = false;
                    continue;
                }
                part => part.map_err(of_gateway)?,
            };
            found.extend(part.items.into_iter().filter(|one| one.name == name));
            page.after = part.next;
            if page.after.is_none() {
                return Ok(found);
            }
        }
        Err(Status::resource_exhausted(format!(
            "gateway {} has more snapshots than the driver searches; delete some",
            site.settings.name
        )))
    }
}

fn warn_of_unsearched(site: &Site, name: &str, error: &Status) {
    tracing::warn!(
        gateway = site.settings.name,
        snapshot = name,
        error = error.message(),
        "not all snapshots could be searched for this name; one of them may have it, too"
    );
}

/// Returns the parent of a volume.
pub(super) fn parent_of(dataset: &str) -> Option<&str> {
    dataset.rsplit_once('/').map(|(parent, _)| parent)
}

/// Checks the name and the parameters of a request for snapshots.
pub(super) fn check_request(name: &str, parameter: Option<&String>) -> Result<(), Status> {
    if name.len() > MAX_REQUEST_NAME_BYTES {
        return Err(invalid(format!("name is longer than {MAX_REQUEST_NAME_BYTES} bytes")));
    }
    match parameter.filter(|name| !name.starts_with("csi.storage.k8s.io/")) {
        Some(name) => Err(invalid(format!("parameter {name:?} is unknown; snapshots have none"))),
        None => Ok(()),
    }
}

/// A snapshot in the words of CSI.
pub(super) fn snapshot_of(site: &Site, snapshot: &Snapshot) -> proto::Snapshot {
    let gateway = &site.settings.name;
    let group = GroupId { gateway: gateway.clone(), name: snapshot.name.clone() };
    proto::Snapshot {
        size_bytes: snapshot.size_bytes.cast_signed(),
        snapshot_id: format!("{gateway}:{}", snapshot.id),
        source_volume_id: VolumeId::new(gateway, &snapshot.volume).to_string(),
        creation_time: Some(Timestamp { seconds: snapshot.created_unix_seconds, nanos: 0 }),
        ready_to_use: snapshot.ready,
        group_snapshot_id: if is_of_group(&snapshot.name) {
            group.to_string()
        } else {
            String::new()
        },
    }
}
