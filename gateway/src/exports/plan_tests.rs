//! Plans against datasets that come and go.

use super::*;
use crate::exports::limits::{FIRST_LOOK, LONGEST_LOOK};
use zgate_control::OutputForm;
use zgate_control::volume::{Grant, VolumeKind};
use zgate_iscsi::names::IscsiName;

fn plan(text: &str) -> Plan {
    Plan::of(&zgate_config::parse(text, Path::new("x")).unwrap()).unwrap()
}

/// Parses `name guid mountpoint`; `-` for a dataset that is not mounted.
fn datasets(lines: &[&str]) -> Vec<Dataset> {
    let line = |line: &&str| {
        let mut parts = line.split(' ');
        let (name, guid, at) =
            (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
        let mounted = if at == "-" { "no\tnone".to_owned() } else { format!("yes\t{at}") };
        format!(
            "{name}\tfilesystem\t{guid}\t1\t1\t1\t1\t131072\t-\t-\tstandard\tlatency\toff\t0\t0\t0\t0\t0\toff\thidden\toff\t-\ton\t{mounted}\n"
        )
    };
    let text: String = lines.iter().map(line).collect();
    zgate_control::datasets::parse(OutputForm::Columns, &text).unwrap()
}

/// Returns an inventory without datasets, of pools that have all answered.
fn inventory(now: Instant) -> Inventory<'static> {
    const NONE: &BTreeSet<PoolName> = &BTreeSet::new();
    Inventory { datasets: &[], made: &[], pools: NONE, untold: NONE, incomplete: false, now }
}

struct Fixture {
    plan: Plan,
    memory: Memory,
    now: Instant,
    pools: BTreeSet<PoolName>,
    made: Vec<VolumeRecord>,
}

impl Fixture {
    fn new(text: &str) -> Self {
        let pools = BTreeSet::from(["zfast".parse().unwrap()]);
        let (memory, now) = (Memory::default(), Instant::now());
        Self { plan: plan(text), memory, now, pools, made: Vec::new() }
    }

    /// Returns `pseudo path` of every export, followed by `away` if it is.
    fn see(&mut self, lines: &[&str]) -> Vec<String> {
        let found = datasets(lines);
        let inventory = Inventory {
            datasets: &found,
            made: &self.made,
            pools: &self.pools,
            ..inventory(self.now)
        };
        let outcome = self.plan.apply(&mut self.memory, &inventory);
        let show = |export: &ExportSettings| {
            let away = export.dataset.as_ref().is_some_and(|dataset| dataset.away);
            let away = if away { " away" } else { "" };
            format!("{} {}{away}", export.pseudo_path, export.path.display())
        };
        outcome.exports.iter().map(show).collect()
    }
}

const MODELS: &str =
    "[server]\naway_seconds = 60\n[[export]]\ndataset = \"zfast/models/**\"\npseudo = \"/m\"\n";

#[test]
fn each_mounted_match_is_an_export_and_children_are_part_of_their_parents() {
    let mut fixture = Fixture::new(MODELS);
    let lines = [
        "zfast/models 1 /z/models",
        "zfast/models/a 2 /z/models/a",
        "zfast/models/a/deep 3 /z/models/a/deep",
        "zfast/models/ab 4 /z/models/ab",
        "zfast/models/off 5 -",
    ];
    assert_eq!(fixture.see(&lines), ["/m/a /z/models/a", "/m/ab /z/models/ab"]);
    assert_eq!(fixture.plan.bases(), ["zfast/models".parse().unwrap()]);
}

#[test]
fn a_rename_moves_the_place_and_keeps_the_number() {
    let mut fixture = Fixture::new(MODELS);
    fixture.see(&["zfast/models/a 2 /z/a"]);
    let id = |fixture: &Fixture| fixture.memory.served.values().next().unwrap().settings.id;
    let before = id(&fixture);
    assert_eq!(fixture.see(&["zfast/models/b 2 /z/b"]), ["/m/b /z/b"]);
    assert_eq!(id(&fixture), before);
    // Renamed out of the pattern.
    assert!(fixture.see(&["zfast/other 2 /z/other"]).is_empty());
}

