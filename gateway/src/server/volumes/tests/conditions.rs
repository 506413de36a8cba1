//! Requests that say how a volume is expected to be: they save a look at it before.

use super::*;
use zgate_api::access::MAX_WITHDRAWN_NODES;
use zgate_api::{SoleAccess, WithdrawAccess};
use zgate_control::volume::model::Meanwhile;

fn sole(number: u8, kind: Option<zgate_api::VolumeKind>) -> GrantAccess {
    GrantAccess { sole: Some(SoleAccess { kind }), ..node(number) }
}

#[test]
fn sole_access_is_given_while_no_other_node_has_any() {
    let (service, _, _) = service();
    for (name, kind, other) in [("f", KINDS[0], KINDS[1]), ("b", KINDS[1], KINDS[0])] {
        service.create(&asked(name, kind)).unwrap();
        let code = |node: &str, asked: &GrantAccess| {
            service.grant(&id(name), node, asked).unwrap_err().code
        };
        let access = || service.get(&id(name)).unwrap().access;
        assert_eq!(code("n1", &sole(1, Some(other))), ErrorCode::InUse);
        assert!(access().is_empty());
        for expected in [Some(kind), None] {
            service.grant(&id(name), "n1", &sole(1, expected)).unwrap();
        }
        assert_eq!(code("n2", &sole(2, None)), ErrorCode::InUse);
        assert_eq!(access(), ["n1"]);
        service.grant(&id(name), "n2", &node(2)).unwrap();
        assert_eq!(code("n1", &sole(1, None)), ErrorCode::InUse);
    }
    service.create(&CreateVolume { read_only: true, ..asked("r", KINDS[0]) }).unwrap();
    let refused = service.grant(&id("r"), "n1", &sole(1, None)).unwrap_err();
    assert_eq!(refused.code, ErrorCode::InUse, "{refused}");
    let reader = GrantAccess { read_only: true, ..sole(1, None) };
    assert!(service.grant(&id("r"), "n1", &reader).unwrap().read_only);
}

fn withdrawal(owner: &str, nodes: &[&str]) -> WithdrawAccess {
    let nodes = nodes.iter().map(|&node| node.to_owned()).collect();
    WithdrawAccess { owner: owner.to_owned(), nodes: Some(nodes) }
}

#[test]
fn access_ends_under_the_names_of_a_node_and_no_other() {
    let (service, model, served) = service();
    service.create(&asked("f", KINDS[0])).unwrap();
    for (node_name, number) in [("n1_w", 1), ("n1_storage", 2), ("n2_w", 3)] {
        service.grant(&id("f"), node_name, &node(number)).unwrap();
    }
    let names = withdrawal("csi", &["n1_r", "n1_w"]);
    for inherited in [1, 2] {
        let before = model.commands().len();
        let left = service.withdraw_from(&id("f"), &names).unwrap();
        assert_eq!(left.access, ["n1_storage", "n2_w"]);
        // One that is not there may come late, if its command has timed out.
        let ended = model.commands().split_off(before).into_iter();
        assert_eq!(ended.filter(|one| one.starts_with("zfs inherit")).count(), inherited);
    }
    let is_open = |number: u8| served.exports_to("/k8s/f", IpAddr::from([10, 0, 0, number]));
    assert_eq!([is_open(1), is_open(2)], [false, true]);
    for count in [0, MAX_WITHDRAWN_NODES + 1] {
        let wrong = withdrawal("csi", &vec!["n"; count]);
        let refused = service.withdraw_from(&id("f"), &wrong).unwrap_err();
        assert_eq!(refused.code, ErrorCode::Invalid, "{count}");
    }
    // With a wrong name among them, no access is ended.
    let wrong = service.withdraw_from(&id("f"), &withdrawal("csi", &["n2_w", "N2"])).unwrap_err();
    assert_eq!(wrong.code, ErrorCode::Invalid);
    assert_eq!(service.get(&id("f")).unwrap().access, ["n1_storage", "n2_w"]);
    let foreign = service.withdraw_from(&id("f"), &withdrawal("x", &["n2_w"])).unwrap_err();
    assert_eq!(foreign.code, ErrorCode::Forbidden);
    let all = WithdrawAccess { owner: "csi".to_owned(), nodes: None };
    for _ in 0..2 {
        assert!(service.withdraw_from(&id("f"), &all).unwrap().access.is_empty());
    }
    assert!(!is_open(2) && service.get(&id("f")).unwrap().access.is_empty());
    assert!(service.withdraw_from(&id("none"), &names).unwrap().access.is_empty());
}

#[test]
fn a_volume_is_deleted_as_a_detached_one_once_no_node_has_access() {
    let (service, model, _) = service();
    for kind in KINDS {
        let before = model.names();
        service.create(&asked("v", kind)).unwrap();
        service.grant(&id("v"), "n1", &node(1)).unwrap();
        let source = Some(Source::Volume(id("v")));
        service.create(&CreateVolume { source, ..asked("c", kind) }).unwrap();
        let refused = service.delete_detached(&id("v"), "csi").unwrap_err();
        assert!(refused.code == ErrorCode::InUse && refused.message.contains("n1"), "{refused}");
        assert_eq!(service.get(&id("v")).unwrap().access, ["n1"]);
        service.withdraw(&id("v"), "n1", "csi").unwrap();
        for _ in 0..2 {
            service.delete_detached(&id("v"), "csi").unwrap();
        }
        service.delete_detached(&id("c"), "csi").unwrap();
        assert_eq!(model.names(), before);
    }
}

/// Gives a node access, as another request would between two locks.
fn grants(model: &Model) {
    // There may be no such volume.
    let _ = model.run("zfs", &["set", "zgate:access:n9=rw;10.0.0.9;", "tank/k8s/v"]);
}

#[test]
fn a_node_that_gets_access_before_clones_are_promoted_keeps_its_volume() {
    let (service, model, _) =
        service_through(|model| Arc::new(Meanwhile { model, before: "list", happens: grants }));
    service.create(&asked("v", KINDS[0])).unwrap();
    let source = Some(Source::Volume(id("v")));
    service.create(&CreateVolume { source, ..asked("c", KINDS[0]) }).unwrap();
    // The clone's snapshot was looked for.
    service.withdraw(&id("v"), "n9", "csi").unwrap();
    let refused = service.delete_detached(&id("v"), "csi").unwrap_err();
    assert!(refused.code == ErrorCode::InUse && refused.message.contains("n9"), "{refused}");
    assert_eq!(service.get(&id("v")).unwrap().access, ["n9"]);
    assert!(!model.commands().iter().any(|one| one.starts_with("zfs promote")));
}
