//! Zvols and disks of the API that cannot be opened when they are found: they are
//! served as soon as they can be.

use super::host::Host;
use super::{Fixture, Over, TARGET};
use crate::exports::granted::{AwaitedTargets, GrantedDisk, ParentPlan};
use crate::iscsi::execute::lun_map_for;
use crate::iscsi::luns::catalog::{LunMap, Target};
use crate::iscsi::settings::{IscsiSettings, TargetSettings, identity};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zgate_config::{LunConfig, NaaId};
use zgate_control::volume::Grant;
use zgate_iscsi::names::IscsiName;
use zgate_test_initiator::{LoginScript, Lun, Session};

const NUMBER: u16 = 7;
/// Size of a disk that comes.
const SIZE_BYTES: u64 = 1 << 20;
const DISK: &str = "iqn.2026-11.test.zgate:k8s:7";
const INITIATOR: &str = "iqn.2026-11.test.zgate:node";
/// Beginning of the targets of a parent, and one with the guid of a zvol.
const PREFIX: &str = "iqn.2026-11.test.zgate:k8s";
const AWAITED: &str = "iqn.2026-11.test.zgate:k8s:00000000000000af";

fn target(fixture: &Fixture, name: &str) -> Arc<Target> {
    let rules = fixture.gateway.shared.iscsi.rules();
    Arc::clone(&rules.catalog.targets[&IscsiName::parse(name).unwrap()])
}

fn make(path: &Path) {
    std::fs::File::create(path).unwrap().set_len(SIZE_BYTES).unwrap();
}

/// Does what the thread that retries does, until something absent has appeared.
fn let_appear(fixture: &Fixture) {
    let iscsi = &fixture.gateway.shared.iscsi;
    iscsi.volumes.make_due();
    fixture.until("it opens", || iscsi.retry_absent().news);
    iscsi.serve_returned();
}

fn late(fixture: &Fixture) -> PathBuf {
    fixture._dir.path().join("late.img")
}

/// Settings of [`TARGET`] to which a pattern has added a zvol at this path, and its identifier.
fn with_zvol(fixture: &Fixture, path: &Path) -> (IscsiSettings, NaaId) {
    let before = target(fixture, TARGET).settings.clone();
    let named = before.luns[0].clone();
    let zvol = LunConfig { number: NUMBER, path: path.to_owned(), ..named.clone() };
    let naa = identity(&before.name, &zvol).1;
    let followed = BTreeSet::from([NUMBER]);
    let wanted = TargetSettings { luns: vec![named, zvol], followed, ..before };
    (IscsiSettings { targets: vec![wanted], ..IscsiSettings::default() }, naa)
}

/// Change of a target: LUN [`NUMBER`] was a zvol before, and nothing else is known of it.
fn had_zvol(target: &mut Target) -> io::Result<()> {
    target.settings.unseen = BTreeMap::from([(NUMBER, None)]);
    Ok(())
}

#[test]
fn a_zvol_that_cannot_be_opened_at_first_is_served_later() {
    let fixture = Fixture::start();
    let (iscsi, path) = (&fixture.gateway.shared.iscsi, late(&fixture));
    let (settings, _) = with_zvol(&fixture, &path);
    // Also if it is found again meanwhile.
    for _ in 0..2 {
        iscsi.replace_followed(&settings).unwrap();
        let now = target(&fixture, TARGET);
        assert!(now.absent.contains_key(&NUMBER) && now.settings.followed.contains(&NUMBER));
        assert_eq!((iscsi.absent().len(), iscsi.named_absent().len()), (1, 0));
    }
    make(&path);
    let_appear(&fixture);
    let now = target(&fixture, TARGET);
    assert!(now.absent.is_empty() && now.settings.followed.contains(&NUMBER));
    let unit = Arc::clone(&now.units[&NUMBER]);
    iscsi.replace_followed(&settings).unwrap();
    assert!(Arc::ptr_eq(&unit, &target(&fixture, TARGET).units[&NUMBER]));
    assert_eq!(target(&fixture, TARGET).settings.luns.len(), 2);
}

/// A disk of the API to which [`INITIATOR`] has access.
fn granted_disk(target: &str, device: &Path) -> GrantedDisk {
    let grant = Grant {
        node: "node".to_owned(),
        addresses: Vec::new(),
        initiator: Some(INITIATOR.to_owned()),
        read_only: false,
    };
    GrantedDisk {
        guid: 7,
        name: "tank/k8s/a".parse().unwrap(),
        device: device.to_owned(),
        target: target.to_owned(),
        grants: vec![grant],
        unit: toml::from_str("dataset = \"tank/k8s/a\"\ndirect = \"never\"\n").unwrap(),
    }
}

