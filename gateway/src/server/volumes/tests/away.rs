//! A pool that is exported while a request is carried out: what it has comes back with it.

use super::*;
use zgate_api::{SoleAccess, WithdrawAccess};
use zgate_control::volume::model::Meanwhile;

fn service_with(before: &'static str, happens: fn(&Model)) -> (VolumeService, Arc<Model>) {
    let (service, model, _) =
        service_through(|model| Arc::new(Meanwhile { model, before, happens }));
    service.create(&asked("a", KINDS[0])).unwrap();
    (service, model)
}

fn exports(model: &Model) {
    model.set_exported(true);
}

fn destroys(model: &Model) {
    let _ = model.run("zfs", &["destroy", "tank/k8s/a"]);
}

#[test]
fn no_volume_is_said_to_be_deleted_whose_pool_is_exported_meanwhile() {
    let (service, model) = service_with("destroy", exports);
    assert_eq!(service.delete(&id("a"), "csi").unwrap_err().code, ErrorCode::Storage);
    model.set_exported(false);
    service.get(&id("a")).unwrap();
    // Another program is faster.
    service_with("destroy", destroys).0.delete(&id("a"), "csi").unwrap();
}

#[test]
fn no_access_is_said_to_have_ended_whose_pool_is_exported_meanwhile() {
    let (service, model) = service_with("inherit", exports);
    service.grant(&id("a"), "n1", &node(1)).unwrap();
    let withdrawn = service.withdraw(&id("a"), "n1", "csi").unwrap_err();
    assert_eq!(withdrawn.code, ErrorCode::Storage);
    model.set_exported(false);
    let withdrawn = service.withdraw_from(&id("a"), &from(None)).unwrap_err();
    assert_eq!(withdrawn.code, ErrorCode::Storage);
    model.set_exported(false);
    assert_eq!(service.delete(&id("a"), "csi").unwrap_err().code, ErrorCode::Storage);
    model.set_exported(false);
    assert_eq!(service.get(&id("a")).unwrap().access, ["n1"]);
    let (service, _) = service_with("inherit", destroys);
    service.grant(&id("a"), "n1", &node(1)).unwrap();
    service.withdraw(&id("a"), "n1", "csi").unwrap();
}

/// A withdrawal from a node, or from all.
fn from(node: Option<&str>) -> WithdrawAccess {
    let nodes = node.map(|node| vec![node.to_owned()]);
    WithdrawAccess { owner: "csi".to_owned(), nodes }
}

#[test]
fn no_condition_is_said_to_hold_whose_pool_is_elsewhere() {
    let (service, model, _) = service();
    service.create(&asked("a", KINDS[0])).unwrap();
    service.grant(&id("a"), "n1", &node(1)).unwrap();
    model.set_exported(true);
    let sole = GrantAccess { sole: Some(SoleAccess::default()), ..node(1) };
    for answer in [
        service.grant(&id("a"), "n1", &sole).map(drop),
        service.withdraw_from(&id("a"), &from(Some("n1"))).map(drop),
        service.withdraw_from(&id("a"), &from(None)).map(drop),
        service.delete_detached(&id("a"), "csi"),
    ] {
        assert_eq!(answer.unwrap_err().code, ErrorCode::Storage);
    }
    model.set_exported(false);
    assert_eq!(service.get(&id("a")).unwrap().access, ["n1"]);
}

#[test]
fn no_snapshot_is_said_to_be_deleted_whose_pool_is_exported_meanwhile() {
    let (service, model) = service_with("set", exports);
    service.snapshot(&id("a"), "s", "csi").unwrap();
    let source = Some(Source::Snapshot(id("a@s")));
    service.create(&CreateVolume { source, ..asked("c", KINDS[0]) }).unwrap();
    let deleted = service.delete_snapshot(&id("a"), "s", "csi").unwrap_err();
    assert_eq!(deleted.code, ErrorCode::Storage);
    model.set_exported(false);
    let page = Page { volume: Some(id("a")), ..Page::default() };
    assert_eq!(service.list_snapshots(&page).unwrap().items.len(), 1);
}
