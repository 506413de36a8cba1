//! Errors between an initiator and a real gateway, injected by a proxy that
//! drops, damages, repeats and delays PDUs, at error recovery levels 0, 1 and 2
//! (RFC 7143 §7).

use bytes::Bytes;
use std::time::Duration;
use zgate_test_harness::iscsi_recovery::{
    BLOCK_BYTES, LUN, RecoveryFixture, compare_and_write, count, fault, initiator, pattern, read,
    rejected, write,
};
use zgate_test_initiator::pdu::{Opcode, RejectReason, TaskAttribute};
use zgate_test_initiator::proxy::{Direction, Harm, Proxy};
use zgate_test_initiator::recovering::{Recovering, Rejoin, Repairs};
use zgate_test_initiator::{read16, write16};

/// Bytes of one command: several bursts of several PDUs.
const BYTES: usize = 160 << 10;

/// Injects one fault while a disk is written and read back at one level;
/// returns the recovery that the initiator needed.
fn with_fault(
    fixture: &RecoveryFixture,
    level: u32,
    (direction, opcode, skip, harm): (Direction, Opcode, usize, Harm),
) -> (Repairs, Proxy) {
    let proxy = fixture.proxy();
    let mut session = initiator(&proxy, level, Rejoin::SameCid);
    let before = session.repairs.clone();
    assert_eq!(before, Repairs { crc_failures: 0, ..Repairs::default() }, "nothing was wrong");
    proxy.inject(fault(direction, opcode, skip, harm));
    let seed = u64::from(level) << 8 | u64::from(opcode.0);
    let data = pattern(seed, BYTES);
    let case = format!("{direction:?} {opcode:?} after {skip}: {harm:?} at level {level}");
    write(&mut session, 64, &data).unwrap_or_else(|e| panic!("{case}: writing: {e}"));
    let got = read(&mut session, 64, BYTES).unwrap_or_else(|e| panic!("{case}: reading: {e}"));
    assert!(got == data, "{case}: other data came back");
    session.settle().unwrap();
    assert_eq!(proxy.pending(), 0, "{case}: the fault found no PDU");
    // The session is fully usable.
    let (old, new) = (data.slice(..BLOCK_BYTES), pattern(seed + 1, BLOCK_BYTES));
    compare_and_write(&mut session, 64, &old, &new).unwrap_or_else(|e| panic!("{case}: {e}"));
    (session.repairs.clone(), proxy)
}

/// RFC 7143 §7.8: a damaged data PDU is discarded and rejected; then the data
/// is requested again, or the task ends with a CRC error.
#[test]
fn damaged_data_out() {
    let fixture = RecoveryFixture::start();
    for (opcode, skip) in [(Opcode::DATA_OUT, 1), (Opcode::DATA_OUT, 3), (Opcode::SCSI_COMMAND, 0)]
    {
        for level in 0..=2 {
            let (repairs, proxy) =
                with_fault(&fixture, level, (Direction::ToTarget, opcode, skip, Harm::Data));
            assert_eq!(rejected(&proxy.seen()), [RejectReason::DATA_DIGEST_ERROR]);
            let expected = Repairs {
                rejects: vec![RejectReason::DATA_DIGEST_ERROR],
                crc_failures: usize::from(level == 0),
                // An initiator that waits 150 ms repeats a command that a busy
                // machine has not answered yet; nothing else may be repaired.
                retries: repairs.retries,
                ..Repairs::default()
            };
            assert_eq!(repairs, expected, "level {level}");
        }
    }
}

/// RFC 7143 §7.7: after a damaged header the stream is out of sync; the
/// connection ends, and with it the session below level 2.
#[test]
fn damaged_headers_to_the_target() {
    let fixture = RecoveryFixture::start();
    for (opcode, skip) in
        [(Opcode::SCSI_COMMAND, 0), (Opcode::DATA_OUT, 2), (Opcode::SCSI_COMMAND, 1)]
    {
        for level in 0..=2 {
            let (repairs, _) =
                with_fault(&fixture, level, (Direction::ToTarget, opcode, skip, Harm::Header));
            let expected = if level < 2 { (1, 0) } else { (0, 1) };
            assert_eq!((repairs.sessions, repairs.connections), expected, "level {level}");
            assert_eq!(repairs.not_reassigned, [0; 0]);
        }
    }
}

#[test]
fn damaged_headers_to_the_initiator() {
    let fixture = RecoveryFixture::start();
    for opcode in [Opcode::R2T, Opcode::DATA_IN, Opcode::SCSI_RESPONSE] {
        for level in 0..=2 {
            let (repairs, _) =
                with_fault(&fixture, level, (Direction::ToInitiator, opcode, 0, Harm::Header));
            let expected = if level < 2 { (1, 0) } else { (0, 1) };
            assert_eq!((repairs.sessions, repairs.connections), expected, "level {level}");
            assert_eq!(repairs.not_reassigned, [0; 0]);
        }
    }
}

