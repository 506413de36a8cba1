//! Requests of each call, and the errors of calls that ask for no volume before they change it.

use super::*;
use crate::proto::volume_content_source::{SnapshotSource, Type};
use crate::proto::{ControllerModifyVolumeRequest, VolumeContentSource};

fn expansion(id: &str, range: CapacityRange) -> ControllerExpandVolumeRequest {
    ControllerExpandVolumeRequest {
        volume_id: id.to_owned(),
        capacity_range: Some(range),
        ..Default::default()
    }
}

fn modification(id: &str, parameter: &str) -> ControllerModifyVolumeRequest {
    ControllerModifyVolumeRequest {
        volume_id: id.to_owned(),
        mutable_parameters: [(parameter.to_owned(), "500".to_owned())].into(),
        ..Default::default()
    }
}

fn group(ids: &[&str]) -> CreateVolumeGroupSnapshotRequest {
    CreateVolumeGroupSnapshotRequest {
        name: "group".to_owned(),
        source_volume_ids: ids.iter().map(|id| (*id).to_owned()).collect(),
        ..Default::default()
    }
}

const LARGER: CapacityRange = CapacityRange { required_bytes: 1 << 42, limit_bytes: 0 };
/// No size is a multiple of the steps within it.
const NARROW: CapacityRange = CapacityRange { required_bytes: 1, limit_bytes: 1 };

/// Each request is several processes at the gateway.
#[tokio::test]
async fn no_call_asks_for_what_its_next_request_tells() {
    let gateway = Arc::new(ModelGateway::new(PLACES));
    let driver = driver(&gateway, "c", "g");
    let requests = counted(&gateway);
    let took = || requests.swap(0, Ordering::Relaxed);
    let ids = [made(&driver).await, driver.create(&asked("b", "nfs")).await.unwrap().volume_id];
    let id = ids[0].as_str();
    assert_eq!(took(), 2, "two volumes");
    for _ in 0..2 {
        driver.expand(&expansion(id, LARGER)).await.unwrap();
        assert_eq!(took(), 1, "growth");
        driver.modify(&modification(id, "iops_max")).await.unwrap();
        assert_eq!(took(), 1, "a change of attributes");
        // The names of all snapshots are searched first.
        snapshotted(&driver, "s", id).await.unwrap();
        assert_eq!(took(), 2, "a snapshot");
        driver.take_group(&group(&[id, &ids[1]])).await.unwrap();
        assert_eq!(took(), 2, "a group");
    }
    let restored = CreateVolumeRequest {
        capacity_range: Some(LARGER),
        volume_content_source: Some(VolumeContentSource {
            r#type: Some(Type::Snapshot(SnapshotSource { snapshot_id: format!("{id}@s") })),
        }),
        ..asked("restored", "nfs")
    };
    let restored = driver.create(&restored).await.unwrap().volume_id;
    assert_eq!(took(), 1, "a volume from a snapshot");
    for node in [NODE, ""] {
        attached(&driver, id, NODE, Mode::SingleNodeWriter).await.unwrap();
        assert_eq!(took(), 1, "an attachment");
        driver.unpublish(id, node).await.unwrap();
        assert_eq!(took(), 1, "a detachment");
        assert!(gateway.served("tank/k8s/a").is_empty());
    }
    driver.delete(&restored).await.unwrap();
    assert_eq!(took(), 1, "a deletion");
    // Others may have access.
    attached(&driver, id, NODE, Mode::MultiNodeMultiWriter).await.unwrap();
    assert_eq!(took(), 2, "an attachment to several nodes");
}

/// It refuses what it does not know, and has changed nothing then.
#[tokio::test]
async fn a_gateway_that_knows_no_conditions_is_asked_as_before() {
    for is_older in [false, true] {
        let gateway = Arc::new(ModelGateway::new(PLACES));
        if is_older {
            gateway.take_conditions_away();
        }
        let driver = driver(&gateway, "c", "g");
        let id = made(&driver).await;
        for _ in 0..2 {
            attached(&driver, &id, NODE, Mode::SingleNodeWriter).await.unwrap();
        }
        let other = "node-2;10.0.0.2;";
        for refused in [
            attached(&driver, &id, other, Mode::SingleNodeWriter).await.unwrap_err(),
            driver.delete(&id).await.unwrap_err(),
        ] {
            assert_eq!(refused.code(), Code::FailedPrecondition, "{is_older}: {refused}");
        }
        let reads = attached(&driver, &id, NODE, Mode::SingleNodeReaderOnly).await.unwrap_err();
        assert_eq!(reads.code(), Code::AlreadyExists, "{is_older}: {reads}");
        assert_eq!(gateway.nodes("tank/k8s/a").len(), 1);
        driver.unpublish(&id, other).await.unwrap();
        assert_eq!(gateway.served("tank/k8s/a").len(), 1);
        for _ in 0..2 {
            driver.unpublish(&id, NODE).await.unwrap();
            assert!(gateway.served("tank/k8s/a").is_empty());
        }
        for _ in 0..2 {
            driver.delete(&id).await.unwrap();
        }
        assert!(gateway.volume_ids().is_empty());
    }
}

