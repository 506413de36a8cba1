//! A host with one session, over either transport.

use super::{Over, TARGET};
use bytes::Bytes;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use zgate_iscsi::initiator::Initiator;
use zgate_iscsi::names::Tsih;
use zgate_test_initiator::pdu::{Frame, Itt, NopOut, TaskFunction, TaskResult, Ttt};
use zgate_test_initiator::{Isid, LoginScript, Lun, Session, read16, write16};
use zgate_test_iser::client::{Client, as_linux};

pub(super) const BLOCK: usize = 512;
const LUN: Lun = Lun(0);
/// Flags of Linux: no zero-based addresses, invalidation supported.
const LINUX: [u8; 4] = [0x80, 0, 0, 0];

/// Result of a command.
#[derive(Debug)]
pub(super) struct Ended {
    pub itt: Itt,
    pub status: u8,
    pub sense: Bytes,
    pub data: Bytes,
}

pub(super) enum Host {
    Tcp(Box<Session>),
    Rdma(Box<Client>),
}

impl Host {
    pub(super) fn login(over: Over, to: SocketAddr, name: &str, port: u8) -> Self {
        let mut script = LoginScript::normal(&format!("iqn.2026-11.test.zgate:{name}"), TARGET);
        script.isid = Isid([0x80, 0, 0, 0, 0, port]);
        match over {
            Over::Tcp => Self::Tcp(Box::new(Session::login(to, &script).unwrap())),
            Over::Rdma => {
                let client = Client::login(to, &as_linux(script), &LINUX).unwrap();
                assert_eq!(client.outcome.status, (0, 0), "{name} logs in");
                Self::Rdma(Box::new(client))
            }
        }
    }

    /// The same, and nothing of a write goes unasked beyond 8 KiB.
    pub(super) fn login_modest(over: Over, to: SocketAddr, name: &str) -> Self {
        let script = LoginScript::normal(&format!("iqn.2026-11.test.zgate:{name}"), TARGET);
        match over {
            Over::Tcp => {
                let script = script.with("InitialR2T", "Yes").with("ImmediateData", "No");
                Self::Tcp(Box::new(Session::login(to, &script).unwrap()))
            }
            Over::Rdma => Self::login(over, to, name, 1),
        }
    }

    /// The same over TCP, at error recovery level 2: its commands outlive their connection.
    pub(super) fn login_recovering(to: SocketAddr, name: &str) -> Self {
        let script = LoginScript::normal(&format!("iqn.2026-11.test.zgate:{name}"), TARGET);
        let script = script.with("ErrorRecoveryLevel", "2");
        Self::Tcp(Box::new(Session::login(to, &script).unwrap()))
    }

    /// Logs a connection in with the CID of this one, which it replaces.
    pub(super) fn rejoin(&self, to: SocketAddr, name: &str, tsih: Tsih) -> io::Result<Self> {
        let Self::Tcp(session) = self else { panic!("a session over TCP") };
        let mut script = LoginScript::normal(&format!("iqn.2026-11.test.zgate:{name}"), TARGET);
        script.isid = Isid([0x80, 0, 0, 0, 0, 1]);
        (script.tsih, script.cmd_sn) = (tsih, session.initiator.cmd_sn);
        Session::login(to, &script).map(|session| Self::Tcp(Box::new(session)))
    }

    /// Sends a command.
    pub(super) fn start(&mut self, cdb: &[u8], data: &Bytes) -> Itt {
        self.start_on(LUN, cdb, data)
    }

    /// The same to any logical unit.
    pub(super) fn start_on(&mut self, lun: Lun, cdb: &[u8], data: &Bytes) -> Itt {
        let read_bytes = if data.is_empty() { 4 * BLOCK as u32 } else { 0 };
        match self {
            Self::Tcp(session) => {
                let itt = session.start(lun, cdb, read_bytes, data.clone());
                session.flush().unwrap();
                itt
            }
            Self::Rdma(client) => client.start(lun, cdb, read_bytes, data).unwrap(),
        }
    }

    /// Sends queued data for some time.
    pub(super) fn go_on(&mut self, time: Duration) {
        match self {
            Self::Tcp(_) => std::thread::sleep(time),
            Self::Rdma(client) => client.go_on(time),
        }
    }

