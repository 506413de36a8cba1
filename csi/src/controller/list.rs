//! Lists, conditions and capacity.

use super::gather::{Ask, gather};
use super::parameters::Parameters;
use super::snapshot::snapshot_of;
use super::volume::volume_of;
use super::{Controller, Site, topology};
use crate::gateway::{Of, Page};
use crate::limits::{MAX_LIST_BYTES, MAX_PAGE_ENTRIES, REQUEST_SECONDS, SIZE_STEP_BYTES};
use crate::names::{Node, VolumeId};
use crate::proto::{
    ControllerGetVolumeResponse, GetCapacityRequest, GetCapacityResponse, ListSnapshotsRequest,
    ListSnapshotsResponse, ListVolumesRequest, ListVolumesResponse, VolumeCondition,
    controller_get_volume_response, list_snapshots_response, list_volumes_response,
};
use crate::status::{invalid, needed, no_volume, of_gateway};
use prost::Message;
use tokio::time::{Instant, timeout_at};
use tonic::{Code, Status};
use zgate_api::{ErrorCode, Snapshot, SnapshotPage, Volume};

/// Place in a list that goes over several gateways: `gateway:id`.
struct Cursor {
    site: usize,
    after: Option<String>,
}

/// Part of a list that a gateway gave, and the id after which the rest begins.
struct Part<T> {
    items: Vec<T>,
    next: Option<String>,
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
        let cursor = self.cursor(&request.starting_token)?;
        let ask = self.parts((cursor, most), None, move |site, page| async move {
            let page = site.gateway.volumes(&self.owner, &page).await.map_err(of_gateway);
            page.map(|page| Part { items: page.items, next: page.next })
        });
        let parts = ask.await?;
        let (entries, next_token) = join(parts, most, |volume: &Volume| volume.id.as_str(), entry);
        Ok(ListVolumesResponse { entries, next_token })
    }

    /// Reads a list from a place on, at all gateways or at the one that is called `only`, and
    /// of each of them up to `most` entries. None may be missing: a list without a gateway's
    /// part would say that what is there is gone.
    async fn parts<'a, T, F>(
        &'a self,
        (cursor, most): (Cursor, usize),
        only: Option<&str>,
        ask: impl Fn(&'a Site, Page) -> F + Copy + Send + 'a,
    ) -> Result<Vec<(&'a Site, Part<T>)>, Status>
    where
        T: Send + 'a,
        F: Future<Output = Result<Part<T>, Status>> + Send + 'a,
    {
        let Cursor { site: first, mut after } = cursor;
        let mut asks = Vec::new();
        for site in self.sites.iter().skip(first) {
            let after = after.take();
            if only.is_none_or(|name| name == site.settings.name) {
                let part = read((after, most), move |page| ask(site, page));
                asks.push(Ask::new(site, async move { part.await.map(|part| (site, part)) }));
            }
        }
        if most == usize::MAX {
            return gather(asks).await.into_iter().collect();
        }
        // Those whose entries do not fit into the page are not asked.
        let (mut parts, mut count) = (Vec::new(), 0);
        for ask in asks {
            for part in gather(vec![ask]).await {
                let (site, part) = part?;
                count += part.items.len();
                parts.push((site, part));
            }
            // One that is exactly full may be the last one: only the next gateway tells.
            if count > most || parts.last().is_some_and(|(_, part)| part.next.is_some()) {
                break;
            }
        }
        Ok(parts)
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
        let cursor = self.cursor(&request.starting_token)?;
        let only = volume.as_ref().map(|one| one.gateway.as_str());
        let of = volume.as_ref().map_or(Of::All, |one| Of::Volume(&one.dataset));
        let ask = self.parts((cursor, most), only, move |site, page| async move {
            let page = match site.gateway.snapshots(&self.owner, of, &page).await {
                // Another thing that is not found is no empty list.
                Err(error) if only.is_some() && error.code == ErrorCode::NotFound => {
                    Ok(SnapshotPage::default())
                }
                page => page.map_err(of_gateway),
            };
            page.map(|page| Part { items: page.items, next: page.next })
        });
        let parts = ask.await?;
        let entry = |site: &Site, one: &Snapshot| list_snapshots_response::Entry {
            snapshot: Some(snapshot_of(site, one)),
        };
        let (entries, next_token) = join(parts, most, |one: &Snapshot| one.id.as_str(), entry);
        Ok(ListSnapshotsResponse { entries, next_token })
    }

    /// Returns the space of the roomiest place: a volume is in one of them. It may be larger
    /// than what is free there, up to what the gateway takes: its size is a quota, or that of a
    /// disk that takes space as it is written, and a clone takes none at first.
    /// Places that do not answer are left out, as long as one does: nothing can be made there.
    pub(super) async fn capacity(
        &self,
        request: &GetCapacityRequest,
    ) -> Result<GetCapacityResponse, Status> {
        let parameters = Parameters::parse(&request.parameters)?;
        let term = request.accessible_topology.as_ref();
        let mut asks = Vec::new();
        for site in self.sites.iter() {
            let reaches = term.is_none_or(|term| topology::reaches(&site.settings, term));
            let named = parameters.gateway.as_ref().is_none_or(|name| *name == site.settings.name);
            if !reaches || !named {
                continue;
            }
            let parents = site.settings.parents.iter();
            let parents: Vec<_> = parents
                .filter(|parent| parameters.parent.as_ref().is_none_or(|name| name == *parent))
                .collect();
            asks.push(Ask::new(site, room_at(site, parents)));
        }
        let most = most_known(gather(asks).await)?.unwrap_or_default();
        let bytes = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        Ok(GetCapacityResponse {
            available_capacity: bytes(most.0),
            maximum_volume_size: Some(bytes(most.1)),
            minimum_volume_size: Some(SIZE_STEP_BYTES.cast_signed()),
        })
    }
}

