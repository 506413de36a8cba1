//! Snapshots of several volumes at one moment.

use super::snapshot::{check_request, parent_of, snapshot_of};
use super::{Controller, Site, is_of_volume};
use crate::gateway::Of;
use crate::names::{GroupId, SnapshotId, VolumeId, group_name};
use crate::proto::{self, VolumeGroupSnapshot};
use crate::status::{invalid, missing, needed, no_volume, not_final, of_gateway};
use std::collections::BTreeSet;
use tonic::Status;
use zgate_api::{CreateGroupSnapshot, ErrorCode, Snapshot};

impl Controller {
    /// Takes a group, or finds it.
    pub(super) async fn take_group(
        &self,
        request: &proto::CreateVolumeGroupSnapshotRequest,
    ) -> Result<VolumeGroupSnapshot, Status> {
        needed("name", &request.name)?;
        check_request(&request.name, request.parameters.keys().next())?;
        if request.source_volume_ids.is_empty() {
            return Err(missing("source_volume_ids"));
        }
        if request.source_volume_ids.len() > zgate_api::snapshot::MAX_GROUP_VOLUMES {
            return Err(invalid("more volumes than a group may have"));
        }
        let parsed = request.source_volume_ids.iter();
        let parsed = parsed.map(|id| VolumeId::parse(id).ok_or_else(|| no_volume(id)));
        let volumes: Vec<VolumeId> =
            parsed.collect::<Result<BTreeSet<_>, _>>()?.into_iter().collect();
        let places: BTreeSet<(&str, &str)> = volumes
            .iter()
            .map(|volume| (volume.gateway.as_str(), pool_of(&volume.dataset)))
            .collect();
        let [(gateway, _)] = places.into_iter().collect::<Vec<_>>()[..] else {
            // CSI 1.12, CreateVolumeGroupSnapshot Errors.
            let several = Status::failed_precondition(
                "the volumes of a group are of one gateway and one pool; take a group in each",
            );
            return Err(self.not_taken(&volumes, several).await);
        };
        // Until it is known that an earlier request has taken none, no error is final.
        let site = self.site(gateway).map_err(not_final)?;
        let group = GroupId { gateway: gateway.to_owned(), name: group_name(&request.name) };
        let _lock = self.locks.take(group.to_string())?;
        let datasets: Vec<String> = volumes.iter().map(|volume| volume.dataset.clone()).collect();
        let parents: BTreeSet<&str> =
            datasets.iter().filter_map(|dataset| parent_of(dataset)).collect();
        let known = self.named(site, &group.name, &parents).await.map_err(not_final)?;
        if known.iter().any(|one| !datasets.contains(&one.volume)) {
            let taken = format!("group {} exists with other volumes", request.name);
            return Err(self.not_taken(&volumes, Status::already_exists(taken)).await);
        }
        let request = CreateGroupSnapshot {
            name: group.name.clone(),
            owner: self.owner.to_string(),
            volumes: datasets,
        };
        match site.gateway.create_group(&request).await {
            Ok(taken) => Ok(group_of(site, &group, &taken)),
            Err(refusal) if is_of_volume(&refusal) => {
                let refusal = of_gateway(refusal);
                let refusal = if known.is_empty() { refusal } else { not_final(refusal) };
                Err(self.not_taken(&volumes, refusal).await)
            }
            Err(error) if known.is_empty() => Err(of_gateway(error)),
            Err(error) => Err(not_final(of_gateway(error))),
        }
    }

    /// Deletes all snapshots of a group; `listed` are those that the caller knows.
    pub(super) async fn delete_group(&self, id: &str, listed: &[String]) -> Result<(), Status> {
        needed("group_snapshot_id", id)?;
        let Some(group) = GroupId::parse(id) else { return Ok(()) };
        let site = self.site(&group.gateway)?;
        let _lock = self.locks.take(id)?;
        let members = self.members(site, &group).await?;
        check_list(&group, &members, listed)?;
        for one in members {
            match site.gateway.delete_snapshot(&one.volume, &one.name, &self.owner).await {
                Err(error) if error.code != ErrorCode::NotFound => return Err(of_gateway(error)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns a group; `listed` are those of its snapshots that the caller knows.
    pub(super) async fn group(
        &self,
        id: &str,
        listed: &[String],
    ) -> Result<VolumeGroupSnapshot, Status> {
        needed("group_snapshot_id", id)?;
        let none = || Status::not_found(format!("there is no group {id}"));
        let group = GroupId::parse(id).ok_or_else(none)?;
        let site = self.site(&group.gateway).map_err(|_| none())?;
        let members = self.members(site, &group).await?;
        if members.is_empty() {
            return Err(none());
        }
        check_list(&group, &members, listed)?;
        Ok(group_of(site, &group, &members))
    }

    /// Reads all snapshots of a group: none is forgotten because its pool is away.
    async fn members(&self, site: &Site, group: &GroupId) -> Result<Vec<Snapshot>, Status> {
        self.snapshots_of(site, Of::All, &group.name).await
    }
}

/// Returns the pool of a volume.
fn pool_of(dataset: &str) -> &str {
    dataset.split_once('/').map_or(dataset, |(pool, _)| pool)
}

/// Refuses a list of snapshots that is not that of the group which has these members
/// (`snapshot_ids` in CSI 1.12): its caller would lose others than it knows. One that is listed may
/// be gone by an earlier request. An empty list says nothing.
fn check_list(group: &GroupId, members: &[Snapshot], listed: &[String]) -> Result<(), Status> {
    if listed.is_empty() || members.is_empty() {
        return Ok(());
    }
    let is_foreign = |id: &&String| {
        SnapshotId::parse(id)
            .is_none_or(|one| one.volume.gateway != group.gateway || one.name != group.name)
    };
    if let Some(foreign) = listed.iter().find(is_foreign) {
        return Err(invalid(format!("snapshot_ids: {foreign} is no snapshot of group {group}")));
    }
    let mut ids = members.iter().map(|one| format!("{}:{}", group.gateway, one.id));
    match ids.find(|id| !listed.contains(id)) {
        Some(id) => Err(invalid(format!("snapshot_ids: group {group} has {id} as well"))),
        None => Ok(()),
    }
}

fn group_of(site: &Site, group: &GroupId, snapshots: &[Snapshot]) -> VolumeGroupSnapshot {
    let snapshots: Vec<_> = snapshots.iter().map(|one| snapshot_of(site, one)).collect();
    VolumeGroupSnapshot {
        group_snapshot_id: group.to_string(),
        creation_time: snapshots.first().and_then(|one| one.creation_time),
        ready_to_use: snapshots.iter().all(|one| one.ready_to_use),
        snapshots,
    }
}
