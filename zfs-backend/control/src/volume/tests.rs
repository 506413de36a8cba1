//! Volumes on the model of ZFS, also with commands that are lost.

mod refusals;

use super::model::{Fate, Model};
use super::*;
use crate::name::{DatasetName, SnapshotName};
use std::collections::{BTreeMap, BTreeSet};

const PARENT: &str = "tank/k8s";
const GIB: u64 = 1 << 30;

fn dataset(name: &str) -> DatasetName {
    format!("{PARENT}/{name}").parse().unwrap()
}

fn new(name: &str, kind: VolumeKind) -> NewVolume {
    NewVolume {
        dataset: dataset(name),
        name: name.to_owned(),
        owner: "csi".to_owned(),
        kind,
        size_bytes: GIB,
        properties: BTreeMap::new(),
        origin: None,
        is_origin_own: false,
        source: None,
        read_only: false,
        unconfirmed_until: None,
        thin: true,
    }
}

fn clone_of(name: &str, from: &str, kind: VolumeKind) -> NewVolume {
    let origin = Some(Origin::Dataset(dataset(from)));
    NewVolume { origin, source: Some(format!("volume {from}")), ..new(name, kind) }
}

fn model() -> Model {
    let model = Model::with(&["tank", PARENT, "tank/k8s/foreign"]);
    model.let_time_pass();
    model
}

fn make(model: &Model, new: &NewVolume) -> Result<Made, VolumeError> {
    create(model, new, look(model, &new.dataset)?, &mut |_| Ok(()))
}

fn snapshot(
    model: &Model,
    volume: &VolumeRecord,
    name: &str,
) -> Result<VolumeSnapshot, VolumeError> {
    let mut taken = group_snapshot(model, std::slice::from_ref(volume), name, || Ok(()))?;
    Ok(taken.snapshots.pop().unwrap())
}

/// Deletes a volume as one that has its pool alone.
fn delete(tool: &dyn Tool, volume: &VolumeRecord) -> Result<(), VolumeError> {
    super::delete(tool, volume, Promotion::Allowed).map(|is_done| assert!(is_done))
}

fn the(model: &Model, name: &str) -> VolumeRecord {
    read(model, &dataset(name)).unwrap().unwrap()
}

/// Names below the parent, without the foreign dataset.
fn left(model: &Model) -> Vec<String> {
    let below = format!("{PARENT}/");
    let names =
        model.names().into_iter().filter_map(|name| Some(name.strip_prefix(&below)?.to_owned()));
    names.filter(|name| name != "foreign").collect()
}

#[test]
fn a_volume_is_made_once_and_found_again() {
    let model = model();
    for kind in [VolumeKind::Filesystem, VolumeKind::Block] {
        let name = if kind == VolumeKind::Block { "b" } else { "f" };
        let wanted = new(name, kind);
        assert!(!make(&model, &wanted).unwrap().existed);
        let again = make(&model, &wanted).unwrap();
        assert!(again.existed);
        assert_eq!((again.volume.size_bytes, again.volume.kind), (GIB, kind));
        let fault = |new: &NewVolume| make(&model, new).unwrap_err().fault;
        assert_eq!(fault(&NewVolume { size_bytes: 2 * GIB, ..wanted.clone() }), Fault::Exists);
        assert_eq!(fault(&NewVolume { read_only: true, ..wanted.clone() }), Fault::Exists);
        assert_eq!(fault(&NewVolume { owner: "x".into(), ..wanted.clone() }), Fault::Forbidden);
        assert_eq!(fault(&NewVolume { source: Some("s".into()), ..wanted }), Fault::Exists);
    }
    let foreign = make(&model, &new("foreign", VolumeKind::Filesystem)).unwrap_err();
    assert_eq!(foreign.fault, Fault::Forbidden, "{foreign}");
    assert_eq!(list(&model, &PARENT.parse().unwrap()).unwrap().len(), 2);
    let large = NewVolume { size_bytes: 1 << 50, ..new("l", VolumeKind::Block) };
    assert_eq!(make(&model, &large).unwrap_err().fault, Fault::NoSpace);
    assert_eq!(left(&model), ["b", "f"]);
}

