//! A disk that hangs, with as many commands running as may: what the initiator sends is
//! still read, so that it can abort what has not begun.

use super::host::{BLOCK, Host};
use super::{Fixture, Over, Timeouts};
use crate::iscsi::limits::MAX_RUNNING_BYTES;
use bytes::Bytes;
use std::time::Duration;
use zgate_scsi::limits::MAX_TRANSFER_BYTES;
use zgate_test_initiator::pdu::{Itt, TaskFunction, TaskResult};
use zgate_test_initiator::{Lun, read16};

const LUN: Lun = Lun(0);
/// Commands that may run at the same time if each may read the most.
const RUNNING: usize = MAX_RUNNING_BYTES / MAX_TRANSFER_BYTES as usize;
/// Memory of all requests together, more than the test needs.
const MEMORY: usize = 1 << 30;

/// A gateway whose disk hangs in reads, and a host of it.
fn hanging() -> (Fixture, Host) {
    let moment = Duration::from_millis(200);
    let fixture = Fixture::with_memory(Timeouts { function: moment, login: moment }, MEMORY);
    let host = fixture.host(Over::Tcp, "one");
    fixture.gate.hold_reads();
    (fixture, host)
}

/// Starts a read of one block that counts as the longest transfer.
fn start_read(host: &mut Host) -> Itt {
    let Host::Tcp(session) = host else { unreachable!("the hosts of this test use TCP") };
    let itt = session.start(LUN, &read16(0, 1), MAX_TRANSFER_BYTES as u32, Bytes::new());
    session.flush().unwrap();
    itt
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
