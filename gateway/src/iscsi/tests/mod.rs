//! A whole gateway in this process, one disk behind a gate, and hosts that
//! connect over TCP and over the emulated RDMA fabric: commands of ended
//! sessions are never forgotten.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod discovery;
mod found;
pub(crate) mod gate;
mod host;
mod late_storage;
mod loads;
mod memory;
mod overdue;
mod pair;
mod parked;
mod queries;
mod reopened;
mod rounds;
mod rules;
mod sense;
mod shares;
mod spans;
mod state_files;

use super::settings::{IscsiSettings, Timeouts, settings};
use crate::exports::open::Opening;
use crate::exports::settings::ExportSet;
use crate::server;
use crate::server::run::Gateway;
use crate::server::settings::Settings;
use bytes::Bytes;
use gate::Gate;
use host::{BLOCK, Host};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zgate_scsi::{Cdb, Command, Nexus, NexusId, TaskAttribute, TransportId};
use zgate_test_initiator::pdu::Itt;
use zgate_test_initiator::ports::free_port;

const TARGET: &str = "iqn.2026-11.test.zgate:fence";

/// Time limit for expected events.
const PATIENCE: Duration = Duration::from_secs(30);

/// Most sessions of the gateway.
const MAX_SESSIONS: usize = 4;

/// Name of the host whose commands are given to disks without a session.
const HOST: &str = "iqn.2026-11.test:host";

/// Returns a command of that host without data to the disk.
pub(in crate::iscsi) fn command(cdb: &[u8]) -> Command {
    let initiator = TransportId::iscsi_port(HOST, [0; 6]);
    Command {
        nexus: Arc::new(Nexus { id: NexusId(1), initiator, relative_port: 1 }),
        cdb: Cdb::new(cdb),
        attribute: TaskAttribute::Simple,
        data_out: Bytes::new(),
        data_out_offered_bytes: 0,
    }
}

/// Transport of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    Tcp,
    Rdma,
}

/// The gateway and its disk.
struct Fixture {
    gateway: Gateway,
    gate: Arc<Gate>,
    tcp: SocketAddr,
    iser: SocketAddr,
    _dir: tempfile::TempDir,
}

impl Fixture {
    fn start() -> Self {
        Self::with(Timeouts::default())
    }

    /// Creates one that waits only briefly for old commands.
    fn impatient() -> Self {
        let moment = Duration::from_millis(200);
        Self::with(Timeouts { function: moment, login: moment, data: moment })
    }

    fn with(timeouts: Timeouts) -> Self {
        Self::with_memory(timeouts, 0)
    }

    /// One whose requests may hold so much memory together; 0 for the usual amount.
    fn with_memory(timeouts: Timeouts, buffer_bytes: usize) -> Self {
        Self::with_disks(timeouts, buffer_bytes, &["disk.img"])
    }

    /// One with these disks, the first of which is behind the gate.
    fn with_disks(timeouts: Timeouts, buffer_bytes: usize, disks: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut luns = String::new();
        for (number, name) in disks.iter().enumerate() {
            let disk = dir.path().join(name);
            std::fs::File::create(&disk).unwrap().set_len(4 << 20).unwrap();
            luns += &format!(
                "[[target.lun]]\nnumber = {number}\npath = {disk:?}\ndirect = \"never\"\n"
            );
        }
        let gate = Gate::before(&dir.path().join(disks[0]));
        let [tcp, iser] =
            [0; 2].map(|_| SocketAddr::from((Ipv4Addr::LOCALHOST, free_port().unwrap())));
        let text = format!(
            "[server]\nlisten = [\"127.0.0.1:0\"]\nstate_dir = \"{0}/state\"\ncores = 2\n\
             worker_threads = 2\npoll_microseconds = 0\ncore_nice = 0\ndrain_seconds = 1\n\
             [rdma]\nfabric = \"emulated\"\n\
             [iscsi]\nthin_warning_percent = 0\nmax_sessions = {MAX_SESSIONS}\n\
             listen = [\"{tcp}\"]\niser_listen = [\"{iser}\"]\n\
             [[target]]\nname = \"{TARGET}\"\nallow_any_initiator = true\n{luns}",
            dir.path().display()
        );
        let config = zgate_config::parse(&text, Path::new("fence.toml")).unwrap();
        let block = IscsiSettings { timeouts, ..settings(&config).unwrap() };
        let server = Settings { buffer_bytes, ..server::settings::settings(&config) };
        let gateway = Gateway::start(
            &server,
            &ExportSet::default(),
            &block,
            (&[], &[]),
            Opening::StrictStart,
            |_| Ok(()),
        )
        .unwrap();
        let fixture = Self { gateway, gate, tcp, iser, _dir: dir };
        fixture.until("iSER listens", || std::net::TcpStream::connect(iser).is_ok());
        fixture
    }

