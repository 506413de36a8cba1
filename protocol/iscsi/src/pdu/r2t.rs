//! Ready To Transfer (RFC 7143 §11.8).

use super::{Bhs, Itt, Lun, Opcode, Outgoing, Ttt};
use crate::serial::Sn;

/// An R2T PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct R2t {
    /// Logical unit.
    pub lun: Lun,
    /// Task tag.
    pub itt: Itt,
    /// Tag for the Data-Outs that answer the R2T.
    pub ttt: Ttt,
    /// The StatSN that will be used next; not consumed.
    pub stat_sn: Sn,
    /// Number within the task.
    pub r2t_sn: u32,
    /// Offset in the command's data, in bytes.
    pub offset: u32,
    /// Requested length in bytes.
    pub desired_bytes: u32,
}

impl R2t {
    /// Reads the header.
    #[must_use]
    pub fn parse(bhs: &Bhs) -> Self {
        Self {
            lun: bhs.lun(),
            itt: bhs.itt(),
            ttt: bhs.ttt(),
            stat_sn: bhs.sn(),
            r2t_sn: bhs.u32(36),
            offset: bhs.u32(40),
            desired_bytes: bhs.u32(44),
        }
    }

    /// The PDU.
    #[must_use]
    pub fn encode(&self) -> Outgoing {
        let mut bhs = Bhs::new(Opcode::R2T);
        bhs.0[1] = 0x80;
        bhs.put(8, &self.lun.0.to_be_bytes());
        bhs.put_u32(16, self.itt.0);
        bhs.put_u32(20, self.ttt.0);
        bhs.put_u32(24, self.stat_sn.0);
        bhs.put_u32(36, self.r2t_sn);
        bhs.put_u32(40, self.offset);
        bhs.put_u32(44, self.desired_bytes);
        Outgoing::bare(bhs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        let pdu = R2t {
            lun: Lun(1),
            itt: Itt(2),
            ttt: Ttt(3),
            stat_sn: Sn(4),
            r2t_sn: 5,
            offset: 6,
            desired_bytes: 7,
        };
        assert_eq!(R2t::parse(&pdu.encode().bhs), pdu);
    }
}
