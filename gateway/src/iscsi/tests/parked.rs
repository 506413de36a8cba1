//! A disk that hangs, with as many commands running as may: what the initiator sends is
//! still read, so that it can abort what has not begun.

use super::host::{BLOCK, Host};
use super::{Fixture, Over, Timeouts, block};
use crate::iscsi::limits::{MAX_RUNNING_BYTES, RESERVED_DATA_BYTES};
use bytes::Bytes;
use std::time::Duration;
use zgate_scsi::limits::MAX_TRANSFER_BYTES;
use zgate_test_initiator::pdu::{Itt, Opcode, Reject, RejectReason, TaskFunction, TaskResult};
use zgate_test_initiator::{Lun, read16, write16};

const LUN: Lun = Lun(0);
/// First block of a write that waits, its blocks and its bytes.
const LBA: u64 = 8;
const BLOCKS: u32 = 512;
const BYTES: usize = BLOCKS as usize * BLOCK;
/// Commands that may run at the same time if each may read the most.
pub(super) const RUNNING: usize = MAX_RUNNING_BYTES / MAX_TRANSFER_BYTES as usize;
pub(super) const TASK_SET_FULL: u8 = 0x28;
/// Memory of all requests together, more than the test needs.
const MEMORY: usize = 1 << 30;

/// Time limits that pass soon.
fn at_once() -> Timeouts {
    let moment = Duration::from_millis(200);
    Timeouts { function: moment, login: moment, data: moment }
}

/// A gateway whose disk hangs in reads, and a host of it.
fn hanging() -> (Fixture, Host) {
    let fixture = Fixture::with_memory(at_once(), MEMORY);
    let host = fixture.host(Over::Tcp, "one");
    fixture.gate.hold_reads();
    (fixture, host)
}

/// Starts a read of one block that counts as the longest transfer.
pub(super) fn start_read(host: &mut Host) -> Itt {
    let (cdb, most) = (read16(0, 1), MAX_TRANSFER_BYTES as u32);
    match host {
        Host::Tcp(session) => {
            let itt = session.start(LUN, &cdb, most, Bytes::new());
            session.flush().unwrap();
            itt
        }
        Host::Rdma(client) => client.start(LUN, &cdb, most, &[]).unwrap(),
    }
}

/// A gateway whose disk hangs in a read that takes all memory, a host of it, and the read.
fn hanging_without_memory(over: Over) -> (Fixture, Host, Itt) {
    // One command counts for more.
    let memory = MAX_TRANSFER_BYTES as usize / 2;
    let fixture = Fixture::with_memory(at_once(), memory);
    let mut host = fixture.host(over, "one");
    fixture.gate.hold_reads();
    let running = start_read(&mut host);
    fixture.until_sent(&mut host, "the read hangs", || fixture.gate.held_reads() == 1);
    (fixture, host, running)
}

#[test]
fn what_waits_behind_a_disk_that_hangs_can_be_aborted() {
    let (fixture, mut host) = hanging();
    let running: Vec<_> = (0..RUNNING).map(|_| start_read(&mut host)).collect();
    fixture.until("the reads hang", || fixture.gate.held_reads() == RUNNING);
    let (unwanted, wanted) = (start_read(&mut host), start_read(&mut host));
    let aborted = host.function(TaskFunction::ABORT_TASK, unwanted);
    assert_eq!(aborted, TaskResult::COMPLETE, "it has not begun");
    let aborted = host.function(TaskFunction::ABORT_TASK, running[0]);
    assert_eq!(aborted, TaskResult::REJECTED, "the storage still reads");
    assert_eq!(fixture.gate.held_reads(), RUNNING, "the others wait for room");
    fixture.gate.open();
    assert_eq!(host.wait(wanted).status, 0, "it has begun after all");
}

#[test]
fn what_waits_without_memory_can_be_aborted() {
    let (fixture, mut host, running) = hanging_without_memory(Over::Tcp);
    let (unwanted, wanted) = (start_read(&mut host), start_read(&mut host));
    let aborted = host.function(TaskFunction::ABORT_TASK, unwanted);
    assert_eq!(aborted, TaskResult::COMPLETE, "it has not begun");
    let aborted = host.function(TaskFunction::ABORT_TASK, running);
    assert_eq!(aborted, TaskResult::REJECTED, "the storage still reads");
    assert_eq!(fixture.gate.held_reads(), 1, "the other one waits for memory");
    fixture.gate.open();
    assert_eq!(host.wait(wanted).status, 0, "it has begun after all");
}

