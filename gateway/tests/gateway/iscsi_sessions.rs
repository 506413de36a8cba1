//! Sessions of several connections, and several initiators of one disk, before
//! a real gateway.

use bytes::Bytes;
use std::collections::BTreeMap;
use zgate_test_harness::iscsi_recovery::{
    BLOCK_BYTES, INITIATOR, LUN, RecoveryFixture, TARGET, count, initiator, pattern, read, write,
};
use zgate_test_initiator::pdu::Opcode;
use zgate_test_initiator::proxy::Direction;
use zgate_test_initiator::recovering::{Rejoin, Repairs};
use zgate_test_initiator::{Done, Isid, LoginScript, Session, read16, write16};

/// RFC 7143 §13.2: four connections of one session share its commands and
/// numbers; each answers its own commands (§4.2.5.1), and a fifth is refused.
#[test]
fn a_session_of_four_connections() {
    let fixture = RecoveryFixture::start();
    let proxy = fixture.proxy();
    for level in [0, 2] {
        let before = proxy.seen().len();
        let mut session = initiator(&proxy, level, Rejoin::SameCid);
        assert_eq!(session.max_connections(), 4);
        for cid in 1..4 {
            session.join(cid).unwrap();
        }
        let bytes = 96 << 10;
        let blocks = (bytes / BLOCK_BYTES) as u32;
        let mut under_way = BTreeMap::new();
        for at in 0..32_u64 {
            let cdb = write16(at * u64::from(blocks), blocks, false);
            let data = pattern(at + 7, bytes);
            let ticket = session.start(at as usize % 4, LUN, &cdb, 0, data).unwrap();
            under_way.insert(ticket, at);
        }
        while !under_way.is_empty() {
            let (ticket, done) = session.wait().unwrap();
            assert_eq!((done.status, under_way.remove(&ticket).is_some()), (0, true));
        }
        for at in 0..32_u64 {
            let cdb = read16(at * u64::from(blocks), blocks);
            // Read on another connection than it was written.
            let ticket =
                session.start((at as usize + 1) % 4, LUN, &cdb, bytes as u32, Bytes::new());
            under_way.insert(ticket.unwrap(), at);
        }
        while !under_way.is_empty() {
            let (ticket, done) = session.wait().unwrap();
            let at = under_way.remove(&ticket).unwrap();
            assert!(done.status == 0 && done.data == pattern(at + 7, bytes), "span {at}");
        }
        let refused = session.join(9).unwrap_err();
        assert_eq!(refused.to_string(), "login refused: 0206", "RFC 7143 §11.13.5");
        assert_eq!((session.connections(), &session.repairs), (4, &Repairs::default()));
        let seen = proxy.seen().split_off(before);
        let first = seen.first().unwrap().connection;
        for connection in first..first + 4 {
            let own: Vec<_> =
                seen.iter().filter(|one| one.connection == connection).copied().collect();
            assert!(count(&own, Direction::ToTarget, Opcode::SCSI_COMMAND) >= 16);
            assert!(count(&own, Direction::ToInitiator, Opcode::DATA_IN) >= 8 * 12);
        }
    }
}

/// Logs in as a separate nexus: another name, or another ISID.
fn nexus(fixture: &RecoveryFixture, name: &str, isid: u8) -> Session {
    let mut script = LoginScript::normal(&format!("{INITIATOR}-{name}"), TARGET);
    script.isid = Isid([0x80, 0, 0, 0, 0, isid]);
    let mut session = Session::login(fixture.address, &script).unwrap();
    session.run(LUN, &[0; 6], 0, &Bytes::new()).unwrap();
    session
}

/// Runs one command. The unit attention about a full file system (SBC-4
/// §4.7.3.7) may occur at any time, and is skipped.
fn once(session: &mut Session, cdb: &[u8], read_bytes: u32, write: &Bytes) -> Done {
    loop {
        session.start(LUN, cdb, read_bytes, write.clone());
        let done = session.wait().unwrap();
        if attention(&done) != Some((0x38, 0x07)) {
            return done;
        }
    }
}

const CONFLICT: u8 = 0x18;
const WRITE_EXCLUSIVE_REGISTRANTS: u8 = 5;
const EXCLUSIVE: u8 = 3;

/// PERSISTENT RESERVE OUT (SPC-4 §6.16): action, type, own key, action's key.
fn reserve_out(session: &mut Session, action: u8, kind: u8, key: u64, other: u64) -> Done {
    let mut data = [0; 24];
    data[..8].copy_from_slice(&key.to_be_bytes());
    data[8..16].copy_from_slice(&other.to_be_bytes());
    let cdb = [0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0];
    once(session, &cdb, 0, &Bytes::copy_from_slice(&data))
}

/// Returns the registered keys (SPC-4 §6.15.2).
fn keys(session: &mut Session) -> Vec<u64> {
    let cdb = [0x5e, 0, 0, 0, 0, 0, 0, 1, 0, 0];
    let data = session.run(LUN, &cdb, 256, &Bytes::new()).unwrap();
    let len = u32::from_be_bytes(data[4..8].try_into().unwrap()) as usize;
    data[8..8 + len].chunks(8).map(|key| u64::from_be_bytes(key.try_into().unwrap())).collect()
}

