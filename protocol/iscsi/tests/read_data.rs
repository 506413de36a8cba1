//! Read data in a file, which the owner may leave there until it is sent.

use bytes::Bytes;
use zgate_iscsi::pdu::*;
use zgate_test_harness::iscsi::{Harness, LUN, scsi_command};

const LARGE: (&str, &str) = ("MaxRecvDataSegmentLength", "65536");

/// Returns whether the data of a READ must be in memory.
fn needs_memory(harness: &mut Harness) -> bool {
    harness.initiator().command(LUN, &[0x28], 1 << 20, Bytes::new());
    harness.take_command().needs_memory
}

/// Read data may be a range of a file only where nothing needs its bytes: no
/// digest, no second transmission, and no PDU for each few kilobytes.
#[test]
fn read_data_may_stay_in_its_file() {
    let asked = |keys: &[(&str, &str)]| needs_memory(&mut Harness::new(keys));
    assert!(!asked(&[LARGE]));
    assert!(asked(&[("MaxRecvDataSegmentLength", "65532")]));
    assert!(asked(&[LARGE, ("DataDigest", "CRC32C")]));
    assert!(!asked(&[LARGE, ("HeaderDigest", "CRC32C")]));
    assert!(asked(&[LARGE, ("ErrorRecoveryLevel", "1")]));
}

/// An ORDERED write begins when earlier reads have ended, and must not change what
/// they have read.
#[test]
fn read_data_is_in_memory_beside_ordered_tasks() {
    let mut harness = Harness::new(&[LARGE]);
    harness.initiator().command(LUN, &[0x28], 1 << 20, Bytes::new());
    let read = harness.take_command();
    assert!(!read.needs_memory);
    harness.good(read.task, Bytes::from(vec![7; 1 << 20]));
    let (itt, cmd_sn) = (harness.initiator().tag(), harness.initiator().number());
    let attribute = TaskAttribute::Ordered;
    let ordered = ScsiCommand { attribute, ..scsi_command(itt, cmd_sn) };
    harness.initiator().send(ordered.encode(Bytes::new()));
    let ordered = harness.take_command();
    harness.good(ordered.task, Bytes::new());
    assert!(needs_memory(&mut harness));
}
