//! Requests on the model of ZFS and of what is served.

mod access;
mod away;
mod commands;
mod conditions;
mod rollback;

use super::serving::Serving;
use super::*;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use zgate_api::access::Portal;
use zgate_api::{CreateGroupSnapshot, GrantAccess, Reach, Transport};
use zgate_control::volume::model::{Fate, Model};

pub(crate) const PARENT: &str = "tank/k8s";
const GIB: u64 = 1 << 30;

/// Stand-in for the gateway: it serves what the datasets said at the last [`Serving::apply`].
pub(crate) struct Served {
    model: Arc<Model>,
    parents: Vec<ParentPlan>,
    now: Mutex<Vec<VolumeRecord>>,
    pub(crate) sessions: Mutex<Vec<String>>,
    /// Number of rollbacks so far, at each call of [`Serving::resized`].
    pub(crate) resized: Mutex<Vec<usize>>,
    /// The same at each call of [`Serving::content_replaced`].
    pub(crate) replaced: Mutex<Vec<usize>>,
    pub(crate) flushed: Mutex<usize>,
    /// Looks that find commands of ended sessions.
    pub(crate) unsettled_looks: Mutex<u32>,
}

fn locked<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Served {
    /// Number of rollbacks so far.
    fn rollbacks(&self) -> usize {
        let is_rollback = |command: &&String| command.starts_with("zfs rollback");
        self.model.commands().iter().filter(is_rollback).count()
    }

    fn volume(&self, is: impl Fn(&ParentPlan, &VolumeRecord) -> bool) -> Option<VolumeRecord> {
        let now = locked(&self.now);
        now.iter().find(|volume| !volume.grants.is_empty() && is(&self.parents[0], volume)).cloned()
    }
}

impl Serving for Served {
    fn parents(&self) -> Vec<ParentPlan> {
        self.parents.clone()
    }

    fn apply(&self, _: &DatasetName) -> io::Result<()> {
        let found = volume::list(&*self.model, &self.parents[0].dataset);
        *locked(&self.now) = found.map_err(|error| io::Error::other(error.to_string()))?;
        Ok(())
    }

    fn exports_to(&self, pseudo_path: &str, address: IpAddr) -> bool {
        let found =
            self.volume(|parent, one| parent.pseudo_path(one).as_deref() == Some(pseudo_path));
        let grants = found.map(|volume| volume.grants).unwrap_or_default();
        grants.iter().any(|grant| grant.addresses.contains(&address))
    }

    fn has_device(&self, _: &DatasetName) -> bool {
        true
    }

    fn holders(&self, _: &str) -> Vec<String> {
        Vec::new()
    }

    fn serves(&self, target: &str) -> bool {
        self.volume(|parent, one| parent.target(one).as_deref() == Some(target)).is_some()
    }

    fn served_to(&self, target: &str, initiator: &str) -> Option<String> {
        let found = self.volume(|parent, one| parent.target(one).as_deref() == Some(target))?;
        let admits = |grant: &volume::Grant| grant.initiator.as_deref() == Some(initiator);
        found.grants.iter().any(admits).then(|| "naa.60".to_owned())
    }

    fn logged_in(&self, _: &str) -> Vec<String> {
        locked(&self.sessions).clone()
    }

    fn is_settled(&self, _: &str) -> bool {
        let mut looks = locked(&self.unsettled_looks);
        let is_settled = *looks == 0;
        *looks = looks.saturating_sub(1);
        is_settled
    }

    fn is_export_settled(&self, pseudo_path: &str) -> bool {
        self.is_settled(pseudo_path)
    }

    fn resized(&self, _: &str) -> io::Result<()> {
        locked(&self.resized).push(self.rollbacks());
        Ok(())
    }

    fn content_replaced(&self, _: &DatasetName) {
        locked(&self.replaced).push(self.rollbacks());
    }

    fn release(&self) {}

    fn flush(&self, _: &DatasetName) -> io::Result<()> {
        *locked(&self.flushed) += 1;
        Ok(())
    }

    fn portals(&self, _: VolumeKind) -> Vec<Portal> {
        let address = "127.0.0.1:3260".parse().unwrap();
        vec![Portal { address, transport: Transport::Tcp }]
    }
}

