//! The controller on models of gateways: what is hidden, begun or away is not taken for absent.

mod defaults;
mod groups;
mod pages;
mod requests;
mod turns;

use super::*;
use crate::gateway::model::{Fault, ModelGateway};
use crate::limits::{CREATE_SECONDS, GATHER_SECONDS, MAX_PAGE_ENTRIES};
use crate::names::Node;
use crate::proto::volume_capability::access_mode::Mode;
use crate::proto::volume_capability::{AccessMode, AccessType, MountVolume};
use crate::proto::{
    CapacityRange, ControllerExpandVolumeRequest, ControllerPublishVolumeRequest,
    CreateSnapshotRequest, CreateVolumeGroupSnapshotRequest, CreateVolumeRequest,
    GetCapacityRequest, ListSnapshotsRequest, ListVolumesRequest, VolumeCapability,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;
use tonic::Code;
use zgate_api::GrantAccess;

const NODE: &str = "node-1;10.0.0.1;";

fn driver(gateway: &Arc<ModelGateway>, owner: &str, name: &str) -> Controller {
    driver_of(owner, &[(name, gateway, &["tank/k8s"])])
}

/// A driver of gateways with these names and parents.
fn driver_of(owner: &str, gateways: &[(&str, &Arc<ModelGateway>, &[&str])]) -> Controller {
    let mut text = format!("owner = \"{owner}\"\n");
    for (name, _, parents) in gateways {
        text += &format!(
            "[[gateway]]\nname = \"{name}\"\nurl = \"unix:/s\"\naddress = \"10.0.0.9\"\n\
             parents = {parents:?}\n"
        );
    }
    Controller::with(Settings::parse(&text).unwrap(), |settings| {
        let found = gateways.iter().find(|(name, ..)| *name == settings.name);
        found.unwrap().1.clone()
    })
}

fn capability(mode: Mode) -> VolumeCapability {
    VolumeCapability {
        access_mode: Some(AccessMode { mode: mode.into() }),
        access_type: Some(AccessType::Mount(MountVolume::default())),
    }
}

/// Returns a request for a volume of the default size.
fn asked(name: &str, protocol: &str) -> CreateVolumeRequest {
    CreateVolumeRequest {
        name: name.to_owned(),
        volume_capabilities: vec![capability(Mode::SingleNodeWriter)],
        parameters: [("protocol".to_owned(), protocol.to_owned())].into(),
        ..Default::default()
    }
}

async fn made(driver: &Controller) -> String {
    driver.create(&asked("a", "nfs")).await.unwrap().volume_id
}

#[tokio::test]
async fn a_place_that_the_settings_do_not_name_is_not_an_absent_volume() {
    let gateway = Arc::new(ModelGateway::new(&["tank/k8s"]));
    let right = driver(&gateway, "c", "g");
    let id = made(&right).await;
    // Another name of the gateway, another owner, a parent that the gateway lacks.
    let other_parent = Arc::new(ModelGateway::new(&["tank/other"]));
    for wrong in [
        driver(&gateway, "c", "renamed"),
        driver(&gateway, "other", "g"),
        driver(&other_parent, "c", "g"),
    ] {
        for refused in [wrong.unpublish(&id, NODE).await, wrong.delete(&id).await] {
            assert_eq!(refused.unwrap_err().code(), Code::FailedPrecondition);
        }
    }
    assert!(right.find(&VolumeId::parse(&id).unwrap()).await.unwrap().is_some());
    // What the gateway does not have, and what no driver has named, is gone.
    for absent in ["g:tank/k8s/never", "fake-vol-id"] {
        right.unpublish(absent, NODE).await.unwrap();
        right.delete(absent).await.unwrap();
    }
    right.delete(&id).await.unwrap();
}

/// Attaches a volume to a node.
async fn attached(driver: &Controller, id: &str, node: &str, mode: Mode) -> Result<(), Status> {
    let request = ControllerPublishVolumeRequest {
        volume_id: id.to_owned(),
        node_id: node.to_owned(),
        volume_capability: Some(capability(mode)),
        ..Default::default()
    };
    driver.publish(&request).await.map(drop)
}

/// A node's id has its addresses and its initiator name in it, and changes with them.
#[tokio::test]
async fn access_under_an_earlier_id_of_a_node_ends_with_the_nodes() {
    let gateway = Arc::new(ModelGateway::new(&["tank/k8s"]));
    let driver = driver(&gateway, "c", "g");
    let id = made(&driver).await;
    let nodes = || {
        let names = gateway.nodes("tank/k8s/a");
        let ids = names.iter().map(|name| Node::from_access_name(name).unwrap().0.to_string());
        ids.collect::<Vec<_>>()
    };
    let later = "node-1;10.0.0.2,10.0.0.1;iqn.2026-11.test:n1";
    let (other, alike) = ("node-2;10.0.0.3;", "node-10;10.0.0.4;");
    attached(&driver, &id, NODE, Mode::SingleNodeWriter).await.unwrap();
    driver.unpublish(&id, later).await.unwrap();
    assert!(nodes().is_empty());
    attached(&driver, &id, other, Mode::SingleNodeWriter).await.unwrap();
    driver.unpublish(&id, other).await.unwrap();
    for node in [NODE, alike, later] {
        attached(&driver, &id, node, Mode::MultiNodeMultiWriter).await.unwrap();
    }
    assert_eq!(nodes(), [alike, later]);
    // The access under the new id holds when that under the former one cannot be ended.
    let mut faults = [Fault::None, Fault::None, Fault::NotSent].into_iter();
    gateway.set_faults(move || faults.next().unwrap_or(Fault::None));
    let renewed = attached(&driver, &id, NODE, Mode::MultiNodeMultiWriter).await.unwrap_err();
    assert_eq!((renewed.code(), nodes().len()), (Code::Unavailable, 3));
    attached(&driver, &id, NODE, Mode::MultiNodeMultiWriter).await.unwrap();
    assert_eq!(nodes().len(), 2);
    driver.unpublish(&id, later).await.unwrap();
    driver.unpublish(&id, "node-1").await.unwrap();
    assert_eq!(nodes(), [alike]);
    driver.unpublish(&id, alike).await.unwrap();
    driver.delete(&id).await.unwrap();
}

/// An id may have been valid when access was given under it.
#[tokio::test]
async fn a_detachment_by_an_id_that_does_not_parse_ends_the_access_of_the_name() {
    let gateway = Arc::new(ModelGateway::new(&["tank/k8s"]));
    let driver = driver(&gateway, "c", "g");
    let id = made(&driver).await;
    let name_of = |node: &str| node.parse::<Node>().unwrap().access_name(false);
    let (alike, former_name) = ("node-10;10.0.0.4;", "node-1_s10.0.0.1_sjoe_w");
    let former = GrantAccess {
        owner: "c".to_owned(),
        addresses: vec!["10.0.0.1".parse().unwrap()],
        initiator: None,
        read_only: false,
        sole: None,
    };
    for node in [alike, NODE] {
        attached(&driver, &id, node, Mode::MultiNodeMultiWriter).await.unwrap();
    }
    gateway.grant("tank/k8s/a", former_name, &former).await.unwrap();
    driver.unpublish(&id, "node-1;10.0.0.1;joe").await.unwrap();
    assert_eq!(gateway.nodes("tank/k8s/a"), [name_of(alike)]);
    assert_eq!(gateway.served("tank/k8s/a"), [name_of(alike)]);
    // So does an attachment end it.
    gateway.grant("tank/k8s/a", former_name, &former).await.unwrap();
    attached(&driver, &id, NODE, Mode::MultiNodeMultiWriter).await.unwrap();
    assert_eq!(gateway.nodes("tank/k8s/a"), [alike, NODE].map(name_of));
}

/// Its pods may be served by it, and its driver may have started while the interface was away.
#[tokio::test]
async fn an_address_that_a_node_has_lost_stays_admitted_until_the_detachment() {
    let gateway = Arc::new(ModelGateway::new(&["tank/k8s"]));
    let driver = driver(&gateway, "c", "g");
    let id = made(&driver).await;
    let names_of = |node: &str, read_only: bool| {
        let node: Node = node.parse().unwrap();
        node.access_name(read_only)
    };
    let nodes = || gateway.nodes("tank/k8s/a");
    let (both, writes) = ("node-1;10.0.0.1,10.0.1.1;", Mode::SingleNodeWriter);
    for node in [both, NODE, NODE] {
        attached(&driver, &id, node, writes).await.unwrap();
    }
    let mut kept = [both, NODE].map(|node| names_of(node, false));
    kept.sort();
    assert_eq!(nodes(), kept);
    // It is back; then another address is in its place.
    attached(&driver, &id, both, writes).await.unwrap();
    assert_eq!(nodes(), [names_of(both, false)]);
    let moved = "node-1;10.0.0.1,10.0.2.1;";
    attached(&driver, &id, moved, writes).await.unwrap();
    assert_eq!(nodes(), [names_of(moved, false)]);
    // Access for writing does not outlast one for reading.
    attached(&driver, &id, NODE, Mode::SingleNodeReaderOnly).await.unwrap();
    assert_eq!(nodes(), [names_of(NODE, true)]);
    driver.unpublish(&id, NODE).await.unwrap();
    for node in [both, NODE] {
        attached(&driver, &id, node, writes).await.unwrap();
    }
    driver.unpublish(&id, NODE).await.unwrap();
    assert!(nodes().is_empty() && gateway.served("tank/k8s/a").is_empty());
}

#[tokio::test]
async fn a_volume_that_was_only_begun_is_finished_where_it_is() {
    let places = ["tank/k8s", "fast/k8s"];
    let gateway = Arc::new(ModelGateway::new(&places));
    let driver = driver_of("c", &[("g", &gateway, &places)]);
    gateway.begin("fast/k8s/a");
    for _ in 0..2 {
        assert_eq!(made(&driver).await, "g:fast/k8s/a");
        assert_eq!(gateway.volume_ids(), ["fast/k8s/a"]);
    }
    // Something else of this name beside a volume that is there.
    gateway.begin("tank/k8s/a");
    assert_eq!(made(&driver).await, "g:fast/k8s/a");
    assert_eq!(gateway.volume_ids(), ["fast/k8s/a"]);
}

/// Has the next requests to a gateway end in these ways.
fn faulty(gateway: &ModelGateway, faults: &'static [Fault]) {
    let mut faults = faults.iter();
    gateway.set_faults(move || faults.next().copied().unwrap_or(Fault::None));
}

const PLACES: &[&str] = &["tank/k8s"];

/// Returns three gateways, and a driver that prefers the first.
fn three() -> ([Arc<ModelGateway>; 3], Controller) {
    let all = [(); 3].map(|()| Arc::new(ModelGateway::new(PLACES)));
    let driver =
        driver_of("c", &[("a", &all[0], PLACES), ("b", &all[1], PLACES), ("x", &all[2], PLACES)]);
    (all, driver)
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_found_while_other_gateways_do_not_answer() {
    let ([first, second, third], driver) = three();
    let mut request = asked("a", "nfs");
    request.parameters.insert("gateway".to_owned(), "x".to_owned());
    driver.create(&request).await.unwrap();
    for away in [&first, &second] {
        away.set_faults(|| Fault::NoAnswer);
    }
    let began = Instant::now();
    assert_eq!(made(&driver).await, "x:tank/k8s/a");
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(third.volume_ids(), ["tank/k8s/a"]);
}

/// It may be where nobody answers.
#[tokio::test(start_paused = true)]
async fn no_volume_is_made_while_one_of_its_places_does_not_answer() {
    for fault in [Fault::NoAnswer, Fault::NotSent] {
        let ([first, second, third], driver) = three();
        for away in [&second, &third] {
            away.set_faults(move || fault);
        }
        let began = Instant::now();
        let refused = driver.create(&asked("a", "nfs")).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable, "{refused}");
        assert!(began.elapsed() < CREATE_SECONDS, "{:?}", began.elapsed());
        assert!(first.volume_ids().is_empty());
        // Others are made where all answer.
        let mut elsewhere = asked("b", "nfs");
        elsewhere.parameters.insert("gateway".to_owned(), "a".to_owned());
        driver.create(&elsewhere).await.unwrap();
    }
}

/// The sidecars give up later.
#[tokio::test(start_paused = true)]
async fn the_making_of_a_volume_is_answered_in_time() {
    let ([first, ..], driver) = three();
    // The first does not tell its room, so the second is asked for the volume.
    faulty(&first, &[Fault::None, Fault::NoAnswer]);
    let began = Instant::now();
    assert_eq!(made(&driver).await, "b:tank/k8s/a");
    assert!(began.elapsed() < CREATE_SECONDS, "{:?}", began.elapsed());
    faulty(&first, &[Fault::None, Fault::None, Fault::NoAnswer]);
    let began = Instant::now();
    let late = driver.create(&asked("b", "nfs")).await.unwrap_err();
    assert_eq!(late.code(), Code::Unavailable);
    assert!(began.elapsed() <= CREATE_SECONDS + Duration::from_secs(1), "{:?}", began.elapsed());
}

/// A request that is late may make its volume after the next one has looked for it.
#[tokio::test]
async fn a_volume_that_may_be_in_the_making_is_asked_for_at_the_same_place() {
    const POOL_BYTES: u64 = 1 << 50;
    let ([first, second, third], driver) = three();
    for gateway in [&first, &second, &third] {
        let request = zgate_api::CreateVolume {
            name: "other".to_owned(),
            parent: "tank/k8s".to_owned(),
            owner: "c".to_owned(),
            kind: zgate_api::VolumeKind::Filesystem,
            size_bytes: 1 << 30,
            properties: Default::default(),
            source: None,
            read_only: false,
        };
        gateway.create_volume(&request).await.unwrap();
        gateway.fill("tank/k8s/other", POOL_BYTES / 2);
    }
    // None has room for it, and the second has most.
    second.fill("tank/k8s/other", POOL_BYTES / 4);
    let large = CreateVolumeRequest {
        capacity_range: Some(CapacityRange {
            required_bytes: POOL_BYTES.cast_signed(),
            limit_bytes: 0,
        }),
        ..asked("a", "nfs")
    };
    faulty(&second, &[Fault::None, Fault::None, Fault::NotSent]);
    assert_eq!(driver.create(&large).await.unwrap_err().code(), Code::Unavailable);
    third.fill("tank/k8s/other", 0);
    assert_eq!(driver.create(&large).await.unwrap().volume_id, "b:tank/k8s/a");
    // One that is surely not made may be elsewhere the next time.
    let next = CreateVolumeRequest { name: "b".to_owned(), ..large };
    faulty(&third, &[Fault::None, Fault::None, Fault::NotAdmitted]);
    assert_eq!(driver.create(&next).await.unwrap_err().code(), Code::Unauthenticated);
    second.fill("tank/k8s/other", 0);
    third.fill("tank/k8s/other", POOL_BYTES / 2);
    assert_eq!(driver.create(&next).await.unwrap().volume_id, "b:tank/k8s/b");
    // So may one that was found, after its deletion.
    let last = CreateVolumeRequest { name: "c".to_owned(), ..next };
    faulty(&second, &[Fault::None, Fault::None, Fault::AnswerLost]);
    assert_eq!(driver.create(&last).await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(driver.create(&last).await.unwrap().volume_id, "b:tank/k8s/c");
    driver.delete("b:tank/k8s/c").await.unwrap();
    second.fill("tank/k8s/other", POOL_BYTES / 2);
    third.fill("tank/k8s/other", 0);
    assert_eq!(driver.create(&last).await.unwrap().volume_id, "x:tank/k8s/c");
}

/// The request for a volume is refused, then the look at it, or another request.
const REFUSALS: [&[Fault]; 2] = [
    &[Fault::NotAdmitted, Fault::NotAdmitted],
    &[Fault::NotAdmitted, Fault::None, Fault::NotAdmitted],
];
/// The search for a name is refused, for all snapshots and for those of the parent; the rest.
const REFUSED_SEARCHES: [&[Fault]; 3] = [
    &[Fault::NotAdmitted, Fault::NotAdmitted],
    &[Fault::NotAdmitted, Fault::None, Fault::NotAdmitted],
    &[Fault::None, Fault::NotAdmitted],
];

/// After a final error the sidecars forget what they have asked for, also if it is there.
#[tokio::test]
async fn no_error_is_final_while_an_earlier_request_may_have_made_something() {
    let gateway = Arc::new(ModelGateway::new(&["tank/k8s"]));
    let driver = driver(&gateway, "c", "g");
    // A clone is made, and then there is no room for its size.
    faulty(&gateway, &[Fault::NoRoomAtLast]);
    let full = driver.create(&asked("a", "nfs")).await.unwrap_err();
    assert_eq!(full.code(), Code::Unavailable);
    assert_eq!(gateway.volume_ids(), ["tank/k8s/a"]);
    let sized = CreateVolumeRequest {
        capacity_range: Some(CapacityRange { required_bytes: 1 << 30, limit_bytes: 0 }),
        ..asked("a", "nfs")
    };
    for faults in REFUSALS {
        faulty(&gateway, faults);
        let refused = driver.create(&sized).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable);
    }
    let id = driver.create(&sized).await.unwrap().volume_id;
    // All of this name; then the snapshot.
    faulty(&gateway, &[Fault::None, Fault::AnswerLost]);
    assert_eq!(snapshotted(&driver, "s", &id).await.unwrap_err().code(), Code::Unavailable);
    for faults in REFUSED_SEARCHES {
        faulty(&gateway, faults);
        let refused = snapshotted(&driver, "s", &id).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable);
    }
    snapshotted(&driver, "s", &id).await.unwrap();
}

