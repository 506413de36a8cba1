//! Sense data of conditions that the session itself reports.

use bytes::Bytes;
use zgate_iscsi::initiator::Notice;
use zgate_iscsi::login::Offer;
use zgate_iscsi::pdu::{Lun, ScsiCommand};
use zgate_iscsi::session::SenseFormat;
use zgate_test_harness::iscsi::{Harness, LUN, write_command};

/// ABORTED COMMAND, UNEXPECTED UNSOLICITED DATA in both formats.
const FIXED: [u8; 18] = [0x70, 0, 0x0b, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x0c, 0x0c, 0, 0, 0, 0];
const DESCRIPTOR: [u8; 8] = [0x72, 0x0b, 0x0c, 0x0c, 0, 0, 0, 0];

/// One logical unit, with D_SENSE=1 in its control mode page.
#[derive(Debug)]
struct OneUnit;

impl SenseFormat for OneUnit {
    fn is_descriptor(&self, lun: Lun) -> bool {
        lun == LUN
    }
}

/// Sends a write with immediate data, which was not agreed upon; returns the sense data.
fn refused(harness: &mut Harness, lun: Lun) -> Bytes {
    let (itt, cmd_sn) = (harness.initiator().tag(), harness.initiator().number());
    harness.initiator().open(itt, lun, Bytes::new());
    let command = ScsiCommand { lun, ..write_command(itt, cmd_sn, 1024) };
    harness.initiator().send(command.encode(Bytes::from(vec![1; 512])));
    harness.run();
    let Some(Notice::Done { status: 2, sense, .. }) = harness.notices(0).pop() else {
        panic!("CHECK CONDITION")
    };
    sense
}

#[test]
fn conditions_of_iscsi_have_the_format_of_the_logical_unit() {
    let keys = [("InitialR2T", "Yes"), ("ImmediateData", "No")];
    let offer = Offer { immediate_data: false, ..Offer::default() };
    let mut harness = Harness::with_offer(&keys, offer);
    assert_eq!(refused(&mut harness, LUN), &FIXED[..], "nobody tells the format");
    harness.session.set_sense_format(Box::new(OneUnit));
    assert_eq!(refused(&mut harness, LUN), &DESCRIPTOR[..]);
    assert_eq!(refused(&mut harness, Lun(0)), &FIXED[..], "no logical unit");
}