/// Reads a list of one gateway, page by page, up to `most` entries.
async fn read<T, F>(
    (mut after, most): (Option<String>, usize),
    ask: impl Fn(Page) -> F,
) -> Result<Part<T>, Status>
where
    F: Future<Output = Result<Part<T>, Status>>,
{
    let mut items = Vec::new();
    loop {
        let limit = (most - items.len()).min(MAX_PAGE_ENTRIES);
        let part = ask(Page { after, limit: Some(limit) }).await?;
        items.extend(part.items);
        after = part.next;
        if after.is_none() || items.len() >= most {
            return Ok(Part { items, next: after });
        }
    }
}

/// Puts the parts of a list together, one gateway's after another's, up to `most` entries that
/// have [`MAX_LIST_BYTES`] in all. Returns the token of the rest as well; empty if nothing is left.
fn join<T, E: Message>(
    parts: Vec<(&Site, Part<T>)>,
    most: usize,
    id: impl Fn(&T) -> &str,
    entry: impl Fn(&Site, &T) -> E,
) -> (Vec<E>, String) {
    let (mut entries, mut bytes) = (Vec::new(), 0);
    for (site, Part { items, next }) in parts {
        let token = |after: &str| format!("{}:{after}", site.settings.name);
        let mut last = "";
        for item in &items {
            let one = entry(site, item);
            bytes += one.encoded_len();
            let is_full = entries.len() == most || bytes > MAX_LIST_BYTES;
            // One alone is told, whatever its size.
            if is_full && !entries.is_empty() {
                return (entries, token(last));
            }
            entries.push(one);
            last = id(item);
        }
        if let Some(next) = next {
            return (entries, token(&next));
        }
    }
    (entries, String::new())
}

/// Bytes that are available below a parent, and all of them.
type Room = (u64, u64);

/// Returns the space of the roomiest of these parents of a gateway; none if there is none.
/// They are asked in turn: a gateway has a bound on connections. What is known in time counts.
async fn room_at(site: &Site, parents: Vec<&String>) -> Result<Option<Room>, Status> {
    let until = Instant::now() + REQUEST_SECONDS;
    let mut answers = Vec::new();
    for parent in parents {
        let late = || Status::unavailable(format!("{}: no answer in time", site.settings.name));
        let asked = timeout_at(until, site.gateway.capacity(parent)).await;
        let capacity = asked.map_or_else(|_| Err(late()), |answer| answer.map_err(of_gateway));
        answers.push(capacity.map(|room| Some((room.available_bytes, room.total_bytes))));
    }
    most_known(answers)
}

/// Returns the most of what is known. What is unavailable counts only if nothing is known.
fn most_known(answers: Vec<Result<Option<Room>, Status>>) -> Result<Option<Room>, Status> {
    let (mut most, mut unknown) = (None, None);
    for answer in answers {
        match answer {
            Ok(room) => most = most.max(room),
            Err(error) if error.code() == Code::Unavailable => {
                tracing::warn!(error = error.message(), "the space of a place is not known");
                unknown = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    match (most, unknown) {
        (None, Some(error)) => Err(error),
        (most, _) => Ok(most),
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
