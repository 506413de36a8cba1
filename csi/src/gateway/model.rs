//! A gateway in memory, for tests and for conformance suites on machines without
//! ZFS. It follows the rules of the API; it has no protocol and no data.

use super::{Gateway, Of, Page};
use async_trait::async_trait;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use zgate_api::{
    Access, ApiError, Capacity, ChangeVolume, CreateGroupSnapshot, CreateVolume, ErrorCode,
    GrantAccess, LeftAccess, Portal, Reach, Snapshot, SnapshotPage, Source, Transport, Volume,
    VolumeKind, VolumePage, WithdrawAccess,
};

/// Outcome of a request apart from its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// None.
    None,
    /// The request does not arrive.
    NotSent,
    /// The request does not arrive, and nobody says so.
    NoAnswer,
    /// The caller is not admitted, as with a token that has changed.
    NotAdmitted,
    /// The request is carried out, and its answer is lost.
    AnswerLost,
    /// Properties are changed, and what is served is not; the answer is an error.
    NotInEffect,
    /// The request is carried out in part, and then there is no room.
    NoRoomAtLast,
}

type Faults = Box<dyn FnMut() -> Fault + Send>;

/// Properties that a volume may have.
const PROPERTIES: [&str; 9] = [
    "atime",
    "bytes_per_second_max",
    "compression",
    "iops_max",
    "logbias",
    "primarycache",
    "recordsize",
    "sync",
    "volblocksize",
];
/// Free space of a pool, in bytes.
const POOL_BYTES: u64 = 1 << 50;

#[derive(Default)]
struct State {
    volumes: BTreeMap<String, Volume>,
    /// Ids of datasets that are not marked as volumes yet.
    begun: BTreeSet<String>,
    /// Parents whose pools are away.
    away: BTreeSet<String>,
    snapshots: BTreeMap<String, Snapshot>,
    /// Nodes that are served, by volume.
    served: BTreeMap<String, Vec<String>>,
    /// Sizes in bytes that initiators were told, by volume.
    told: BTreeMap<String, u64>,
    /// The request takes effect on what is served.
    takes_effect: bool,
    /// Lists cannot be selected by name.
    lacks_names: bool,
    /// No request says how a volume is expected to be.
    lacks_conditions: bool,
    seconds: i64,
}

/// The gateway.
pub struct ModelGateway {
    parents: BTreeSet<String>,
    state: Mutex<State>,
    faults: Mutex<Faults>,
}

impl ModelGateway {
    /// Creates a gateway without volumes.
    #[must_use]
    pub fn new(parents: &[&str]) -> Self {
        Self {
            parents: parents.iter().map(|&parent| parent.to_owned()).collect(),
            state: Mutex::default(),
            faults: Mutex::new(Box::new(|| Fault::None)),
        }
    }

    /// Sets the source of faults, which is asked once per request.
    pub fn set_faults(&self, faults: impl FnMut() -> Fault + Send + 'static) {
        *self.faults.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(faults);
    }

    /// Begins a volume, as a gateway that loses power while it makes one.
    pub fn begin(&self, id: &str) {
        self.lock().begun.insert(id.to_owned());
    }

    /// Writes to a volume until it occupies so many bytes of its pool.
    pub fn fill(&self, id: &str, used_bytes: u64) {
        if let Some(volume) = self.lock().volumes.get_mut(id) {
            volume.used_bytes = used_bytes;
        }
    }

    /// Takes the pool of a parent away.
    pub fn take_away(&self, parent: &str) {
        self.lock().away.insert(parent.to_owned());
    }

    /// Makes it a gateway from before lists could be selected by name.
    pub fn take_names_away(&self) {
        self.lock().lacks_names = true;
    }

    /// Makes it a gateway from before requests could say how a volume is expected to be.
    pub fn take_conditions_away(&self) {
        self.lock().lacks_conditions = true;
    }

    /// Returns the ids of all volumes.
    pub fn volume_ids(&self) -> Vec<String> {
        self.lock().volumes.keys().cloned().collect()
    }

    /// Returns the ids of all snapshots.
    pub fn snapshot_ids(&self) -> Vec<String> {
        self.lock().snapshots.keys().cloned().collect()
    }

