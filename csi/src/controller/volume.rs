//! Creation, deletion, growth and properties of volumes.

use super::capability::Wanted;
use super::parameters::{Parameters, mutable_properties};
use super::place::{Place, exists, id_at, roomiest};
use super::{Controller, Site, is_of_volume, topology};
use crate::limits::{CREATE_SECONDS, DEFAULT_SIZE_BYTES, MAX_REQUEST_NAME_BYTES, SIZE_STEP_BYTES};
use crate::names::{SnapshotId, VolumeId, volume_name};
use crate::proto::volume_content_source::Type as Content;
use crate::proto::{
    self, CapacityRange, ControllerExpandVolumeRequest, ControllerExpandVolumeResponse,
    ControllerModifyVolumeRequest, CreateVolumeRequest,
};
use crate::status::{invalid, missing, needed, no_volume, not_final, of_gateway};
use tokio::time::timeout;
use tonic::{Code, Status};
use zgate_api::{ChangeVolume, CreateVolume, ErrorCode, Properties, Source, Volume, VolumeKind};

/// A request, parsed.
struct Asked {
    name: String,
    kind: VolumeKind,
    range: CapacityRange,
    source: Option<Source>,
    /// Gateway and dataset of the source.
    origin: Option<VolumeId>,
    parameters: Parameters,
    read_only: bool,
}

impl Asked {
    fn parse(request: &CreateVolumeRequest) -> Result<Self, Status> {
        needed("name", &request.name)?;
        if request.name.len() > MAX_REQUEST_NAME_BYTES {
            return Err(invalid(format!("name is longer than {MAX_REQUEST_NAME_BYTES} bytes")));
        }
        let wanted = Wanted::parse_all(&request.volume_capabilities)?;
        let mut parameters =
            Parameters::parse(&request.parameters)?.with(&request.mutable_parameters)?;
        let any_raw = wanted.iter().any(|one| one.is_raw);
        let usual = if any_raw { VolumeKind::Block } else { VolumeKind::Filesystem };
        let kind = parameters.kind.unwrap_or(usual);
        if let Some(reason) = wanted.iter().find_map(|one| one.refusal(kind)) {
            return Err(invalid(reason));
        }
        if kind == VolumeKind::Block {
            parameters.default_to_stable_writes();
        }
        let (source, origin) = origin_of(request, &parameters)?;
        let only_read = source.is_some() && wanted.iter().all(|one| one.reads_only());
        Ok(Self {
            name: volume_name(&request.name),
            kind,
            range: range_of(request.capacity_range)?,
            source,
            origin,
            read_only: parameters.read_only || only_read,
            parameters,
        })
    }

    /// Returns whether a volume that exists is the one that is asked for.
    fn fits(&self, volume: &Volume) -> bool {
        let size = volume.size_bytes.cast_signed();
        let below_limit = self.range.limit_bytes == 0 || size <= self.range.limit_bytes;
        volume.kind == self.kind
            && volume.source == self.source
            && volume.read_only == self.read_only
            && below_limit
    }

    /// Size for a volume whose source has a size.
    fn size_bytes(&self, least_bytes: u64) -> Result<u64, Status> {
        let required = self.range.required_bytes.cast_unsigned();
        let usual = if required == 0 && least_bytes == 0 { DEFAULT_SIZE_BYTES } else { required };
        let limit = self.range.limit_bytes.cast_unsigned();
        // Without a requirement, the largest size within the limit will do.
        let within = limit - limit % SIZE_STEP_BYTES;
        let usual = if required == 0 && limit > 0 { usual.min(within) } else { usual };
        rounded(usual.max(least_bytes), limit)
    }
}

fn range_of(range: Option<CapacityRange>) -> Result<CapacityRange, Status> {
    let range = range.unwrap_or_default();
    let inverted = range.limit_bytes > 0 && range.limit_bytes < range.required_bytes;
    if range.required_bytes < 0 || range.limit_bytes < 0 || inverted {
        return Err(invalid("capacity_range is negative, or its limit is below its requirement"));
    }
    Ok(range)
}

/// Rounds up to whole steps.
fn rounded(bytes: u64, limit_bytes: u64) -> Result<u64, Status> {
    let size = bytes.max(1).checked_next_multiple_of(SIZE_STEP_BYTES);
    let size = size.filter(|size| i64::try_from(*size).is_ok());
    let beyond = || {
        Status::out_of_range(format!(
            "{bytes} bytes, rounded up to a multiple of {SIZE_STEP_BYTES}, are more than the limit"
        ))
    };
    size.filter(|size| limit_bytes == 0 || *size <= limit_bytes).ok_or_else(beyond)
}

