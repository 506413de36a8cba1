//! Groups of snapshots, and lists of their members.

use super::*;

/// Its caller would lose snapshots that it does not know.
#[tokio::test]
async fn a_group_with_another_list_of_snapshots_is_neither_deleted_nor_told() {
    let gateway = Arc::new(ModelGateway::new(PLACES));
    let driver = driver(&gateway, "c", "g");
    for name in ["a", "b"] {
        driver.create(&asked(name, "nfs")).await.unwrap();
    }
    let request = CreateVolumeGroupSnapshotRequest {
        name: "group".to_owned(),
        source_volume_ids: vec!["g:tank/k8s/a".to_owned(), "g:tank/k8s/b".to_owned()],
        ..Default::default()
    };
    let taken = driver.take_group(&request).await.unwrap();
    let single = snapshotted(&driver, "s", "g:tank/k8s/a").await.unwrap();
    let id = taken.group_snapshot_id.as_str();
    let own: Vec<String> = taken.snapshots.into_iter().map(|one| one.snapshot_id).collect();
    let more = [own.clone(), vec![single]].concat();
    for wrong in [&own[..1], &more[..]] {
        let kept = driver.delete_group(id, wrong).await.unwrap_err();
        let hidden = driver.group(id, wrong).await.unwrap_err();
        assert_eq!([kept.code(), hidden.code()], [Code::InvalidArgument; 2], "{wrong:?}");
    }
    assert_eq!(gateway.snapshot_ids().len(), 3);
    assert_eq!(driver.group(id, &own).await.unwrap().snapshots.len(), 2);
    // A repeated request also lists what the earlier one has deleted.
    driver.delete_snapshot(&own[0]).await.unwrap();
    for _ in 0..2 {
        driver.delete_group(id, &own).await.unwrap();
    }
    assert_eq!(gateway.snapshot_ids(), ["tank/k8s/a@s"]);
}

/// Nothing is wrong with the request itself (CSI 1.12, CreateVolumeGroupSnapshot Errors).
#[tokio::test]
async fn volumes_of_several_gateways_or_pools_are_no_group() {
    let places = ["tank/k8s", "fast/k8s"];
    let [near, far] = [(); 2].map(|()| Arc::new(ModelGateway::new(&places)));
    let driver = driver_of("c", &[("near", &near, &places), ("far", &far, &places)]);
    let mut ids = Vec::new();
    for (name, gateway, parent) in
        [("a", "near", places[0]), ("b", "near", places[1]), ("c", "far", places[0])]
    {
        let mut request = asked(name, "nfs");
        request.parameters.insert("gateway".to_owned(), gateway.to_owned());
        request.parameters.insert("parent".to_owned(), parent.to_owned());
        ids.push(driver.create(&request).await.unwrap().volume_id);
    }
    for (other, code) in [
        (ids[1].as_str(), Code::FailedPrecondition),
        (ids[2].as_str(), Code::FailedPrecondition),
        // One that is absent is told before.
        ("near:fast/k8s/never", Code::NotFound),
    ] {
        let request = CreateVolumeGroupSnapshotRequest {
            name: "group".to_owned(),
            source_volume_ids: vec![ids[0].clone(), other.to_owned()],
            ..Default::default()
        };
        let refused = driver.take_group(&request).await.unwrap_err();
        assert_eq!(refused.code(), code, "{refused}");
    }
    assert!(near.snapshot_ids().is_empty() && far.snapshot_ids().is_empty());
}