/// RFC 7143 §7.9: a gap in DataSN; the missing data is requested again.
#[test]
fn a_lost_data_out() {
    let fixture = RecoveryFixture::start();
    for skip in [0, 2, 5] {
        for level in 1..=2 {
            let (repairs, _) = with_fault(
                &fixture,
                level,
                (Direction::ToTarget, Opcode::DATA_OUT, skip, Harm::Drop),
            );
            assert_eq!(repairs, Repairs::default(), "the target noticed by itself");
        }
    }
    let (repairs, _) =
        with_fault(&fixture, 0, (Direction::ToTarget, Opcode::DATA_OUT, 1, Harm::Drop));
    assert_eq!((repairs.crc_failures, repairs.sessions), (1, 0));
}

/// RFC 7143 §11.16.1: a Data/R2T SNACK makes the target send the R2T again.
#[test]
fn a_lost_r2t() {
    let fixture = RecoveryFixture::start();
    for skip in [0, 1, 4] {
        for level in 1..=2 {
            let (repairs, proxy) = with_fault(
                &fixture,
                level,
                (Direction::ToInitiator, Opcode::R2T, skip, Harm::Drop),
            );
            assert!(repairs.r2t_snacks >= 1 && repairs.sessions == 0 && repairs.connections == 0);
            assert!(count(&proxy.seen(), Direction::ToTarget, Opcode::SNACK) >= 1);
            assert_eq!(repairs.rejects, [], "every SNACK was understood");
        }
    }
    assert_eq!(
        with_fault(&fixture, 0, (Direction::ToInitiator, Opcode::R2T, 1, Harm::Drop)).0.sessions,
        1
    );
}

/// RFC 7143 §7.9, §11.16: lost or damaged Data-In is sent again.
#[test]
fn lost_and_damaged_data_in() {
    let fixture = RecoveryFixture::start();
    let last = BYTES / 8192 - 1;
    for harm in [Harm::Drop, Harm::Data] {
        for skip in [0, 5, last] {
            for level in 1..=2 {
                let (repairs, _) = with_fault(
                    &fixture,
                    level,
                    (Direction::ToInitiator, Opcode::DATA_IN, skip, harm),
                );
                assert!(repairs.data_snacks >= 1, "{repairs:?}");
                assert_eq!((repairs.sessions, repairs.connections), (0, 0));
            }
            let (repairs, _) =
                with_fault(&fixture, 0, (Direction::ToInitiator, Opcode::DATA_IN, skip, harm));
            assert_eq!(repairs.sessions, 1);
        }
    }
}

/// RFC 7143 §11.16.1: a gap in StatSN; the status is sent again, the command
/// is not run again.
#[test]
fn lost_and_damaged_responses() {
    let fixture = RecoveryFixture::start();
    for level in 1..=2 {
        let proxy = fixture.proxy();
        let mut session = initiator(&proxy, level, Rejoin::SameCid);
        let (old, new) = (pattern(1, BLOCK_BYTES), pattern(2, BLOCK_BYTES));
        write(&mut session, 8, &old).unwrap();
        proxy.inject(fault(Direction::ToInitiator, Opcode::SCSI_RESPONSE, 0, Harm::Drop));
        compare_and_write(&mut session, 8, &old, &new).unwrap();
        assert!(session.repairs.status_snacks >= 1);
        assert_eq!(proxy.pending(), 0);
        assert_eq!(read(&mut session, 8, BLOCK_BYTES).unwrap(), new);
        // Sense data is part of the response; it is requested again, too.
        proxy.inject(fault(Direction::ToInitiator, Opcode::SCSI_RESPONSE, 0, Harm::Data));
        let refused = compare_and_write(&mut session, 8, &old, &new).unwrap_err().to_string();
        assert!(refused.contains("status 0x2"), "{refused}");
        assert!(session.repairs.status_snacks >= 2 && session.repairs.sessions == 0);
    }
}

/// RFC 7143 §7.2.1: ExpCmdSN does not advance; the command is sent again with
/// its CmdSN, and later ones wait for it (§4.2.2.1).
#[test]
fn a_lost_command_holds_later_ones_back() {
    let fixture = RecoveryFixture::start();
    for level in 1..=2 {
        let proxy = fixture.proxy();
        let mut session = initiator(&proxy, level, Rejoin::SameCid);
        // Tasks of the simple attribute may run in any order (SAM-5 §8.6).
        session.attribute = TaskAttribute::Ordered;
        proxy.inject(fault(Direction::ToTarget, Opcode::SCSI_COMMAND, 0, Harm::Drop));
        let seeds = [10, 11, 12];
        for seed in seeds {
            let data = pattern(seed, 4096);
            session.start(0, LUN, &write16(100, 8, false), 0, data).unwrap();
        }
        session.start(0, LUN, &read16(100, 8), 4096, Bytes::new()).unwrap();
        let ended: Vec<_> = (0..4).map(|_| session.wait().unwrap()).collect();
        assert!(ended.iter().all(|(_, done)| done.status == 0));
        assert!(session.repairs.retries >= 1 && session.repairs.sessions == 0);
        assert_eq!(read(&mut session, 100, 4096).unwrap(), pattern(12, 4096));
        assert_eq!(proxy.pending(), 0);
    }
}