/// A question of its own would be one more process for each new volume.
#[test]
fn the_space_below_a_parent_comes_with_the_question_for_a_volume_that_is_not_there() {
    let model = model();
    let found = look(&model, &dataset("a")).unwrap();
    let Found::Nothing(Some(space)) = found else { panic!("{found:?}") };
    assert_eq!(space, capacity(&model, &PARENT.parse().unwrap()).unwrap());
    assert!(space.total_bytes > space.available_bytes);
}

#[test]
fn one_command_tells_the_datasets_below_a_parent_and_its_volumes() {
    let model = model();
    let parent: DatasetName = PARENT.parse().unwrap();
    make(&model, &new("b", VolumeKind::Block)).unwrap();
    let properties = BTreeMap::from([("compression".to_owned(), "zstd".to_owned())]);
    make(&model, &NewVolume { properties, ..new("f", VolumeKind::Filesystem) }).unwrap();
    model.run("zfs", &["create", "tank/k8s/f/below"]).unwrap();
    model.run("zfs", &["unmount", "tank/k8s/f/below"]).unwrap();
    let before = model.commands().len();
    let (datasets, volumes) = list_with_datasets(&model, &parent).unwrap();
    assert_eq!(model.commands().len(), before + 1);
    assert_eq!(volumes, list(&model, &parent).unwrap());
    let scope = crate::datasets::Scope::Below(&parent);
    let listed = crate::datasets::list(&model, crate::OutputForm::Columns, scope).unwrap();
    assert_eq!((datasets.len(), datasets), (5, listed));
    let absent = list_with_datasets(&model, &"tank/other".parse().unwrap()).unwrap_err();
    assert!(absent.is_absent());
}

/// ZFS makes a dataset in one transaction, and marks it in a later one: what a power
/// failure has left between the two is finished, and what is not the beginning of this
/// volume is not touched.
#[test]
fn a_volume_that_was_only_begun_is_finished() {
    let model = model();
    make(&model, &new("origin", VolumeKind::Block)).unwrap();
    let block = BTreeMap::from([("volblocksize".to_owned(), "32768".to_owned())]);
    for wanted in [
        new("f", VolumeKind::Filesystem),
        NewVolume { properties: block, ..new("b", VolumeKind::Block) },
        clone_of("c", "origin", VolumeKind::Block),
    ] {
        let name = wanted.name.clone();
        let mut fates = [Fate::LostBetween].into_iter();
        model.set_fates(Some(Box::new(move |command| {
            let makes = ["zfs create", "zfs clone"].iter().any(|one| command.starts_with(one));
            if makes { fates.next().unwrap_or(Fate::Runs) } else { Fate::Runs }
        })));
        assert_eq!(make(&model, &wanted).unwrap_err().fault, Fault::Storage, "{name}");
        assert_eq!(read(&model, &dataset(&name)).unwrap_err().fault, Fault::Forbidden);
        // Not for another request.
        let other = NewVolume { size_bytes: 3 * GIB, origin: None, ..wanted.clone() };
        assert_eq!(make(&model, &other).unwrap_err().fault, Fault::Storage, "{name}");
        model.let_time_pass();
        assert_eq!(make(&model, &other).unwrap_err().fault, Fault::Forbidden, "{name}");
        assert!(!make(&model, &wanted).unwrap().existed);
        let made = the(&model, &name);
        assert_eq!((made.owner.as_str(), made.size_bytes), ("csi", GIB), "{name}");
    }
    // Somebody has set something.
    model.run("zfs", &["create", "-o", "refquota=1073741824", "tank/k8s/x"]).unwrap();
    model.run("zfs", &["set", "org.example:mine=yes", "tank/k8s/x"]).unwrap();
    model.let_time_pass();
    let refused = make(&model, &new("x", VolumeKind::Filesystem)).unwrap_err();
    assert_eq!(refused.fault, Fault::Forbidden, "{refused}");
    // Somebody's disk, of which nothing was written since the last snapshot.
    model.run("zfs", &["create", "-V", "1073741824", "tank/k8s/y"]).unwrap();
    model.foreign_snapshot("tank/k8s/y@zgate_2026-11-21_10:00:00_hourly");
    model.let_time_pass();
    let refused = make(&model, &new("y", VolumeKind::Block)).unwrap_err();
    assert_eq!(refused.fault, Fault::Forbidden, "{refused}");
}