fn origin_of(
    request: &CreateVolumeRequest,
    parameters: &Parameters,
) -> Result<(Option<Source>, Option<VolumeId>), Status> {
    let content = request.volume_content_source.as_ref().map(|source| source.r#type.as_ref());
    match (content, &parameters.dataset) {
        (None, None) => Ok((None, None)),
        (None, Some(dataset)) => Ok((Some(Source::Dataset(dataset.clone())), None)),
        (Some(_), Some(_)) => {
            Err(invalid("a volume has one source: the class names a dataset, the claim another"))
        }
        (Some(None), None) => Err(missing("volume_content_source.type")),
        (Some(Some(Content::Snapshot(source))), None) => {
            let none = || Status::not_found(format!("there is no snapshot {}", source.snapshot_id));
            let id = SnapshotId::parse(&source.snapshot_id).ok_or_else(none)?;
            Ok((Some(Source::Snapshot(id.at_gateway())), Some(id.volume)))
        }
        (Some(Some(Content::Volume(source))), None) => {
            let id = VolumeId::parse(&source.volume_id);
            let id = id.ok_or_else(|| no_volume(&source.volume_id))?;
            Ok((Some(Source::Volume(id.dataset.clone())), Some(id)))
        }
    }
}

fn pool(dataset: &str) -> &str {
    dataset.split(['/', '@']).next().unwrap_or(dataset)
}

impl Controller {
    pub(super) async fn create(
        &self,
        request: &CreateVolumeRequest,
    ) -> Result<proto::Volume, Status> {
        let asked = Asked::parse(request)?;
        let _lock = self.locks.take(&asked.name)?;
        let places = self.places(&asked, request);
        if places.is_empty() {
            return Err(match &asked.origin {
                Some(origin) if self.site(&origin.gateway).is_err() => {
                    Status::not_found(format!("there is no source {origin}"))
                }
                _ => Status::resource_exhausted(
                    "no gateway and parent of the settings fit the class, the topology and the \
                     source; see `gateway`, `parent` and `zones`",
                ),
            });
        }
        let late = |_| {
            let seconds = CREATE_SECONDS.as_secs();
            Status::unavailable(format!(
                "volume {} is not made after {seconds} s; repeat the call",
                asked.name
            ))
        };
        let made = timeout(CREATE_SECONDS, self.find_or_make(&asked, &places)).await;
        let (place, volume) = made.map_err(late)??;
        let requirement = request.accessibility_requirements.as_ref();
        let mut made = volume_of(place.site, &volume);
        made.content_source.clone_from(&request.volume_content_source);
        made.accessible_topology = topology::of_volume(&place.site.settings, requirement);
        Ok(made)
    }

    /// Gateways and parents that fit a request, the preferred ones first.
    fn places<'a>(&'a self, asked: &Asked, request: &CreateVolumeRequest) -> Vec<Place<'a>> {
        let requirement = request.accessibility_requirements.as_ref();
        let parameters = &asked.parameters;
        let fits = |site: &Site| {
            let name = &site.settings.name;
            parameters.gateway.as_ref().is_none_or(|wanted| wanted == name)
                && asked.origin.as_ref().is_none_or(|origin| origin.gateway == *name)
        };
        let source = match &asked.source {
            None => None,
            Some(Source::Volume(id) | Source::Snapshot(id) | Source::Dataset(id)) => Some(pool(id)),
        };
        let ranked = self.sites.iter().filter(|site| fits(site));
        let mut ranked: Vec<_> = ranked
            .filter_map(|site| Some((topology::rank(&site.settings, requirement)?, site)))
            .collect();
        ranked.sort_by_key(|(rank, _)| *rank);
        let of_site =
            |site: &'a Site| site.settings.parents.iter().map(move |parent| Place { site, parent });
        let all = ranked.into_iter().flat_map(|(_, site)| of_site(site));
        all.filter(|place| {
            parameters.parent.as_ref().is_none_or(|wanted| wanted == place.parent)
                && source.is_none_or(|wanted| pool(place.parent) == wanted)
        })
        .collect()
    }

    async fn find_or_make<'a>(
        &self,
        asked: &Asked,
        places: &[Place<'a>],
    ) -> Result<(Place<'a>, Volume), Status> {
        if let Some(made) = self.make_at_once(asked, places).await? {
            return Ok(made);
        }
        let existing = self.existing(&asked.name, places).await?;
        if let Some(found) = existing.volume {
            self.chosen.forget(&asked.name);
            let again = self.again(asked, found).await;
            // It is there: only another one's name is a reason to forget it.
            let is_other = |error: &Status| error.code() == Code::AlreadyExists;
            return again.map_err(|error| if is_other(&error) { error } else { not_final(error) });
        }
        let size = asked.size_bytes(self.least_bytes(asked).await?)?;
        let known = existing.unmarked.or_else(|| self.earlier(&asked.name, places));
        let place = match known {
            Some(place) => place,
            None => roomiest(places, size).await?,
        };
        Ok((place, self.make_first(asked, place, size).await?))
    }

    /// Has a volume made that has one place: the gateway finds it there if an answer was lost.
    /// None: it did neither, or it has to be looked at before.
    async fn make_at_once<'a>(
        &self,
        asked: &Asked,
        places: &[Place<'a>],
    ) -> Result<Option<(Place<'a>, Volume)>, Status> {
        // Nobody knows the least size yet.
        let has_unknown_size = asked.origin.is_some() && asked.range.required_bytes == 0;
        let (&[place], false, Ok(size)) = (places, has_unknown_size, asked.size_bytes(0)) else {
            return Ok(None);
        };
        match self.make_first(asked, place, size).await {
            Ok(volume) => Ok(Some((place, volume))),
            // Known by now: it may be made, or there is no room for it.
            Err(error) if matches!(error.code(), Code::Unavailable | Code::ResourceExhausted) => {
                Err(error)
            }
            // There may be one of another size that will do, and other refusals are not final if
            // it is there.
            Err(_) => Ok(None),
        }
    }

    /// Completes or takes over a volume that exists. It is compared in the properties that classes
    /// name, as a driver from before the defaults did not ask for these; it gets them then.
    async fn again<'a>(
        &self,
        asked: &Asked,
        (place, found): (Place<'a>, Volume),
    ) -> Result<(Place<'a>, Volume), Status> {
        if !asked.fits(&found) {
            return Err(exists(&found.id));
        }
        let size = asked.size_bytes(0)?;
        let explicit = asked.range.required_bytes > 0;
        let volume = if found.size_bytes > size || !explicit {
            found
        } else {
            // Also completes one whose making was interrupted.
            self.make(asked, place, size, &asked.parameters.properties).await?
        };
        let volume = self.set_defaults(asked, place, volume).await?;
        Ok((place, volume))
    }

    /// Sets the defaults of properties that a volume lacks.
    async fn set_defaults(
        &self,
        asked: &Asked,
        place: Place<'_>,
        volume: Volume,
    ) -> Result<Volume, Status> {
        let properties = asked.parameters.defaults_unset_on(&volume);
        if properties.is_empty() {
            return Ok(volume);
        }
        let change = ChangeVolume { properties, ..self.change() };
        place.site.gateway.change_volume(&volume.id, &change).await.map_err(of_gateway)
    }

    /// Makes a volume that was not found. While it may be in the making, its place is kept.
    async fn make_first(
        &self,
        asked: &Asked,
        place: Place<'_>,
        size: u64,
    ) -> Result<Volume, Status> {
        self.chosen.keep(&asked.name, &place.site.settings.name, place.parent);
        let properties = asked.parameters.with_defaults();
        let made = match self.make(asked, place, size, &properties).await {
            Err(full) if full.code() == Code::ResourceExhausted => {
                // A clone gets its size after it was made: it may be there without.
                let found = place.site.gateway.volume(&id_at(place, &asked.name)).await;
                let is_absent = found.is_err_and(|error| error.code == ErrorCode::NotFound);
                Err(if is_absent { full } else { not_final(full) })
            }
            made => made,
        };
        let may_go_on = made.as_ref().is_err_and(|error| error.code() == Code::Unavailable);
        if !may_go_on {
            self.chosen.forget(&asked.name);
        }
        made
    }

    async fn make(
        &self,
        asked: &Asked,
        place: Place<'_>,
        size: u64,
        properties: &Properties,
    ) -> Result<Volume, Status> {
        let request = CreateVolume {
            name: asked.name.clone(),
            parent: place.parent.to_owned(),
            owner: self.owner.to_string(),
            kind: asked.kind,
            size_bytes: size,
            properties: properties.clone(),
            source: asked.source.clone(),
            read_only: asked.read_only,
        };
        place.site.gateway.create_volume(&request).await.map_err(of_gateway)
    }

    /// Size of the source in bytes; 0 if the volume has none, or a dataset.
    async fn least_bytes(&self, asked: &Asked) -> Result<u64, Status> {
        let (Some(source), Some(origin)) = (&asked.source, &asked.origin) else { return Ok(0) };
        let none = || Status::not_found(format!("there is no source {origin}"));
        match source {
            Source::Snapshot(id) => {
                let found = self.find_snapshot(origin, id).await?;
                found.map(|snapshot| snapshot.size_bytes).ok_or_else(none)
            }
            _ => self.find(origin).await?.map(|volume| volume.size_bytes).ok_or_else(none),
        }
    }

    pub(super) async fn delete(&self, id: &str) -> Result<(), Status> {
        needed("volume_id", id)?;
        // The driver gave no such id, so there is nothing to delete.
        let Some(parsed) = VolumeId::parse(id) else { return Ok(()) };
        let site = self.site(&parsed.gateway)?;
        let _lock = self.locks.take(id)?;
        match site.gateway.delete_detached(&parsed.dataset, &self.owner).await {
            // Or the gateway is older than this request.
            Err(refusal) if is_of_volume(&refusal) => {}
            ended => return ended.map_err(of_gateway),
        }
        let Some(volume) = self.find(&parsed).await? else { return Ok(()) };
        if let Some(node) = volume.access.first() {
            return Err(Status::failed_precondition(format!(
                "volume {id} is published to {} nodes, such as {node}; detach it first",
                volume.access.len()
            )));
        }
        site.gateway.delete_volume(&parsed.dataset, &self.owner).await.map_err(of_gateway)
    }

    pub(super) async fn expand(
        &self,
        request: &ControllerExpandVolumeRequest,
    ) -> Result<ControllerExpandVolumeResponse, Status> {
        let id = &request.volume_id;
        needed("volume_id", id)?;
        let range =
            range_of(Some(request.capacity_range.ok_or_else(|| missing("capacity_range"))?))?;
        let parsed = VolumeId::parse(id).ok_or_else(|| no_volume(id))?;
        let _lock = self.locks.take(id)?;
        let limit = range.limit_bytes.cast_unsigned();
        let size = match rounded(range.required_bytes.cast_unsigned(), limit) {
            Ok(size) => size,
            Err(beyond) => return Err(self.required(&parsed).await.err().unwrap_or(beyond)),
        };
        // Also for a disk that has the size: an earlier request may have failed between the
        // growth and the message to the initiators.
        let gateway = &self.site(&parsed.gateway)?.gateway;
        let change = |size| ChangeVolume { size_bytes: Some(size), ..self.change() };
        let volume = match gateway.change_volume(&parsed.dataset, &change(size)).await {
            Ok(volume) => volume,
            // It may be larger.
            Err(refusal) if is_of_volume(&refusal) || refusal.code == ErrorCode::InUse => {
                let volume = self.required(&parsed).await?;
                if size > volume.size_bytes {
                    return Err(of_gateway(refusal));
                }
                if limit > 0 && volume.size_bytes > limit {
                    return Err(Status::out_of_range("volumes do not shrink"));
                }
                match volume.kind {
                    VolumeKind::Filesystem => volume,
                    VolumeKind::Block => gateway
                        .change_volume(&parsed.dataset, &change(volume.size_bytes))
                        .await
                        .map_err(of_gateway)?,
                }
            }
            Err(failed) => return Err(of_gateway(failed)),
        };
        Ok(ControllerExpandVolumeResponse {
            capacity_bytes: volume.size_bytes.cast_signed(),
            // The disk is read again also where no file system is on it.
            node_expansion_required: volume.kind == VolumeKind::Block,
        })
    }

    pub(super) async fn modify(
        &self,
        request: &ControllerModifyVolumeRequest,
    ) -> Result<(), Status> {
        let id = &request.volume_id;
        needed("volume_id", id)?;
        let parsed = VolumeId::parse(id).ok_or_else(|| no_volume(id))?;
        let _lock = self.locks.take(id)?;
        let properties = match mutable_properties(&request.mutable_parameters) {
            Ok(some) if !some.is_empty() => some,
            // There is nothing to ask the gateway for.
            other => return self.required(&parsed).await.and(other).map(drop),
        };
        let change = ChangeVolume { properties, ..self.change() };
        let gateway = &self.site(&parsed.gateway)?.gateway;
        match gateway.change_volume(&parsed.dataset, &change).await {
            Err(refusal) if is_of_volume(&refusal) => {
                Err(self.required(&parsed).await.err().unwrap_or_else(|| of_gateway(refusal)))
            }
            outcome => outcome.map(drop).map_err(of_gateway),
        }
    }

    fn change(&self) -> ChangeVolume {
        ChangeVolume { owner: self.owner.to_string(), ..ChangeVolume::default() }
    }
}

/// A volume in the words of CSI.
pub(super) fn volume_of(site: &Site, volume: &Volume) -> proto::Volume {
    proto::Volume {
        capacity_bytes: volume.size_bytes.cast_signed(),
        volume_id: VolumeId::new(&site.settings.name, &volume.id).to_string(),
        accessible_topology: topology::of_volume(&site.settings, None),
        ..proto::Volume::default()
    }
}