/// RFC 7143 §4.2.2.1: a repeated CmdSN is ignored, so a duplicated command runs
/// once, and so does one that is retried although it had arrived.
#[test]
fn duplicates_run_once() {
    let fixture = RecoveryFixture::start();
    for level in 0..=2 {
        let proxy = fixture.proxy();
        let mut session = initiator(&proxy, level, Rejoin::SameCid);
        let (old, new) = (pattern(1, BLOCK_BYTES), pattern(2, BLOCK_BYTES));
        write(&mut session, 8, &old).unwrap();
        proxy.inject(fault(Direction::ToTarget, Opcode::SCSI_COMMAND, 0, Harm::Twice));
        let before = count(&proxy.seen(), Direction::ToInitiator, Opcode::SCSI_RESPONSE);
        compare_and_write(&mut session, 8, &old, &new).unwrap();
        session.settle().unwrap();
        assert_eq!(proxy.pending(), 0);
        let after = count(&proxy.seen(), Direction::ToInitiator, Opcode::SCSI_RESPONSE);
        assert_eq!(after - before, 1, "one answer");
        assert_eq!(read(&mut session, 8, BLOCK_BYTES).unwrap(), new);
        for (direction, opcode) in [
            (Direction::ToTarget, Opcode::DATA_OUT),
            (Direction::ToInitiator, Opcode::R2T),
            (Direction::ToInitiator, Opcode::DATA_IN),
            (Direction::ToInitiator, Opcode::SCSI_RESPONSE),
        ] {
            for skip in [0, 1, 3] {
                if (opcode, level) == (Opcode::DATA_OUT, 0)
                    || opcode == Opcode::SCSI_RESPONSE && skip > 0
                {
                    continue;
                }
                let (repairs, _) =
                    with_fault(&fixture, level, (direction, opcode, skip, Harm::Twice));
                let quiet = Repairs { rejects: repairs.rejects.clone(), ..Repairs::default() };
                assert_eq!(repairs, quiet, "{opcode:?} twice at level {level}");
            }
        }
    }
}

/// RFC 7143 §4.2.2.1: with several connections a later CmdSN may arrive first;
/// it waits for the earlier one.
#[test]
fn commands_of_several_connections_keep_their_order() {
    let fixture = RecoveryFixture::start();
    for level in 0..=2 {
        let proxy = fixture.proxy();
        let mut session = initiator(&proxy, level, Rejoin::SameCid);
        session.join(1).unwrap();
        session.attribute = TaskAttribute::Ordered;
        for round in 0..5 {
            let late = Harm::Delay(Duration::from_millis(60));
            proxy.inject(fault(Direction::ToTarget, Opcode::SCSI_COMMAND, 0, late));
            let first = pattern(round * 2 + 1, 4096);
            session.start(0, LUN, &write16(40, 8, false), 0, first).unwrap();
            // The second overtakes the first.
            std::thread::sleep(Duration::from_millis(10));
            let second = pattern(round * 2 + 2, 4096);
            session.start(1, LUN, &write16(40, 8, false), 0, second.clone()).unwrap();
            for _ in 0..2 {
                assert_eq!(session.wait().unwrap().1.status, 0);
            }
            assert!(read(&mut session, 40, 4096).unwrap() == second, "the first was run last");
        }
        assert_eq!(session.repairs.sessions, 0);
    }
}

fn quiet(session: &Recovering) -> bool {
    session.repairs == Repairs { rejects: Vec::new(), ..Repairs::default() }
}

/// Without faults no recovery is needed.
#[test]
fn a_clean_wire_needs_no_repairs() {
    let fixture = RecoveryFixture::start();
    for level in 0..=2 {
        let proxy = fixture.proxy();
        let mut session = initiator(&proxy, level, Rejoin::Logout);
        for round in 0..10 {
            let data = pattern(round, BYTES);
            write(&mut session, round * 100, &data).unwrap();
            assert_eq!(read(&mut session, round * 100, BYTES).unwrap(), data);
        }
        assert!(quiet(&session), "{:?}", session.repairs);
        assert_eq!(rejected(&proxy.seen()), []);
    }
}
