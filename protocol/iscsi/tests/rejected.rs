//! CmdSN of rejected PDUs: they are not received, and the initiator fills the gap (RFC 7143
//! §7.3).

use bytes::Bytes;
use zgate_iscsi::names::Cid;
use zgate_iscsi::pdu::*;
use zgate_iscsi::serial::Sn;
use zgate_test_harness::iscsi::{Harness, LUN, plain, read_command};

/// Tag of a command that runs.
const IN_USE: Itt = Itt(9);
const UNUSED: Itt = Itt(8);

fn command(itt: Itt, cmd_sn: Sn) -> Outgoing {
    read_command(itt, cmd_sn, 512).encode(Bytes::new())
}

/// A command with a reserved task attribute.
fn malformed(cmd_sn: Sn) -> Outgoing {
    let mut pdu = command(UNUSED, cmd_sn);
    pdu.bhs.0[1] |= 7;
    pdu
}

fn function(cmd_sn: Sn) -> Outgoing {
    let request = TaskRequest {
        immediate: false,
        function: TaskFunction::LUN_RESET,
        lun: LUN,
        itt: Itt::NONE,
        referenced: Itt::NONE,
        cmd_sn,
        exp_stat_sn: Sn(0),
        ref_cmd_sn: Sn(0),
        exp_data_sn: 0,
    };
    request.encode()
}

fn text(cmd_sn: Sn) -> Outgoing {
    let request = TextRequest {
        immediate: false,
        is_final: true,
        continues: false,
        lun: Lun(0),
        itt: UNUSED,
        ttt: Ttt::NONE,
        cmd_sn,
        exp_stat_sn: Sn(0),
    };
    request.encode(Bytes::from_static(b"MaxBurstLength=512\0"))
}

fn logout(cmd_sn: Sn) -> Outgoing {
    let (reason, cid, exp_stat_sn) = (LogoutReason(9), Cid(0), Sn(0));
    LogoutRequest { immediate: false, reason, itt: UNUSED, cid, cmd_sn, exp_stat_sn }.encode()
}

/// Name of a PDU, and the PDU with this CmdSN.
type Named = (&'static str, fn(Sn) -> Outgoing);

/// PDUs that are rejected.
const REJECTED: [Named; 6] = [
    ("tag in use", |cmd_sn| command(IN_USE, cmd_sn)),
    ("no tag", |cmd_sn| command(Itt::NONE, cmd_sn)),
    ("malformed", malformed),
    ("function", function),
    ("text", text),
    ("logout", logout),
];

fn ping(cmd_sn: Sn) -> Outgoing {
    let (lun, itt, ttt, exp_stat_sn) = (Lun(0), Itt(7), Ttt::NONE, Sn(0));
    NopOut { immediate: false, lun, itt, ttt, cmd_sn, exp_stat_sn }.encode(Bytes::new())
}

/// Gives a PDU to the target; returns its answers.
fn say(harness: &mut Harness, pdu: Outgoing) -> Vec<Opcode> {
    let handle = harness.links[0].handle;
    harness.session.handle_pdu(handle, plain(pdu), harness.now);
    let answers = std::iter::from_fn(|| harness.session.poll_transmit(handle));
    answers.map(|pdu| pdu.bhs.opcode()).collect()
}

/// A session with a command that runs, and the CmdSN of the next one.
fn session() -> (Harness, Sn) {
    let mut harness = Harness::new(&[]);
    let first = harness.session.window().0;
    assert!(say(&mut harness, command(IN_USE, first)).is_empty());
    (harness, first.next())
}

#[test]
fn a_rejected_pdu_is_not_received_and_its_number_can_be_used() {
    for (name, rejected) in REJECTED {
        let (mut harness, next) = session();
        assert_eq!(say(&mut harness, rejected(next)), [Opcode::REJECT], "{name}");
        assert_eq!(harness.session.window().0, next, "{name}");
        assert_eq!(say(&mut harness, ping(next)), [Opcode::NOP_IN], "{name}");
        assert_eq!(harness.session.window().0, next.next(), "{name}");
    }
}

#[test]
fn the_same_holds_for_one_that_comes_before_its_turn() {
    for (name, rejected) in REJECTED {
        let (mut harness, next) = session();
        let mut answers = say(&mut harness, rejected(next.next()));
        answers.extend(say(&mut harness, ping(next)));
        let count = |wanted| answers.iter().filter(|opcode| **opcode == wanted).count();
        assert_eq!((count(Opcode::REJECT), count(Opcode::NOP_IN)), (1, 1), "{name}");
        assert_eq!(harness.session.window().0, next.next(), "{name}");
        assert_eq!(say(&mut harness, ping(next.next())), [Opcode::NOP_IN], "{name}");
        assert_eq!(harness.session.window().0, next.plus(2), "{name}");
    }
}

#[test]
fn what_came_behind_a_rejected_command_goes_on_when_its_task_is_aborted() {
    let (mut harness, next) = session();
    assert_eq!(say(&mut harness, malformed(next)), [Opcode::REJECT]);
    assert!(say(&mut harness, ping(next.next())).is_empty(), "its turn has not come");
    let abort = TaskRequest {
        immediate: true,
        function: TaskFunction::ABORT_TASK,
        lun: LUN,
        itt: Itt(50),
        referenced: UNUSED,
        cmd_sn: next.plus(2),
        exp_stat_sn: Sn(0),
        ref_cmd_sn: next,
        exp_data_sn: 0,
    };
    let answers = say(&mut harness, abort.encode());
    assert_eq!(answers, [Opcode::NOP_IN, Opcode::TASK_RESPONSE]);
    assert_eq!(harness.session.window().0, next.plus(2));
}