/// Kubernetes places no pod whose claim is larger than the largest volume.
#[tokio::test]
async fn a_volume_may_be_larger_than_what_is_free() {
    const POOL_BYTES: i64 = 1 << 50;
    let gateway = Arc::new(ModelGateway::new(&["tank/k8s"]));
    let driver = driver(&gateway, "c", "g");
    made(&driver).await;
    gateway.fill("tank/k8s/a", (POOL_BYTES / 4).cast_unsigned());
    let space = driver.capacity(&GetCapacityRequest::default()).await.unwrap();
    assert_eq!(space.available_capacity, POOL_BYTES / 4 * 3);
    assert_eq!(space.maximum_volume_size, Some(POOL_BYTES));
    let sized = |name: &str, required_bytes: i64| CreateVolumeRequest {
        capacity_range: Some(CapacityRange { required_bytes, limit_bytes: 0 }),
        ..asked(name, "nfs")
    };
    driver.create(&sized("b", POOL_BYTES)).await.unwrap();
    let larger = driver.create(&sized("c", POOL_BYTES + 1)).await.unwrap_err();
    assert_eq!(larger.code(), Code::ResourceExhausted);
}

#[tokio::test]
async fn initiators_learn_a_size_that_a_failed_request_has_set() {
    const GIB: u64 = 1 << 30;
    let gateway = Arc::new(ModelGateway::new(&["tank/k8s"]));
    let driver = driver(&gateway, "c", "g");
    let id = driver.create(&asked("b", "iscsi")).await.unwrap().volume_id;
    let larger = |gib: i64| ControllerExpandVolumeRequest {
        volume_id: id.clone(),
        capacity_range: Some(CapacityRange { required_bytes: gib << 30, limit_bytes: 0 }),
        ..Default::default()
    };
    faulty(&gateway, &[Fault::NotInEffect]);
    let failed = driver.expand(&larger(2)).await.unwrap_err();
    assert_eq!(failed.code(), Code::Unavailable);
    assert_eq!((gateway.size_bytes("tank/k8s/b"), gateway.told_bytes("tank/k8s/b")), (2 * GIB, 0));
    for gib in [2, 1] {
        let grown = driver.expand(&larger(gib)).await.unwrap();
        assert_eq!(grown.capacity_bytes, 2 << 30);
        assert_eq!(gateway.told_bytes("tank/k8s/b"), 2 * GIB);
    }
}

