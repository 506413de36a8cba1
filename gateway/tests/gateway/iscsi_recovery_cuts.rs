//! Connections that end at every point of a command, before a real gateway: at
//! level 2 the tasks continue over another connection (RFC 7143 §7.2.2, §7.5),
//! at level 0 and 1 a new session replaces the old one (§6.3.5, §7.6), and no
//! answered write is lost.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::io;
use zgate_test_harness::Random;
use zgate_test_harness::iscsi_recovery::{
    BLOCK_BYTES, LUN, RecoveryFixture, compare_and_write, count, fault, initiator, initiator_as,
    pattern, read, script, unsolicited, write,
};
use zgate_test_initiator::pdu::{Opcode, TaskFunction, TaskRequest};
use zgate_test_initiator::proxy::{Direction, Harm, Proxy};
use zgate_test_initiator::recovering::{Recovering, Rejoin};
use zgate_test_initiator::{read16, write16};

const BYTES: usize = 160 << 10;

/// Every kind of PDU of a write and a read, and its index among its kind.
const PLACES: &[(Direction, Opcode, usize)] = &[
    (Direction::ToTarget, Opcode::SCSI_COMMAND, 0),
    (Direction::ToTarget, Opcode::DATA_OUT, 0),
    (Direction::ToTarget, Opcode::DATA_OUT, 3),
    (Direction::ToTarget, Opcode::DATA_OUT, 9),
    (Direction::ToInitiator, Opcode::R2T, 0),
    (Direction::ToInitiator, Opcode::R2T, 3),
    (Direction::ToInitiator, Opcode::SCSI_RESPONSE, 0),
    (Direction::ToTarget, Opcode::SCSI_COMMAND, 1),
    (Direction::ToInitiator, Opcode::DATA_IN, 0),
    (Direction::ToInitiator, Opcode::DATA_IN, 7),
    (Direction::ToInitiator, Opcode::DATA_IN, BYTES / 8192 - 1),
];

/// Writes and reads back while the connection is cut once.
fn survive(session: &mut Recovering, proxy: &Proxy, seed: u64) -> io::Result<()> {
    let data = pattern(seed, BYTES);
    write(session, 200, &data)?;
    assert!(read(session, 200, BYTES)? == data, "other data came back");
    session.settle()?;
    assert_eq!(proxy.pending(), 0, "it was not cut");
    Ok(())
}

#[test]
fn tasks_go_on_over_another_connection() {
    let fixture = RecoveryFixture::start();
    let mut reassigned = 0;
    for rejoin in [Rejoin::SameCid, Rejoin::Logout] {
        for harm in [Harm::CutBefore, Harm::CutAfter] {
            for (seed, (direction, opcode, skip)) in PLACES.iter().enumerate() {
                let proxy = fixture.proxy();
                let mut session = initiator(&proxy, 2, rejoin);
                proxy.inject(fault(*direction, *opcode, *skip, harm));
                let case = format!("{rejoin:?}, {harm:?} {direction:?} {opcode:?} {skip}");
                survive(&mut session, &proxy, seed as u64)
                    .unwrap_or_else(|error| panic!("{case}: {error}"));
                let repairs = &session.repairs;
                assert_eq!((repairs.sessions, repairs.connections), (0, 1), "{case}");
                assert_eq!(repairs.not_reassigned, [0; 0], "{case}");
                reassigned += repairs.reassigned;
            }
        }
    }
    assert!(reassigned >= PLACES.len(), "{reassigned} tasks were reassigned");
}