#[test]
fn only_known_properties_are_set() {
    let model = model();
    let with = |name: &str, value: &str, kind| NewVolume {
        properties: BTreeMap::from([(name.to_owned(), value.to_owned())]),
        ..new("p", kind)
    };
    for (name, value) in [("mountpoint", "/etc"), ("setuid", "on"), ("compression", "lz4 -o x")] {
        let error = make(&model, &with(name, value, VolumeKind::Filesystem)).unwrap_err();
        assert_eq!(error.fault, Fault::Invalid, "{error}");
    }
    assert!(make(&model, &with("recordsize", "1M", VolumeKind::Block)).is_err());
    let usual = NewVolume {
        properties: BTreeMap::from([("volblocksize".to_owned(), "16K".to_owned())]),
        ..new("usual", VolumeKind::Block)
    };
    assert!(
        !make(&model, &NewVolume { properties: BTreeMap::new(), ..usual.clone() }).unwrap().existed
    );
    assert!(make(&model, &usual).unwrap().existed, "the default, in another form");
    let other = BTreeMap::from([("volblocksize".to_owned(), "32K".to_owned())]);
    let error = make(&model, &NewVolume { properties: other, ..usual }).unwrap_err();
    assert_eq!(error.fault, Fault::Exists, "{error}");
    make(&model, &with("volblocksize", "65536", VolumeKind::Block)).unwrap();
    let set = |name: &str, value: &str| {
        let properties = BTreeMap::from([(name.to_owned(), value.to_owned())]);
        change(&model, &the(&model, "p"), &Change { size_bytes: None, properties })
    };
    assert_eq!(set("volblocksize", "8192").unwrap_err().fault, Fault::Invalid);
    set("compression", "zstd").unwrap();
    assert_eq!(the(&model, "p").properties["compression"], "zstd");
}

#[test]
fn volumes_grow_and_never_shrink() {
    let model = model();
    for (name, kind) in [("f", VolumeKind::Filesystem), ("b", VolumeKind::Block)] {
        make(&model, &new(name, kind)).unwrap();
        let grow = |bytes| {
            let wanted = Change { size_bytes: Some(bytes), ..Change::default() };
            change(&model, &the(&model, name), &wanted)
        };
        assert!(grow(2 * GIB).unwrap());
        assert!(!grow(2 * GIB).unwrap());
        assert_eq!(the(&model, name).size_bytes, 2 * GIB);
        assert_eq!(grow(GIB).unwrap_err().fault, Fault::InUse);
        assert_eq!(grow(u64::MAX).unwrap_err().fault, Fault::Invalid);
    }
    let sets = model.commands().into_iter().filter(|one| one.starts_with("zfs set")).count();
    assert_eq!(sets, 2, "what is there is not set again");
}

#[test]
fn grants_come_and_go() {
    let model = model();
    make(&model, &new("f", VolumeKind::Filesystem)).unwrap();
    let wanted = Grant {
        node: "n1".to_owned(),
        addresses: vec!["10.0.0.1".parse().unwrap()],
        initiator: Some("iqn.2026-11.test:N1".to_owned()),
        read_only: false,
    };
    for _ in 0..2 {
        grant(&model, &the(&model, "f"), &wanted).unwrap();
    }
    let found = the(&model, "f").grants;
    assert_eq!(found[0].initiator.as_deref(), Some("iqn.2026-11.test:n1"));
    let other = Grant { node: "N 2".to_owned(), ..wanted };
    assert_eq!(grant(&model, &the(&model, "f"), &other).unwrap_err().fault, Fault::Invalid);
    for _ in 0..2 {
        withdraw(&model, &the(&model, "f"), "n1").unwrap();
    }
    assert!(the(&model, "f").grants.is_empty());
}

