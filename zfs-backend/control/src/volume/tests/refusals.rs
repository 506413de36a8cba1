//! Requests that are refused change nothing, and snapshots that go leave nothing.

use super::*;
use crate::tool::ToolError;
use crate::volume::in_use::HAS_USERS;
use crate::volume::limits::MAX_DESTROYED_AT_ONCE;
use crate::volume::model::Meanwhile;
use std::sync::Arc;

/// Takes scheduled snapshots of volume `a`: without one of them there are still more than a
/// command destroys.
fn take_scheduled(model: &Model) -> Vec<String> {
    let scheduled: Vec<String> = (0..MAX_DESTROYED_AT_ONCE + 2)
        .map(|n| format!("tank/k8s/a@zgate_2026-11-21_{:02}:{:02}:00_hourly", n / 60, n % 60))
        .collect();
    scheduled.iter().for_each(|name| model.foreign_snapshot(name));
    scheduled
}

#[test]
fn a_rollback_that_is_refused_destroys_no_snapshot() {
    let model = model();
    make(&model, &new("a", VolumeKind::Block)).unwrap();
    snapshot(&model, &the(&model, "a"), "one").unwrap();
    let scheduled = take_scheduled(&model);
    let last = scheduled[65].as_str();
    let run = |arguments: &[&str]| drop(model.run("zfs", arguments).unwrap());
    let back = || roll_back(&model, &the(&model, "a"), "one", true, || ());
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

#[test]
fn a_deleted_snapshot_is_never_found_again_under_its_name() {
    let model = model();
    make(&model, &new("a", VolumeKind::Block)).unwrap();
    let take = || snapshot(&model, &the(&model, "a"), "s");
    let remove = || delete_snapshot(&model, &dataset("a"), "s", "csi");
    let run = |arguments: &[&str]| drop(model.run("zfs", arguments).unwrap());
    let old = take().unwrap();
    run(&["hold", "backup", "tank/k8s/a@s"]);
    let error = remove().unwrap_err();
    assert!(error.fault == Fault::InUse && error.next_step.contains("release"), "{error}");
    assert_eq!(take().unwrap().guid, old.guid, "it is as before");
    // A hold that came when the deletion was decided.
    run(&["destroy", "-d", "tank/k8s/a@s"]);
    assert_eq!(take().unwrap_err().fault, Fault::Exists);
    assert!(snapshots_of(&model, &dataset("a")).unwrap().iter().all(|one| !one.listed));
    assert_eq!(remove().unwrap_err().fault, Fault::InUse);
    run(&["release", "backup", "tank/k8s/a@s"]);
    remove().unwrap();
    assert_ne!(take().unwrap().guid, old.guid);
    remove().unwrap();
    assert_eq!(left(&model), ["a"]);
}

/// Repeating a request finds what the first one has made.
#[test]
fn a_snapshot_that_is_there_is_found_whatever_keeps_another_from_being_taken() {
    let model = model();
    make(&model, &new("a", VolumeKind::Block)).unwrap();
    let volume = the(&model, "a");
    // The command waits for the pool, and takes effect with it.
    model.set_fates(Some(Box::new(|command: &str| match command.starts_with("zfs snapshot") {
        true => Fate::LostLater,
        false => Fate::Runs,
    })));
    assert_eq!(snapshot(&model, &volume, "s").unwrap_err().fault, Fault::Storage);
    model.set_fates(None);
    snapshot(&model, &volume, "s").unwrap();
    let without_flush = |name: &str| {
        let broken = || Err(VolumeError::new(Fault::Storage, "the disk is broken", "replace it"));
        group_snapshot(&model, std::slice::from_ref(&volume), name, broken)
    };
    assert!(!without_flush("s").unwrap().is_new);
    assert_eq!(without_flush("t").unwrap_err().message, "the disk is broken");
    assert_eq!(left(&model), ["a", "a@s"]);
}

#[test]
fn an_own_source_is_of_the_same_owner_and_listed() {
    let model = model();
    make(&model, &new("a", VolumeKind::Block)).unwrap();
    snapshot(&model, &the(&model, "a"), "s").unwrap();
    model.foreign_snapshot("tank/k8s/a@by-hand");
    let clone = |from: &str, owner: &str| {
        let origin = match from.contains('@') {
            true => Origin::Snapshot(format!("{PARENT}/{from}").parse().unwrap()),
            false => Origin::Dataset(dataset(from)),
        };
        let owner = owner.to_owned();
        let new = new("c", VolumeKind::Block);
        let wanted = NewVolume { origin: Some(origin), is_origin_own: true, owner, ..new };
        make(&model, &wanted).map(|made| made.existed).map_err(|error| error.fault)
    };
    for (from, owner, fault) in [
        ("a", "x", Fault::Forbidden),
        ("a@s", "x", Fault::Forbidden),
        ("a@none", "x", Fault::Forbidden),
        ("a@none", "csi", Fault::NotFound),
        ("a@by-hand", "csi", Fault::NotFound),
        ("foreign", "csi", Fault::Forbidden),
        ("none", "csi", Fault::NotFound),
        ("none@s", "csi", Fault::NotFound),
    ] {
        assert_eq!(clone(from, owner), Err(fault), "{from} of {owner}");
    }
    // As after a rename of the dataset.
    model.run("zfs", &["set", "zgate:volume=other", "tank/k8s/a"]).unwrap();
    for existed in [false, true] {
        assert_eq!(clone("a@s", "csi"), Ok(existed));
    }
    assert_eq!(the(&model, "c").pending_bytes, None);
}

#[test]
fn without_the_right_to_promote_a_volume_with_clones_stays_as_it_is() {
    let model = model();
    make(&model, &new("a", VolumeKind::Filesystem)).unwrap();
    make(&model, &clone_of("c", "a", VolumeKind::Filesystem)).unwrap();
    model.foreign_snapshot("tank/k8s/a@zgate_2026-11-21_10:00:00_hourly");
    let names = model.names();
    let delete =
        |name: &str| crate::volume::delete(&model, &the(&model, name), Promotion::Excluded);
    assert_eq!(delete("a"), Ok(false));
    assert_eq!((model.names(), the(&model, "a").mounted_at.is_some()), (names, true));
    for name in ["c", "a"] {
        assert_eq!(delete(name), Ok(true));
    }
    assert_eq!(left(&model), Vec::<String>::new());
}

/// Its clones may have gone since they were found.
#[test]
fn a_volume_whose_clones_were_found_is_deleted_also_without_them() {
    for (takes_snapshot, kind) in [(false, VolumeKind::Block), (true, VolumeKind::Filesystem)] {
        let model = model();
        make(&model, &new("a", kind)).unwrap();
        if takes_snapshot {
            model.foreign_snapshot("tank/k8s/a@zgate_2026-11-21_10:00:00_hourly");
            model.run("zfs", &["create", "tank/k8s/a/below"]).unwrap();
            let delete = || crate::volume::delete(&model, &the(&model, "a"), Promotion::Needed);
            assert_eq!(delete().unwrap_err().fault, Fault::InUse);
            assert_eq!(left(&model).len(), 3, "nothing has changed");
            model.run("zfs", &["destroy", "tank/k8s/a/below"]).unwrap();
        }
        let deleted = crate::volume::delete(&model, &the(&model, "a"), Promotion::Needed);
        assert_eq!((deleted, left(&model)), (Ok(true), Vec::new()));
    }
}

#[test]
fn a_receive_under_way_hides_no_snapshot_and_keeps_what_it_needs() {
    let model = model();
    make(&model, &new("a", VolumeKind::Block)).unwrap();
    for hour in [10, 11] {
        model.foreign_snapshot(&format!("tank/k8s/a@zgate_2026-11-21_{hour}:00:00_hourly"));
    }
    let hidden = "tank/k8s/foreign/%recv";
    let needed = "tank/k8s/a@zgate_2026-11-21_11:00:00_hourly";
    model.run("zfs", &["clone", needed, hidden]).unwrap();
    let all = snapshots(&model, &PARENT.parse().unwrap()).unwrap();
    assert_eq!(all.iter().map(|one| one.clones.len()).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(all[1].clones, [hidden]);
    let names = model.names();
    let error = delete(&model, &the(&model, "a")).unwrap_err();
    assert!(error.fault == Fault::InUse && error.message.contains("receive"), "{error}");
    assert_eq!(model.names(), names);
    model.run("zfs", &["destroy", hidden]).unwrap();
    delete(&model, &the(&model, "a")).unwrap();
    assert_eq!(left(&model), Vec::<String>::new());
}

#[test]
fn a_deletion_that_is_cut_off_leaves_no_snapshot_behind() {
    let model = model();
    make(&model, &new("a", VolumeKind::Block)).unwrap();
    let rename = "zfs rename";
    for (cut, fate) in [
        ("zfs set", Fate::LostAfter),
        ("zfs destroy", Fate::LostAfter),
        (rename, Fate::LostBefore),
        (rename, Fate::LostAfter),
    ] {
        let taken = snapshot(&model, &the(&model, "a"), "s").unwrap();
        let origin = Some(Origin::Snapshot(taken.snapshot));
        make(&model, &NewVolume { origin, ..new("c", VolumeKind::Block) }).unwrap();
        let mut fates = [fate].into_iter();
        model.set_fates(Some(Box::new(move |command| match command.starts_with(cut) {
            true => fates.next().unwrap_or(Fate::Runs),
            false => Fate::Runs,
        })));
        let remove = || delete_snapshot(&model, &dataset("a"), "s", "csi");
        assert_eq!(remove().unwrap_err().fault, Fault::Storage, "{cut}");
        remove().unwrap();
        model.set_fates(None);
        assert!(!left(&model).contains(&"a@s".to_owned()), "{cut}: the name is free");
        delete(&model, &the(&model, "c")).unwrap();
        assert_eq!(left(&model), ["a"], "{cut} {fate:?}");
    }
}

/// ZFS destroys the snapshots of a zvol that somebody has open, and refuses the zvol then.
#[test]
fn a_disk_that_somebody_has_open_keeps_its_snapshots() {
    let model = model();
    make(&model, &new("b", VolumeKind::Block)).unwrap();
    model.foreign_snapshot("tank/k8s/b@zgate_2026-11-21_10:00:00_hourly");
    let names = model.names();
    model.set_busy("tank/k8s/b", true);
    let error = delete(&model, &the(&model, "b")).unwrap_err();
    assert!(error.fault == Fault::InUse && error.message.contains("is busy"), "{error}");
    assert_eq!(model.names(), names);
    model.set_busy("tank/k8s/b", false);
    // A pool that does not say whether it is open.
    model.set_fates(Some(Box::new(|command: &str| match command.starts_with("zfs program") {
        true => Fate::LostBefore,
        false => Fate::Runs,
    })));
    assert_eq!(delete(&model, &the(&model, "b")).unwrap_err().fault, Fault::Storage);
    assert_eq!(model.names(), names);
    model.set_fates(None);
    delete(&model, &the(&model, "b")).unwrap();
    assert_eq!(left(&model), Vec::<String>::new());
}

/// ZFS destroys or promotes nothing of what is sent, but has destroyed others before.
#[test]
fn a_volume_of_which_a_snapshot_is_sent_keeps_all_of_them() {
    for kind in [VolumeKind::Block, VolumeKind::Filesystem] {
        let model = model();
        make(&model, &new("a", kind)).unwrap();
        let scheduled = take_scheduled(&model);
        let [first, cloned, last] = [0, 30, 65].map(|at| scheduled[at].as_str());
        model.run("zfs", &["clone", cloned, "tank/k8s/c"]).unwrap();
        let names = model.names();
        for sent in [first, cloned, last] {
            model.set_busy(sent, true);
            let error = delete(&model, &the(&model, "a")).unwrap_err();
            assert!(error.fault == Fault::InUse && error.message.contains(sent), "{error}");
            assert_eq!(model.names(), names, "{sent}");
            model.set_busy(sent, false);
        }
        delete(&model, &the(&model, "a")).unwrap();
        assert_eq!(left(&model), ["c".to_owned(), cloned.replace("tank/k8s/a", "c")]);
    }
}

/// ZFS for a gateway without CAP_SYS_ADMIN.
struct Limited(Model);

impl Tool for Limited {
    fn run(&self, program: &str, arguments: &[&str]) -> Result<String, ToolError> {
        if arguments[0] != "program" {
            return self.0.run(program, arguments);
        }
        Err(ToolError::Failed {
            command: "zfs program".to_owned(),
            status: Some(1),
            said: "Channel program execution failed:\nPermission denied. Channel programs must \
                be run as root."
                .to_owned(),
        })
    }
}

#[test]
fn a_disk_is_deleted_without_the_right_to_ask_who_has_it_open() {
    let limited = Limited(model());
    make(&limited.0, &new("b", VolumeKind::Block)).unwrap();
    limited.0.foreign_snapshot("tank/k8s/b@zgate_2026-11-21_10:00:00_hourly");
    delete(&limited, &the(&limited.0, "b")).unwrap();
    assert_eq!(left(&limited.0), Vec::<String>::new());
}

/// ZFS to which every dataset that it is asked about is in use, as one is that is mounted.
struct Mounted(Model);

impl Tool for Mounted {
    fn run(&self, program: &str, arguments: &[&str]) -> Result<String, ToolError> {
        if arguments[0] != "program" {
            return self.0.run(program, arguments);
        }
        Err(ToolError::Failed {
            command: "zfs program".to_owned(),
            status: Some(1),
            said: format!("Channel program execution failed:\n{HAS_USERS}"),
        })
    }
}

#[test]
fn a_file_system_that_zfs_destroy_unmounts_is_not_kept_by_its_mount() {
    let mounted = Mounted(model());
    make(&mounted.0, &new("f", VolumeKind::Filesystem)).unwrap();
    mounted.0.foreign_snapshot("tank/k8s/f@zgate_2026-11-21_10:00:00_hourly");
    let volume = the(&mounted.0, "f");
    let elsewhere = VolumeRecord { mounted_at: None, ..volume.clone() };
    assert_eq!(delete(&mounted, &elsewhere).unwrap_err().fault, Fault::InUse);
    delete(&mounted, &VolumeRecord { mounted_at: Some("legacy".into()), ..volume }).unwrap();
    assert_eq!(left(&mounted.0), Vec::<String>::new());
}

#[test]
fn a_snapshot_of_a_schedule_that_is_taken_meanwhile_goes_with_its_volume() {
    let takes: [fn(&Model); 2] = [
        |model| model.foreign_snapshot("tank/k8s/b@zgate_2026-11-21_11:00:00_hourly"),
        |model| model.foreign_snapshot("tank/k8s/b@by-hand"),
    ];
    for (happens, expected) in takes.into_iter().zip([Ok(()), Err(Fault::InUse)]) {
        let meanwhile = Meanwhile { model: Arc::new(model()), before: "program", happens };
        let model = &meanwhile.model;
        make(model, &new("b", VolumeKind::Block)).unwrap();
        model.foreign_snapshot("tank/k8s/b@zgate_2026-11-21_10:00:00_hourly");
        let outcome = delete(&meanwhile, &the(model, "b"));
        assert_eq!(left(model).is_empty(), outcome.is_ok(), "{outcome:?}");
        assert!(outcome.as_ref().err().is_none_or(|error| error.message.contains("by-hand")));
        assert_eq!(outcome.map_err(|error| error.fault), expected);
    }
}

/// ZFS that looks for the clones of a volume's snapshots while one of them is being destroyed.
struct ClonesGo(Model);

impl Tool for ClonesGo {
    fn run(&self, program: &str, arguments: &[&str]) -> Result<String, ToolError> {
        self.0.run(program, arguments).map_err(|error| match error {
            ToolError::Failed { command, status, said } if said.contains("has children") => {
                let said = format!("cannot open 'tank/k8s/c': dataset does not exist\n{said}");
                ToolError::Failed { command, status, said }
            }
            other => other,
        })
    }
}

#[test]
fn a_volume_whose_clone_is_just_being_destroyed_is_not_taken_for_gone() {
    let going = ClonesGo(model());
    make(&going.0, &new("b", VolumeKind::Block)).unwrap();
    going.0.foreign_snapshot("tank/k8s/b@by-hand");
    assert_eq!(delete(&going, &the(&going.0, "b")).unwrap_err().fault, Fault::InUse);
    going.0.run("zfs", &["destroy", "tank/k8s/b@by-hand"]).unwrap();
    going.0.foreign_snapshot("tank/k8s/b@zgate_2026-11-21_10:00:00_hourly");
    delete(&going, &the(&going.0, "b")).unwrap();
    assert_eq!(left(&going.0), Vec::<String>::new());
}

/// ZFS in which a snapshot goes as soon as its name was listed.
struct NamesGo(Model);

impl Tool for NamesGo {
    fn run(&self, program: &str, arguments: &[&str]) -> Result<String, ToolError> {
        let said = self.0.run(program, arguments);
        if arguments.contains(&"-s") {
            self.0.run("zfs", &["destroy", "tank/k8s/a@s"])?;
        }
        said
    }
}

#[test]
fn a_snapshot_that_goes_while_its_name_is_looked_for_hides_no_other() {
    let going = NamesGo(model());
    for name in ["a", "b"] {
        make(&going.0, &new(name, VolumeKind::Block)).unwrap();
        snapshot(&going.0, &the(&going.0, name), "s").unwrap();
        snapshot(&going.0, &the(&going.0, name), "t").unwrap();
    }
    let found = snapshots_named(&going, &PARENT.parse().unwrap(), "s").unwrap();
    assert_eq!(found.iter().map(|one| one.snapshot.as_str()).collect::<Vec<_>>(), ["tank/k8s/b@s"]);
}