#[test]
fn destroyed_goes_at_once_unmounted_and_exported_pools_go_later() {
    let mut fixture = Fixture::new(MODELS);
    fixture.see(&["zfast/models/a 2 /z/a", "zfast/models/b 3 /z/b"]);
    let shown = fixture.see(&["zfast/models/a 2 -"]);
    assert_eq!(shown, ["/m/a /z/a away"], "the one is not mounted, the other destroyed");
    let is_due = |fixture: &Fixture, seconds: u64| {
        let now = fixture.now + Duration::from_secs(seconds);
        fixture.memory.is_due(now, fixture.plan.away)
    };
    assert!(!is_due(&fixture, 1) && is_due(&fixture, FIRST_LOOK.as_secs()));
    fixture.now += Duration::from_secs(59);
    fixture.pools.clear();
    assert_eq!(fixture.see(&[]), ["/m/a /z/a away"], "the pool is exported");
    // Its time ends in a second, long before the next look at what does not change.
    assert!(!is_due(&fixture, 0) && is_due(&fixture, 1));
    fixture.pools.insert("zfast".parse().unwrap());
    assert_eq!(fixture.see(&["zfast/models/a 2 /z/a"]), ["/m/a /z/a"], "and back");
    assert!(!is_due(&fixture, 3600), "nothing is away");
    fixture.see(&["zfast/models/a 2 -"]);
    fixture.now += Duration::from_secs(61);
    assert!(fixture.see(&["zfast/models/a 2 -"]).is_empty());
}

#[test]
fn a_reload_keeps_what_is_away_for_as_long_as_entries_select_it() {
    let parent = "[[volumes.parent]]\ndataset = \"zfast/k8s\"\npseudo = \"/k8s\"\n";
    let mut fixture = Fixture::new(&format!("{MODELS}{parent}"));
    fixture.made = vec![granted("v", 9)];
    fixture.see(&["zfast/models/a 2 /z/a", "zfast/k8s/v 9 /z/v"]);
    // The pool is exported.
    fixture.pools.clear();
    fixture.made.clear();
    fixture.see(&[]);
    fixture.now += Duration::from_secs(40);
    let reload = |fixture: &mut Fixture, text: &str| {
        let now = plan(text);
        fixture.memory = now.take_over(&fixture.plan, &fixture.memory);
        fixture.plan = now;
        fixture.see(&[])
    };
    // Entries have other places, and one of them another name for clients.
    let entry = |dataset: &str, pseudo: &str| {
        format!("[[export]]\ndataset = {dataset:?}\npseudo = {pseudo:?}\n")
    };
    let (first, second) = (entry("zfast/other", "/other"), entry("zfast/models/**", "/n"));
    let moved = format!("[server]\naway_seconds = 60\n{first}{second}{parent}");
    let both = ["/k8s/v /z/v away", "/n/a /z/a away"];
    assert_eq!(reload(&mut fixture, &moved), both);
    // The time goes on.
    fixture.now += Duration::from_secs(19);
    assert_eq!(fixture.see(&[]), both);
    // Nothing selects the volume any more.
    assert_eq!(reload(&mut fixture, MODELS), ["/m/a /z/a away"]);
    fixture.now += Duration::from_secs(2);
    assert!(fixture.see(&[]).is_empty());
}

#[test]
fn a_hold_ends_when_the_dataset_moves_or_time_is_up() {
    let mut fixture = Fixture::new(MODELS);
    let lines = ["zfast/models/a 2 /z/a"];
    fixture.see(&lines);
    let until = fixture.now + Duration::from_secs(30);
    let name = "zfast/models".parse().unwrap();
    let held = fixture.memory.hold(&name, &datasets(&lines), until);
    assert_eq!(held.len(), 1);
    assert_eq!(fixture.see(&lines), ["/m/a /z/a away"]);
    assert_eq!(fixture.see(&["zfast/models/n 2 /z/n"]), ["/m/n /z/n"]);
    fixture.memory.hold(&name, &datasets(&["zfast/models/n 2 /z/n"]), until);
    let is_due = |fixture: &Fixture, seconds: u64| {
        let now = until + Duration::from_secs(seconds);
        fixture.memory.is_due(now, fixture.plan.away)
    };
    assert!(!fixture.memory.is_due(fixture.now, fixture.plan.away) && is_due(&fixture, 0));
    // A search that fails ends no hold: another one is due after a pause.
    fixture.memory.looks.note(until, false);
    assert!(!is_due(&fixture, 1) && is_due(&fixture, LONGEST_LOOK.as_secs()));
    fixture.now = until;
    assert_eq!(fixture.see(&["zfast/models/n 2 /z/n"]), ["/m/n /z/n"]);
    assert!(!is_due(&fixture, 3600), "nothing is left");
    fixture.memory.hold(&name, &datasets(&lines), until + Duration::from_secs(9));
    fixture.memory.resume(&name);
    assert_eq!(fixture.see(&lines), ["/m/a /z/a"]);
}

#[test]
fn a_dataset_by_its_name_has_the_number_of_its_entry() {
    let text = "[[export]]\ndataset = \"zfast/one\"\npseudo = \"/one\"\nfsid = 77\n\
        [[export]]\npath = \"/srv\"\npseudo = \"/srv\"\n";
    let mut fixture = Fixture::new(text);
    let missing: Vec<_> = fixture.plan.missing(&fixture.memory).map(|item| item.name).collect();
    assert_eq!(missing, ["export /one"]);
    assert_eq!(fixture.see(&["zfast/one 9 /z/one"]), ["/srv /srv", "/one /z/one"]);
    assert_eq!(fixture.memory.served.values().next().unwrap().settings.id, Some(77));
    assert!(fixture.plan.missing(&fixture.memory).next().is_none());
}