    /// Returns the properties of a volume.
    pub fn properties(&self, id: &str) -> std::collections::BTreeMap<String, String> {
        self.lock().volumes.get(id).map(|volume| volume.properties.clone()).unwrap_or_default()
    }

    /// Returns the size of a volume in bytes; 0 if there is none.
    pub fn size_bytes(&self, id: &str) -> u64 {
        self.lock().volumes.get(id).map_or(0, |volume| volume.size_bytes)
    }

    /// Returns the size of a volume that initiators were told last, in bytes; 0 if they were
    /// told none.
    pub fn told_bytes(&self, id: &str) -> u64 {
        self.lock().told.get(id).copied().unwrap_or(0)
    }

    /// Returns the nodes with access to a volume.
    pub fn nodes(&self, id: &str) -> Vec<String> {
        self.lock().volumes.get(id).map(|volume| volume.access.clone()).unwrap_or_default()
    }

    /// Returns the nodes that a volume is served to.
    pub fn served(&self, id: &str) -> Vec<String> {
        self.lock().served.get(id).cloned().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses what is not known yet, and what [`Self::check_parent`] refuses.
    fn check(&self, state: &State, id: &str) -> Result<(), ApiError> {
        if state.lacks_conditions {
            return Err(error(ErrorCode::NotFound, "there is no such path"));
        }
        self.check_parent(state, id)
    }

    /// Refuses a volume below no parent, or below one that is away.
    fn check_parent(&self, state: &State, id: &str) -> Result<(), ApiError> {
        let parent = parent_of(id);
        if !self.parents.contains(parent) {
            return Err(error(ErrorCode::Forbidden, "the parent is not configured"));
        }
        state.require(|away| away == parent)
    }

    async fn carry_out<T>(
        &self,
        work: impl FnOnce(&mut State) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        let fault = (self.faults.lock().unwrap_or_else(PoisonError::into_inner))();
        if fault == Fault::NotSent {
            return Err(error(ErrorCode::Busy, "the gateway is busy"));
        }
        if fault == Fault::NoAnswer {
            std::future::pending::<()>().await;
        }
        if fault == Fault::NotAdmitted {
            return Err(error(ErrorCode::Unauthorized, "the token is not known"));
        }
        let mut state = self.lock();
        state.seconds += 1;
        state.takes_effect = fault != Fault::NotInEffect;
        let result = work(&mut state);
        match fault {
            Fault::AnswerLost => Err(error(ErrorCode::Storage, "no answer came in time")),
            Fault::NotInEffect => Err(error(ErrorCode::Storage, "the state cannot be written")),
            Fault::NoRoomAtLast => Err(error(ErrorCode::NoSpace, "the pool is full")),
            Fault::None | Fault::NotSent | Fault::NoAnswer | Fault::NotAdmitted => result,
        }
    }
}

/// Returns the parent of a volume.
fn parent_of(id: &str) -> &str {
    id.rsplit_once('/').map_or("", |(parent, _)| parent)
}

fn error(code: ErrorCode, message: impl Into<String>) -> ApiError {
    ApiError::new(code, message, "see the model")
}

impl State {
    /// Serves a volume to the nodes with access to it.
    fn put_in_effect(&mut self, id: &str) {
        if let (true, Some(volume)) = (self.takes_effect, self.volumes.get(id)) {
            self.served.insert(id.to_owned(), volume.access.clone());
        }
    }

    /// Refuses to tell about what a pool that is away has.
    fn require(&self, is_asked: impl Fn(&str) -> bool) -> Result<(), ApiError> {
        match self.away.iter().find(|parent| is_asked(parent)) {
            Some(parent) => Err(error(ErrorCode::Storage, format!("{parent} is not there"))),
            None => Ok(()),
        }
    }

    fn volume(&mut self, id: &str) -> Result<&mut Volume, ApiError> {
        let missing = || error(ErrorCode::NotFound, format!("there is no volume {id}"));
        self.volumes.get_mut(id).ok_or_else(missing)
    }

    fn owned(&mut self, id: &str, owner: &str) -> Result<&mut Volume, ApiError> {
        let volume = self.volume(id)?;
        if volume.owner != owner {
            return Err(error(ErrorCode::Forbidden, format!("volume {id} is another owner's")));
        }
        Ok(volume)
    }

