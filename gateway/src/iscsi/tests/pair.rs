//! Disks of a pair of machines: what both of them tell initiators.

use super::command;
use crate::exports::attempts::Wake;
use crate::exports::open::Opening;
use crate::iscsi::luns::state_files::StateFiles;
use crate::iscsi::luns::unit::{Unit, UnitHome};
use crate::iscsi::luns::volumes::Volumes;
use crate::iscsi::service::IscsiService;
use crate::iscsi::settings::{IscsiSettings, Portal};
use crate::state_dir::StateDir;
use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;
use zgate_config::LunConfig;
use zgate_io::{EngineChoice, IoEngine};
use zgate_iscsi::login::Transport;
use zgate_iscsi::names::IscsiName;
use zgate_scsi::{Disk, SenseKey};
use zgate_store::{BufferPool, Payload};

const NAME: &str = "iqn.2026-11.test.zgate:pair";
/// MODE SENSE (6) of the caching page, without block descriptors.
const CACHING: [u8; 6] = [0x1A, 0x08, 0x08, 0, 255, 0];

/// INQUIRY, DEVICE IDENTIFICATION.
const IDENTITY: [u8; 6] = [0x12, 1, 0x83, 1, 0, 0];
/// READ CAPACITY (10).
const CAPACITY: [u8; 10] = [0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// REPORT TARGET PORT GROUPS.
const GROUPS: [u8; 12] = [0xA3, 0x0A, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
/// A device that this machine does not have.
const ELSEWHERE: &str = "/dev/zvol/absent/disk";

/// Settings with a portal of this machine, and one of nobody (TEST-NET-1, RFC 5737).
fn settings(asymmetric: bool, standby: bool) -> IscsiSettings {
    let portal = |address: &str, group| Portal {
        address: address.parse().unwrap(),
        group,
        transport: Transport::Tcp,
    };
    let portals = vec![portal("127.0.0.1:3260", 1), portal("192.0.2.1:3260", 2)];
    IscsiSettings { portals, asymmetric, standby, ..IscsiSettings::default() }
}

fn home(dir: &Path, settings: &IscsiSettings) -> UnitHome {
    let engine = IoEngine::new(EngineChoice::Threads, 2).unwrap();
    std::fs::create_dir_all(dir.join("state")).unwrap();
    let state_dir = Arc::new(StateDir::open(&dir.join("state")).unwrap());
    let files = Arc::new(StateFiles::start(state_dir).unwrap());
    UnitHome::new(engine, BufferPool::new(1 << 20), files, settings).unwrap()
}

fn name() -> IscsiName {
    IscsiName::parse(NAME).unwrap()
}

/// Reads LUN 0 as a configuration has it.
fn lun(path: &Path, more: &str) -> LunConfig {
    toml::from_str(&format!("number = 0\npath = {path:?}\n{more}")).unwrap()
}

fn open(home: &UnitHome, lun: &LunConfig) -> Arc<Unit> {
    home.open(&name(), lun, None).unwrap()
}

/// Returns the data of a command, which is repeated after a unit attention.
fn data(disk: &Disk, cdb: &[u8]) -> Bytes {
    let command = command(cdb);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    loop {
        let response = runtime.block_on(disk.execute(command.clone()));
        match (response.sense, response.data_in) {
            (Some(sense), _) => assert_eq!(sense.key, SenseKey::UnitAttention, "{sense:?}"),
            (None, Some(Payload::Bytes(data))) => return data,
            (None, other) => panic!("{cdb:02x?}: {:?} {other:?}", response.status),
        }
    }
}

/// Returns whether MODE SENSE shows a write cache that is on.
fn caches(unit: &Unit) -> bool {
    data(&unit.disk, &CACHING)[6] & 0x04 != 0
}

/// Returns the size that READ CAPACITY shows, in blocks.
fn blocks(unit: &Unit) -> u32 {
    let last = data(&unit.disk, &CAPACITY);
    u32::from_be_bytes(last[..4].try_into().unwrap()) + 1
}

/// Returns group and state of each target port group.
fn groups(unit: &Unit) -> Vec<(u8, u8)> {
    let list = data(&unit.disk, &GROUPS);
    list[4..].chunks(12).map(|group| (group[3], group[0] & 15)).collect()
}

#[test]
fn a_disk_with_paths_to_two_machines_has_no_write_cache_unless_it_is_configured() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    let pair = home(&dir.path().join("pair"), &settings(true, false));
    assert!(!caches(&open(&pair, &lun(&path, "size = \"1MiB\""))));
    assert!(caches(&open(&pair, &lun(&path, "write_cache = true"))));
    let single = home(&dir.path().join("single"), &settings(false, false));
    assert!(caches(&open(&single, &lun(&path, ""))), "a file has one");
}

#[test]
fn a_disk_in_standby_has_the_size_of_the_configuration_at_each_start() {
    let dir = tempfile::tempdir().unwrap();
    let home = home(dir.path(), &settings(true, true));
    for (size, count) in [("1MiB", 2048), ("2MiB", 4096), ("1MiB", 2048)] {
        let unit = open(&home, &lun(Path::new(ELSEWHERE), &format!("size = {size:?}")));
        assert_eq!(blocks(&unit), count, "{size}");
    }
}

#[test]
fn a_read_only_disk_in_standby_says_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let home = home(dir.path(), &settings(true, true));
    let lun = lun(Path::new(ELSEWHERE), "size = \"1MiB\"\nread_only = true");
    // At the first start and at a later one.
    for _ in 0..2 {
        let unit = open(&home, &lun);
        assert_eq!(data(&unit.disk, &IDENTITY)[1], 0x83);
        assert_eq!(blocks(&unit), 2048);
        assert!(unit.disk.config().read_only);
        assert!(!unit.is_watched(), "the space of its own file is not the disk's");
    }
}

#[test]
fn a_disk_that_is_opened_while_an_address_moves_has_the_new_access_states() {
    const ACTIVE: u8 = 0;
    const STANDBY: u8 = 2;
    let dir = tempfile::tempdir().unwrap();
    let before = settings(true, false);
    let (home, volumes) = (home(dir.path(), &before), Volumes::new(Wake::default()));
    let iscsi = IscsiService::new(&before, home, volumes, Opening::Start).unwrap();
    iscsi.set_portals(before.portals.clone());
    let path = dir.path().join("disk.img");
    let text = format!(
        "[iscsi]\nlisten = [\"127.0.0.1:3260\"]\n[[target]]\nname = \"{NAME}\"\n\
         allow_any_initiator = true\n[[target.lun]]\nnumber = 0\npath = {path:?}\n\
         size = \"1MiB\"\n"
    );
    let config = zgate_config::parse(&text, Path::new("pair.toml")).unwrap();
    let targets = crate::iscsi::settings::settings(&config).unwrap().targets;
    let after = IscsiSettings { targets, ..before };
    let prepared = iscsi.prepare(&after, Opening::Reload).unwrap();
    // The disk is open by now, and not yet known to whoever follows addresses.
    let there = |ip: std::net::IpAddr| ip == std::net::IpAddr::from([192, 0, 2, 1]);
    assert_eq!(iscsi.home.groups.follow(there).len(), 2);
    drop(iscsi.commit(prepared));
    let rules = iscsi.rules();
    let unit = rules.catalog.units().next().unwrap();
    assert_eq!(groups(unit), [(1, STANDBY), (2, ACTIVE)]);
}
