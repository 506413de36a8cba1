//! Ten thousand random controller calls, with repeats, lost answers and restarts,
//! against a model of what must exist.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tonic::{Code, Request, Status};
use zgate_csi::controller::Controller;
use zgate_csi::gateway::model::{Fault, ModelGateway};
use zgate_csi::names::Node;
use zgate_csi::proto::controller_server::Controller as Service;
use zgate_csi::proto::group_controller_server::GroupController;
use zgate_csi::proto::volume_capability::access_mode::Mode;
use zgate_csi::proto::volume_capability::{AccessMode, AccessType, MountVolume};
use zgate_csi::proto::volume_content_source::{SnapshotSource, Type, VolumeSource};
use zgate_csi::proto::*;
use zgate_csi::settings::Settings;

/// Calls of one seed; 10,000 in all.
const CALLS: usize = 2_500;
const SEEDS: [u64; 4] = [1, 22, 333, 4444];
const NAMES: u64 = 12;
const NODES: u64 = 3;
/// Addresses that each node has, one at a time: its id changes with them.
const ADDRESSES: u64 = 2;
const GIB: i64 = 1 << 30;
const PARENTS: [&str; 2] = ["tank/k8s", "tank/other"];

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// A call, as Kubernetes keeps it until it has its answer.
#[derive(Clone, Debug, PartialEq)]
enum Call {
    Create { name: u64, size: i64, source: Option<Type> },
    Delete { name: u64 },
    Publish { name: u64, node: u64 },
    Unpublish { name: u64, node: u64 },
    Expand { name: u64, size: i64 },
    Snapshot { name: u64, of: u64 },
    DeleteSnapshot { name: u64 },
    Group { name: u64, of: Vec<u64> },
    DeleteGroup { name: u64 },
    Modify { name: u64, parameter: (&'static str, String) },
}

/// A volume that must exist.
#[derive(Clone, Debug)]
struct Expected {
    id: String,
    size: i64,
    nodes: BTreeSet<String>,
    properties: BTreeMap<String, String>,
}

#[derive(Default)]
struct Model {
    volumes: BTreeMap<u64, Expected>,
    snapshots: BTreeMap<(u64, u64), (String, String)>,
    groups: BTreeMap<u64, (String, BTreeSet<String>)>,
}

fn settings() -> Settings {
    let text = format!(
        "owner = \"c\"\n[[gateway]]\nname = \"g\"\nurl = \"unix:/s\"\naddress = \"10.0.0.9\"\nparents = {PARENTS:?}"
    );
    Settings::parse(&text).unwrap()
}

fn driver(gateway: &Arc<ModelGateway>) -> Controller {
    Controller::with(settings(), |_| gateway.clone())
}

/// Returns whether a volume is for one node at a time: every other one is.
fn is_for_one_node(name: u64) -> bool {
    name.is_multiple_of(2)
}

fn capability(name: u64) -> VolumeCapability {
    let mode = match is_for_one_node(name) {
        true => Mode::SingleNodeWriter,
        false => Mode::MultiNodeMultiWriter,
    };
    VolumeCapability {
        access_mode: Some(AccessMode { mode: mode.into() }),
        access_type: Some(AccessType::Mount(MountVolume::default())),
    }
}

/// Returns an id of a node: one of each address of each node.
fn node(number: u64) -> String {
    let (node, address) = (number % NODES, number / NODES);
    format!("node-{node};10.0.{address}.{};", node + 1)
}

/// Returns whether both are ids of the same node.
fn is_same_node(one: &str, other: &str) -> bool {
    one.split(';').next() == other.split(';').next()
}

/// Id of a volume or snapshot in the state of the caller, or one that never was.
fn id_of(found: Option<&String>) -> String {
    found.cloned().unwrap_or_else(|| "g:tank/k8s/never".to_owned())
}

impl Model {
    fn id(&self, name: u64) -> String {
        id_of(self.volumes.get(&name).map(|volume| &volume.id))
    }

    async fn send(&self, driver: &Controller, call: &Call) -> Result<Answer, Status> {
        match call {
            Call::Create { name, size, source } => {
                // Every other one has one place; the others are looked for at both.
                let parent = (name % 2 == 0).then(|| ("parent".to_owned(), PARENTS[1].to_owned()));
                let request = CreateVolumeRequest {
                    name: format!("pvc-{name}"),
                    capacity_range: Some(CapacityRange { required_bytes: *size, limit_bytes: 0 }),
                    volume_capabilities: vec![capability(*name)],
                    parameters: parent.into_iter().collect(),
                    volume_content_source: source
                        .clone()
                        .map(|one| VolumeContentSource { r#type: Some(one) }),
                    ..Default::default()
                };
                let made = driver.create_volume(Request::new(request)).await?.into_inner();
                let volume = made.volume.unwrap();
                Ok(Answer::Volume(volume.volume_id, volume.capacity_bytes))
            }
            Call::Delete { name } => {
                let volume_id = self.id(*name);
                let request = DeleteVolumeRequest { volume_id, ..Default::default() };
                driver.delete_volume(Request::new(request)).await.map(|_| Answer::Done)
            }
            Call::Publish { name, node: number } => {
                let request = ControllerPublishVolumeRequest {
                    volume_id: self.id(*name),
                    node_id: node(*number),
                    volume_capability: Some(capability(*name)),
                    ..Default::default()
                };
                driver.controller_publish_volume(Request::new(request)).await.map(|_| Answer::Done)
            }
            Call::Unpublish { name, node: number } => {
                let request = ControllerUnpublishVolumeRequest {
                    volume_id: self.id(*name),
                    node_id: node(*number),
                    ..Default::default()
                };
                driver
                    .controller_unpublish_volume(Request::new(request))
                    .await
                    .map(|_| Answer::Done)
            }
            Call::Expand { name, size } => {
                let request = ControllerExpandVolumeRequest {
                    volume_id: self.id(*name),
                    capacity_range: Some(CapacityRange { required_bytes: *size, limit_bytes: 0 }),
                    ..Default::default()
                };
                let grown = driver.controller_expand_volume(Request::new(request)).await?;
                Ok(Answer::Volume(self.id(*name), grown.into_inner().capacity_bytes))
            }
            Call::Snapshot { name, of } => {
                let request = CreateSnapshotRequest {
                    name: format!("snapshot-{name}"),
                    source_volume_id: self.id(*of),
                    ..Default::default()
                };
                let taken = driver.create_snapshot(Request::new(request)).await?.into_inner();
                let taken = taken.snapshot.unwrap();
                Ok(Answer::Snapshot(taken.snapshot_id, taken.source_volume_id))
            }
            Call::DeleteSnapshot { name } => {
                let snapshot_id = id_of(self.first(*name).map(|key| &self.snapshots[&key].0));
                let request = DeleteSnapshotRequest { snapshot_id, ..Default::default() };
                Service::delete_snapshot(driver, Request::new(request)).await.map(|_| Answer::Done)
            }
            Call::Group { name, of } => {
                let request = CreateVolumeGroupSnapshotRequest {
                    name: format!("group-{name}"),
                    source_volume_ids: of.iter().map(|one| self.id(*one)).collect(),
                    ..Default::default()
                };
                let taken = driver.create_volume_group_snapshot(Request::new(request)).await?;
                let group = taken.into_inner().group_snapshot.unwrap();
                let ids = group.snapshots.into_iter().map(|one| one.snapshot_id).collect();
                Ok(Answer::Group(group.group_snapshot_id, ids))
            }
            Call::DeleteGroup { name } => {
                let never = || ("g:group-never".to_owned(), BTreeSet::new());
                let (id, ids) = self.groups.get(name).cloned().unwrap_or_else(never);
                let request = DeleteVolumeGroupSnapshotRequest {
                    group_snapshot_id: id,
                    snapshot_ids: ids.into_iter().collect(),
                    ..Default::default()
                };
                let gone = driver.delete_volume_group_snapshot(Request::new(request));
                gone.await.map(|_| Answer::Done)
            }
            Call::Modify { name, parameter: (key, value) } => {
                let request = ControllerModifyVolumeRequest {
                    volume_id: self.id(*name),
                    mutable_parameters: [((*key).to_owned(), value.clone())].into(),
                    ..Default::default()
                };
                driver.controller_modify_volume(Request::new(request)).await.map(|_| Answer::Done)
            }
        }
    }

    /// Takes over the answer of a call that succeeded.
    fn learn(&mut self, call: &Call, answer: Answer) {
        match (call, answer) {
            (Call::Create { name, size, .. }, Answer::Volume(id, capacity)) => {
                assert!(capacity >= *size, "{call:?}: {capacity}");
                let known = self.volumes.entry(*name).or_insert(Expected {
                    id: id.clone(),
                    size: capacity,
                    nodes: BTreeSet::new(),
                    properties: BTreeMap::new(),
                });
                assert_eq!((&known.id, known.size), (&id, capacity), "{call:?}: another volume");
            }
            (Call::Delete { name }, _) => drop(self.volumes.remove(name)),
            (Call::Publish { name, node: number }, _) => {
                let (nodes, id) = (&mut self.volumes.get_mut(name).unwrap().nodes, node(*number));
                nodes.retain(|other| !is_same_node(other, &id));
                assert!(nodes.is_empty() || !is_for_one_node(*name), "{call:?}: beside {nodes:?}");
                nodes.insert(id);
            }
            (Call::Unpublish { name, node: number }, _) => {
                if let Some(volume) = self.volumes.get_mut(name) {
                    volume.nodes.retain(|other| !is_same_node(other, &node(*number)));
                }
            }
            (Call::Expand { name, .. }, Answer::Volume(_, capacity)) => {
                self.volumes.get_mut(name).unwrap().size = capacity;
            }
            (Call::Modify { name, parameter: (key, value) }, _) => {
                let properties = &mut self.volumes.get_mut(name).unwrap().properties;
                properties.insert((*key).to_owned(), value.clone());
            }
            (Call::DeleteGroup { name }, _) => drop(self.groups.remove(name)),
            (Call::Snapshot { name, of }, Answer::Snapshot(id, source)) => {
                // Two volumes may have one of this name if the gateway did not list them.
                let known = self.snapshots.entry((*name, *of)).or_insert((id.clone(), source));
                assert_eq!(known.0, id, "{call:?}: another snapshot");
            }
            (Call::DeleteSnapshot { name }, _) => {
                if let Some(key) = self.first(*name) {
                    self.snapshots.remove(&key);
                }
            }
            (Call::Group { name, .. }, Answer::Group(id, ids)) => {
                self.groups.insert(*name, (id, ids));
            }
            (call, _) => panic!("{call:?}: not its answer"),
        }
    }

    /// The number and volume of the first snapshot of a name.
    fn first(&self, name: u64) -> Option<(u64, u64)> {
        self.snapshots.range((name, 0)..=(name, u64::MAX)).next().map(|(key, _)| *key)
    }

    /// Ids of the snapshots that must exist.
    fn snapshot_ids(&self) -> BTreeSet<String> {
        let single = self.snapshots.values().map(|(id, _)| id.clone());
        single.chain(self.groups.values().flat_map(|(_, ids)| ids.clone())).collect()
    }

    /// Compares what exists at the gateway with what must exist.
    fn check(&self, gateway: &ModelGateway, call: &Call) {
        let ids = |all: Vec<String>| -> BTreeSet<String> {
            all.into_iter().map(|id| format!("g:{id}")).collect()
        };
        let volumes: BTreeSet<String> = self.volumes.values().map(|one| one.id.clone()).collect();
        assert_eq!(ids(gateway.volume_ids()), volumes, "after {call:?}");
        assert_eq!(ids(gateway.snapshot_ids()), self.snapshot_ids(), "after {call:?}");
        for volume in self.volumes.values() {
            let id = &volume.id[2..];
            for nodes in [gateway.nodes(id), gateway.served(id)] {
                let node = |name: &String| Node::from_access_name(name).unwrap().0.to_string();
                let nodes: BTreeSet<String> = nodes.iter().map(node).collect();
                assert_eq!(nodes, volume.nodes, "{id} after {call:?}");
            }
            let size = gateway.size_bytes(&volume.id[2..]).cast_signed();
            assert_eq!(size, volume.size, "{} after {call:?}", volume.id);
            let properties = gateway.properties(&volume.id[2..]);
            assert_eq!(properties, volume.properties, "{} after {call:?}", volume.id);
        }
    }
}

enum Answer {
    Done,
    Volume(String, i64),
    Snapshot(String, String),
    Group(String, BTreeSet<String>),
}

fn draw(random: &mut Random, model: &Model) -> Call {
    let name = random.below(NAMES);
    match random.below(100) {
        0..30 => {
            let sources: Vec<Type> = model
                .snapshots
                .values()
                .map(|(id, _)| Type::Snapshot(SnapshotSource { snapshot_id: id.clone() }))
                .chain(
                    model
                        .volumes
                        .values()
                        .map(|volume| Type::Volume(VolumeSource { volume_id: volume.id.clone() })),
                )
                .collect();
            let count = sources.len() as u64;
            let source = (count > 0 && random.below(3) == 0)
                .then(|| sources[random.below(count) as usize].clone());
            Call::Create { name, size: (1 + random.below(3) as i64) * GIB, source }
        }
        30..45 => Call::Delete { name },
        45..55 => Call::Publish { name, node: random.below(NODES * ADDRESSES) },
        55..66 => Call::Unpublish { name, node: random.below(NODES * ADDRESSES) },
        66..74 => Call::Expand { name, size: (1 + random.below(5) as i64) * GIB },
        74..82 => Call::Snapshot { name, of: random.below(NAMES) },
        82..89 => Call::DeleteSnapshot { name },
        89..92 => Call::DeleteGroup { name },
        92..96 => {
            let value = (10 + random.below(90)).to_string();
            let parameters = [
                ("iops_max", value.clone()),
                ("bytes_per_second_max", format!("{value}Mi")),
                ("compression", "zstd".to_owned()),
            ];
            let parameter = parameters[random.below(3) as usize].clone();
            Call::Modify { name, parameter }
        }
        _ => Call::Group { name, of: vec![name, (name + 1) % NAMES] },
    }
}

/// Errors after which a caller repeats the call.
fn is_repeated(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::Aborted)
}

/// Returns whether the state of the caller explains a refusal.
fn is_explained(model: &Model, call: &Call, status: &Status) -> bool {
    let exists = |name: &u64| model.volumes.contains_key(name);
    match (call, status.code()) {
        (Call::Create { name, .. }, Code::AlreadyExists) => exists(name),
        (Call::Create { source, .. }, Code::NotFound) => source.is_some(),
        (Call::Delete { name }, Code::FailedPrecondition) => {
            model.volumes.get(name).is_some_and(|volume| {
                let prefix = format!("{}@", volume.id);
                !volume.nodes.is_empty()
                    || model.snapshot_ids().iter().any(|id| id.starts_with(&prefix))
            })
        }
        (
            Call::Publish { name, .. } | Call::Expand { name, .. } | Call::Modify { name, .. },
            Code::NotFound,
        ) => !exists(name),
        (Call::Publish { name, node: number }, Code::FailedPrecondition) => {
            let is_other = |other: &String| !is_same_node(other, &node(*number));
            let has_other = |volume: &Expected| volume.nodes.iter().any(is_other);
            is_for_one_node(*name) && model.volumes.get(name).is_some_and(has_other)
        }
        (Call::Snapshot { of, .. }, Code::NotFound) => !exists(of),
        (Call::Snapshot { name, .. }, Code::AlreadyExists) => model.first(*name).is_some(),
        (Call::Group { of, .. }, Code::NotFound) => !of.iter().all(exists),
        _ => false,
    }
}

async fn one_seed(seed: u64) -> usize {
    let gateway = Arc::new(ModelGateway::new(&PARENTS));
    let faulty = Arc::new(AtomicBool::new(false));
    let mut faults = Random(seed ^ 0xFA17);
    let switch = Arc::clone(&faulty);
    gateway.set_faults(move || match faults.below(12) {
        _ if !switch.load(Ordering::Relaxed) => Fault::None,
        0 => Fault::NotSent,
        1 => Fault::AnswerLost,
        2 => Fault::NotInEffect,
        _ => Fault::None,
    });
    let mut random = Random(seed);
    let mut model = Model::default();
    let mut driver = driver(&gateway);
    let (mut calls, mut repeats) = (0, 0);
    while calls < CALLS {
        let call = draw(&mut random, &model);
        faulty.store(true, Ordering::Relaxed);
        let mut attempts = 0;
        loop {
            calls += 1;
            attempts += 1;
            // A caller repeats until it has an answer; the network mends at last.
            faulty.store(attempts < 20, Ordering::Relaxed);
            if random.below(50) == 0 {
                driver = self::driver(&gateway);
            }
            match model.send(&driver, &call).await {
                Ok(answer) => {
                    model.learn(&call, answer);
                    // The answer is lost on its way: the same call again.
                    if random.below(4) > 0 {
                        break;
                    }
                }
                Err(status) if is_repeated(&status) => repeats += 1,
                Err(status) => {
                    assert!(is_explained(&model, &call, &status), "{call:?}: {status:?}");
                    break;
                }
            }
        }
        faulty.store(false, Ordering::Relaxed);
        model.check(&gateway, &call);
    }
    repeats
}

#[test]
fn what_was_asked_for_exists_and_nothing_else() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for seed in SEEDS {
        println!("seed {seed}: {CALLS} calls");
        let repeats = runtime.block_on(one_seed(seed));
        assert!(repeats > CALLS / 50, "seed {seed}: only {repeats} faults were met");
    }
}