/// Returns a file system that the API made, and to which a node has access.
fn granted(name: &str, guid: u64) -> VolumeRecord {
    VolumeRecord {
        dataset: format!("zfast/k8s/{name}").parse().unwrap(),
        guid,
        name: name.to_owned(),
        owner: "csi".to_owned(),
        kind: VolumeKind::Filesystem,
        size_bytes: 1 << 30,
        block_bytes: None,
        used_bytes: 0,
        available_bytes: 0,
        read_only: false,
        mounted_at: None,
        properties: BTreeMap::new(),
        source: None,
        pending_bytes: None,
        unconfirmed_until: None,
        grants: vec![Grant {
            node: "n1".to_owned(),
            addresses: vec!["10.0.0.1".parse().unwrap()],
            initiator: None,
            read_only: false,
        }],
    }
}

/// No export is served if two of them have the same place.
#[test]
fn a_volume_whose_place_is_taken_keeps_no_other_from_being_served() {
    let text = "[[export]]\npath = \"/srv\"\npseudo = \"/k8s/a\"\n\
        [[export]]\npath = \"/deep\"\npseudo = \"/k8s/b/deep\"\n\
        [[volumes.parent]]\ndataset = \"zfast/k8s\"\npseudo = \"/k8s\"\n";
    let mut fixture = Fixture::new(text);
    fixture.made = vec![granted("a", 1), granted("b", 2), granted("ab", 3)];
    let lines = ["zfast/k8s/a 1 /z/a", "zfast/k8s/b 2 /z/b", "zfast/k8s/ab 3 /z/ab"];
    assert_eq!(fixture.see(&lines), ["/k8s/a /srv", "/k8s/b/deep /deep", "/k8s/ab /z/ab"]);
}

#[test]
fn zvols_wait_for_their_devices() {
    let text = "[iscsi]\nlisten = [\"127.0.0.1:0\"]\n[[target]]\nname = \"iqn.2026-11.io.zgate:vm\"\n\
        [[target.volumes]]\ndataset = \"zfast/vm/*\"\n";
    let plan = plan(text);
    let line = "zfast/vm/d\tvolume\t8\t1\t10\t90\t10\t-\t16384\t65536\talways\tlatency\toff\t0\t-\t-\t0\t0\toff\t-\toff\t-\t-\t-\t-\n";
    let found = zgate_control::datasets::parse(OutputForm::Columns, line).unwrap();
    let pools = BTreeSet::new();
    let inventory = Inventory { datasets: &found, pools: &pools, ..inventory(Instant::now()) };
    let mut memory = Memory::default();
    let outcome = plan.apply(&mut memory, &inventory);
    // Initiators may know it from the other node of a pair.
    assert!(outcome.pending && outcome.volumes[0].device.ends_with("zfast/vm/d"));
    assert!(outcome.missing.contains(&8) && memory.volumes.is_empty());
    // A zvol that was served under another name stays until its device
    // appears.
    let volume = Volume {
        target: 0,
        guid: 8,
        name: "zfast/vm/before".parse().unwrap(),
        device: "/dev/zvol/zfast/vm/before".into(),
        template: plan.volumes[0].template.clone(),
    };
    memory.volumes.insert(8, volume.clone());
    let outcome = plan.apply(&mut memory, &inventory);
    assert!(outcome.pending && outcome.volumes == [volume] && outcome.missing.is_empty());
}

#[test]
fn targets_are_awaited_while_a_pool_of_their_patterns_has_not_told() {
    let name = |of: &str| format!("iqn.2026-11.io.zgate:{of}");
    let target = |of: &str, pool: &str| {
        let name = name(of);
        format!("[[target]]\nname = \"{name}\"\n[[target.volumes]]\ndataset = \"{pool}/vm/*\"\n")
    };
    let second = "[[target.volumes]]\ndataset = \"slow/db/*\"\nfirst_number = 9\n";
    let targets = target("fast", "zfast") + &target("both", "zfast") + second;
    let plan = plan(&format!("[iscsi]\nlisten = [\"127.0.0.1:0\"]\n{targets}"));
    let awaited = |untold: &[&str]| {
        let untold = untold.iter().map(|pool| pool.parse().unwrap()).collect();
        let inventory = Inventory { untold: &untold, ..inventory(Instant::now()) };
        let awaited = plan.apply(&mut Memory::default(), &inventory).awaited;
        let has = |of: &str| awaited.has_patterns_of(&IscsiName::parse(&name(of)).unwrap());
        ["fast", "both", "other"].map(has)
    };
    assert_eq!(awaited(&[]), [false, false, false]);
    assert_eq!(awaited(&["slow"]), [false, true, false]);
    assert_eq!(awaited(&["zfast"]), [true, true, false]);
}
