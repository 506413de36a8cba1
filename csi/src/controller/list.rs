//! Lists, conditions and capacity.

use super::parameters::Parameters;
use super::snapshot::snapshot_of;
use super::volume::volume_of;
use super::{Controller, Site, topology};
use crate::gateway::{Of, Page};
use crate::limits::{MAX_PAGE_ENTRIES, SIZE_STEP_BYTES};
use crate::names::{Node, VolumeId};
use crate::proto::{
    ControllerGetVolumeResponse, GetCapacityRequest, GetCapacityResponse, ListSnapshotsRequest,
    ListSnapshotsResponse, ListVolumesRequest, ListVolumesResponse, VolumeCondition,
    controller_get_volume_response, list_snapshots_response, list_volumes_response,
};
use crate::status::{invalid, needed, no_volume, of_gateway};
use tonic::Status;
use zgate_api::{ErrorCode, Volume};

/// Place in a list that goes over several gateways: `gateway:id`.
struct Cursor {
    site: usize,
    after: Option<String>,
}

impl Controller {
    fn cursor(&self, token: &str) -> Result<Cursor, Status> {
        if token.is_empty() {
            return Ok(Cursor { site: 0, after: None });
        }
        let wrong = || Status::aborted(format!("starting_token {token:?} is not of this driver"));
        let (gateway, after) = token.split_once(':').ok_or_else(wrong)?;
        let site = self.sites.iter().position(|site| site.settings.name == gateway);
        let after = Some(after.to_owned()).filter(|after| !after.is_empty());
        Ok(Cursor { site: site.ok_or_else(wrong)?, after })
    }

    pub(super) async fn list_volumes(
        &self,
        request: &ListVolumesRequest,
    ) -> Result<ListVolumesResponse, Status> {
        let most = max_entries(request.max_entries)?;
        let mut cursor = self.cursor(&request.starting_token)?;
        let mut entries = Vec::new();
        while let Some(site) = self.sites.get(cursor.site) {
            let room = (most - entries.len()).min(MAX_PAGE_ENTRIES);
            if room == 0 {
                break;
            }
            let page = Page { after: cursor.after.take(), limit: Some(room) };
            let part = site.gateway.volumes(&self.owner, &page).await.map_err(of_gateway)?;
            entries.extend(part.items.iter().map(|volume| entry(site, volume)));
            cursor.after = part.next;
            if cursor.after.is_none() {
                cursor.site += 1;
            }
        }
        Ok(ListVolumesResponse { entries, next_token: self.token(cursor) })
    }

    /// Returns the token of the rest; empty if nothing is left.
    fn token(&self, cursor: Cursor) -> String {
        let Some(site) = self.sites.get(cursor.site) else { return String::new() };
        format!("{}:{}", site.settings.name, cursor.after.unwrap_or_default())
    }

    pub(super) async fn get_volume(&self, id: &str) -> Result<ControllerGetVolumeResponse, Status> {
        needed("volume_id", id)?;
        let parsed = VolumeId::parse(id).ok_or_else(|| no_volume(id))?;
        let volume = self.find(&parsed).await?.ok_or_else(|| no_volume(id))?;
        let site = self.site(&parsed.gateway)?;
        Ok(ControllerGetVolumeResponse {
            volume: Some(volume_of(site, &volume)),
            status: Some(controller_get_volume_response::VolumeStatus {
                published_node_ids: nodes(&volume),
                volume_condition: Some(condition(&volume)),
            }),
        })
    }