/// A command that timed out may still wait for the pool, and takes effect with it.
#[test]
fn a_grant_that_comes_late_ends_with_its_withdrawal() {
    let model = model();
    make(&model, &new("b", VolumeKind::Block)).unwrap();
    let wanted = Grant {
        node: "n1".to_owned(),
        addresses: Vec::new(),
        initiator: Some("iqn.2026-11.test:n1".to_owned()),
        read_only: false,
    };
    model.set_fates(Some(Box::new(|command: &str| match command.starts_with("zfs set") {
        true => Fate::LostLater,
        false => Fate::Runs,
    })));
    let late = grant(&model, &the(&model, "b"), &wanted).unwrap_err();
    assert_eq!(late.fault, Fault::Storage, "{late}");
    model.set_fates(None);
    assert!(the(&model, "b").grants.is_empty());
    withdraw(&model, &the(&model, "b"), "n1").unwrap();
    snapshot(&model, &the(&model, "b"), "s").unwrap();
    assert!(the(&model, "b").grants.is_empty(), "nothing comes after the answer");
}

#[test]
fn a_clone_lives_on_when_its_origin_goes() {
    let model = model();
    for kind in [VolumeKind::Filesystem, VolumeKind::Block] {
        make(&model, &new("a", kind)).unwrap();
        for clone in ["b", "c"] {
            let wanted = NewVolume { size_bytes: 3 * GIB, ..clone_of(clone, "a", kind) };
            assert!(!make(&model, &wanted).unwrap().existed);
            assert!(make(&model, &wanted).unwrap().existed);
            assert_eq!(the(&model, clone).size_bytes, 3 * GIB);
        }
        let small = NewVolume { size_bytes: GIB / 2, ..clone_of("d", "a", kind) };
        assert_eq!(make(&model, &small).unwrap_err().fault, Fault::Invalid);
        delete(&model, &the(&model, "a")).unwrap();
        assert!(left(&model).contains(&"b".to_owned()) && left(&model).contains(&"c".to_owned()));
        delete(&model, &the(&model, "b")).unwrap();
        delete(&model, &the(&model, "c")).unwrap();
        assert_eq!(left(&model), Vec::<String>::new());
    }
    let absent = clone_of("x", "nothing", VolumeKind::Block);
    assert_eq!(make(&model, &absent).unwrap_err().fault, Fault::NotFound);
}

#[test]
fn a_snapshot_is_restored_at_the_size_of_its_time() {
    let model = model();
    for (name, kind) in [("f", VolumeKind::Filesystem), ("b", VolumeKind::Block)] {
        make(&model, &new(name, kind)).unwrap();
        let taken = snapshot(&model, &the(&model, name), "s").unwrap();
        let grown = Change { size_bytes: Some(2 * GIB), ..Change::default() };
        change(&model, &the(&model, name), &grown).unwrap();
        let by_hand = format!("{PARENT}/{name}@by-hand");
        model.foreign_snapshot(&by_hand);
        let restore = |clone: &str, from: SnapshotName, size_bytes, kind| {
            let origin = Some(Origin::Snapshot(from));
            make(&model, &NewVolume { origin, size_bytes, ..new(clone, kind) })
        };
        let clone = format!("{name}-restored");
        let made = restore(&clone, taken.snapshot.clone(), GIB, kind).unwrap();
        assert_eq!(made.volume.size_bytes, GIB, "{name}");
        let fault = |from: &SnapshotName, size_bytes, kind| {
            restore("x", from.clone(), size_bytes, kind).unwrap_err().fault
        };
        assert_eq!(fault(&taken.snapshot, GIB / 2, kind), Fault::Invalid, "{name}");
        let other = if name == "f" { VolumeKind::Block } else { VolumeKind::Filesystem };
        assert_eq!(fault(&taken.snapshot, GIB, other), Fault::Invalid, "{name}");
        // Nobody has recorded a size: that of the disk, or what the file system refers to.
        let by_hand: SnapshotName = by_hand.parse().unwrap();
        let too_small = if name == "f" { 4095 } else { GIB };
        assert_eq!(fault(&by_hand, too_small, kind), Fault::Invalid, "{name}");
        restore(&format!("{name}-by-hand"), by_hand, 2 * GIB, kind).unwrap();
        let present = make(&model, &clone_of("x", name, kind)).unwrap_err();
        assert_eq!(present.fault, Fault::Invalid, "{name}: {present}");
        let absent: SnapshotName = format!("{PARENT}/{name}@none").parse().unwrap();
        assert_eq!(fault(&absent, GIB, kind), Fault::NotFound, "{name}");
    }
}

