//! NOP-Out and NOP-In (RFC 7143 §11.18-19).

use super::{Bhs, Itt, Lun, Opcode, Outgoing, Ttt};
use crate::serial::Sn;
use bytes::Bytes;

/// A NOP-Out PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NopOut {
    /// I bit.
    pub immediate: bool,
    /// Logical unit, copied from the NOP-In answered.
    pub lun: Lun,
    /// Task tag, or [`Itt::NONE`] if no answer is requested.
    pub itt: Itt,
    /// Transfer tag of the NOP-In answered, or [`Ttt::NONE`].
    pub ttt: Ttt,
    /// CmdSN.
    pub cmd_sn: Sn,
    /// ExpStatSN.
    pub exp_stat_sn: Sn,
}

impl NopOut {
    /// Reads the header.
    #[must_use]
    pub fn parse(bhs: &Bhs) -> Self {
        Self {
            immediate: bhs.is_immediate(),
            lun: bhs.lun(),
            itt: bhs.itt(),
            ttt: bhs.ttt(),
            cmd_sn: bhs.sn(),
            exp_stat_sn: bhs.exp_sn(),
        }
    }

    /// The PDU.
    #[must_use]
    pub fn encode(&self, ping: Bytes) -> Outgoing {
        let mut bhs = Bhs::new(Opcode::NOP_OUT).with_immediate(self.immediate);
        bhs.0[1] = 0x80;
        bhs.put(8, &self.lun.0.to_be_bytes());
        bhs.put_u32(16, self.itt.0);
        bhs.put_u32(20, self.ttt.0);
        bhs.put_u32(24, self.cmd_sn.0);
        bhs.put_u32(28, self.exp_stat_sn.0);
        Outgoing::with_bytes(bhs, ping)
    }
}

/// A NOP-In PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NopIn {
    /// Logical unit.
    pub lun: Lun,
    /// Task tag of the NOP-Out answered, or [`Itt::NONE`].
    pub itt: Itt,
    /// Tag for the answer, or [`Ttt::NONE`] if none is requested.
    pub ttt: Ttt,
    /// StatSN; the next one, not consumed, in a NOP-In that answers nothing.
    pub stat_sn: Sn,
}

impl NopIn {
    /// Reads the header.
    #[must_use]
    pub fn parse(bhs: &Bhs) -> Self {
        Self { lun: bhs.lun(), itt: bhs.itt(), ttt: bhs.ttt(), stat_sn: bhs.sn() }
    }

    /// The PDU.
    #[must_use]
    pub fn encode(&self, ping: Bytes) -> Outgoing {
        let mut bhs = Bhs::new(Opcode::NOP_IN);
        bhs.0[1] = 0x80;
        bhs.put(8, &self.lun.0.to_be_bytes());
        bhs.put_u32(16, self.itt.0);
        bhs.put_u32(20, self.ttt.0);
        bhs.put_u32(24, self.stat_sn.0);
        Outgoing::with_bytes(bhs, ping)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        let out = NopOut {
            immediate: true,
            lun: Lun(1),
            itt: Itt(2),
            ttt: Ttt(3),
            cmd_sn: Sn(4),
            exp_stat_sn: Sn(5),
        };
        assert_eq!(NopOut::parse(&out.encode(Bytes::new()).bhs), out);
        let back = NopIn { lun: Lun(1), itt: Itt(2), ttt: Ttt(3), stat_sn: Sn(4) };
        assert_eq!(NopIn::parse(&back.encode(Bytes::new()).bhs), back);
    }
}