/// Returns the service on a model.
pub(crate) fn service() -> (VolumeService, Arc<Model>, Arc<Served>) {
    service_through(|model| model)
}

/// The same, with a tool between the two.
fn service_through(
    tool: impl FnOnce(Arc<Model>) -> Arc<dyn Tool>,
) -> (VolumeService, Arc<Model>, Arc<Served>) {
    let model =
        Arc::new(Model::with(&["tank", PARENT, "tank/models", "tank/models/a", "tank/other"]));
    let text = "[iscsi]\nlisten = [\"127.0.0.1:0\"]\n[[volumes.parent]]\ndataset = \"tank/k8s\"\n\
        pseudo = \"/k8s\"\ntarget = \"iqn.2026-11.test:k8s\"\nsources = [\"tank/models/*\"]\n";
    let config = zgate_config::parse(text, std::path::Path::new("x")).unwrap();
    let parents = config.volumes.parents.iter().map(|one| ParentPlan::of(one).unwrap()).collect();
    let served = Arc::new(Served {
        model: Arc::clone(&model),
        parents,
        now: Mutex::default(),
        sessions: Mutex::default(),
        resized: Mutex::default(),
        replaced: Mutex::default(),
        flushed: Mutex::default(),
        unsettled_looks: Mutex::default(),
    });
    let serving: Arc<dyn Serving> = Arc::<Served>::clone(&served);
    (VolumeService::new(tool(Arc::clone(&model)), serving), model, served)
}

pub(crate) fn asked(name: &str, kind: zgate_api::VolumeKind) -> CreateVolume {
    CreateVolume {
        name: name.to_owned(),
        parent: PARENT.to_owned(),
        owner: "csi".to_owned(),
        kind,
        size_bytes: GIB,
        properties: BTreeMap::new(),
        source: None,
        read_only: false,
    }
}

fn id(name: &str) -> String {
    format!("{PARENT}/{name}")
}

fn node(number: u8) -> GrantAccess {
    GrantAccess {
        owner: "csi".to_owned(),
        addresses: vec![IpAddr::from([10, 0, 0, number])],
        initiator: Some(format!("iqn.2026-11.test:n{number}")),
        read_only: false,
        sole: None,
    }
}

const KINDS: [zgate_api::VolumeKind; 2] =
    [zgate_api::VolumeKind::Filesystem, zgate_api::VolumeKind::Block];

#[test]
fn nothing_is_said_to_be_gone_while_its_pool_is_elsewhere() {
    let (service, model, _) = service();
    service.create(&asked("a", zgate_api::VolumeKind::Filesystem)).unwrap();
    service.grant(&id("a"), "n1", &node(1)).unwrap();
    model.set_exported(true);
    let told = [
        service.get(&id("a")).map(drop),
        service.create(&asked("a", zgate_api::VolumeKind::Filesystem)).map(drop),
        service.snapshot(&id("a"), "s", "csi").map(drop),
        service.withdraw(&id("a"), "n1", "csi"),
        service.delete_snapshot(&id("a"), "s", "csi"),
        service.delete(&id("a"), "csi"),
        service.list(&Page::default()).map(drop),
        service.list_snapshots(&Page::default()).map(drop),
        service.list_snapshots(&Page { volume: Some(id("a")), ..Page::default() }).map(drop),
    ];
    for answer in told {
        assert_eq!(answer.unwrap_err().code, ErrorCode::Storage);
    }
    model.set_exported(false);
    assert_eq!(service.get(&id("a")).unwrap().access, ["n1"]);
    service.delete(&id("b"), "csi").unwrap();
    assert_eq!(service.get(&id("b")).unwrap_err().code, ErrorCode::NotFound);
}