/// Cuts one connection of two: its tasks continue over the other one, which
/// continues with its own (RFC 7143 §7.2.2).
#[test]
fn tasks_move_to_a_connection_that_is_there() {
    let fixture = RecoveryFixture::start();
    for (direction, opcode) in [
        (Direction::ToTarget, Opcode::DATA_OUT),
        (Direction::ToInitiator, Opcode::DATA_IN),
        (Direction::ToInitiator, Opcode::R2T),
    ] {
        let proxy = fixture.proxy();
        let mut session = initiator(&proxy, 2, Rejoin::Logout);
        session.join(1).unwrap();
        let old: Vec<Bytes> = (0..4).map(|seed| pattern(seed + 50, BYTES)).collect();
        for (at, data) in old.iter().enumerate() {
            write(&mut session, 1000 + 400 * at as u64, data).unwrap();
        }
        proxy.inject(fault(direction, opcode, 6, Harm::CutAfter));
        let blocks = (BYTES / BLOCK_BYTES) as u32;
        let mut expected = BTreeMap::new();
        for at in 0..4_u64 {
            let lba = 1000 + 400 * at;
            let read = session
                .start(at as usize % 2, LUN, &read16(lba, blocks), BYTES as u32, Bytes::new())
                .unwrap();
            expected.insert(read, old[at as usize].clone());
            let fresh = pattern(at + 90, BYTES);
            let cdb = write16(lba + 4000, blocks, false);
            expected
                .insert(session.start(at as usize % 2, LUN, &cdb, 0, fresh).unwrap(), Bytes::new());
        }
        for _ in 0..expected.len() {
            let (ticket, done) = session.wait().unwrap();
            assert!(done.status == 0 && done.data == expected[&ticket], "{opcode:?}");
        }
        for at in 0..4_u64 {
            assert!(read(&mut session, 5000 + 400 * at, BYTES).unwrap() == pattern(at + 90, BYTES));
        }
        let repairs = &session.repairs;
        assert_eq!((repairs.sessions, repairs.connections, session.connections()), (0, 1, 1));
        assert!(repairs.reassigned >= 1 && repairs.not_reassigned.is_empty(), "{repairs:?}");
        let seen = proxy.seen();
        assert_eq!(count(&seen, Direction::ToTarget, Opcode::LOGOUT_REQUEST), 1);
        let reassigns = seen.iter().filter(|one| {
            one.direction == Direction::ToTarget
                && one.bhs.opcode() == Opcode::TASK_REQUEST
                && TaskRequest::parse(&one.bhs).function == TaskFunction::TASK_REASSIGN
        });
        assert!(reassigns.count() >= repairs.reassigned);
    }
}

/// The response of a finished command is lost with its connection: it is sent
/// after the reassignment, and the command does not run again.
#[test]
fn what_ran_does_not_run_again() {
    let fixture = RecoveryFixture::start();
    for rejoin in [Rejoin::SameCid, Rejoin::Logout] {
        for harm in [Harm::CutBefore, Harm::CutAfter] {
            let proxy = fixture.proxy();
            let mut session = initiator(&proxy, 2, rejoin);
            let (old, new) = (pattern(1, BLOCK_BYTES), pattern(2, BLOCK_BYTES));
            write(&mut session, 8, &old).unwrap();
            proxy.inject(fault(Direction::ToInitiator, Opcode::SCSI_RESPONSE, 0, harm));
            compare_and_write(&mut session, 8, &old, &new).unwrap();
            assert!(read(&mut session, 8, BLOCK_BYTES).unwrap() == new);
            session.settle().unwrap();
            assert_eq!((session.repairs.sessions, session.repairs.connections), (0, 1));
        }
    }
}

/// RFC 7143 §7.6: below level 2 the session is created again with the same
/// ISID; every answered write is there.
#[test]
fn a_new_session_finds_all_that_was_answered() {
    let fixture = RecoveryFixture::start();
    for level in 0..=1 {
        for harm in [Harm::CutBefore, Harm::CutAfter] {
            for (seed, (direction, opcode, skip)) in PLACES.iter().enumerate() {
                let proxy = fixture.proxy();
                let mut session = initiator(&proxy, level, Rejoin::SameCid);
                let kept = pattern(seed as u64 + 500, 8192);
                write(&mut session, 900, &kept).unwrap();
                proxy.inject(fault(*direction, *opcode, *skip, harm));
                let case = format!("level {level}, {harm:?} {direction:?} {opcode:?} {skip}");
                survive(&mut session, &proxy, seed as u64)
                    .unwrap_or_else(|error| panic!("{case}: {error}"));
                assert_eq!(session.repairs.sessions, 1, "{case}");
                assert!(read(&mut session, 900, 8192).unwrap() == kept, "{case}: it was answered");
            }
        }
    }
}

/// Length of the spans that are written and read, in blocks.
const SPAN: u32 = 24;
const SPANS: u64 = 64;