/// Takes a snapshot; returns its id.
async fn snapshotted(driver: &Controller, name: &str, volume: &str) -> Result<String, Status> {
    let request = CreateSnapshotRequest {
        name: name.to_owned(),
        source_volume_id: volume.to_owned(),
        ..Default::default()
    };
    driver.take_snapshot(&request).await.map(|taken| taken.snapshot_id)
}

/// Counts the requests to a gateway from now on.
fn counted(gateway: &ModelGateway) -> Arc<AtomicUsize> {
    let count = Arc::new(AtomicUsize::new(0));
    let requests = Arc::clone(&count);
    gateway.set_faults(move || {
        requests.fetch_add(1, Ordering::Relaxed);
        Fault::None
    });
    count
}

#[tokio::test]
async fn one_request_to_each_gateway_finds_the_name_of_a_snapshot() {
    let [near, far] = [(); 2].map(|()| Arc::new(ModelGateway::new(&["tank/k8s"])));
    let driver = driver_of("c", &[("near", &near, &["tank/k8s"]), ("far", &far, &["tank/k8s"])]);
    for name in ["a", "b"] {
        driver.create(&asked(name, "nfs")).await.unwrap();
    }
    // More than a page has.
    for number in 0..=MAX_PAGE_ENTRIES {
        near.create_snapshot("tank/k8s/b", &format!("s{number:04}"), "c").await.unwrap();
    }
    let requests = [&near, &far].map(|gateway| counted(gateway));
    assert_eq!(snapshotted(&driver, "s", "near:tank/k8s/a").await.unwrap(), "near:tank/k8s/a@s");
    // All of this name, and the new one.
    assert_eq!(requests.map(|count| count.load(Ordering::Relaxed)), [2, 1]);
    let last = format!("s{MAX_PAGE_ENTRIES:04}");
    for is_older in [false, true] {
        if is_older {
            near.take_names_away();
            far.take_names_away();
        }
        let taken = snapshotted(&driver, &last, "near:tank/k8s/a").await.unwrap_err();
        assert_eq!(taken.code(), Code::AlreadyExists, "{is_older}");
        let found = driver.snapshot(&format!("near:tank/k8s/b@{last}")).await.unwrap();
        assert!(found.is_some(), "{is_older}");
    }
}