#[test]
fn nothing_outside_of_the_parents_is_touched() {
    let (service, model, _) = service();
    let before = model.names();
    for parent in ["tank", "tank/other", "tank/k8s/x", "other/k8s"] {
        let asked = CreateVolume { parent: parent.to_owned(), ..asked("a", KINDS[0]) };
        assert_eq!(service.create(&asked).unwrap_err().code, ErrorCode::Forbidden, "{parent}");
    }
    for id in ["tank/other", "tank/k8s", "tank", "tank/models/a"] {
        assert_eq!(service.delete(id, "csi").unwrap_err().code, ErrorCode::Forbidden, "{id}");
        let grant = service.grant(id, "n1", &node(1)).unwrap_err();
        assert_eq!(grant.code, ErrorCode::Forbidden, "{id}");
        let taken = service.snapshot(id, "s", "csi").unwrap_err();
        assert_eq!(taken.code, ErrorCode::Forbidden, "{id}");
    }
    for name in ["", "..", "a/b", "a@b", "-o", "a b", "ä"] {
        let code = service.create(&asked(name, KINDS[0])).unwrap_err().code;
        assert_eq!(code, ErrorCode::Invalid, "{name:?}");
    }
    assert_eq!(model.names(), before);
    model.run("zfs", &["create", "tank/k8s/by-hand"]).unwrap();
    let young = service.create(&asked("by-hand", KINDS[0])).unwrap_err();
    assert_eq!(young.code, ErrorCode::Storage, "{young}");
    model.let_time_pass();
    for outcome in [
        service.delete("tank/k8s/by-hand", "csi").unwrap_err(),
        service.create(&asked("by-hand", KINDS[0])).unwrap_err(),
        service.get("tank/k8s/by-hand").unwrap_err(),
    ] {
        assert_eq!(outcome.code, ErrorCode::Forbidden, "{outcome}");
    }
    assert!(service.list(&Page::default()).unwrap().items.is_empty());
}

#[test]
fn limits_are_properties_that_take_effect_with_the_answer() {
    let (service, model, served) = service();
    for (kind, name) in KINDS.into_iter().zip(["f", "b"]) {
        let properties = BTreeMap::from([("iops_max".to_owned(), "500".to_owned())]);
        let wanted = CreateVolume { properties, ..asked(name, kind) };
        for _ in 0..2 {
            let (made, _) = service.create(&wanted).unwrap();
            assert_eq!(made.properties["iops_max"], "500");
        }
        service.grant(&id(name), "n1", &node(1)).unwrap();
        let rates =
            |served: &Served| served.volume(|_, one| one.name == name).map(|volume| volume.rates());
        assert_eq!(rates(&served).unwrap().iops_max, Some(500));
        for (value, most) in [("2Mi", Some(2 << 20)), ("none", None)] {
            let change = ChangeVolume {
                owner: "csi".to_owned(),
                size_bytes: None,
                properties: BTreeMap::from([("bytes_per_second_max".to_owned(), value.to_owned())]),
            };
            service.change(&id(name), &change).unwrap();
            let rates = rates(&served).unwrap();
            assert_eq!((rates.bytes_per_second_max, rates.iops_max), (most, Some(500)));
        }
    }
    let set = "zfs set zgate:bytes_per_second_max=2Mi tank/k8s/b";
    assert!(model.commands().iter().any(|command| command == set), "{:?}", model.commands());
    let properties = BTreeMap::from([("iops_max".to_owned(), "1".to_owned())]);
    let wrong = CreateVolume { properties, ..asked("w", KINDS[0]) };
    assert_eq!(service.create(&wrong).unwrap_err().code, ErrorCode::Invalid);
}

#[test]
fn a_volume_in_use_is_not_deleted() {
    let (service, model, served) = service();
    service.create(&asked("b", KINDS[1])).unwrap();
    service.grant(&id("b"), "n1", &node(1)).unwrap();
    locked(&served.sessions).push("iqn.2026-11.test:n1".to_owned());
    let error = service.delete(&id("b"), "csi").unwrap_err();
    assert!(error.code == ErrorCode::InUse && error.message.contains(":n1"), "{error}");
    locked(&served.sessions).clear();
    service.snapshot(&id("b"), "s", "csi").unwrap();
    assert_eq!(service.delete(&id("b"), "csi").unwrap_err().code, ErrorCode::InUse);
    assert_eq!(service.get(&id("b")).unwrap().access, ["n1"], "nothing has changed");
    service.delete_snapshot(&id("b"), "s", "csi").unwrap();
    service.delete(&id("b"), "csi").unwrap();
    service.delete(&id("b"), "csi").unwrap();
    assert!(!model.names().contains(&id("b")));
    assert!(*locked(&served.flushed) > 0, "a snapshot has what was acknowledged");
}

