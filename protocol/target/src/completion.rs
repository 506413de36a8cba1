//! The end of a SCSI command, as its session reports it.

use bytes::Bytes;
use zgate_iscsi::pdu::TaskAttribute as WireAttribute;
use zgate_iscsi::session::Completion;
use zgate_scsi::{Response, TaskAttribute};

/// The completion of a command that needed `needed` bytes of the initiator; a
/// residual is counted from what the command wanted.
#[must_use]
pub fn completion(needed: u64, response: Response) -> Completion {
    let sense = response.sense.map(|sense| Bytes::from(sense.encode())).unwrap_or_default();
    Completion {
        status: response.status as u8,
        sense,
        wanted_bytes: Some(if needed > 0 { needed } else { response.data_in_bytes() }),
        data_in: response.data_in.into_iter().collect(),
    }
}

/// The task attribute of a command.
#[must_use]
pub fn attribute_of(attribute: WireAttribute) -> TaskAttribute {
    match attribute {
        WireAttribute::Untagged => TaskAttribute::Untagged,
        WireAttribute::Simple => TaskAttribute::Simple,
        WireAttribute::Ordered => TaskAttribute::Ordered,
        WireAttribute::HeadOfQueue => TaskAttribute::HeadOfQueue,
        WireAttribute::Aca => TaskAttribute::Aca,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zgate_scsi::ScsiStatus;

    #[test]
    fn a_command_without_data_wants_what_it_needed() {
        let done = completion(512, Response::bare(ScsiStatus::Good));
        assert_eq!((done.status, done.wanted_bytes), (0, Some(512)));
        let read = completion(0, Response::bare(ScsiStatus::Busy));
        assert_eq!((read.status, read.wanted_bytes), (ScsiStatus::Busy as u8, Some(0)));
    }
}