    fn delete(&mut self, id: &str, owner: &str) -> Result<(), ApiError> {
        if !self.volumes.contains_key(id) {
            return Ok(());
        }
        self.owned(id, owner)?;
        if self.snapshots.values().any(|snapshot| snapshot.volume == id) {
            return Err(error(ErrorCode::InUse, format!("volume {id} has snapshots")));
        }
        self.volumes.remove(id);
        Ok(())
    }

    /// Least size of a volume with this content.
    fn least_bytes(&self, source: Option<&Source>) -> Result<u64, ApiError> {
        let missing = |id: &String| error(ErrorCode::NotFound, format!("there is no source {id}"));
        match source {
            None | Some(Source::Dataset(_)) => Ok(0),
            Some(Source::Volume(id)) => {
                self.volumes.get(id).map(|volume| volume.size_bytes).ok_or_else(|| missing(id))
            }
            Some(Source::Snapshot(id)) => {
                self.snapshots.get(id).map(|one| one.size_bytes).ok_or_else(|| missing(id))
            }
        }
    }

    /// Lists the snapshots that are wanted.
    fn snapshots(
        &self,
        of: Of<'_>,
        page: &Page,
        wanted: impl Fn(&Snapshot) -> bool,
    ) -> Result<SnapshotPage, ApiError> {
        self.require(|away| match of {
            Of::All => true,
            Of::Parent(parent) => parent == away,
            Of::Volume(id) => parent_of(id) == away,
        })?;
        let (items, next) = page_of(&self.snapshots, page, |snapshot| {
            let is_asked = match of {
                Of::All => true,
                Of::Parent(parent) => parent_of(&snapshot.volume) == parent,
                Of::Volume(id) => snapshot.volume == id,
            };
            is_asked && wanted(snapshot)
        });
        Ok(SnapshotPage { items, next })
    }

    fn snapshot(&mut self, id: &str, name: &str, owner: &str) -> Result<Snapshot, ApiError> {
        let size_bytes = self.owned(id, owner)?.size_bytes;
        let seconds = self.seconds;
        let snapshot = Snapshot {
            id: format!("{id}@{name}"),
            name: name.to_owned(),
            volume: id.to_owned(),
            owner: owner.to_owned(),
            size_bytes,
            created_unix_seconds: seconds,
            ready: true,
        };
        Ok(self.snapshots.entry(snapshot.id.clone()).or_insert(snapshot).clone())
    }
}

fn check_properties<'a>(names: impl Iterator<Item = &'a String>) -> Result<(), ApiError> {
    for name in names {
        if !PROPERTIES.contains(&name.as_str()) {
            return Err(error(ErrorCode::Invalid, format!("property {name} is not settable")));
        }
    }
    Ok(())
}

/// Cuts a page out of a list in the order of its ids.
fn page_of<T: Clone>(
    all: &BTreeMap<String, T>,
    page: &Page,
    wanted: impl Fn(&T) -> bool,
) -> (Vec<T>, Option<String>) {
    let limit = page.limit.unwrap_or(usize::MAX);
    let after = page.after.as_deref().unwrap_or_default();
    let mut rest = all.iter().filter(|(id, one)| id.as_str() > after && wanted(one));
    let mut items = Vec::new();
    let mut last = None;
    for (id, one) in rest.by_ref().take(limit) {
        items.push(one.clone());
        last = Some(id.clone());
    }
    (items, rest.next().and(last))
}