#[test]
fn a_refused_deletion_changes_nothing() {
    let (service, model, _) = service();
    service.create(&asked("f", KINDS[0])).unwrap();
    service.grant(&id("f"), "n1", &node(1)).unwrap();
    model.foreign_snapshot(&id("f@zgate_2026-11-21_10:00:00_hourly"));
    model.run("zfs", &["create", &id("f/child")]).unwrap();
    let names = model.names();
    assert_eq!(service.delete(&id("f"), "csi").unwrap_err().code, ErrorCode::InUse);
    assert_eq!(model.names(), names);
    assert_eq!(service.get(&id("f")).unwrap().access, ["n1"]);
}

#[test]
fn a_maker_that_crashes_leaves_nothing() {
    let (service, model, _) = service();
    let before = model.names();
    for seconds in [0, zgate_api::volume::MAX_CONFIRM_SECONDS + 1] {
        let error = service.create_within(&asked("b", KINDS[1]), Some(seconds)).unwrap_err();
        assert_eq!(error.code, ErrorCode::Invalid);
    }
    for (name, is_kept) in [("lost", false), ("kept", true), ("granted", true)] {
        assert!(service.create_within(&asked(name, KINDS[1]), Some(3600)).unwrap().1);
        match name {
            "kept" => drop(service.confirm(&id(name), "csi").unwrap()),
            "granted" => drop(service.grant(&id(name), "n1", &node(1)).unwrap()),
            _ => {}
        }
        let unconfirmed = volume::read(&*model, &id(name).parse().unwrap()).unwrap().unwrap();
        assert_eq!(unconfirmed.unconfirmed_until.is_none(), is_kept, "{name}");
    }
    // The time passes.
    model.run("zfs", &["set", "zgate:unconfirmed=1", &id("lost")]).unwrap();
    service.due.set(&PARENT.parse().unwrap(), Some(1));
    let listed = service.list(&Page::default()).unwrap().items;
    let listed: Vec<_> = listed.into_iter().map(|volume| volume.name).collect();
    assert_eq!(listed, ["granted", "kept"]);
    let commands = model.commands().len();
    assert!(service.create(&asked("lost", KINDS[1])).unwrap().1, "another one of this name");
    assert!(model.commands()[commands..].iter().any(|one| one == "zfs destroy tank/k8s/lost"));
    // Nothing is due: no more questions than before.
    let commands = model.commands().len();
    service.create(&asked("more", KINDS[1])).unwrap();
    let lists = model.commands()[commands..].iter().filter(|one| one.contains("-d 1")).count();
    assert_eq!(lists, 0);
    service.withdraw(&id("granted"), "n1", "csi").unwrap();
    for name in ["granted", "kept", "lost", "more"] {
        service.delete(&id(name), "csi").unwrap();
    }
    assert_eq!(model.names(), before);
}

#[test]
fn initiators_learn_the_new_size_also_after_a_lost_reply() {
    let (service, _, served) = service();
    service.create(&asked("b", KINDS[1])).unwrap();
    service.grant(&id("b"), "n1", &node(1)).unwrap();
    let wanted = ChangeVolume {
        owner: "csi".to_owned(),
        size_bytes: Some(2 * GIB),
        properties: BTreeMap::new(),
    };
    for round in 1..=2 {
        assert_eq!(service.change(&id("b"), &wanted).unwrap().size_bytes, 2 * GIB);
        assert_eq!(locked(&served.resized).len(), round);
    }
    let less = ChangeVolume { size_bytes: Some(GIB), ..wanted };
    assert_eq!(service.change(&id("b"), &less).unwrap_err().code, ErrorCode::InUse);
}