#[test]
fn snapshots_are_listed_until_they_are_deleted() {
    let model = model();
    make(&model, &new("a", VolumeKind::Filesystem)).unwrap();
    make(&model, &NewVolume { size_bytes: 2 * GIB, ..new("b", VolumeKind::Filesystem) }).unwrap();
    let both = [the(&model, "a"), the(&model, "b")];
    let take = |name: &str| group_snapshot(&model, &both, name, || Ok(()));
    let taken = take("g").unwrap();
    assert_eq!(take("g").unwrap(), Taken { is_new: false, ..taken.clone() });
    assert!(taken.is_new);
    let group = taken.snapshots;
    assert_eq!(group.iter().map(|one| one.size_bytes).collect::<Vec<_>>(), [GIB, 2 * GIB]);
    snapshot(&model, &both[0], "s").unwrap();
    assert_eq!(take("s").unwrap_err().fault, Fault::Exists);
    let listed = || {
        let all = snapshots(&model, &PARENT.parse().unwrap()).unwrap();
        all.into_iter().filter(|one| one.listed).count()
    };
    assert_eq!(listed(), 3);
    assert_eq!(delete(&model, &both[0]).unwrap_err().fault, Fault::InUse);
    let origin = Some(Origin::Snapshot(group[0].snapshot.clone()));
    let wanted = NewVolume { origin, ..new("c", VolumeKind::Filesystem) };
    make(&model, &wanted).unwrap();
    let remove = |volume: &str, name: &str, owner: &str| {
        delete_snapshot(&model, &dataset(volume), name, owner)
    };
    assert_eq!(remove("a", "g", "other").unwrap_err().fault, Fault::Forbidden);
    for (volume, name, was_there) in
        [("a", "g", true), ("a", "s", true), ("b", "g", true), ("a", "g", false)]
    {
        assert_eq!(remove(volume, name, "csi"), Ok(was_there), "{volume}@{name}");
    }
    assert_eq!(listed(), 0);
    // The clone still needs the data, and the name is free.
    snapshot(&model, &both[0], "g").unwrap();
    remove("a", "g", "csi").unwrap();
    delete(&model, &both[0]).unwrap();
    delete(&model, &both[1]).unwrap();
    delete(&model, &the(&model, "c")).unwrap();
    assert_eq!(left(&model), Vec::<String>::new());
}

#[test]
fn snapshots_of_others_hold_a_volume_and_scheduled_ones_do_not() {
    let model = model();
    make(&model, &new("a", VolumeKind::Block)).unwrap();
    model.foreign_snapshot("tank/k8s/a@zgate_2026-11-21_10:00:00_hourly");
    model.foreign_snapshot("tank/k8s/a@by-hand");
    let error = delete(&model, &the(&model, "a")).unwrap_err();
    assert!(error.fault == Fault::InUse && error.message.contains("@by-hand"), "{error}");
    assert!(delete_snapshot(&model, &dataset("a"), "by-hand", "csi").is_err());
    model.run("zfs", &["destroy", "tank/k8s/a@by-hand"]).unwrap();
    delete(&model, &the(&model, "a")).unwrap();
    assert_eq!(left(&model), Vec::<String>::new());
}