/// Its gateway refuses to make it so.
#[tokio::test]
async fn a_volume_of_another_size_is_found_at_its_one_place_if_it_will_do() {
    let gateway = Arc::new(ModelGateway::new(PLACES));
    let driver = driver(&gateway, "c", "g");
    let id = made(&driver).await;
    let size = gateway.size_bytes("tank/k8s/a").cast_signed();
    let sized = |required_bytes: i64, limit_bytes: i64| CreateVolumeRequest {
        capacity_range: Some(CapacityRange { required_bytes, limit_bytes }),
        ..asked("a", "nfs")
    };
    for (required, limit) in [(0, 0), (size / 2, 0), (size, size), (0, 2 * size)] {
        let found = driver.create(&sized(required, limit)).await.unwrap();
        assert_eq!((found.volume_id.as_str(), found.capacity_bytes), (id.as_str(), size));
    }
    for (required, limit) in [(2 * size, 0), (size / 2, size / 2)] {
        let other = driver.create(&sized(required, limit)).await.unwrap_err();
        assert_eq!(other.code(), Code::AlreadyExists, "{other}");
    }
    assert_eq!(gateway.volume_ids(), ["tank/k8s/a"]);
}

#[tokio::test]
async fn a_volume_that_is_absent_or_of_others_has_the_same_errors_in_all_calls() {
    let gateway = Arc::new(ModelGateway::new(PLACES));
    let (right, other) = (driver(&gateway, "c", "g"), driver(&gateway, "other", "g"));
    let id = made(&right).await;
    snapshotted(&right, "taken", &id).await.unwrap();
    for (driver, id, changed, taken) in [
        (&right, "g:tank/k8s/never", Code::NotFound, Code::NotFound),
        (&right, "g:tank/elsewhere/a", Code::FailedPrecondition, Code::Unavailable),
        (&right, "renamed:tank/k8s/a", Code::FailedPrecondition, Code::Unavailable),
        (&other, id.as_str(), Code::FailedPrecondition, Code::Unavailable),
    ] {
        for range in [LARGER, NARROW] {
            let refused = driver.expand(&expansion(id, range)).await.unwrap_err();
            assert_eq!(refused.code(), changed, "{id}: {refused}");
        }
        for parameter in ["iops_max", "nothing"] {
            let refused = driver.modify(&modification(id, parameter)).await.unwrap_err();
            assert_eq!(refused.code(), changed, "{id}: {refused}");
        }
        let refused = driver.take_group(&group(&[id])).await.unwrap_err();
        assert_eq!(refused.code(), taken, "{id}: {refused}");
        for name in ["s", "taken"] {
            let refused = snapshotted(driver, name, id).await.unwrap_err();
            assert_eq!(refused.code(), taken, "{id}: {refused}");
        }
    }
    // What is there has the errors of the request.
    let narrow = right.expand(&expansion(&id, NARROW)).await.unwrap_err();
    assert_eq!(narrow.code(), Code::OutOfRange);
    let unknown = right.modify(&modification(&id, "nothing")).await.unwrap_err();
    assert_eq!(unknown.code(), Code::InvalidArgument);
    let small = CapacityRange { required_bytes: 1, limit_bytes: 1 << 20 };
    let shrunk = right.expand(&expansion(&id, small)).await.unwrap_err();
    assert_eq!(shrunk.code(), Code::OutOfRange);
    right.expand(&expansion(&id, CapacityRange { limit_bytes: 0, ..small })).await.unwrap();
}

/// There is one, so the request can be met.
#[tokio::test]
async fn a_request_with_a_limit_alone_gets_a_size_within_it() {
    let gateway = Arc::new(ModelGateway::new(PLACES));
    let driver = driver(&gateway, "c", "g");
    let limited = |name: &str, limit_bytes: i64| CreateVolumeRequest {
        capacity_range: Some(CapacityRange { required_bytes: 0, limit_bytes }),
        ..asked(name, "nfs")
    };
    let step = 1 << 20;
    for (name, limit, size) in
        [("a", 500_000_000, 476 * step), ("b", step, step), ("c", i64::MAX, 1 << 30)]
    {
        for _ in 0..2 {
            let found = driver.create(&limited(name, limit)).await.unwrap();
            assert_eq!(found.capacity_bytes, size, "{name}");
        }
    }
    let refused = driver.create(&limited("d", step - 1)).await.unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange);
}