/// Random faults under commands of two connections that overlap in time but not
/// in place: every read finds the latest write.
fn storm(fixture: &RecoveryFixture, level: u32, random: &mut Random, rounds: usize) -> usize {
    let proxy = fixture.proxy();
    let rejoin = if random.below(2) == 0 { Rejoin::SameCid } else { Rejoin::Logout };
    let script = if random.below(2) == 0 { script(level) } else { unsolicited(level) };
    let mut session = initiator_as(&proxy, script, level, rejoin);
    if level == 2 {
        session.join(1).unwrap();
    }
    let mut written: BTreeMap<u64, u64> = BTreeMap::new();
    let bytes = SPAN as usize * BLOCK_BYTES;
    for round in 0..rounds {
        for _ in 0..random.below(3) {
            proxy.inject(any_fault(level, random));
        }
        let mut places: Vec<u64> = (0..8).map(|_| random.below(SPANS)).collect();
        places.sort_unstable();
        places.dedup();
        let mut under_way = BTreeMap::new();
        for place in places {
            let (lba, on) = (place * u64::from(SPAN), random.below(2) as usize);
            if let (true, Some(seed)) = (random.below(2) == 0, written.get(&place)) {
                let ticket = session.start(on, LUN, &read16(lba, SPAN), bytes as u32, Bytes::new());
                under_way.insert(ticket.unwrap(), (pattern(*seed, bytes), place));
            } else {
                let seed = random.u64();
                let data = pattern(seed, bytes);
                let ticket = session.start(on, LUN, &write16(lba, SPAN, false), 0, data);
                under_way.insert(ticket.unwrap(), (Bytes::new(), place));
                written.insert(place, seed);
            }
        }
        while !under_way.is_empty() {
            let (ticket, done) = session.wait().unwrap_or_else(|error| {
                tell(&proxy);
                panic!("level {level} round {round}: {} wait, {error}", under_way.len())
            });
            let (expected, place) = under_way.remove(&ticket).expect("one that was started");
            assert_eq!(
                done.status, 0,
                "level {level} round {round} span {place}: {:?}",
                done.sense
            );
            assert!(done.data == expected, "level {level} round {round}: span {place} differs");
        }
    }
    let harmed = proxy.seen().iter().filter(|one| one.harm.is_some()).count();
    drop(session);
    // Without the proxy: the disk holds the written data.
    let clean = fixture.proxy();
    let mut session = initiator(&clean, 0, Rejoin::SameCid);
    for (place, seed) in written {
        let data = read(&mut session, place * u64::from(SPAN), bytes).unwrap();
        assert!(
            data == pattern(seed, bytes),
            "level {level}: span {place} was written and is lost"
        );
    }
    harmed
}

/// Prints the latest PDUs, for a failure's report.
fn tell(proxy: &Proxy) {
    let seen = proxy.seen();
    let harmed = seen.iter().rposition(|one| one.harm.is_some()).unwrap_or(0);
    for one in seen.iter().skip(harmed.saturating_sub(40)).take(120) {
        let (bhs, words) = (one.bhs, [20, 24, 28, 32, 36, 40, 44].map(|at| one.bhs.u32(at)));
        println!("{} {:?} {bhs:?} {words:x?} {:?}", one.connection, one.direction, one.harm);
    }
}

fn any_fault(level: u32, random: &mut Random) -> zgate_test_initiator::proxy::Fault {
    let places = [
        (Direction::ToTarget, Opcode::SCSI_COMMAND),
        (Direction::ToTarget, Opcode::DATA_OUT),
        (Direction::ToInitiator, Opcode::R2T),
        (Direction::ToInitiator, Opcode::DATA_IN),
        (Direction::ToInitiator, Opcode::SCSI_RESPONSE),
    ];
    let (direction, opcode) = places[random.below(places.len() as u64) as usize];
    let harms = [
        Harm::Data,
        Harm::Data,
        Harm::Twice,
        Harm::Header,
        Harm::CutBefore,
        Harm::CutAfter,
        Harm::Drop,
    ];
    let mut harm = harms[random.below(harms.len() as u64) as usize];
    // The loss of the last Data-Out of a sequence cannot happen on TCP, and the
    // target could not detect it.
    if (opcode, harm) == (Opcode::DATA_OUT, Harm::Drop) || level == 0 && harm == Harm::Twice {
        harm = Harm::Data;
    }
    fault(direction, opcode, random.below(6) as usize, harm)
}

#[test]
fn any_faults_at_every_level() {
    let fixture = RecoveryFixture::start();
    let mut random = Random::from_environment();
    let rounds = std::env::var("ZGATE_RECOVERY_ROUNDS").ok().and_then(|text| text.parse().ok());
    for level in [0, 1, 2, 1, 2] {
        let harmed = storm(&fixture, level, &mut random, rounds.unwrap_or(10));
        println!("level {level}: {harmed} PDUs harmed");
        assert!(harmed > 0);
    }
}