    pub(super) async fn list_snapshots(
        &self,
        request: &ListSnapshotsRequest,
    ) -> Result<ListSnapshotsResponse, Status> {
        if !request.snapshot_id.is_empty() {
            let found = self.snapshot(&request.snapshot_id).await?;
            let entries =
                found.into_iter().map(|one| list_snapshots_response::Entry { snapshot: Some(one) });
            return Ok(ListSnapshotsResponse { entries: entries.collect(), ..Default::default() });
        }
        let source = &request.source_volume_id;
        let volume = match VolumeId::parse(source) {
            Some(volume) => Some(volume),
            None if source.is_empty() => None,
            None => return Ok(ListSnapshotsResponse::default()),
        };
        let most = max_entries(request.max_entries)?;
        let mut cursor = self.cursor(&request.starting_token)?;
        let mut entries = Vec::new();
        while let Some(site) = self.sites.get(cursor.site) {
            let room = (most - entries.len()).min(MAX_PAGE_ENTRIES);
            if room == 0 {
                break;
            }
            let is_there = volume.as_ref().is_none_or(|one| one.gateway == site.settings.name);
            if is_there {
                let page = Page { after: cursor.after.take(), limit: Some(room) };
                let of = volume.as_ref().map_or(Of::All, |one| Of::Volume(&one.dataset));
                let part = match site.gateway.snapshots(&self.owner, of, &page).await {
                    // Another thing that is not found is no empty list.
                    Err(error) if volume.is_some() && error.code == ErrorCode::NotFound => {
                        Default::default()
                    }
                    part => part.map_err(of_gateway)?,
                };
                entries.extend(part.items.iter().map(|one| list_snapshots_response::Entry {
                    snapshot: Some(snapshot_of(site, one)),
                }));
                cursor.after = part.next;
            }
            if cursor.after.is_none() {
                cursor.site += 1;
            }
        }
        Ok(ListSnapshotsResponse { entries, next_token: self.token(cursor) })
    }

    /// Returns the space of the roomiest place: a volume is in one of them. It may be larger
    /// than what is free there, up to what the gateway takes: its size is a quota, or that of a
    /// disk that takes space as it is written, and a clone takes none at first.
    pub(super) async fn capacity(
        &self,
        request: &GetCapacityRequest,
    ) -> Result<GetCapacityResponse, Status> {
        let parameters = Parameters::parse(&request.parameters)?;
        let term = request.accessible_topology.as_ref();
        let mut most = (0_u64, 0_u64);
        for site in self.sites.iter() {
            let reaches = term.is_none_or(|term| topology::reaches(&site.settings, term));
            let named = parameters.gateway.as_ref().is_none_or(|name| *name == site.settings.name);
            if !reaches || !named {
                continue;
            }
            let parents = site.settings.parents.iter();
            for parent in parents
                .filter(|parent| parameters.parent.as_ref().is_none_or(|name| name == *parent))
            {
                let capacity = site.gateway.capacity(parent).await.map_err(of_gateway)?;
                most = most.max((capacity.available_bytes, capacity.total_bytes));
            }
        }
        let bytes = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        Ok(GetCapacityResponse {
            available_capacity: bytes(most.0),
            maximum_volume_size: Some(bytes(most.1)),
            minimum_volume_size: Some(SIZE_STEP_BYTES.cast_signed()),
        })
    }
}

fn max_entries(asked: i32) -> Result<usize, Status> {
    match usize::try_from(asked) {
        Ok(0) => Ok(usize::MAX),
        Ok(most) => Ok(most),
        Err(_) => Err(invalid("max_entries is negative")),
    }
}

fn entry(site: &Site, volume: &Volume) -> list_volumes_response::Entry {
    list_volumes_response::Entry {
        volume: Some(volume_of(site, volume)),
        status: Some(list_volumes_response::VolumeStatus {
            published_node_ids: nodes(volume),
            volume_condition: Some(condition(volume)),
        }),
    }
}

fn nodes(volume: &Volume) -> Vec<String> {
    let known = volume.access.iter().filter_map(|name| Node::from_access_name(name));
    known.map(|(node, _)| node.to_string()).collect()
}

fn condition(volume: &Volume) -> VolumeCondition {
    let message = volume.problem.clone().unwrap_or_else(|| "the gateway serves it".to_owned());
    VolumeCondition { abnormal: !volume.healthy, message }
}