#[test]
fn a_disk_of_the_api_that_cannot_be_opened_at_first_is_served_later() {
    let fixture = Fixture::start();
    let (iscsi, path) = (&fixture.gateway.shared.iscsi, late(&fixture));
    let disk = granted_disk(DISK, &path);
    for _ in 0..2 {
        iscsi.replace_granted(std::slice::from_ref(&disk));
        assert_eq!(target(&fixture, DISK).absent.len(), 1);
        assert!(!iscsi.serves(DISK) && iscsi.served_to(DISK, INITIATOR).is_none());
    }
    make(&path);
    let_appear(&fixture);
    assert!(iscsi.serves(DISK) && iscsi.served_to(DISK, INITIATOR).is_some());
    let unit = Arc::clone(&target(&fixture, DISK).units[&0]);
    iscsi.replace_granted(std::slice::from_ref(&disk));
    assert!(Arc::ptr_eq(&unit, &target(&fixture, DISK).units[&0]));
    iscsi.replace_granted(&[]);
    assert!(!iscsi.serves(DISK) && iscsi.absent().is_empty());
}

#[test]
fn a_login_to_a_disk_whose_pool_has_not_answered_is_put_off_and_no_other() {
    let fixture = Fixture::start();
    let (iscsi, path) = (&fixture.gateway.shared.iscsi, late(&fixture));
    let login = |target: &str| {
        Session::login(fixture.tcp, &LoginScript::normal(INITIATOR, target)).map(drop)
    };
    let refused = |target: &str| login(target).unwrap_err().to_string();
    assert_eq!(refused(AWAITED), "login refused: 0203", "all pools have answered");
    let parent = format!("dataset = \"tank/k8s\"\ntarget = \"{PREFIX}\"\n");
    let parents = [ParentPlan::of(&toml::from_str(&parent).unwrap()).unwrap()];
    iscsi.await_targets(&AwaitedTargets::below(parents.iter()));
    for name in [AWAITED.to_owned(), AWAITED.to_uppercase()] {
        assert_eq!(refused(&name), "login refused: 0301", "{name}");
    }
    let others = [
        PREFIX.to_owned(),
        AWAITED.replace("k8s", "vm"),
        AWAITED.replace("0af", "0ag"),
        format!("{AWAITED}0"),
    ];
    for name in others {
        assert_eq!(refused(&name), "login refused: 0203", "{name}");
    }
    // It is served as soon as it is known.
    make(&path);
    iscsi.replace_granted(&[granted_disk(AWAITED, &path)]);
    login(AWAITED).unwrap();
    iscsi.await_targets(&AwaitedTargets::default());
    login(AWAITED).unwrap();
    iscsi.replace_granted(&[]);
    assert_eq!(refused(AWAITED), "login refused: 0203", "it is gone");
}

#[test]
fn a_login_is_put_off_while_all_disks_of_the_target_are_absent() {
    let fixture = Fixture::start();
    let (iscsi, path) = (&fixture.gateway.shared.iscsi, late(&fixture));
    let login = || Session::login(fixture.tcp, &LoginScript::normal(INITIATOR, DISK)).map(drop);
    iscsi.replace_granted(&[granted_disk(DISK, &path)]);
    assert_eq!(login().unwrap_err().to_string(), "login refused: 0301");
    make(&path);
    let_appear(&fixture);
    login().unwrap();
}

#[test]
fn a_login_waits_for_a_pool_only_while_no_disk_of_the_target_is_there() {
    let fixture = Fixture::start();
    let iscsi = &fixture.gateway.shared.iscsi;
    let login = || Session::login(fixture.tcp, &LoginScript::normal(INITIATOR, TARGET)).map(drop);
    iscsi.change(TARGET, had_zvol).unwrap();
    iscsi.await_targets(&AwaitedTargets::default().with_patterns_of([TARGET].into_iter()));
    login().unwrap();
    let without_disk = |target: &mut Target| {
        target.units.clear();
        target.settings.luns.clear();
        Ok(())
    };
    iscsi.change(TARGET, without_disk).unwrap();
    assert_eq!(login().unwrap_err().to_string(), "login refused: 0301");
    // All pools have told: it is gone.
    iscsi.await_targets(&AwaitedTargets::default());
    login().unwrap();
}

/// Sense keys and codes of the unit attentions of LUN [`NUMBER`], and of what follows them.
fn told(host: &mut Host) -> Vec<(u8, [u8; 2])> {
    told_by(host, NUMBER)
}

/// The same of the LUN of this number.
fn told_by(host: &mut Host, number: u16) -> Vec<(u8, [u8; 2])> {
    let mut told = Vec::new();
    loop {
        let itt = host.start_on(Lun(u64::from(number) << 48), &[0; 6], &Bytes::new());
        let ended = host.wait(itt);
        if ended.status == 0 {
            return told;
        }
        let sense = (ended.sense[2] & 15, [ended.sense[12], ended.sense[13]]);
        told.push(sense);
        if sense.0 != 6 {
            return told;
        }
    }
}

