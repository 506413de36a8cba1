//! Reject (RFC 7143 §11.17).

use super::{Bhs, Itt, Opcode, Outgoing};
use crate::serial::Sn;
use bytes::Bytes;

/// Reason code of a Reject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RejectReason(pub u8);

#[allow(missing_docs)] // the names are the RFC's
impl RejectReason {
    pub const DATA_DIGEST_ERROR: Self = Self(0x02);
    pub const SNACK_REJECT: Self = Self(0x03);
    pub const PROTOCOL_ERROR: Self = Self(0x04);
    pub const COMMAND_NOT_SUPPORTED: Self = Self(0x05);
    pub const TOO_MANY_IMMEDIATE: Self = Self(0x06);
    pub const TASK_IN_PROGRESS: Self = Self(0x07);
    pub const INVALID_DATA_ACK: Self = Self(0x08);
    pub const INVALID_FIELD: Self = Self(0x09);
    pub const LONG_OPERATION: Self = Self(0x0a);
    pub const WAITING_FOR_LOGOUT: Self = Self(0x0c);
}

/// A Reject PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reject {
    /// Reason.
    pub reason: RejectReason,
    /// StatSN.
    pub stat_sn: Sn,
    /// Next DataSN or R2TSN of the rejected Data SNACK's task.
    pub data_sn: u32,
}

impl Reject {
    /// Reads the header.
    #[must_use]
    pub fn parse(bhs: &Bhs) -> Self {
        Self { reason: RejectReason(bhs.u8(2)), stat_sn: bhs.sn(), data_sn: bhs.u32(36) }
    }

    /// The PDU, with the header of the rejected one.
    #[must_use]
    pub fn encode(&self, rejected: &Bhs) -> Outgoing {
        let mut bhs = Bhs::new(Opcode::REJECT);
        bhs.0[1] = 0x80;
        bhs.0[2] = self.reason.0;
        bhs.put_u32(16, Itt::NONE.0);
        bhs.put_u32(24, self.stat_sn.0);
        bhs.put_u32(36, self.data_sn);
        Outgoing::with_bytes(bhs, Bytes::copy_from_slice(&rejected.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        let pdu = Reject { reason: RejectReason::SNACK_REJECT, stat_sn: Sn(1), data_sn: 2 };
        let out = pdu.encode(&Bhs::new(Opcode::SNACK));
        assert_eq!(Reject::parse(&out.bhs), pdu);
        assert_eq!(out.data_bytes(), 48);
    }
}
