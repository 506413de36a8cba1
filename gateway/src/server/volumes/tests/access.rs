//! Access of nodes: what it is, and its end.

use super::*;
use crate::server::limits::SETTLE_ATTEMPTS;
use zgate_api::WithdrawAccess;

#[test]
fn access_for_reading_is_answered_as_such() {
    let (service, _, _) = service();
    for (kind, name) in KINDS.into_iter().zip(["f", "b"]) {
        service.create(&asked(name, kind)).unwrap();
        let reader = GrantAccess { read_only: true, ..node(1) };
        assert!(service.grant(&id(name), "n1", &reader).unwrap().read_only);
        assert!(!service.grant(&id(name), "n2", &node(2)).unwrap().read_only);
    }
}

#[test]
fn access_is_in_effect_when_it_is_answered_and_ends_with_its_withdrawal() {
    let (service, _, served) = service();
    for kind in KINDS {
        let name = if kind == KINDS[0] { "f" } else { "b" };
        service.create(&asked(name, kind)).unwrap();
        for _ in 0..2 {
            let access = service.grant(&id(name), "n1", &node(1)).unwrap();
            assert_eq!(access.transports, [Transport::Tcp]);
            match access.reach {
                Reach::Nfs { path, .. } => assert_eq!(path, "/k8s/f"),
                Reach::Iscsi { target, lun, .. } => {
                    assert!(target.starts_with("iqn.2026-11.test:k8s:"), "{target}");
                    assert_eq!((lun, service.get(&id(name)).unwrap().target), (0, Some(target)));
                }
            }
        }
        service.grant(&id(name), "n2", &node(2)).unwrap();
        assert_eq!(service.get(&id(name)).unwrap().access, ["n1", "n2"]);
        for _ in 0..2 {
            service.withdraw(&id(name), "n1", "csi").unwrap();
        }
        assert!(!served.exports_to("/k8s/f", IpAddr::from([10, 0, 0, 1])));
        assert_eq!(service.withdraw(&id(name), "n2", "x").unwrap_err().code, ErrorCode::Forbidden);
        let wrong = GrantAccess { addresses: vec![], initiator: None, ..node(1) };
        let code = service.grant(&id(name), "n1", &wrong).unwrap_err().code;
        assert_eq!(code, ErrorCode::Invalid);
    }
    service.withdraw(&id("nothing"), "n1", "csi").unwrap();
}

/// Its writes may land behind those of the next node.
#[test]
fn a_withdrawal_is_answered_when_what_was_sent_before_has_ended() {
    for (name, kind) in [("f", KINDS[0]), ("b", KINDS[1])] {
        let (service, _, served) = service();
        service.create(&asked(name, kind)).unwrap();
        let all = WithdrawAccess { owner: "csi".to_owned(), nodes: None };
        let unsettled = |looks: u32| *locked(&served.unsettled_looks) = looks;
        let left = || *locked(&served.unsettled_looks);
        service.grant(&id(name), "n1", &node(1)).unwrap();
        unsettled(1);
        service.withdraw(&id(name), "n1", "csi").unwrap();
        assert_eq!(left(), 0, "it has waited");
        service.grant(&id(name), "n1", &node(1)).unwrap();
        unsettled(SETTLE_ATTEMPTS + 1);
        let late = service.withdraw_from(&id(name), &all).unwrap_err();
        assert_eq!(late.code, ErrorCode::Storage, "{late}");
        assert!(service.get(&id(name)).unwrap().access.is_empty());
        // The repeated request waits as well.
        assert!(service.withdraw_from(&id(name), &all).unwrap().access.is_empty());
        assert_eq!(left(), 0);
    }
}

#[test]
fn what_other_nodes_of_a_file_system_do_is_not_waited_for_without_end() {
    let (service, _, served) = service();
    service.create(&asked("f", KINDS[0])).unwrap();
    for number in [1, 2] {
        service.grant(&id("f"), &format!("n{number}"), &node(number)).unwrap();
    }
    *locked(&served.unsettled_looks) = SETTLE_ATTEMPTS + 1;
    service.withdraw(&id("f"), "n1", "csi").unwrap();
    assert_eq!(*locked(&served.unsettled_looks), 1, "it has waited");
}
