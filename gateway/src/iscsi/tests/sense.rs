//! Sense data that a logical unit has not made has the format that the unit wants all the same.

use super::host::{BLOCK, Host};
use super::{Fixture, Over, block};
use bytes::Bytes;
use zgate_test_initiator::pdu::{Cdb, ScsiCommand, TaskAttribute};
use zgate_test_initiator::{Lun, write16};

const LBA: u64 = 8;
const CHECK_CONDITION: u8 = 2;
/// MODE SELECT (6), and its parameter list: the control mode page with D_SENSE=1.
const SELECT: [u8; 6] = [0x15, 0x10, 0, 0, 16, 0];
const D_SENSE: [u8; 16] = [0, 0, 0, 0, 0x0A, 0x0A, 0x06, 0x10, 0, 0, 0, 0, 0xFF, 0xFF, 0, 0];

fn select_descriptors(host: &mut Host) {
    assert_eq!(host.run(&[0; 6], &Bytes::new()).status, 0);
    assert_eq!(host.run(&SELECT, &Bytes::from_static(&D_SENSE)).status, 0);
}

/// Sends a write with immediate data, which was not agreed upon; returns the sense data.
fn unexpected_data(host: &mut Host, lun: Lun) -> Bytes {
    let Host::Tcp(session) = &mut *host else { unreachable!("the hosts of this test use TCP") };
    let initiator = &mut session.initiator;
    let (itt, cmd_sn) = (initiator.tag(), initiator.number());
    let command = ScsiCommand {
        immediate: false,
        is_final: true,
        read: false,
        write: true,
        attribute: TaskAttribute::Simple,
        lun,
        itt,
        expected_bytes: BLOCK as u32,
        cmd_sn,
        exp_stat_sn: initiator.exp_stat_sn,
        cdb: Cdb::new(&write16(LBA, 1, false)).unwrap(),
        bidirectional_read_bytes: None,
    };
    initiator.open(itt, lun, Bytes::new());
    initiator.send(command.encode(block(1, 0)));
    let ended = host.wait(itt);
    assert_eq!(ended.status, CHECK_CONDITION);
    ended.sense
}

#[test]
fn errors_of_the_transfer_have_the_format_of_the_unit() {
    let fixture = Fixture::start();
    let mut host = Host::login_modest(Over::Tcp, fixture.tcp, "one");
    assert_eq!(unexpected_data(&mut host, Lun(0))[0], 0x70, "as it is after a reset");
    select_descriptors(&mut host);
    let told = unexpected_data(&mut host, Lun(0));
    assert_eq!(told, &[0x72, 0x0b, 0x0c, 0x0c, 0, 0, 0, 0][..]);
    let told = unexpected_data(&mut host, Lun(0x0005_0000_0000_0000));
    assert_eq!((told[0], told[12], told[13]), (0x70, 0x0c, 0x0c), "no logical unit");
}

#[test]
fn a_panic_is_told_in_the_format_of_the_unit() {
    let fixture = Fixture::start();
    let mut host = fixture.host(Over::Tcp, "one");
    select_descriptors(&mut host);
    fixture.gate.panic_at(LBA * BLOCK as u64);
    let failed = host.write(LBA, &block(1, 0));
    assert_eq!(failed.status, CHECK_CONDITION);
    assert_eq!(failed.sense, &[0x72, 4, 0x44, 0, 0, 0, 0, 0][..], "INTERNAL TARGET FAILURE");
}