#[test]
fn sources_are_own_volumes_and_what_the_configuration_allows() {
    let (service, model, _) = service();
    service.create(&asked("a", KINDS[0])).unwrap();
    let from = |name: &str, source| CreateVolume { source: Some(source), ..asked(name, KINDS[0]) };
    let code = |source| service.create(&from("x", source)).unwrap_err().code;
    assert_eq!(code(Source::Dataset("tank/other".into())), ErrorCode::Forbidden);
    assert_eq!(code(Source::Volume("tank/models/a".into())), ErrorCode::Forbidden);
    assert_eq!(code(Source::Volume(id("none"))), ErrorCode::NotFound);
    assert_eq!(code(Source::Snapshot(id("a@none"))), ErrorCode::NotFound);
    assert_eq!(code(Source::Volume("pool/k8s/a".into())), ErrorCode::Invalid);
    let other = CreateVolume { owner: "x".into(), ..from("x", Source::Volume(id("a"))) };
    assert_eq!(service.create(&other).unwrap_err().code, ErrorCode::Forbidden);
    let model_source = from("m", Source::Dataset("tank/models/a".into()));
    for is_new in [true, false] {
        assert_eq!(service.create(&model_source).unwrap().1, is_new);
    }
    service.snapshot(&id("a"), "s", "csi").unwrap();
    let restored = from("r", Source::Snapshot(id("a@s")));
    assert!(service.create(&restored).unwrap().1);
    // The same request after its source is gone.
    service.delete_snapshot(&id("a"), "s", "csi").unwrap();
    let (again, is_new) = service.create(&restored).unwrap();
    assert!(!is_new && again.source == restored.source);
    for name in ["a", "r", "m"] {
        service.delete(&id(name), "csi").unwrap();
    }
    let left = model.names();
    assert_eq!(left, ["tank", "tank/k8s", "tank/models", "tank/models/a", "tank/other"]);
}

#[test]
fn pages_have_all_items_once() {
    let (service, _, _) = service();
    for number in 0..7 {
        service.create(&asked(&format!("v{number}"), KINDS[number % 2])).unwrap();
        service.snapshot(&id(&format!("v{number}")), "s", "csi").unwrap();
    }
    let mut page = Page { limit: Some(3), ..Page::default() };
    let (mut volumes, mut snapshots) = (Vec::new(), Vec::new());
    loop {
        let found = service.list(&page).unwrap();
        volumes.extend(found.items.into_iter().map(|volume| volume.name));
        page.after = found.next;
        if page.after.is_none() {
            break;
        }
    }
    loop {
        let found = service.list_snapshots(&page).unwrap();
        snapshots.extend(found.items.into_iter().map(|one| one.volume));
        page.after = found.next;
        if page.after.is_none() {
            break;
        }
    }
    assert_eq!(volumes, ["v0", "v1", "v2", "v3", "v4", "v5", "v6"]);
    assert_eq!(snapshots, volumes.iter().map(|name| id(name)).collect::<Vec<_>>());
    for limit in [0, 1001] {
        let page = Page { limit: Some(limit), ..Page::default() };
        assert_eq!(service.list(&page).unwrap_err().code, ErrorCode::Invalid);
    }
    let nobody = Page { owner: Some("nobody".into()), ..Page::default() };
    assert!(service.list(&nobody).unwrap().items.is_empty());
    let one = Page { volume: Some(id("v3")), ..Page::default() };
    assert_eq!(service.list_snapshots(&one).unwrap().items.len(), 1);
    let space = service.capacity(PARENT).unwrap();
    assert!(space.available_bytes < space.total_bytes);
    assert_eq!(service.capacity("tank/other").unwrap_err().code, ErrorCode::Forbidden);
}

#[test]
fn a_group_is_one_transaction() {
    let (service, model, _) = service();
    for name in ["a", "b"] {
        service.create(&asked(name, KINDS[1])).unwrap();
    }
    let group = |volumes: &[&str]| CreateGroupSnapshot {
        name: "g".to_owned(),
        owner: "csi".to_owned(),
        volumes: volumes.iter().map(|name| id(name)).collect(),
    };
    assert_eq!(service.group_snapshot(&group(&[])).unwrap_err().code, ErrorCode::Invalid);
    assert_eq!(service.group_snapshot(&group(&["a", "a"])).unwrap_err().code, ErrorCode::Invalid);
    assert_eq!(service.group_snapshot(&group(&["a", "x"])).unwrap_err().code, ErrorCode::NotFound);
    for is_new in [true, false] {
        let before = model.commands().len();
        assert_eq!(service.group_snapshot(&group(&["a", "b"])).unwrap().1, is_new);
        let commands = model.commands().split_off(before);
        let [_, taken, _] = &commands[..] else { panic!("{commands:?}") };
        assert!(taken.starts_with("zfs snapshot") && taken.contains("a@g"), "{taken}");
        assert!(taken.contains("b@g"), "{taken}");
    }
}

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

