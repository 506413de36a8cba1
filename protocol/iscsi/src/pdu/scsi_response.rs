//! SCSI Response (RFC 7143 §11.4).

use super::{Bhs, Itt, Opcode, Outgoing};
use crate::serial::Sn;
use bytes::{BufMut, Bytes, BytesMut};

/// Response code: shows if the target executed the command (RFC 7143 §11.4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceResponse(pub u8);

impl ServiceResponse {
    /// Command completed at target: the SCSI status is valid.
    pub const COMPLETED: Self = Self(0);
    /// Target failure.
    pub const TARGET_FAILURE: Self = Self(1);
}

/// Difference between the transferred and the expected length, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Residual {
    /// No difference.
    #[default]
    None,
    /// U: less data than expected.
    Underflow(u32),
    /// O: the command had more data than expected.
    Overflow(u32),
}

impl Residual {
    /// Compares the length that a command transfers with the length that the
    /// initiator expected, both in bytes (RFC 7143 §11.4.5).
    #[must_use]
    pub fn between(wanted_bytes: u64, expected_bytes: u32) -> Self {
        let expected = u64::from(expected_bytes);
        let clamp = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        match wanted_bytes.cmp(&expected) {
            std::cmp::Ordering::Less => Self::Underflow(clamp(expected - wanted_bytes)),
            std::cmp::Ordering::Equal => Self::None,
            std::cmp::Ordering::Greater => Self::Overflow(clamp(wanted_bytes - expected)),
        }
    }

    pub(super) fn parts(self) -> (u8, u32) {
        match self {
            Self::None => (0, 0),
            Self::Underflow(n) => (0x02, n),
            Self::Overflow(n) => (0x04, n),
        }
    }

    pub(super) fn from_parts(flags: u8, count: u32) -> Self {
        match flags & 0x06 {
            0x02 => Self::Underflow(count),
            0x04 => Self::Overflow(count),
            _ => Self::None,
        }
    }
}

/// A SCSI Response PDU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScsiResponse {
    /// Service response.
    pub response: ServiceResponse,
    /// SCSI status.
    pub status: u8,
    /// Task tag.
    pub itt: Itt,
    /// SNACK Tag: 0, or the tag of an R-Data SNACK.
    pub snack_tag: u32,
    /// StatSN.
    pub stat_sn: Sn,
    /// Number of Data-In and R2T PDUs sent for the task.
    pub exp_data_sn: u32,
    /// Residual of the read part of a bidirectional command.
    pub bidirectional: Residual,
    /// Residual.
    pub residual: Residual,
}

impl ScsiResponse {
    /// Reads the header.
    #[must_use]
    pub fn parse(bhs: &Bhs) -> Self {
        Self {
            response: ServiceResponse(bhs.u8(2)),
            status: bhs.u8(3),
            itt: bhs.itt(),
            snack_tag: bhs.u32(20),
            stat_sn: bhs.sn(),
            exp_data_sn: bhs.u32(36),
            bidirectional: Residual::from_parts(bhs.flags() >> 2, bhs.u32(40)),
            residual: Residual::from_parts(bhs.flags(), bhs.u32(44)),
        }
    }

    /// The PDU with sense data, which is preceded by its length (RFC 7143
    /// §11.4.7).
    #[must_use]
    pub fn encode(&self, sense: &[u8]) -> Outgoing {
        let mut bhs = Bhs::new(Opcode::SCSI_RESPONSE);
        let (flags, count) = self.residual.parts();
        let (bidirectional_flags, bidirectional_count) = self.bidirectional.parts();
        bhs.0[1] = 0x80 | flags | bidirectional_flags << 2;
        bhs.0[2] = self.response.0;
        bhs.0[3] = self.status;
        bhs.put_u32(16, self.itt.0);
        bhs.put_u32(20, self.snack_tag);
        bhs.put_u32(24, self.stat_sn.0);
        bhs.put_u32(36, self.exp_data_sn);
        bhs.put_u32(40, bidirectional_count);
        bhs.put_u32(44, count);
        if sense.is_empty() {
            return Outgoing::bare(bhs);
        }
        let sense = &sense[..sense.len().min(252)];
        let mut data = BytesMut::with_capacity(2 + sense.len());
        data.put_u16(sense.len() as u16);
        data.put_slice(sense);
        Outgoing::with_bytes(bhs, data.freeze())
    }

    /// The sense data in a response's data segment.
    #[must_use]
    pub fn sense(data: &Bytes) -> Bytes {
        let Some(&[high, low]) = data.first_chunk::<2>() else { return Bytes::new() };
        let len = usize::from(u16::from_be_bytes([high, low]));
        data.slice(2..data.len().min(2 + len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn residuals_and_sense_round_trip() {
        let response = ScsiResponse {
            response: ServiceResponse::COMPLETED,
            status: 2,
            itt: Itt(1),
            snack_tag: 0,
            stat_sn: Sn(9),
            exp_data_sn: 3,
            bidirectional: Residual::Underflow(5),
            residual: Residual::Overflow(6),
        };
        let out = response.encode(&[0x70, 0, 5]);
        assert_eq!(ScsiResponse::parse(&out.bhs), response);
        let zgate_store::Payload::Bytes(data) = &out.data[0] else { panic!("sense is in memory") };
        assert_eq!(ScsiResponse::sense(data), &[0x70, 0, 5][..]);
        assert_eq!(Residual::between(512, 1024), Residual::Underflow(512));
        assert_eq!(Residual::between(1 << 40, 0), Residual::Overflow(u32::MAX));
    }
}