    /// Logs in a host and consumes its unit attentions.
    fn host(&self, over: Over, name: &str) -> Host {
        let mut host = self.login(over, name);
        assert_eq!(host.run(&[0; 6], &Bytes::new()).status, 0, "{name} is ready");
        host
    }

    fn login(&self, over: Over, name: &str) -> Host {
        self.login_as(over, name, 1)
    }

    /// Logs in through another port of the host, that is, with another ISID.
    fn login_as(&self, over: Over, name: &str, port: u8) -> Host {
        let address = if over == Over::Tcp { self.tcp } else { self.iser };
        Host::login(over, address, name, port)
    }

    /// Logs a connection in that replaces the one of this host in its session, the only one.
    fn rejoin(&self, host: &Host, name: &str) -> std::io::Result<Host> {
        let tsih = self.gateway.shared.iscsi.sessions()[0].tsih;
        host.rejoin(self.tcp, name, tsih)
    }

    /// Waits until no command can change the disk any more.
    fn until_settled(&self) {
        let rules = self.gateway.shared.iscsi.rules();
        self.until("commands end", || {
            !rules.catalog.units().any(|unit| unit.disk.running().any(|_| true))
        });
    }

    /// Starts a write that the gate holds.
    fn start_held(&self, host: &mut Host, lba: u64, block: &Bytes) -> Itt {
        let start = lba * BLOCK as u64;
        self.gate.hold(start..start + BLOCK as u64);
        let itt = host.start_write(lba, block);
        self.until_sent(host, "the write reaches the gate", || self.gate.is_held());
        itt
    }

    /// Waits for an effect of what this host has started: over RDMA, its device sends only
    /// while the host runs.
    fn until_sent(&self, host: &mut Host, what: &str, done: impl Fn() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !done() {
            assert!(Instant::now() < deadline, "waited for: {what}");
            host.go_on(Duration::from_millis(1));
        }
    }

    fn until(&self, what: &str, done: impl Fn() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !done() {
            assert!(Instant::now() < deadline, "waited for: {what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until this many sessions are left.
    fn until_sessions(&self, count: usize) {
        self.until("sessions end", || self.gateway.shared.iscsi.sessions().len() == count);
    }

    /// Opens the gate once `acknowledged`, at the latest after some
    /// milliseconds: work that must wait for the held write would otherwise
    /// wait forever.
    fn open_after<T>(&self, work: impl FnOnce() -> T) -> T {
        let (told, done) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let _ = done.recv_timeout(Duration::from_millis(5));
                self.gate.open();
            });
            let outcome = work();
            // The receiver has gone if the time limit was reached.
            let _ = told.send(());
            outcome
        })
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.gate.open();
        self.gateway.stop();
    }
}

/// Returns a block marked with its writer and round.
fn block(writer: u8, round: u32) -> Bytes {
    let mut block = vec![writer; BLOCK];
    block[1..5].copy_from_slice(&round.to_be_bytes());
    Bytes::from(block)
}
