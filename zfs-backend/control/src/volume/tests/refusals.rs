//! Requests that are refused change nothing, and snapshots that go leave nothing.

use super::*;

#[test]
fn a_rollback_that_is_refused_destroys_no_snapshot() {
    let model = model();
    make(&model, &new("a", VolumeKind::Block)).unwrap();
    snapshot(&model, &the(&model, "a"), "one").unwrap();
    // One more than a command destroys.
    let scheduled: Vec<String> = (0..65)
        .map(|n| format!("tank/k8s/a@zgate_2026-11-21_{:02}:{:02}:00_hourly", n / 60, n % 60))
        .collect();
    scheduled.iter().for_each(|name| model.foreign_snapshot(name));
    let last = scheduled[64].as_str();
    let run = |arguments: &[&str]| drop(model.run("zfs", arguments).unwrap());
    let back = || roll_back(&model, &the(&model, "a"), "one", true);
    let is_refused = |fault: Fault, why: &str| {
        let names = model.names();
        let error = back().unwrap_err();
        assert!(error.fault == fault && error.message.contains(why), "{why}: {error}");
        assert_eq!(model.names(), names, "{why}");
    };
    run(&["hold", "backup", last]);
    is_refused(Fault::InUse, "held");
    run(&["release", "backup", last]);
    run(&["bookmark", last, "tank/k8s/a#sent"]);
    is_refused(Fault::InUse, "a#sent");
    run(&["destroy", "tank/k8s/a#sent"]);
    run(&["set", "refreservation=1099511627776", "tank/k8s/a"]);
    is_refused(Fault::NoSpace, "reservation");
    run(&["inherit", "refreservation", "tank/k8s/a"]);
    // A bookmark of the same moment prevents nothing.
    run(&["bookmark", "tank/k8s/a@one", "tank/k8s/a#one"]);
    back().unwrap();
    assert_eq!(left(&model), ["a", "a@one"]);
}