#[async_trait]
impl Gateway for ModelGateway {
    async fn create_volume(&self, request: &CreateVolume) -> Result<Volume, ApiError> {
        self.carry_out(|state| {
            if !self.parents.contains(&request.parent) {
                return Err(error(ErrorCode::Forbidden, "the parent is not configured"));
            }
            check_properties(request.properties.keys())?;
            let id = format!("{}/{}", request.parent, request.name);
            if let Some(volume) = state.volumes.get(&id) {
                let same = volume.owner == request.owner
                    && volume.kind == request.kind
                    && volume.size_bytes == request.size_bytes
                    && volume.read_only == request.read_only
                    && volume.source == request.source
                    // Values have several forms.
                    && request.properties.keys().all(|name| volume.properties.contains_key(name));
                let exists = || error(ErrorCode::Exists, format!("volume {id} exists"));
                return same.then(|| volume.clone()).ok_or_else(exists);
            }
            if request.size_bytes < state.least_bytes(request.source.as_ref())? {
                return Err(error(ErrorCode::Invalid, "the source is larger"));
            }
            if request.size_bytes > POOL_BYTES {
                return Err(error(ErrorCode::NoSpace, "the pool is smaller"));
            }
            let is_block = request.kind == VolumeKind::Block;
            let volume = Volume {
                name: request.name.clone(),
                parent: request.parent.clone(),
                owner: request.owner.clone(),
                kind: request.kind,
                size_bytes: request.size_bytes,
                used_bytes: 0,
                available_bytes: request.size_bytes,
                read_only: request.read_only,
                properties: request.properties.clone(),
                source: request.source.clone(),
                healthy: true,
                problem: None,
                access: Vec::new(),
                path: (!is_block).then(|| format!("/{id}")),
                target: is_block.then(|| format!("iqn.2026-11.io.zgate:{}", request.name)),
                id: id.clone(),
            };
            state.begun.remove(&id);
            state.volumes.insert(id, volume.clone());
            Ok(volume)
        })
        .await
    }

    async fn volume(&self, id: &str) -> Result<Volume, ApiError> {
        self.carry_out(|state| {
            self.check_parent(state, id)?;
            if state.begun.contains(id) {
                return Err(error(ErrorCode::Forbidden, format!("{id} was not made as a volume")));
            }
            state.volume(id).cloned()
        })
        .await
    }

    async fn volumes(&self, owner: &str, page: &Page) -> Result<VolumePage, ApiError> {
        self.carry_out(|state| {
            let (items, next) = page_of(&state.volumes, page, |volume| volume.owner == owner);
            Ok(VolumePage { items, next })
        })
        .await
    }

    async fn change_volume(&self, id: &str, change: &ChangeVolume) -> Result<Volume, ApiError> {
        self.carry_out(|state| {
            check_properties(change.properties.keys())?;
            let volume = state.owned(id, &change.owner)?;
            let size = change.size_bytes.unwrap_or(volume.size_bytes);
            if size < volume.size_bytes {
                return Err(error(ErrorCode::InUse, format!("volume {id} would lose data")));
            }
            volume.size_bytes = size;
            volume.properties.extend(change.properties.clone());
            let changed = volume.clone();
            if state.takes_effect && change.size_bytes.is_some() {
                state.told.insert(id.to_owned(), size);
            }
            Ok(changed)
        })
        .await
    }

    async fn delete_volume(&self, id: &str, owner: &str) -> Result<(), ApiError> {
        self.carry_out(|state| state.delete(id, owner)).await
    }

    async fn delete_detached(&self, id: &str, owner: &str) -> Result<(), ApiError> {
        self.carry_out(|state| {
            self.check(state, id)?;
            if state.volumes.contains_key(id) && !state.owned(id, owner)?.access.is_empty() {
                return Err(error(ErrorCode::InUse, format!("nodes have access to {id}")));
            }
            state.delete(id, owner)
        })
        .await
    }

    async fn grant(&self, id: &str, node: &str, grant: &GrantAccess) -> Result<Access, ApiError> {
        self.carry_out(|state| {
            if grant.sole.is_some() && state.lacks_conditions {
                return Err(error(ErrorCode::Invalid, "unknown field `sole`"));
            }
            let volume = state.owned(id, &grant.owner)?;
            if let Some(condition) = grant.sole
                && (volume.access.iter().any(|other| other != node)
                    || condition.kind.is_some_and(|kind| kind != volume.kind)
                    || (volume.read_only && !grant.read_only))
            {
                return Err(error(ErrorCode::InUse, format!("{id} is not as expected")));
            }
            if !volume.access.iter().any(|known| known == node) {
                volume.access.push(node.to_owned());
                volume.access.sort();
            }
            state.put_in_effect(id);
            let volume = state.owned(id, &grant.owner)?;
            let portals = |port: u16| {
                let address = std::net::SocketAddr::from(([0, 0, 0, 0], port));
                vec![Portal { address, transport: Transport::Tcp }]
            };
            let reach = match volume.kind {
                VolumeKind::Filesystem => Reach::Nfs {
                    path: volume.path.clone().unwrap_or_default(),
                    portals: portals(2049),
                },
                VolumeKind::Block => Reach::Iscsi {
                    target: volume.target.clone().unwrap_or_default(),
                    lun: 0,
                    naa: naa(id),
                    portals: portals(3260),
                },
            };
            Ok(Access {
                volume: id.to_owned(),
                node: node.to_owned(),
                read_only: grant.read_only,
                reach,
                transports: vec![Transport::Tcp],
            })
        })
        .await
    }

