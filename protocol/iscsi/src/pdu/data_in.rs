//! SCSI Data-In (RFC 7143 §11.7).

use super::{Bhs, Itt, Lun, Opcode, Outgoing, Residual, Ttt};
use crate::serial::Sn;
use zgate_store::Payload;

/// A SCSI Data-In PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataIn {
    /// F bit: last of its sequence.
    pub is_final: bool,
    /// A bit: the target requests a DataACK SNACK.
    pub acknowledge: bool,
    /// Logical unit; only with the A bit.
    pub lun: Lun,
    /// Task tag.
    pub itt: Itt,
    /// Target transfer tag; only with the A bit.
    pub ttt: Ttt,
    /// Number within the task.
    pub data_sn: u32,
    /// Offset in the command's data, in bytes.
    pub offset: u32,
    /// S bit: SCSI status, its StatSN and residual.
    pub status: Option<(u8, Sn, Residual)>,
}

impl DataIn {
    /// Reads the header.
    #[must_use]
    pub fn parse(bhs: &Bhs) -> Self {
        let residual = Residual::from_parts(bhs.flags(), bhs.u32(44));
        Self {
            is_final: bhs.is_final(),
            acknowledge: bhs.flags() & 0x40 != 0,
            lun: bhs.lun(),
            itt: bhs.itt(),
            ttt: bhs.ttt(),
            data_sn: bhs.u32(36),
            offset: bhs.u32(40),
            status: (bhs.flags() & 1 != 0).then(|| (bhs.u8(3), bhs.sn(), residual)),
        }
    }

    /// The PDU.
    #[must_use]
    pub fn encode(&self, data: Vec<Payload>) -> Outgoing {
        let mut bhs = Bhs::new(Opcode::DATA_IN);
        bhs.0[1] = u8::from(self.is_final) << 7 | u8::from(self.acknowledge) << 6;
        bhs.put(8, &self.lun.0.to_be_bytes());
        bhs.put_u32(16, self.itt.0);
        bhs.put_u32(20, self.ttt.0);
        bhs.put_u32(36, self.data_sn);
        bhs.put_u32(40, self.offset);
        if let Some((status, stat_sn, residual)) = self.status {
            let (flags, count) = residual.parts();
            bhs.0[1] |= 1 | flags;
            bhs.0[3] = status;
            bhs.put_u32(24, stat_sn.0);
            bhs.put_u32(44, count);
        }
        Outgoing::with_payload(bhs, data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        let pdu = DataIn {
            is_final: true,
            acknowledge: true,
            lun: Lun(1),
            itt: Itt(2),
            ttt: Ttt(3),
            data_sn: 5,
            offset: 6,
            status: Some((0, Sn(8), Residual::Underflow(9))),
        };
        assert_eq!(DataIn::parse(&pdu.encode(Vec::new()).bhs), pdu);
    }
}
