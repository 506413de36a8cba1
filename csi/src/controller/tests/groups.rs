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
