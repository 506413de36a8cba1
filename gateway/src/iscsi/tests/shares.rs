//! A host with two disks in one session, of which the first hangs: the other one is served.

use super::host::{BLOCK, Host};
use super::parked::{RUNNING, TASK_SET_FULL, start_read};
use super::{Fixture, Over, PATIENCE, Timeouts};
use crate::iscsi::limits::TIMES_LEFT;
use bytes::Bytes;
use std::time::Duration;
use zgate_iscsi::login::Offer;
use zgate_test_initiator::pdu::{TaskFunction, TaskResult};
use zgate_test_initiator::{Lun, read16, write16};

/// The disk that does not hang.
const OTHER: Lun = Lun(0x0001_0000_0000_0000);
/// First block of a write that is asked for its data, and its blocks.
const LBA: u64 = 8;
const BLOCKS: u32 = 512;
/// Memory of all requests together, more than the tests need.
const MEMORY: usize = 1 << 30;
/// Time after which a disk that hangs is noticed, where a test waits for that.
const MOMENT: Duration = Duration::from_millis(200);

/// A gateway with two disks, the first of which hangs in reads; commands wait for it for
/// `patience`. Also a host without pending unit attentions.
fn hanging(over: Over, patience: Duration) -> (Fixture, Host) {
    let timeouts = Timeouts { data: patience, ..Timeouts::default() };
    let fixture = Fixture::with_disks(timeouts, MEMORY, &["disk.img", "other.img"]);
    let mut host = fixture.host(over, "one");
    assert_eq!(host.run_on(OTHER, &[0; 6], &Bytes::new()).status, 0);
    fixture.gate.hold_reads();
    (fixture, host)
}

/// Writes to the other disk, and reads it.
fn write_and_read(host: &mut Host) {
    let data = Bytes::from(vec![7; BLOCKS as usize * BLOCK]);
    let written = host.run_on(OTHER, &write16(LBA, BLOCKS, false), &data);
    assert_eq!(written.status, 0);
    let read = host.run_on(OTHER, &read16(LBA, 1), &Bytes::new());
    assert_eq!((read.status, &read.data[..BLOCK]), (0, &data[..BLOCK]));
}

#[test]
fn a_disk_that_hangs_leaves_room_to_the_other_one() {
    for over in [Over::Tcp, Over::Rdma] {
        let (fixture, mut host) = hanging(over, PATIENCE);
        // As many as would run if it were alone, and another one.
        let begun: Vec<_> = (0..=RUNNING).map(|_| start_read(&mut host)).collect();
        let all_hang = || fixture.gate.held_reads() == RUNNING;
        fixture.until_sent(&mut host, "the reads hang", all_hang);
        write_and_read(&mut host);
        assert!(all_hang(), "{over:?}: the last read waits");
        let aborted = host.function(TaskFunction::ABORT_TASK, begun[RUNNING]);
        assert_eq!(aborted, TaskResult::COMPLETE, "{over:?}: it has not begun");
        fixture.gate.open();
        assert_eq!(host.wait(begun[0]).status, 0, "{over:?}");
    }
}

#[test]
fn a_disk_that_hangs_leaves_a_part_of_the_command_window_to_the_other_one() {
    let window = Offer::default().window() as usize;
    let run = (window * TIMES_LEFT).div_ceil(TIMES_LEFT + 1);
    for over in [Over::Tcp, Over::Rdma] {
        let (fixture, mut host) = hanging(over, MOMENT);
        let read = |host: &mut Host| host.start(&read16(0, 1), &Bytes::new());
        (0..window).for_each(|_| {
            read(&mut host);
        });
        // The others do not wait for ever.
        for _ in run..window {
            assert_eq!(host.wait_any().status, TASK_SET_FULL, "{over:?}");
        }
        assert_eq!(fixture.gate.held_reads(), run, "{over:?}");
        write_and_read(&mut host);
        let further = read(&mut host);
        assert_eq!(host.wait(further).status, TASK_SET_FULL, "{over:?}");
        fixture.gate.open();
        for _ in 0..run {
            assert_eq!(host.wait_any().status, 0, "{over:?}");
        }
        assert_eq!(host.read(0).len(), BLOCK, "{over:?}: it answers again");
    }
}