#[tokio::test]
async fn a_gateway_that_is_away_keeps_no_snapshot_of_others_from_being_taken() {
    let [near, far] = [(); 2].map(|()| Arc::new(ModelGateway::new(&["tank/k8s"])));
    let driver = driver_of("c", &[("near", &near, &["tank/k8s"]), ("far", &far, &["tank/k8s"])]);
    for name in ["a", "b"] {
        driver.create(&asked(name, "nfs")).await.unwrap();
    }
    far.set_faults(|| Fault::NotSent);
    for _ in 0..2 {
        let taken = snapshotted(&driver, "s", "near:tank/k8s/a").await.unwrap();
        assert_eq!(taken, "near:tank/k8s/a@s");
    }
    let twice = snapshotted(&driver, "s", "near:tank/k8s/b").await.unwrap_err();
    assert_eq!(twice.code(), Code::AlreadyExists);
}

#[tokio::test]
async fn a_pool_that_is_away_keeps_no_snapshot_of_others_from_being_taken() {
    let places = ["tank/k8s", "slow/k8s"];
    let gateway = Arc::new(ModelGateway::new(&places));
    let driver = driver_of("c", &[("g", &gateway, &places)]);
    for name in ["a", "b"] {
        driver.create(&asked(name, "nfs")).await.unwrap();
    }
    gateway.take_away("slow/k8s");
    assert_eq!(snapshotted(&driver, "s", "g:tank/k8s/a").await.unwrap(), "g:tank/k8s/a@s");
    let twice = snapshotted(&driver, "s", "g:tank/k8s/b").await.unwrap_err();
    assert_eq!(twice.code(), Code::AlreadyExists);
    let group = |volumes: &[&str]| CreateVolumeGroupSnapshotRequest {
        name: "both".to_owned(),
        source_volume_ids: volumes.iter().map(|id| (*id).to_owned()).collect(),
        ..Default::default()
    };
    let taken = driver.take_group(&group(&["g:tank/k8s/a", "g:tank/k8s/b"])).await.unwrap();
    assert_eq!(taken.snapshots.len(), 2);
    let other = driver.take_group(&group(&["g:tank/k8s/a"])).await.unwrap_err();
    assert_eq!(other.code(), Code::AlreadyExists);
    // Nobody says that there are no others, or that they are deleted.
    let lost = driver.list_snapshots(&ListSnapshotsRequest::default()).await.unwrap_err();
    assert_eq!(lost.code(), Code::Unavailable);
    let kept = driver.delete_group(&taken.group_snapshot_id, &[]).await.unwrap_err();
    assert_eq!(kept.code(), Code::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn gateways_that_do_not_answer_are_waited_for_at_the_same_time() {
    let [near, far, farther] = [(); 3].map(|()| Arc::new(ModelGateway::new(&["tank/k8s"])));
    let places: &[&str] = &["tank/k8s"];
    let driver =
        driver_of("c", &[("near", &near, places), ("far", &far, places), ("x", &farther, places)]);
    driver.create(&asked("a", "nfs")).await.unwrap();
    for away in [&far, &farther] {
        away.set_faults(|| Fault::NoAnswer);
    }
    let mut began = Instant::now();
    let mut took = || std::mem::replace(&mut began, Instant::now()).elapsed();
    let in_time = |took: Duration| took < GATHER_SECONDS + Duration::from_secs(1);
    let volumes = driver.list_volumes(&ListVolumesRequest::default()).await.unwrap_err();
    assert!(in_time(took()));
    let snapshots = driver.list_snapshots(&ListSnapshotsRequest::default()).await.unwrap_err();
    assert!(in_time(took()));
    for failed in [volumes, snapshots] {
        assert_eq!(failed.code(), Code::Unavailable);
        assert!(failed.message().starts_with("gateway far has not answered"), "{failed}");
    }
    let room = driver.capacity(&GetCapacityRequest::default()).await.unwrap();
    assert!(in_time(took()) && room.available_capacity > 0);
    let taken = snapshotted(&driver, "s", "near:tank/k8s/a").await.unwrap();
    assert!(in_time(took()) && taken == "near:tank/k8s/a@s");
    // Where nobody answers, the space is not known.
    near.set_faults(|| Fault::NoAnswer);
    let unknown = driver.capacity(&GetCapacityRequest::default()).await.unwrap_err();
    assert_eq!(unknown.code(), Code::Unavailable);
    assert!(in_time(took()));
}

#[tokio::test]
async fn pages_of_a_list_go_over_all_gateways() {
    let gateways = [(); 4].map(|()| Arc::new(ModelGateway::new(&["tank/k8s"])));
    let names = ["a", "b", "c", "d"];
    let places: &[&str] = &["tank/k8s"];
    let all: Vec<_> = names.iter().zip(&gateways).map(|(name, one)| (*name, one, places)).collect();
    let driver = driver_of("c", &all);
    let (mut all_volumes, mut all_snapshots) = (Vec::new(), Vec::new());
    for (gateway, count) in [("a", 2), ("b", 0), ("c", 3), ("d", 0)] {
        for number in 0..count {
            let name = format!("{gateway}{number}");
            let mut request = asked(&name, "nfs");
            request.parameters.insert("gateway".to_owned(), gateway.to_owned());
            let id = driver.create(&request).await.unwrap().volume_id;
            all_snapshots.push(snapshotted(&driver, &name, &id).await.unwrap());
            all_volumes.push(id);
        }
    }
    for most in 0..=6 {
        let (mut volumes, mut snapshots) = (Vec::new(), Vec::new());
        let mut starting_token = String::new();
        loop {
            let request = ListVolumesRequest { max_entries: most, starting_token };
            let page = driver.list_volumes(&request).await.unwrap();
            assert!(most == 0 || page.entries.len() <= most as usize);
            volumes.extend(page.entries.into_iter().map(|one| one.volume.unwrap().volume_id));
            starting_token = page.next_token;
            if starting_token.is_empty() {
                break;
            }
        }
        loop {
            let request =
                ListSnapshotsRequest { max_entries: most, starting_token, ..Default::default() };
            let page = driver.list_snapshots(&request).await.unwrap();
            assert!(most == 0 || page.entries.len() <= most as usize);
            snapshots.extend(page.entries.into_iter().map(|one| one.snapshot.unwrap().snapshot_id));
            starting_token = page.next_token;
            if starting_token.is_empty() {
                break;
            }
        }
        assert_eq!(volumes, all_volumes, "{most} in a page");
        assert_eq!(snapshots, all_snapshots, "{most} in a page");
    }
}