#[test]
fn a_lun_that_may_come_is_waited_for_while_its_pool_has_not_told() {
    let fixture = Fixture::start();
    let iscsi = &fixture.gateway.shared.iscsi;
    iscsi.change(TARGET, had_zvol).unwrap();
    let mut host = fixture.host(Over::Tcp, "one");
    assert_eq!(told(&mut host), [(5, [0x25, 0])], "all pools have told");
    iscsi.await_targets(&AwaitedTargets::default().with_patterns_of([TARGET].into_iter()));
    assert_eq!(told(&mut host), [(2, [4, 1])]);
    iscsi.await_targets(&AwaitedTargets::default());
    assert_eq!(told(&mut host), [(5, [0x25, 0])]);
}

#[test]
fn a_lun_that_comes_while_a_command_to_it_begins_is_not_said_to_be_gone() {
    let fixture = Fixture::start();
    let _host = fixture.host(Over::Tcp, "one");
    let live = fixture.gateway.shared.iscsi.sessions().remove(0);
    let (lun, before) = (zgate_scsi::Lun::new(NUMBER), live.lun_map());
    // Its pool tells it, and is no longer awaited.
    let comes = || {
        let mut luns = LunMap::clone(&before);
        let unit = Arc::clone(luns.units.values().next().unwrap());
        luns.units.insert(lun.unwrap(), unit);
        live.set_lun_map(luns);
        false
    };
    let (seen, awaits) = lun_map_for(&live, lun, comes);
    assert!(seen.units.contains_key(&lun.unwrap()) && !awaits);
    // Of one that is there nobody asks.
    let (seen, awaits) = lun_map_for(&live, lun, || panic!("it is there"));
    assert!(Arc::ptr_eq(&seen, &live.lun_map()) && !awaits);
}

/// A host that has asked for it before may have taken it for 0, and looks again now.
#[test]
fn a_lun_that_comes_tells_a_size_that_it_has_not_told_before() {
    for recorded_bytes in [None, Some(1 << 19), Some(SIZE_BYTES)] {
        let fixture = Fixture::start();
        let (iscsi, path) = (&fixture.gateway.shared.iscsi, late(&fixture));
        let (settings, naa) = with_zvol(&fixture, &path);
        if let Some(bytes) = recorded_bytes {
            let record = format!(
                "capacity_bytes {bytes}\nphysical_block_bytes 4096\noptimal_io_bytes 1048576\n\
                 discard_granularity_bytes 4096\ndiscard_zeroes true\nwrite_cache true\n\
                 read_only false\n"
            );
            iscsi.home.state_files.dir.put_geometry(&naa.to_string(), &record).unwrap();
        }
        iscsi.replace_followed(&settings).unwrap();
        let mut host = fixture.host(Over::Tcp, "one");
        assert_eq!(told(&mut host), [(2, [4, 1])]);
        make(&path);
        let_appear(&fixture);
        let mut expected: Vec<(u8, [u8; 2])> = vec![(6, [0x29, 0])];
        expected.extend((recorded_bytes != Some(SIZE_BYTES)).then_some((6, [0x2A, 9])));
        assert_eq!(told(&mut host), expected, "{recorded_bytes:?}");
    }
}

/// ZFS was asked after the host, which may have taken it for 0.
#[test]
fn a_size_that_zfs_tells_changes_no_list_and_is_told_again_with_the_lun() {
    let fixture = Fixture::start();
    let (iscsi, path) = (&fixture.gateway.shared.iscsi, late(&fixture));
    let (settings, naa) = with_zvol(&fixture, &path);
    iscsi.replace_followed(&settings).unwrap();
    let mut host = fixture.host(Over::Tcp, "one");
    let ready: [(u8, [u8; 2]); 0] = [];
    assert_eq!(told(&mut host), [(2, [4, 1])]);
    assert_eq!(told_by(&mut host, 0), ready);
    let seen = || {
        let name = IscsiName::parse(INITIATOR).unwrap();
        target(&fixture, TARGET).lun_map(&name, None).absent.into_values().next().unwrap()
    };
    assert_eq!(seen(), None);
    let geometry = zgate_block::zvol_geometry(SIZE_BYTES, 16 << 10, false).unwrap();
    iscsi.home.zvol_sizes.tell(naa, &path, geometry);
    iscsi.retry_absent();
    assert_eq!(seen(), Some(SIZE_BYTES));
    assert_eq!(told(&mut host), [(2, [4, 1])]);
    assert_eq!(told_by(&mut host, 0), ready, "the list has not changed");
    make(&path);
    let_appear(&fixture);
    assert_eq!(told(&mut host), [(6, [0x29, 0]), (6, [0x2A, 9])]);
    assert_eq!(told_by(&mut host, 0), [(6, [0x3F, 0x0E])]);
}
