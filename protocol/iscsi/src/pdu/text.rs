//! Text Request and Response (RFC 7143 §11.10-11).

use super::{Bhs, FLAG_CONTINUE, Itt, Lun, Opcode, Outgoing, Ttt};
use crate::serial::Sn;
use bytes::Bytes;

/// A Text Request PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextRequest {
    /// I bit.
    pub immediate: bool,
    /// F bit: the initiator has nothing more to negotiate.
    pub is_final: bool,
    /// C bit: the text goes on in the next PDU.
    pub continues: bool,
    /// Logical unit, echoed with the transfer tag.
    pub lun: Lun,
    /// Task tag.
    pub itt: Itt,
    /// Copied from the response that this continues.
    pub ttt: Ttt,
    /// CmdSN.
    pub cmd_sn: Sn,
    /// ExpStatSN.
    pub exp_stat_sn: Sn,
}

impl TextRequest {
    /// Reads the header.
    #[must_use]
    pub fn parse(bhs: &Bhs) -> Self {
        Self {
            immediate: bhs.is_immediate(),
            is_final: bhs.is_final(),
            continues: bhs.flags() & FLAG_CONTINUE != 0,
            lun: bhs.lun(),
            itt: bhs.itt(),
            ttt: bhs.ttt(),
            cmd_sn: bhs.sn(),
            exp_stat_sn: bhs.exp_sn(),
        }
    }

    /// The PDU.
    #[must_use]
    pub fn encode(&self, text: Bytes) -> Outgoing {
        let mut bhs = Bhs::new(Opcode::TEXT_REQUEST).with_immediate(self.immediate);
        bhs.0[1] = u8::from(self.is_final) << 7 | u8::from(self.continues) << 6;
        bhs.put(8, &self.lun.0.to_be_bytes());
        bhs.put_u32(16, self.itt.0);
        bhs.put_u32(20, self.ttt.0);
        bhs.put_u32(24, self.cmd_sn.0);
        bhs.put_u32(28, self.exp_stat_sn.0);
        Outgoing::with_bytes(bhs, text)
    }
}

/// A Text Response PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextResponse {
    /// F bit: the exchange is over.
    pub is_final: bool,
    /// C bit: the text goes on in the next PDU.
    pub continues: bool,
    /// Logical unit, copied from the request.
    pub lun: Lun,
    /// Task tag.
    pub itt: Itt,
    /// Tag for the request that continues this, or [`Ttt::NONE`].
    pub ttt: Ttt,
    /// StatSN.
    pub stat_sn: Sn,
}

impl TextResponse {
    /// Reads the header.
    #[must_use]
    pub fn parse(bhs: &Bhs) -> Self {
        Self {
            is_final: bhs.is_final(),
            continues: bhs.flags() & FLAG_CONTINUE != 0,
            lun: bhs.lun(),
            itt: bhs.itt(),
            ttt: bhs.ttt(),
            stat_sn: bhs.sn(),
        }
    }

    /// The PDU.
    #[must_use]
    pub fn encode(&self, text: Bytes) -> Outgoing {
        let mut bhs = Bhs::new(Opcode::TEXT_RESPONSE);
        bhs.0[1] = u8::from(self.is_final) << 7 | u8::from(self.continues) << 6;
        bhs.put(8, &self.lun.0.to_be_bytes());
        bhs.put_u32(16, self.itt.0);
        bhs.put_u32(20, self.ttt.0);
        bhs.put_u32(24, self.stat_sn.0);
        Outgoing::with_bytes(bhs, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        let request = TextRequest {
            immediate: true,
            is_final: false,
            continues: true,
            lun: Lun(1),
            itt: Itt(2),
            ttt: Ttt(3),
            cmd_sn: Sn(4),
            exp_stat_sn: Sn(5),
        };
        assert_eq!(TextRequest::parse(&request.encode(Bytes::new()).bhs), request);
        let response = TextResponse {
            is_final: true,
            continues: false,
            lun: Lun(1),
            itt: Itt(2),
            ttt: Ttt::NONE,
            stat_sn: Sn(5),
        };
        assert_eq!(TextResponse::parse(&response.encode(Bytes::new()).bhs), response);
    }
}
