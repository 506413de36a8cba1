//! Asynchronous Message (RFC 7143 §11.9).

use super::{Bhs, Itt, Lun, Opcode, Outgoing};
use crate::serial::Sn;
use bytes::Bytes;

/// Code of an asynchronous event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncEvent(pub u8);

#[allow(missing_docs)] // the names are the RFC's
impl AsyncEvent {
    pub const SCSI: Self = Self(0);
    pub const LOGOUT_REQUESTED: Self = Self(1);
    pub const DROPS_CONNECTION: Self = Self(2);
    pub const DROPS_ALL_CONNECTIONS: Self = Self(3);
    pub const NEGOTIATION_REQUESTED: Self = Self(4);
    pub const TASKS_TERMINATED: Self = Self(5);
    pub const VENDOR: Self = Self(255);
}

/// An Asynchronous Message PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncMessage {
    /// Event.
    pub event: AsyncEvent,
    /// Vendor code.
    pub vendor_code: u8,
    /// Logical unit, for SCSI events.
    pub lun: Lun,
    /// StatSN.
    pub stat_sn: Sn,
    /// Parameter1 to Parameter3.
    pub parameters: [u16; 3],
}

impl AsyncMessage {
    /// Reads the header.
    #[must_use]
    pub fn parse(bhs: &Bhs) -> Self {
        Self {
            event: AsyncEvent(bhs.u8(36)),
            vendor_code: bhs.u8(37),
            lun: bhs.lun(),
            stat_sn: bhs.sn(),
            parameters: [bhs.u16(38), bhs.u16(40), bhs.u16(42)],
        }
    }

    /// The PDU with its data (sense data with a length in front, or text).
    #[must_use]
    pub fn encode(&self, data: Bytes) -> Outgoing {
        let mut bhs = Bhs::new(Opcode::ASYNC_MESSAGE);
        bhs.0[1] = 0x80;
        bhs.put(8, &self.lun.0.to_be_bytes());
        bhs.put_u32(16, Itt::NONE.0);
        bhs.put_u32(24, self.stat_sn.0);
        bhs.put(36, &[self.event.0, self.vendor_code]);
        for (parameter, at) in self.parameters.iter().zip([38, 40, 42]) {
            bhs.put(at, &parameter.to_be_bytes());
        }
        Outgoing::with_bytes(bhs, data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        let pdu = AsyncMessage {
            event: AsyncEvent::DROPS_CONNECTION,
            vendor_code: 1,
            lun: Lun(2),
            stat_sn: Sn(3),
            parameters: [4, 5, 6],
        };
        assert_eq!(AsyncMessage::parse(&pdu.encode(Bytes::new()).bhs), pdu);
    }
}
