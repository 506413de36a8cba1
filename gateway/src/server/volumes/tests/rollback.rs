//! Rollbacks of volumes.

use super::*;
use zgate_api::RollBack;

#[test]
fn a_volume_in_use_is_rolled_back_only_by_force() {
    let (service, model, served) = service();
    service.create(&asked("b", KINDS[1])).unwrap();
    service.grant(&id("b"), "n1", &node(1)).unwrap();
    service.snapshot(&id("b"), "s", "csi").unwrap();
    let mut back = RollBack { owner: "csi".to_owned(), force: false, destroy_scheduled: false };
    locked(&served.sessions).push("iqn.2026-11.test:n1".to_owned());
    let error = service.roll_back(&id("b"), "s", &back).unwrap_err();
    assert!(error.code == ErrorCode::InUse && error.message.contains(":n1"), "{error}");
    back.force = true;
    service.roll_back(&id("b"), "s", &back).unwrap();
    let looks = std::mem::take(&mut *locked(&served.resized));
    assert_eq!(looks, [0, 1], "initiators learn the size of that time, and what has content");
    locked(&served.sessions).clear();
    // One that times out may be carried out all the same.
    model.set_fates(Some(Box::new(|command: &str| match command.starts_with("zfs rollback") {
        true => Fate::LostAfter,
        false => Fate::Runs,
    })));
    service.roll_back(&id("b"), "s", &back).unwrap_err();
    model.set_fates(None);
    assert_eq!(*locked(&served.resized), [1, 2]);
    back.force = false;
    service.roll_back(&id("b"), "s", &back).unwrap();
    let other = RollBack { owner: "x".to_owned(), ..back };
    assert_eq!(service.roll_back(&id("b"), "s", &other).unwrap_err().code, ErrorCode::Forbidden);
}

#[test]
fn nfs_clients_hear_of_a_rollback_before_and_behind_it() {
    let (service, model, served) = service();
    service.create(&asked("f", KINDS[0])).unwrap();
    service.snapshot(&id("f"), "s", "csi").unwrap();
    let back = RollBack { owner: "csi".to_owned(), force: false, destroy_scheduled: false };
    service.roll_back(&id("f"), "s", &back).unwrap();
    assert_eq!(std::mem::take(&mut *locked(&served.replaced)), [0, 1]);
    // One that times out may be carried out all the same.
    model.set_fates(Some(Box::new(|command: &str| match command.starts_with("zfs rollback") {
        true => Fate::LostAfter,
        false => Fate::Runs,
    })));
    service.roll_back(&id("f"), "s", &back).unwrap_err();
    assert_eq!(*locked(&served.replaced), [1, 2]);
    assert!(locked(&served.resized).is_empty(), "a file system has no initiators");
}

#[test]
fn nobody_hears_of_a_rollback_that_is_refused() {
    let (service, _, served) = service();
    let back = RollBack { owner: "csi".to_owned(), force: false, destroy_scheduled: false };
    for (name, kind) in [("f", KINDS[0]), ("b", KINDS[1])] {
        service.create(&asked(name, kind)).unwrap();
        service.snapshot(&id(name), "s", "csi").unwrap();
        service.snapshot(&id(name), "later", "csi").unwrap();
        let refused = |to| service.roll_back(&id(name), to, &back).unwrap_err().code;
        assert_eq!(refused("none"), ErrorCode::NotFound);
        assert_eq!(refused("s"), ErrorCode::InUse);
    }
    assert!(locked(&served.replaced).is_empty() && locked(&served.resized).is_empty());
}