    /// Waits for the next command to end.
    pub(super) fn wait_any(&mut self) -> Ended {
        match self {
            Self::Tcp(session) => {
                let done = session.wait().unwrap();
                Ended { itt: done.itt, status: done.status, sense: done.sense, data: done.data }
            }
            Self::Rdma(client) => {
                let (itt, done) = client.wait().unwrap();
                Ended { itt, status: done.status, sense: done.sense, data: done.data }
            }
        }
    }

    /// Waits for this command to end.
    pub(super) fn wait(&mut self, itt: Itt) -> Ended {
        loop {
            let ended = self.wait_any();
            if ended.itt == itt {
                return ended;
            }
        }
    }

    /// Runs one command, and repeats it after a unit attention.
    pub(super) fn run(&mut self, cdb: &[u8], data: &Bytes) -> Ended {
        self.run_on(LUN, cdb, data)
    }

    /// The same on any logical unit.
    pub(super) fn run_on(&mut self, lun: Lun, cdb: &[u8], data: &Bytes) -> Ended {
        loop {
            let itt = self.start_on(lun, cdb, data);
            let ended = self.wait(itt);
            if ended.status != 2 || ended.sense[2] & 15 != 6 {
                return ended;
            }
        }
    }

    pub(super) fn start_write(&mut self, lba: u64, block: &Bytes) -> Itt {
        self.start(&write16(lba, 1, false), block)
    }

    /// Writes a block to stable storage.
    pub(super) fn write(&mut self, lba: u64, block: &Bytes) -> Ended {
        self.run(&write16(lba, 1, true), block)
    }

    pub(super) fn read(&mut self, lba: u64) -> Bytes {
        let ended = self.run(&read16(lba, 1), &Bytes::new());
        assert_eq!(ended.status, 0, "read: {:02x?}", &ended.sense[..]);
        ended.data.slice(..BLOCK)
    }

    /// Sends a task management function and waits for its response.
    pub(super) fn function(&mut self, function: TaskFunction, of: Itt) -> TaskResult {
        match self {
            Self::Tcp(session) => {
                let itt = session.function(function, LUN, of).unwrap();
                session.function_result(itt).unwrap()
            }
            Self::Rdma(client) => {
                let itt = client.function(function, LUN, of).unwrap();
                client.function_result(itt).unwrap()
            }
        }
    }

    /// Sends a ping with so much data, and returns what comes back.
    pub(super) fn ping(&mut self, len: usize) -> Frame {
        let ping = |numbers: &mut Initiator| {
            let (itt, cmd_sn, exp_stat_sn) = (numbers.tag(), numbers.cmd_sn, numbers.exp_stat_sn);
            let ttt = Ttt::NONE;
            let ping = NopOut { immediate: true, lun: LUN, itt, ttt, cmd_sn, exp_stat_sn };
            ping.encode(Bytes::from(vec![5; len]))
        };
        match self {
            Self::Tcp(session) => {
                let ping = ping(&mut session.initiator);
                session.initiator.send(ping);
                session.other().unwrap()
            }
            Self::Rdma(client) => {
                let ping = ping(client.numbers());
                client.send(ping).unwrap();
                client.other().unwrap()
            }
        }
    }

    /// Sends PERSISTENT RESERVE OUT (SPC-4 §6.16): service action, own key, the
    /// action's key. The type is Exclusive Access, Registrants Only.
    pub(super) fn reserve_out(&mut self, action: u8, key: u64, other: u64) -> Ended {
        let mut data = [0; 24];
        data[..8].copy_from_slice(&key.to_be_bytes());
        data[8..16].copy_from_slice(&other.to_be_bytes());
        let cdb = [0x5f, action, 6, 0, 0, 0, 0, 0, 24, 0];
        self.run(&cdb, &Bytes::copy_from_slice(&data))
    }

    /// Returns the registered keys (SPC-4 §6.15.2).
    pub(super) fn keys(&mut self) -> Vec<u64> {
        let data = self.run(&[0x5e, 0, 0, 0, 0, 0, 0, 1, 0, 0], &Bytes::new()).data;
        let len = u32::from_be_bytes(data[4..8].try_into().unwrap()) as usize;
        data[8..8 + len].chunks(8).map(|key| u64::from_be_bytes(key.try_into().unwrap())).collect()
    }
}
