//! LUNs whose storage is late after a restart: hosts that look at their disk anew find what it
//! was, or what ZFS says of it.

use super::{HOST, PATIENCE, command};
use crate::exports::attempts::Wake;
use crate::exports::open::Opening;
use crate::iscsi::luns::state_files::StateFiles;
use crate::iscsi::luns::unit::{Unit, UnitHome};
use crate::iscsi::luns::volumes::Volumes;
use crate::iscsi::luns::zvol_sizes::ZvolSizes;
use crate::iscsi::service::IscsiService;
use crate::iscsi::settings::{IscsiSettings, identity, settings};
use crate::state_dir::StateDir;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use zgate_control::tool::Recorded;
use zgate_io::{EngineChoice, IoEngine};
use zgate_iscsi::names::IscsiName;
use zgate_scsi::{Asc, Lun, Response, ScsiStatus, Sense, SenseKey};
use zgate_store::{BufferPool, Payload};

const TARGET: &str = "iqn.2026-11.test.zgate:late";
const READY: [u8; 6] = [0; 6];
const READ: [u8; 10] = [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0];
const CAPACITY_10: [u8; 10] = [0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const CAPACITY_16: [u8; 16] = [0x9E, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0];
/// MODE SENSE (6) of the caching page.
const CACHING: [u8; 6] = [0x1A, 0x08, 0x08, 0, 255, 0];
/// INQUIRY, BLOCK LIMITS.
const LIMITS: [u8; 6] = [0x12, 1, 0xB0, 0, 255, 0];

/// A machine with a state directory and a target whose LUN 0 is a file, served anew at each
/// start.
struct Machine {
    runtime: Runtime,
    state: Arc<StateDir>,
    settings: IscsiSettings,
    path: PathBuf,
    _dir: tempfile::TempDir,
}

impl Machine {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk.img");
        Self::with(dir, path)
    }

    /// One whose LUN 0 is at this path.
    fn with(dir: tempfile::TempDir, path: PathBuf) -> Self {
        let state = dir.path().join("state");
        std::fs::create_dir(&state).unwrap();
        let text = format!(
            "[iscsi]\nlisten = [\"127.0.0.1:0\"]\n[[target]]\nname = \"{TARGET}\"\n\
             allow_any_initiator = true\n[[target.lun]]\nnumber = 0\npath = {path:?}\n\
             direct = \"never\"\n"
        );
        let config = zgate_config::parse(&text, Path::new("late.toml")).unwrap();
        Self {
            runtime: tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(),
            state: Arc::new(StateDir::open(&state).unwrap()),
            settings: settings(&config).unwrap(),
            path,
            _dir: dir,
        }
    }

    fn make_disk(&self, bytes: u64) {
        std::fs::File::create(&self.path).unwrap().set_len(bytes).unwrap();
    }

    fn start(&self) -> IscsiService {
        self.start_with(|_| {})
    }

    fn start_with(&self, change: impl FnOnce(&mut UnitHome)) -> IscsiService {
        let engine = IoEngine::new(EngineChoice::Threads, 2).unwrap();
        let (pool, state) = (BufferPool::new(1 << 20), Arc::clone(&self.state));
        let files = Arc::new(StateFiles::start(state).unwrap());
        let mut home = UnitHome::new(engine, pool, files, &self.settings).unwrap();
        change(&mut home);
        IscsiService::new(&self.settings, home, Volumes::new(Wake::default()), Opening::Start)
            .unwrap()
    }

    /// Has the LUN in service for a moment.
    fn serve(&self, iscsi: &IscsiService) -> Arc<Unit> {
        let unit = Arc::clone(iscsi.rules().catalog.units().next().unwrap());
        unit.close();
        self.runtime.block_on(Arc::clone(&unit).run_background());
        self.runtime.block_on(iscsi.home.all_written()).unwrap();
        unit
    }

    /// Sends a command to LUN 0, again after a unit attention.
    fn run(&self, iscsi: &IscsiService, cdb: &[u8]) -> Response {
        let rules = iscsi.rules();
        let target = &rules.catalog.targets[&IscsiName::parse(TARGET).unwrap()];
        let seen = target.lun_map(&IscsiName::parse(HOST).unwrap(), None);
        let command = command(cdb);
        loop {
            let response = self.runtime.block_on(seen.luns.execute([0; 8], command.clone()));
            let is_told = |sense: Sense| sense.key == SenseKey::UnitAttention;
            if !response.sense.is_some_and(is_told) {
                return response;
            }
        }
    }

    fn data(&self, iscsi: &IscsiService, cdb: &[u8]) -> Bytes {
        let response = self.run(iscsi, cdb);
        assert_eq!(response.status, ScsiStatus::Good, "{cdb:02x?}: {:?}", response.sense);
        match response.data_in {
            Some(Payload::Bytes(data)) => data,
            other => panic!("{cdb:02x?}: {other:?}"),
        }
    }

    fn is_becoming_ready(&self, iscsi: &IscsiService, cdb: &[u8]) -> bool {
        let sense = self.run(iscsi, cdb).sense;
        let not_ready = (SenseKey::NotReady, Asc::BECOMING_READY);
        sense.is_some_and(|sense| (sense.key, sense.asc) == not_ready)
    }

    /// Returns the number of blocks that READ CAPACITY (16) tells.
    fn blocks(&self, iscsi: &IscsiService) -> u64 {
        u64::from_be_bytes(self.data(iscsi, &CAPACITY_16)[..8].try_into().unwrap()) + 1
    }

    /// Returns the name of the record of LUN 0.
    fn record(&self) -> String {
        let target = &self.settings.targets[0];
        identity(&target.name, &target.luns[0]).1.to_string()
    }

    /// Does what the thread that retries does, until READ CAPACITY tells so many blocks.
    fn until_blocks(&self, iscsi: &IscsiService, blocks: u64) {
        let deadline = Instant::now() + PATIENCE;
        let tells = || !self.is_becoming_ready(iscsi, &CAPACITY_16) && self.blocks(iscsi) == blocks;
        while !tells() {
            assert!(Instant::now() < deadline, "the size is not told");
            iscsi.volumes.make_due();
            iscsi.retry_absent();
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A zvol whose device is not there.
const ZVOL: &str = "/dev/zvol/zgate-test/vm/late";

/// Sizes as ZFS tells them: that of the zvol, in bytes, once, if its pool has a directory in
/// `pools`.
fn sizes(pools: &Path, bytes: u64) -> Arc<ZvolSizes> {
    let command = "zfs list -Hp -d 1 -t volume -o name,guid,volsize,volblocksize zgate-test/vm";
    let told = format!("zgate-test/vm/late\t7\t{bytes}\t16384\n");
    let tool = Recorded::default().then(command, &told);
    Arc::new(ZvolSizes::with(Arc::new(tool), pools.to_owned()))
}

#[test]
fn a_lun_whose_storage_is_late_tells_what_it_was_and_moves_no_data() {
    let machine = Machine::new();
    machine.make_disk(4 << 20);
    let told = [&CAPACITY_10[..], &CAPACITY_16[..], &CACHING[..], &LIMITS[..]];
    let iscsi = machine.start();
    machine.serve(&iscsi);
    let before = told.map(|cdb| machine.data(&iscsi, cdb));
    assert_eq!(machine.blocks(&iscsi), 8192);
    drop(iscsi);
    std::fs::remove_file(&machine.path).unwrap();
    let iscsi = machine.start();
    assert_eq!(told.map(|cdb| machine.data(&iscsi, cdb)), before);
    for cdb in [&READY[..], &READ[..]] {
        assert!(machine.is_becoming_ready(&iscsi, cdb), "{cdb:02x?}");
    }
}

#[test]
fn a_lun_whose_storage_is_late_has_its_last_size() {
    let machine = Machine::new();
    machine.make_disk(4 << 20);
    let iscsi = machine.start();
    let unit = machine.serve(&iscsi);
    machine.runtime.block_on(unit.resize(Some(8 << 20))).unwrap();
    machine.runtime.block_on(iscsi.home.all_written()).unwrap();
    drop((unit, iscsi));
    std::fs::remove_file(&machine.path).unwrap();
    assert_eq!(machine.blocks(&machine.start()), 16384);
}

#[test]
fn a_lun_that_was_not_served_or_whose_record_is_damaged_is_not_ready() {
    let machine = Machine::new();
    let is_unknown = || {
        let iscsi = machine.start();
        [&CAPACITY_10[..], &CAPACITY_16[..], &CACHING[..], &READ[..]]
            .iter()
            .all(|cdb| machine.is_becoming_ready(&iscsi, cdb))
    };
    assert!(is_unknown(), "never served");
    machine.make_disk(4 << 20);
    let iscsi = machine.start();
    let naa = machine.serve(&iscsi).naa.to_string();
    drop(iscsi);
    std::fs::remove_file(&machine.path).unwrap();
    assert!(!is_unknown());
    machine.state.put_geometry(&naa, "capacity_bytes 4194304\n").unwrap();
    assert!(is_unknown(), "damaged");
}

#[test]
fn a_zvol_that_was_not_served_tells_the_size_that_zfs_knows() {
    let (dir, pools) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let machine = Machine::with(dir, ZVOL.into());
    let iscsi = machine.start_with(|home| home.zvol_sizes = sizes(pools.path(), 4 << 20));
    // Until then its pool is not imported.
    assert!(machine.is_becoming_ready(&iscsi, &CAPACITY_16));
    std::fs::create_dir(pools.path().join("zgate-test")).unwrap();
    machine.until_blocks(&iscsi, 8192);
    for cdb in [&READY[..], &READ[..]] {
        assert!(machine.is_becoming_ready(&iscsi, cdb), "{cdb:02x?}");
    }
    // Also after a reload, which finds it absent anew.
    let (rules, home, opened) = (iscsi.rules(), &iscsi.home, &iscsi.volumes);
    let next = rules.catalog.next(&machine.settings, home, opened, Opening::Start).unwrap();
    let target = next.targets.values().next().unwrap();
    let seen = target.lun_map(&IscsiName::parse(HOST).unwrap(), None);
    assert_eq!(seen.absent, BTreeMap::from([(Lun::ZERO, Some(4 << 20))]));
    // It was not served with this size.
    assert_eq!(machine.state.geometry(&machine.record()).unwrap(), None);
}

/// It was destroyed and made anew, or has got another size, while it was not served.
#[test]
fn a_zvol_that_has_another_size_than_when_it_was_served_tells_what_zfs_knows() {
    let (dir, pools) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let machine = Machine::with(dir, ZVOL.into());
    let record = "capacity_bytes 2097152\nphysical_block_bytes 16384\n\
        optimal_io_bytes 1048576\ndiscard_granularity_bytes 16384\ndiscard_zeroes true\n\
        write_cache true\nread_only false\n";
    machine.state.put_geometry(&machine.record(), record).unwrap();
    let iscsi = machine.start_with(|home| home.zvol_sizes = sizes(pools.path(), 4 << 20));
    assert_eq!(machine.blocks(&iscsi), 4096);
    std::fs::create_dir(pools.path().join("zgate-test")).unwrap();
    machine.until_blocks(&iscsi, 8192);
    assert_eq!(machine.state.geometry(&machine.record()).unwrap().as_deref(), Some(record));
}

#[test]
fn the_record_of_a_lun_goes_with_it() {
    let machine = Machine::new();
    machine.make_disk(4 << 20);
    let iscsi = machine.start();
    let naa = machine.serve(&iscsi).naa.to_string();
    assert!(machine.state.geometry(&naa).unwrap().is_some());
    let removed = iscsi.change(TARGET, |target| {
        target.units.clear();
        target.settings.luns.clear();
        Ok(())
    });
    removed.unwrap();
    machine.runtime.block_on(iscsi.home.all_written()).unwrap();
    assert_eq!(machine.state.geometry(&naa).unwrap(), None);
}
