//! REQUEST SENSE (SPC-4 §6.39).

use super::{Cx, Outcome, Reply};
use crate::disk::attention::unit_attention;
use crate::disk::background::Progress;
use crate::sense::{Asc, Sense, SenseKey, Specific};

/// Returns the oldest unit attention, or the progress of a background
/// operation.
pub(crate) fn request_sense(cx: &Cx<'_>) -> Outcome {
    let mut state = cx.disk.state();
    let attention = state.nexus(&cx.command.nexus).attentions.take();
    let mut sense = match (attention, state.sanitize) {
        (Some(asc), _) => unit_attention(asc),
        (None, Progress::Running { done }) => {
            let mut sense = Sense::new(SenseKey::NotReady, Asc::SANITIZE_IN_PROGRESS);
            sense.specific = Specific::Progress(done);
            sense
        }
        (None, Progress::Failed { .. }) => Sense::new(SenseKey::MediumError, Asc::SANITIZE_FAILED),
        (None, Progress::Idle) if state.ejected => {
            Sense::new(SenseKey::NotReady, Asc::MEDIUM_NOT_PRESENT)
        }
        (None, Progress::Idle) => Sense::new(SenseKey::NoSense, Asc::NONE),
    };
    drop(state);
    if let (Some(luns), Some(asc)) = (cx.luns, attention) {
        luns.attention_reported(cx.command.nexus.id, asc);
    }
    // DESC.
    sense.descriptor_format = cx.cdb().byte(1) & 0x01 != 0;
    Ok(Reply::data(sense.encode(), u32::from(cx.cdb().byte(4))))
}

#[cfg(test)]
mod tests {
    use crate::disk::ThinSpace;
    use crate::sense::ScsiStatus;
    use crate::testing::Bench;
    use crate::wire::be32;

    const REQUEST: [u8; 6] = [0x03, 0, 0, 0, 252, 0];

    #[test]
    fn unit_attentions_are_told_once() {
        let bench = Bench::new();
        bench.disk.capacity_changed();
        let data = bench.data(&bench.run(&REQUEST, b""));
        assert_eq!((data[2] & 0x0F, data[12], data[13]), (0x06, 0x2A, 0x09));
        let data = bench.data(&bench.run(&REQUEST, b""));
        assert_eq!((data[0], data[2] & 0x0F), (0x70, 0));
        assert_eq!(bench.run(&[0; 6], b"").status, ScsiStatus::Good);
    }

    #[test]
    fn the_warning_about_space_names_its_threshold() {
        let bench = Bench::new();
        let gib = 1 << 30;
        let space = ThinSpace { available_bytes: gib, used_bytes: gib, threshold_bytes: gib };
        assert!(bench.disk.set_thin_space(Some(space)));
        let data = bench.data(&bench.run(&REQUEST, b""));
        assert_eq!((data[0], data[2] & 0x0F, data[12], data[13]), (0xF0, 0x06, 0x38, 0x07));
        // The first descriptor of the Logical Block Provisioning mode page, and the bit
        // that allows the warning.
        assert_eq!(be32(&data, 3), 16);
        let recovery = bench.data(&bench.run(&[0x1A, 0x08, 0x01, 0, 255, 0], b""));
        assert_eq!(recovery[4 + 7] & 0x80, 0x80);
    }

    #[test]
    fn the_descriptor_format_is_given_when_asked_for() {
        let bench = Bench::new();
        let data = bench.data(&bench.run(&[0x03, 0x01, 0, 0, 252, 0], b""));
        assert_eq!(data[0], 0x72);
    }
}
