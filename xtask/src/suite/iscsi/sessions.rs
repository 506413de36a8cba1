//! Sessions of the test initiator: digests, several connections, two initiators
//! with reservations, reinstatement, task management.

use super::disks::{OPEN, Rig, lun};
use crate::totals::Outcome;
use bytes::Bytes;
use std::io;
use std::net::SocketAddr;
use zgate_test_initiator::{Done, LoginScript, Lun, Session, read16, write16};

const FIRST: &str = "iqn.2026-11.test.zgate:first";
const SECOND: &str = "iqn.2026-11.test.zgate:second";
/// LUN of the disk.
const DISK: Lun = Lun((lun::SMALL_PHYSICAL as u64) << 48);
/// SCSI status RESERVATION CONFLICT.
const CONFLICT: u8 = 0x18;
const BLOCK_BYTES: usize = 512;

/// Runs all tests.
pub(crate) fn run(rig: &Rig, outcome: &mut Outcome) {
    let at = rig.server.address;
    let say = |result: io::Result<()>| result.map_err(|error| error.to_string());
    for (header, data) in [("CRC32C", "None"), ("None", "CRC32C"), ("CRC32C", "CRC32C")] {
        let name = format!("header digest {header}, data digest {data}");
        outcome.check(&name, say(digests(at, header, data)));
    }
    outcome.check("four connections in one session", say(connections(rig)));
    outcome.check("a reservation excludes the other initiator", say(reservations(at)));
    outcome.check("reservations survive a lost session", say(reservations_stay(at)));
    outcome.check("a new session replaces the old one", say(reinstatement(rig)));
}

fn script(initiator: &str) -> LoginScript {
    LoginScript::normal(initiator, OPEN)
}

fn pattern(seed: u8, blocks: usize) -> Bytes {
    (0..blocks * BLOCK_BYTES).map(|at| (at / 3) as u8 ^ seed).collect()
}

fn expect(holds: bool, what: impl Into<String>) -> io::Result<()> {
    if holds { Ok(()) } else { Err(io::Error::other(what.into())) }
}

fn digests(at: SocketAddr, header: &str, data: &str) -> io::Result<()> {
    let script = script(FIRST).with("HeaderDigest", header).with("DataDigest", data);
    let mut session = Session::login(at, &script)?;
    let params = session.initiator.params();
    let agreed = (params.header_digest, params.data_digest);
    expect(agreed == (header == "CRC32C", data == "CRC32C"), "the digests were not negotiated")?;
    for (seed, blocks) in [(1, 1), (2, 8), (3, 2048)] {
        let written = pattern(seed, blocks);
        session.run(DISK, &write16(100, blocks as u32, false), 0, &written)?;
        let read =
            session.run(DISK, &read16(100, blocks as u32), written.len() as u32, &Bytes::new())?;
        expect(read == written, format!("{blocks} blocks differ"))?;
    }
    Ok(())
}

/// Sends commands on four connections in turn, which share one CmdSN.
fn connections(rig: &Rig) -> io::Result<()> {
    let at = rig.server.address;
    let script = script(FIRST).with("MaxConnections", "4");
    let mut sessions = vec![Session::login(at, &script)?];
    let tsih = rig
        .live(&["sessions"])?
        .as_array()
        .and_then(|all| all.iter().find(|one| one["initiator"] == FIRST).cloned())
        .and_then(|one| one["tsih"].as_u64())
        .ok_or_else(|| io::Error::other("the session is not shown"))?;
    for cid in 1..4 {
        let mut script = self::script(FIRST);
        script.tsih.0 = tsih as u16;
        script.cid.0 = cid;
        script.cmd_sn = sessions[0].initiator.cmd_sn;
        sessions.push(Session::login(at, &script)?);
    }
    let mut cmd_sn = sessions[0].initiator.cmd_sn;
    for round in 0..32usize {
        let which = round % sessions.len();
        let session = &mut sessions[which];
        session.initiator.cmd_sn = cmd_sn;
        let written = pattern(round as u8, 16);
        let lba = 1000 + 16 * round as u64;
        session.run(DISK, &write16(lba, 16, false), 0, &written)?;
        cmd_sn = session.initiator.cmd_sn;
        let reader = &mut sessions[(which + 1) % 4];
        reader.initiator.cmd_sn = cmd_sn;
        let read = reader.run(DISK, &read16(lba, 16), written.len() as u32, &Bytes::new())?;
        cmd_sn = reader.initiator.cmd_sn;
        expect(read == written, format!("round {round} differs"))?;
    }
    let shown = rig.live(&["sessions"])?;
    let cores: Vec<_> = shown
        .as_array()
        .and_then(|all| all.iter().find(|one| one["initiator"] == FIRST))
        .and_then(|one| one["connections"].as_array())
        .map(|all| all.iter().filter_map(|one| one["core"].as_u64()).collect())
        .unwrap_or_default();
    expect(cores.len() == 4, format!("connections on cores {cores:?}"))?;
    let all_cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut distinct = cores.clone();
    distinct.sort_unstable();
    distinct.dedup();
    expect(distinct.len() == all_cores.min(4), format!("they are on cores {cores:?}"))
}