/// Volumes that must exist, with the nodes that have access.
type Expected = BTreeMap<String, BTreeSet<u8>>;

/// Sends one request until it is answered without a fault of the storage.
fn repeated<T>(model: &Model, mut send: impl FnMut() -> Answer<T>) -> Answer<T> {
    for attempt in 0..100 {
        if attempt == 80 {
            model.set_fates(None);
        }
        match send() {
            Err(error) if error.code.is_temporary() => {}
            outcome => return outcome,
        }
    }
    panic!("the request is never answered");
}

fn one_request(
    service: &VolumeService,
    model: &Model,
    numbers: &mut Numbers,
    expected: &mut Expected,
) {
    let name = format!("v{}", numbers.below(5));
    let kind = KINDS[usize::from(name.ends_with(['1', '3']))];
    let number = numbers.below(3) as u8;
    let other = format!("v{}", numbers.below(5));
    match numbers.below(6) {
        0 | 1 => {
            let is_clone = numbers.below(2) == 0 && !expected.contains_key(&name);
            let source = is_clone.then(|| Source::Volume(id(&other)));
            // A clone grows, unless it is one of a clone.
            let size_bytes = if is_clone { 2 * GIB } else { GIB };
            let wanted = CreateVolume { source, size_bytes, ..asked(&name, kind) };
            if repeated(model, || service.create(&wanted)).is_ok() {
                expected.entry(name).or_default();
            }
        }
        2 => {
            let granted =
                repeated(model, || service.grant(&id(&name), &format!("n{number}"), &node(number)));
            match granted {
                Ok(_) => drop(expected.get_mut(&name).unwrap().insert(number)),
                Err(error) => assert_eq!(error.code, ErrorCode::NotFound, "{error}"),
            }
        }
        3 => {
            repeated(model, || service.withdraw(&id(&name), &format!("n{number}"), "csi")).unwrap();
            if let Some(nodes) = expected.get_mut(&name) {
                nodes.remove(&number);
            }
        }
        4 => {
            repeated(model, || service.delete(&id(&name), "csi")).unwrap();
            expected.remove(&name);
        }
        _ => {
            // Nobody gets what is left of a snapshot in the way of a deletion.
            if repeated(model, || service.snapshot(&id(&name), "s", "csi")).is_ok() {
                repeated(model, || service.delete_snapshot(&id(&name), "s", "csi")).unwrap();
            }
        }
    }
}

#[test]
fn ten_thousand_requests_with_lost_commands_leave_what_was_asked_for() {
    let (walks, steps) = (100, 100);
    for seed in 0..walks {
        let (service, model, served) = service();
        let (mut numbers, mut expected) = (Numbers(seed), Expected::new());
        for step in 0..steps {
            let mut fates = Numbers(seed << 32 | step);
            model.set_fates(Some(Box::new(move |_| match fates.below(16) {
                0 => Fate::LostBefore,
                1 => Fate::LostAfter,
                2 => Fate::LostBetween,
                _ => Fate::Runs,
            })));
            one_request(&service, &model, &mut numbers, &mut expected);
            model.set_fates(None);
        }
        served.apply(&PARENT.parse().unwrap()).unwrap();
        let found = service.list(&Page::default()).unwrap().items;
        let found: Expected = found
            .into_iter()
            .map(|volume| {
                let nodes = volume.access.iter().map(|node| node[1..].parse().unwrap());
                (volume.name, nodes.collect())
            })
            .collect();
        assert_eq!(found, expected, "seed {seed}");
        for name in expected.keys() {
            service.delete(&id(name), "csi").unwrap();
        }
        let left = model.names();
        assert_eq!(left, ["tank", "tank/k8s", "tank/models", "tank/models/a", "tank/other"]);
    }
}