#[test]
fn a_deletion_that_is_refused_destroys_no_snapshot() {
    let model = model();
    make(&model, &new("f", VolumeKind::Filesystem)).unwrap();
    let scheduled = "tank/k8s/f@zgate_2026-11-21_10:00:00_hourly";
    model.foreign_snapshot(scheduled);
    let run = |arguments: &[&str]| drop(model.run("zfs", arguments).unwrap());
    let is_refused = |why: &str| {
        let names = model.names();
        let error = delete(&model, &the(&model, "f")).unwrap_err();
        assert!(error.fault == Fault::InUse && error.message.contains(why), "{why}: {error}");
        assert_eq!(model.names(), names, "{why}");
        assert!(the(&model, "f").mounted_at.is_some(), "{why}");
    };
    model.set_busy("tank/k8s/f", true);
    is_refused("busy");
    model.set_busy("tank/k8s/f", false);
    run(&["hold", "backup", scheduled]);
    is_refused("held");
    run(&["release", "backup", scheduled]);
    run(&["create", "tank/k8s/f/child"]);
    is_refused("f/child");
    run(&["destroy", "tank/k8s/f/child"]);
    // What fails later leaves it mounted: the first command is refused because of the snapshot.
    let mut fates = [Fate::Runs, Fate::LostBefore].into_iter();
    model.set_fates(Some(Box::new(move |command| match command {
        "zfs destroy tank/k8s/f" => fates.next().unwrap_or(Fate::Runs),
        _ => Fate::Runs,
    })));
    assert_eq!(delete(&model, &the(&model, "f")).unwrap_err().fault, Fault::Storage);
    model.set_fates(None);
    assert!(the(&model, "f").mounted_at.is_some());
    delete(&model, &the(&model, "f")).unwrap();
    assert_eq!(left(&model), Vec::<String>::new());
}

#[test]
fn a_rollback_destroys_nothing_that_somebody_wanted() {
    let model = model();
    make(&model, &new("a", VolumeKind::Block)).unwrap();
    snapshot(&model, &the(&model, "a"), "one").unwrap();
    let grown = Change { size_bytes: Some(2 * GIB), properties: BTreeMap::new() };
    change(&model, &the(&model, "a"), &grown).unwrap();
    let back = |name: &str, scheduled| roll_back(&model, &the(&model, "a"), name, scheduled, || ());
    assert_eq!(back("none", true).unwrap_err().fault, Fault::NotFound);
    let names = model.names();
    snapshot(&model, &the(&model, "a"), "two").unwrap();
    for later in ["two", "by-hand"] {
        if later == "by-hand" {
            delete_snapshot(&model, &dataset("a"), "two", "csi").unwrap();
            model.foreign_snapshot("tank/k8s/a@by-hand");
        }
        let error = back("one", true).unwrap_err();
        assert!(error.fault == Fault::InUse && error.message.contains(later), "{error}");
        assert_eq!(the(&model, "a").size_bytes, 2 * GIB);
    }
    model.run("zfs", &["destroy", "tank/k8s/a@by-hand"]).unwrap();
    model.foreign_snapshot("tank/k8s/a@zgate_2026-11-21_10:00:00_hourly");
    let error = back("one", false).unwrap_err();
    assert!(error.next_step.contains("destroy_scheduled"), "{error}");
    back("one", true).unwrap();
    assert_eq!((the(&model, "a").size_bytes, model.names()), (GIB, names));
    // A clone of a later time needs its snapshot.
    make(&model, &clone_of("c", "a", VolumeKind::Block)).unwrap();
    assert_eq!(back("one", true).unwrap_err().fault, Fault::InUse);
    delete(&model, &the(&model, "c")).unwrap();
    back("one", false).unwrap();
    assert_eq!(back("none", true).unwrap_err().fault, Fault::NotFound);
}