/// Runs a command and returns its result; unit attentions are skipped.
fn status(session: &mut Session, cdb: &[u8], read: u32, write: &Bytes) -> io::Result<Done> {
    for _ in 0..4 {
        session.start(DISK, cdb, read, write.clone());
        let done = session.wait()?;
        if !done.is_unit_attention() {
            return Ok(done);
        }
    }
    Err(io::Error::other("unit attentions without end"))
}

/// Sends PERSISTENT RESERVE OUT with its 24 bytes of parameters.
fn reserve(session: &mut Session, action: u8, kind: u8, key: u64, new_key: u64) -> io::Result<u8> {
    let cdb = [0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0];
    let mut list = [0; 24];
    list[..8].copy_from_slice(&key.to_be_bytes());
    list[8..16].copy_from_slice(&new_key.to_be_bytes());
    Ok(status(session, &cdb, 0, &Bytes::copy_from_slice(&list))?.status)
}

/// REGISTER AND IGNORE EXISTING KEY, RESERVE, RELEASE, CLEAR (SPC-4 §6.16).
const REGISTER: u8 = 6;
const RESERVE: u8 = 1;
const RELEASE: u8 = 2;
const CLEAR: u8 = 3;
/// Write Exclusive.
const WRITE_EXCLUSIVE: u8 = 1;

fn reservations(at: SocketAddr) -> io::Result<()> {
    let (mut first, mut second) =
        (Session::login(at, &script(FIRST))?, Session::login(at, &script(SECOND))?);
    expect(reserve(&mut first, REGISTER, 0, 0, 11)? == 0, "register")?;
    expect(reserve(&mut first, RESERVE, WRITE_EXCLUSIVE, 11, 0)? == 0, "reserve")?;
    let data = pattern(9, 1);
    let write = |session: &mut Session| -> io::Result<u8> {
        Ok(status(session, &write16(5, 1, false), 0, &data)?.status)
    };
    expect(write(&mut first)? == 0, "the holder cannot write")?;
    expect(write(&mut second)? == CONFLICT, "the other initiator can write")?;
    let read = status(&mut second, &read16(5, 1), 512, &Bytes::new())?;
    expect(read.status == 0 && read.data == data, "the other initiator cannot read")?;
    expect(reserve(&mut first, RELEASE, WRITE_EXCLUSIVE, 11, 0)? == 0, "release")?;
    expect(write(&mut second)? == 0, "the other initiator cannot write after the release")?;
    expect(reserve(&mut first, CLEAR, 0, 11, 0)? == 0, "clear")
}

fn reservations_stay(at: SocketAddr) -> io::Result<()> {
    let mut first = Session::login(at, &script(FIRST))?;
    expect(reserve(&mut first, REGISTER, 0, 0, 12)? == 0, "register")?;
    expect(reserve(&mut first, RESERVE, WRITE_EXCLUSIVE, 12, 0)? == 0, "reserve")?;
    drop(first);
    let mut second = Session::login(at, &script(SECOND))?;
    let data = pattern(1, 1);
    let kept = status(&mut second, &write16(5, 1, false), 0, &data)?.status == CONFLICT;
    let mut first = Session::login(at, &script(FIRST))?;
    expect(reserve(&mut first, CLEAR, 0, 12, 0)? == 0, "clear by the same port")?;
    expect(kept, "the reservation ended with the session")
}

fn reinstatement(rig: &Rig) -> io::Result<()> {
    let at = rig.server.address;
    let mut old = Session::login(at, &script(FIRST))?;
    old.run(DISK, &read16(0, 1), 512, &Bytes::new())?;
    let mut new = Session::login(at, &script(FIRST))?;
    new.run(DISK, &read16(0, 1), 512, &Bytes::new())?;
    let gone = old.run(DISK, &read16(0, 1), 512, &Bytes::new()).is_err();
    expect(gone, "the old session still answers")?;
    let shown = rig.live(&["sessions"])?;
    let count =
        shown.as_array().map(|all| all.iter().filter(|one| one["initiator"] == FIRST).count());
    expect(count == Some(1), format!("sessions: {shown}"))
}