#[test]
fn what_is_behind_data_without_memory_is_heard_and_the_write_can_be_repeated() {
    for over in [Over::Tcp, Over::Rdma] {
        let (fixture, mut host, running) = hanging_without_memory(over);
        host.start_write(LBA, &block(7, 0));
        let aborted = host.function(TaskFunction::ABORT_TASK, running);
        assert_eq!(aborted, TaskResult::REJECTED, "{over:?}: heard, and the storage still reads");
        let again = host.start_write(LBA, &block(7, 0));
        assert_eq!(host.wait(again).status, TASK_SET_FULL, "{over:?}");
        fixture.gate.open();
        assert_eq!(host.read(LBA)[0], 0, "{over:?}: nothing was written");
        assert_eq!(host.write(LBA, &block(7, 1)).status, 0, "{over:?}");
        assert_eq!(host.read(LBA), block(7, 1), "{over:?}");
    }
}

#[test]
fn pings_with_data_are_answered_without_memory() {
    for over in [Over::Tcp, Over::Rdma] {
        let (fixture, mut host, _) = hanging_without_memory(over);
        assert_eq!(host.ping(4096).bhs.opcode(), Opcode::NOP_IN, "{over:?}");
        if over == Over::Tcp {
            // One that no memory is reserved for is not waited for for long.
            let refused = host.ping(RESERVED_DATA_BYTES + 4).bhs;
            assert_eq!(refused.opcode(), Opcode::REJECT);
            assert_eq!(Reject::parse(&refused).reason, RejectReason::TOO_MANY_IMMEDIATE);
        }
        assert_eq!(fixture.gate.held_reads(), 1, "{over:?}: the read still hangs");
    }
}

/// The initiator goes away while its commands wait for room: nothing of them begins.
#[test]
fn what_waits_behind_a_disk_that_hangs_ends_with_its_session() {
    let (fixture, mut host) = hanging();
    (0..=RUNNING).for_each(|_| {
        start_read(&mut host);
    });
    fixture.until("the reads hang", || fixture.gate.held_reads() == RUNNING);
    drop(host);
    fixture.until_sessions(0);
    fixture.gate.open();
    let quota = &fixture.gateway.shared.network.quota;
    fixture.until("all is given back", || quota.held() == 0);
    let mut other = fixture.host(Over::Tcp, "other");
    assert_eq!(other.read(0).len(), BLOCK);
}

/// A host at error recovery level 2 whose reads hang, and its write that waits behind them.
fn recovering(fixture: &Fixture) -> (Host, Itt) {
    let mut host = Host::login_recovering(fixture.tcp, "one");
    assert_eq!(host.run(&[0; 6], &Bytes::new()).status, 0);
    fixture.gate.hold_reads();
    (0..RUNNING).for_each(|_| {
        start_read(&mut host);
    });
    let waiting = host.start(&write16(LBA, BLOCKS, false), &Bytes::from(vec![7; BYTES]));
    // The first round brings the request for the rest of its data, the second one follows
    // that data.
    for _ in 0..2 {
        let answer = host.function(TaskFunction::ABORT_TASK, Itt(0xdead));
        assert_eq!(answer, TaskResult::TASK_DOES_NOT_EXIST);
    }
    fixture.until("the reads hang", || fixture.gate.held_reads() == RUNNING);
    (host, waiting)
}

#[test]
fn what_waits_after_its_connection_is_lost_can_be_aborted() {
    let fixture = Fixture::with_memory(Timeouts::default(), MEMORY);
    let (host, waiting) = recovering(&fixture);
    let mut again = fixture.rejoin(&host, "one").unwrap();
    drop(host);
    let connections = || fixture.gateway.shared.iscsi.sessions()[0].connections().len();
    fixture.until("the first connection ends", || connections() == 1);
    let Host::Tcp(session) = &mut again else { unreachable!("the hosts of this test use TCP") };
    // Tags of the session, not of the connection.
    session.initiator.start_tags_at(Itt(0x1000));
    let aborted = again.function(TaskFunction::ABORT_TASK, waiting);
    assert_eq!(aborted, TaskResult::COMPLETE, "it has not begun");
    assert_eq!(fixture.gate.held_reads(), RUNNING);
    fixture.gate.open();
    assert_eq!(again.read(LBA)[0], 0, "it never begins");
}

#[test]
fn what_waits_gives_its_memory_back_when_its_session_expires() {
    let fixture = Fixture::with_memory(Timeouts::default(), MEMORY);
    let (host, _) = recovering(&fixture);
    let shared = &fixture.gateway.shared;
    let before = shared.network.quota.held();
    drop(host);
    let live = shared.iscsi.sessions().remove(0);
    fixture.until("the connection ends", || live.connections().is_empty());
    let late = shared.iscsi.now().after(Duration::from_secs(3600));
    live.with(|session| session.handle_timeout(late));
    let held = || shared.network.quota.held();
    fixture.until("its data is given back", || held() + BYTES / 2 <= before);
    assert_eq!(fixture.gate.held_reads(), RUNNING, "the reads still hang");
}