fn attention(done: &Done) -> Option<(u8, u8)> {
    let is_one = done.status == 2 && done.sense[2] & 15 == 6;
    is_one.then(|| (done.sense[12], done.sense[13]))
}

#[test]
fn persistent_reservations_of_two_initiators() {
    let mut fixture = RecoveryFixture::start();
    let (mut one, mut two) = (nexus(&fixture, "one", 1), nexus(&fixture, "two", 1));
    let data = pattern(3, BLOCK_BYTES);
    let write_cdb = write16(5, 1, false);
    let registered = reserve_out(&mut one, 0, 0, 0, 0x11);
    assert_eq!(registered.status, 0, "REGISTER: {:02x?}", &registered.sense[..]);
    assert_eq!(reserve_out(&mut one, 1, WRITE_EXCLUSIVE_REGISTRANTS, 0x11, 0).status, 0, "RESERVE");
    // An unregistered nexus may read but not write (SPC-4 §5.13.10).
    assert_eq!(once(&mut two, &write_cdb, 0, &data).status, CONFLICT);
    assert_eq!(once(&mut two, &read16(5, 1), 512, &Bytes::new()).status, 0);
    assert_eq!(reserve_out(&mut two, 1, EXCLUSIVE, 0x22, 0).status, CONFLICT, "no key");
    assert_eq!(reserve_out(&mut two, 0, 0, 0, 0x22).status, 0);
    assert_eq!(once(&mut two, &write_cdb, 0, &data).status, 0, "registered now");
    assert_eq!(keys(&mut one), [0x11, 0x22]);
    // Preempted: the other nexus is informed and excluded (SPC-4 §5.13.11.2.6).
    assert_eq!(reserve_out(&mut two, 4, EXCLUSIVE, 0x22, 0x11).status, 0, "PREEMPT");
    assert_eq!(keys(&mut two), [0x22]);
    let told = once(&mut one, &[0; 6], 0, &Bytes::new());
    assert_eq!(attention(&told), Some((0x2a, 0x05)), "REGISTRATIONS PREEMPTED");
    assert_eq!(once(&mut one, &read16(5, 1), 512, &Bytes::new()).status, CONFLICT);
    // The reservation belongs to the nexus, not to the connection (SPC-4
    // §5.13.1): it survives the session, and the same port has it again.
    drop(two);
    assert_eq!(once(&mut one, &write_cdb, 0, &data).status, CONFLICT);
    let mut two = nexus(&fixture, "two", 1);
    assert_eq!(once(&mut two, &write_cdb, 0, &data).status, 0, "the holder is back");
    // Another port of the same initiator is another nexus.
    let mut port = nexus(&fixture, "two", 2);
    assert_eq!(once(&mut port, &write_cdb, 0, &data).status, CONFLICT);
    // With APTPL it survives a kill of the gateway (SPC-4 §5.13.4).
    let mut persist = [0; 24];
    persist[7] = 0x22;
    persist[15] = 0x22;
    persist[20] = 1;
    let cdb = [0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0];
    assert_eq!(once(&mut two, &cdb, 0, &Bytes::copy_from_slice(&persist)).status, 0, "APTPL");
    fixture.gateway.kill();
    fixture.gateway.restart();
    let (mut one, mut two) = (nexus(&fixture, "one", 1), nexus(&fixture, "two", 1));
    assert_eq!(once(&mut one, &write_cdb, 0, &data).status, CONFLICT);
    assert_eq!(once(&mut two, &write_cdb, 0, &data).status, 0);
    assert_eq!(reserve_out(&mut two, 2, EXCLUSIVE, 0x22, 0).status, 0, "RELEASE");
    assert_eq!(once(&mut one, &write_cdb, 0, &data).status, 0);
}

/// A reservation covers every connection of the session that holds it.
#[test]
fn a_reservation_is_the_sessions_not_the_connections() {
    let fixture = RecoveryFixture::start();
    let proxy = fixture.proxy();
    let mut session = initiator(&proxy, 2, Rejoin::Logout);
    session.join(1).unwrap();
    let mut other = nexus(&fixture, "other", 1);
    let mut data = [0; 24];
    data[15] = 0x33;
    let register = Bytes::copy_from_slice(&data);
    session.run(LUN, &[0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0], 0, register).unwrap();
    let mut data = [0; 24];
    data[7] = 0x33;
    let cdb = [0x5f, 1, EXCLUSIVE, 0, 0, 0, 0, 0, 24, 0];
    session.run(LUN, &cdb, 0, Bytes::copy_from_slice(&data)).unwrap();
    let block = pattern(1, BLOCK_BYTES);
    let on_second = session.start(1, LUN, &write16(7, 1, false), 0, block.clone()).unwrap();
    let (ticket, done) = session.wait().unwrap();
    assert_eq!((ticket, done.status), (on_second, 0));
    assert_eq!(once(&mut other, &read16(7, 1), 512, &Bytes::new()).status, CONFLICT);
    write(&mut session, 9, &block).unwrap();
    assert!(read(&mut session, 7, BLOCK_BYTES).unwrap() == block);
}
