//! The controller on models of gateways: what is hidden, begun or away is not taken for absent.

use super::*;
use crate::gateway::model::{Fault, ModelGateway};
use crate::limits::GATHER_SECONDS;
use crate::proto::volume_capability::access_mode::Mode;
use crate::proto::volume_capability::{AccessMode, AccessType, MountVolume};
use crate::proto::{
    CapacityRange, ControllerExpandVolumeRequest, CreateSnapshotRequest,
    CreateVolumeGroupSnapshotRequest, CreateVolumeRequest, GetCapacityRequest, ListSnapshotsRequest,
    ListVolumesRequest, VolumeCapability,
};
use std::time::Duration;
use tokio::time::Instant;
use tonic::Code;

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

/// Returns a request for a volume of the default size.
fn asked(name: &str, protocol: &str) -> CreateVolumeRequest {
    let capability = VolumeCapability {
        access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
        access_type: Some(AccessType::Mount(MountVolume::default())),
    };
    CreateVolumeRequest {
        name: name.to_owned(),
        volume_capabilities: vec![capability],
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
    // The second request is that for the change.
    let mut faults = [Fault::None, Fault::NotInEffect].into_iter();
    gateway.set_faults(move || faults.next().unwrap_or(Fault::None));
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
    let kept = driver.delete_group(&taken.group_snapshot_id).await.unwrap_err();
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