#[test]
fn volumes_that_nobody_confirms_are_destroyed_and_no_others() {
    let model = model();
    let until = |name: &str, until| NewVolume {
        unconfirmed_until: Some(until),
        ..new(name, VolumeKind::Block)
    };
    make(&model, &new("stays", VolumeKind::Block)).unwrap();
    for name in ["late", "confirmed", "granted", "snapshotted", "waits"] {
        make(&model, &until(name, if name == "waits" { 200 } else { 100 })).unwrap();
    }
    confirm(&model, &the(&model, "confirmed")).unwrap();
    let grant_of = Grant {
        node: "n".to_owned(),
        addresses: Vec::new(),
        initiator: Some("iqn.2026-11.test:n".to_owned()),
        read_only: false,
    };
    grant(&model, &the(&model, "granted"), &grant_of).unwrap();
    snapshot(&model, &the(&model, "snapshotted"), "s").unwrap();
    let parent = PARENT.parse().unwrap();
    assert_eq!(destroy_unconfirmed(&model, &parent, 99).unwrap(), Some(100));
    assert_eq!(left(&model).len(), 7);
    assert_eq!(destroy_unconfirmed(&model, &parent, 100).unwrap(), Some(100));
    let names = ["confirmed", "granted", "snapshotted", "stays", "waits", "snapshotted@s"];
    assert_eq!(left(&model), names);
    assert!(!the(&model, "waits").is_abandoned(199) && the(&model, "waits").is_abandoned(200));
}

use crate::tool::Tool;

/// Numbers that look random and are the same in each run (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % limit
    }
}

/// One request of the random walk.
fn request(model: &Model, numbers: &mut Numbers, expected: &mut BTreeMap<String, u64>) {
    let name = format!("v{}", numbers.below(6));
    let other = format!("v{}", numbers.below(6));
    // A name has always the same parameters: another answer would be `Exists`.
    let is_clone = numbers.below(3) == 0 && name != other;
    let choice = numbers.below(5);
    // Until the same request is answered, as a client repeats it.
    for attempt in 0..60 {
        if attempt == 50 {
            model.set_fates(None);
        }
        let outcome = match choice {
            0 | 1 => {
                let wanted = match is_clone {
                    // It grows, unless its origin is a clone, too.
                    true => NewVolume {
                        size_bytes: 2 * GIB,
                        ..clone_of(&name, &other, VolumeKind::Block)
                    },
                    false => new(&name, VolumeKind::Block),
                };
                make(model, &wanted).map(|_| Some(()))
            }
            2 => read(model, &dataset(&name)).and_then(|found| match found {
                Some(volume) => delete(model, &volume).map(Some),
                None => Ok(Some(())),
            }),
            3 => read(model, &dataset(&name)).and_then(|found| match found {
                Some(volume) => snapshot(model, &volume, "s").map(|_| None),
                None => Ok(None),
            }),
            _ => delete_snapshot(model, &dataset(&name), "s", "csi").map(|_| None),
        };
        match outcome {
            Err(error) if error.fault == Fault::Storage => continue,
            Ok(Some(())) if choice < 2 => drop(expected.insert(name, GIB)),
            Ok(Some(())) => drop(expected.remove(&name)),
            Ok(None) | Err(_) => {}
        }
        return;
    }
    panic!("the request is never answered");
}

#[test]
fn lost_commands_leave_nothing_behind_and_lose_nothing() {
    let walks: u64 = 40;
    for seed in 0..walks {
        let model = model();
        let mut numbers = Numbers(seed);
        let mut expected = BTreeMap::new();
        for step in 0..60 {
            let mut fates = Numbers(seed << 32 | step);
            model.set_fates(Some(Box::new(move |_| match fates.below(8) {
                0 => Fate::LostBefore,
                1 => Fate::LostAfter,
                2 => Fate::LostBetween,
                _ => Fate::Runs,
            })));
            request(&model, &mut numbers, &mut expected);
            model.set_fates(None);
            let volumes = list(&model, &PARENT.parse().unwrap()).unwrap();
            let complete = volumes.iter().filter(|one| one.pending_bytes.is_none());
            let names: BTreeSet<_> = complete.map(|one| one.name.clone()).collect();
            assert_eq!(names, expected.keys().cloned().collect(), "seed {seed} step {step}");
        }
        // Everything can be deleted, and then nothing is left.
        let parent = PARENT.parse().unwrap();
        for one in snapshots(&model, &parent).unwrap().iter().filter(|one| one.listed) {
            delete_snapshot(&model, &one.snapshot.dataset(), one.snapshot.name(), "csi").unwrap();
        }
        for volume in list(&model, &parent).unwrap() {
            delete(&model, &volume).unwrap();
        }
        assert_eq!(left(&model), Vec::<String>::new(), "seed {seed}");
    }
}
