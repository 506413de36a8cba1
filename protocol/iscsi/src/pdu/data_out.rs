//! SCSI Data-Out (RFC 7143 §11.7).

use super::{Bhs, Itt, Lun, Opcode, Outgoing, Ttt};
use crate::serial::Sn;
use bytes::Bytes;

/// A SCSI Data-Out PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataOut {
    /// F bit: last of its sequence.
    pub is_final: bool,
    /// Logical unit, when solicited.
    pub lun: Lun,
    /// Task tag.
    pub itt: Itt,
    /// The R2T answered, or [`Ttt::NONE`] when unsolicited.
    pub ttt: Ttt,
    /// ExpStatSN.
    pub exp_stat_sn: Sn,
    /// Number within the sequence.
    pub data_sn: u32,
    /// Offset in the command's data, in bytes.
    pub offset: u32,
}

impl DataOut {
    /// Reads the header.
    #[must_use]
    pub fn parse(bhs: &Bhs) -> Self {
        Self {
            is_final: bhs.is_final(),
            lun: bhs.lun(),
            itt: bhs.itt(),
            ttt: bhs.ttt(),
            exp_stat_sn: bhs.exp_sn(),
            data_sn: bhs.u32(36),
            offset: bhs.u32(40),
        }
    }

    /// The PDU.
    #[must_use]
    pub fn encode(&self, data: Bytes) -> Outgoing {
        let mut bhs = Bhs::new(Opcode::DATA_OUT);
        bhs.0[1] = u8::from(self.is_final) << 7;
        bhs.put(8, &self.lun.0.to_be_bytes());
        bhs.put_u32(16, self.itt.0);
        bhs.put_u32(20, self.ttt.0);
        bhs.put_u32(28, self.exp_stat_sn.0);
        bhs.put_u32(36, self.data_sn);
        bhs.put_u32(40, self.offset);
        Outgoing::with_bytes(bhs, data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        let pdu = DataOut {
            is_final: true,
            lun: Lun(1),
            itt: Itt(2),
            ttt: Ttt(3),
            exp_stat_sn: Sn(4),
            data_sn: 5,
            offset: 6,
        };
        assert_eq!(DataOut::parse(&pdu.encode(Bytes::new()).bhs), pdu);
    }
}