    async fn revoke(&self, id: &str, node: &str, owner: &str) -> Result<(), ApiError> {
        self.carry_out(|state| {
            if state.volumes.contains_key(id) {
                state.owned(id, owner)?.access.retain(|known| known != node);
                state.put_in_effect(id);
            }
            Ok(())
        })
        .await
    }

    async fn withdraw(&self, id: &str, asked: &WithdrawAccess) -> Result<LeftAccess, ApiError> {
        self.carry_out(|state| {
            self.check(state, id)?;
            if !state.volumes.contains_key(id) {
                return Ok(LeftAccess::default());
            }
            let access = &mut state.owned(id, &asked.owner)?.access;
            access.retain(|known| asked.nodes.as_ref().is_some_and(|all| !all.contains(known)));
            let access = access.clone();
            state.put_in_effect(id);
            Ok(LeftAccess { access })
        })
        .await
    }

    async fn create_snapshot(
        &self,
        id: &str,
        name: &str,
        owner: &str,
    ) -> Result<Snapshot, ApiError> {
        self.carry_out(|state| state.snapshot(id, name, owner)).await
    }

    async fn delete_snapshot(&self, id: &str, name: &str, owner: &str) -> Result<(), ApiError> {
        self.carry_out(|state| {
            let id = format!("{id}@{name}");
            match state.snapshots.get(&id) {
                Some(snapshot) if snapshot.owner != owner => {
                    Err(error(ErrorCode::Forbidden, format!("snapshot {id} is another owner's")))
                }
                _ => {
                    state.snapshots.remove(&id);
                    Ok(())
                }
            }
        })
        .await
    }

    async fn create_group(&self, request: &CreateGroupSnapshot) -> Result<Vec<Snapshot>, ApiError> {
        self.carry_out(|state| {
            for id in &request.volumes {
                state.owned(id, &request.owner)?;
            }
            let one = |id: &String| state.snapshot(id, &request.name, &request.owner);
            request.volumes.iter().map(one).collect()
        })
        .await
    }

    async fn snapshots(
        &self,
        owner: &str,
        of: Of<'_>,
        page: &Page,
    ) -> Result<SnapshotPage, ApiError> {
        self.carry_out(|state| state.snapshots(of, page, |one| one.owner == owner)).await
    }

    async fn snapshots_named(
        &self,
        owner: &str,
        of: Of<'_>,
        name: &str,
        page: &Page,
    ) -> Result<SnapshotPage, ApiError> {
        self.carry_out(|state| {
            if state.lacks_names {
                return Err(error(ErrorCode::Invalid, "unknown field `name`"));
            }
            state.snapshots(of, page, |one| one.owner == owner && one.name == name)
        })
        .await
    }

    async fn capacity(&self, parent: &str) -> Result<Capacity, ApiError> {
        self.carry_out(|state| {
            if !self.parents.contains(parent) {
                return Err(error(ErrorCode::NotFound, format!("there is no parent {parent}")));
            }
            let used: u64 = state.volumes.values().map(|volume| volume.used_bytes).sum();
            Ok(Capacity { available_bytes: POOL_BYTES - used, total_bytes: POOL_BYTES })
        })
        .await
    }
}

/// Identifier of the disk of a volume.
fn naa(id: &str) -> String {
    use sha2::{Digest, Sha256};
    let digest = Sha256::digest(id.as_bytes());
    let hex: String = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("naa.6{}", &hex[1..])
}
