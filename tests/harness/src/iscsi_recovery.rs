//! A gateway with one disk, a proxy in front of it, and an initiator that
//! recovers.

use crate::{Gateway, free_port, noise};
use bytes::Bytes;
use std::net::{Ipv4Addr, SocketAddr};
use zgate_test_initiator::pdu::{Opcode, Reject, RejectReason};
use zgate_test_initiator::proxy::{Direction, Fault, Harm, Proxy, Seen};
use zgate_test_initiator::recovering::{Recovering, Rejoin};
use zgate_test_initiator::{LoginScript, Lun, read16, write16};

pub const TARGET: &str = "iqn.2026-11.test.zgate:recovery";
pub const INITIATOR: &str = "iqn.2026-11.test.zgate:initiator";
pub const BLOCK_BYTES: usize = 512;
pub const LUN: Lun = Lun(0);

/// Returns bytes that depend on their position and time of writing.
pub fn pattern(seed: u64, bytes: usize) -> Bytes {
    Bytes::from(noise(seed, bytes))
}

/// A gateway with a target of 16 MiB that offers all recovery levels.
pub struct RecoveryFixture {
    pub gateway: Gateway,
    pub address: SocketAddr,
}

impl RecoveryFixture {
    pub fn start() -> Self {
        let port = free_port();
        let more = format!(
            "[iscsi]\nlisten = [\"127.0.0.1:{port}\"]\n\
             [[target]]\nname = \"{TARGET}\"\nallow_any_initiator = true\n\
             max_connections = 4\nerror_recovery_level = 2\n\
             [[target.lun]]\nnumber = 0\npath = \"{{dir}}/disk.img\"\nsize = \"16MiB\"\n"
        );
        let gateway = Gateway::start_with(60, &more);
        Self { gateway, address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)) }
    }

    pub fn proxy(&self) -> Proxy {
        Proxy::start(self.address).unwrap()
    }
}

/// Small PDUs and bursts, so that a command has many, and both digests.
pub fn script(level: u32) -> LoginScript {
    LoginScript::normal(INITIATOR, TARGET)
        .with("ErrorRecoveryLevel", &level.to_string())
        .with("MaxConnections", "4")
        .with("HeaderDigest", "CRC32C")
        .with("DataDigest", "CRC32C")
        .with("InitialR2T", "Yes")
        .with("ImmediateData", "Yes")
        .with("MaxRecvDataSegmentLength", "8192")
        .with("MaxBurstLength", "32768")
        .with("FirstBurstLength", "8192")
        .with("MaxOutstandingR2T", "2")
        .with("DefaultTime2Wait", "2")
        .with("DefaultTime2Retain", "20")
}

/// The same, but three PDUs of a write are sent before any R2T.
pub fn unsolicited(level: u32) -> LoginScript {
    let mut script = script(level);
    for (key, value) in &mut script.operational {
        match key.as_str() {
            "InitialR2T" => *value = "No".into(),
            "FirstBurstLength" => *value = "32768".into(),
            _ => {}
        }
    }
    script
}

/// Logs in through a proxy, and consumes the unit attentions of the new
/// session.
pub fn initiator(proxy: &Proxy, level: u32, rejoin: Rejoin) -> Recovering {
    initiator_as(proxy, script(level), level, rejoin)
}

/// The same, with the keys of `script`.
pub fn initiator_as(proxy: &Proxy, script: LoginScript, level: u32, rejoin: Rejoin) -> Recovering {
    let mut session = Recovering::login(proxy.address(), script, rejoin).unwrap();
    assert_eq!(session.level(), level, "the level is agreed");
    session.run(LUN, &[0; 6], 0, Bytes::new()).unwrap();
    session
}

pub fn write(session: &mut Recovering, lba: u64, data: &Bytes) -> std::io::Result<()> {
    let blocks = (data.len() / BLOCK_BYTES) as u32;
    session.run(LUN, &write16(lba, blocks, false), 0, data.clone()).map(|_| ())
}

pub fn read(session: &mut Recovering, lba: u64, bytes: usize) -> std::io::Result<Bytes> {
    session.run(LUN, &read16(lba, (bytes / BLOCK_BYTES) as u32), bytes as u32, Bytes::new())
}

/// Runs COMPARE AND WRITE of one block: if it ran twice, it would fail.
pub fn compare_and_write(
    session: &mut Recovering,
    lba: u64,
    old: &Bytes,
    new: &Bytes,
) -> std::io::Result<()> {
    let mut cdb = [0; 16];
    cdb[0] = 0x89;
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[13] = (old.len() / BLOCK_BYTES) as u8;
    let both = Bytes::from([&old[..], &new[..]].concat());
    session.run(LUN, &cdb, 0, both).map(|_| ())
}

pub fn fault(direction: Direction, opcode: Opcode, skip: usize, harm: Harm) -> Fault {
    Fault { direction, opcode, skip, harm }
}

/// Returns the number of PDUs of a kind.
pub fn count(seen: &[Seen], direction: Direction, opcode: Opcode) -> usize {
    seen.iter().filter(|one| one.direction == direction && one.bhs.opcode() == opcode).count()
}

/// Returns the reasons of the target's rejects.
pub fn rejected(seen: &[Seen]) -> Vec<RejectReason> {
    let rejects = seen.iter().filter(|one| {
        one.direction == Direction::ToInitiator && one.bhs.opcode() == Opcode::REJECT
    });
    rejects.map(|one| Reject::parse(&one.bhs).reason).collect()
}
