//! Login Request and Response (RFC 7143 §11.12-13).

use super::{Bhs, FLAG_CONTINUE, FLAG_FINAL, Itt, Opcode, Outgoing, PduError};
use crate::names::{Cid, Isid, Tsih};
use crate::serial::Sn;
use bytes::Bytes;

/// A stage of login (RFC 7143 §11.12.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// SecurityNegotiation.
    Security,
    /// LoginOperationalNegotiation.
    Operational,
    /// FullFeaturePhase.
    FullFeature,
}

impl Stage {
    fn from_bits(bits: u8) -> Option<Self> {
        match bits & 3 {
            0 => Some(Self::Security),
            1 => Some(Self::Operational),
            3 => Some(Self::FullFeature),
            _ => None,
        }
    }

    fn bits(self) -> u8 {
        match self {
            Self::Security => 0,
            Self::Operational => 1,
            Self::FullFeature => 3,
        }
    }
}

/// A Login Request PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginRequest {
    /// C bit: the text goes on in the next PDU.
    pub continues: bool,
    /// CSG.
    pub current: Stage,
    /// NSG, when the T bit is set.
    pub transit: Option<Stage>,
    /// Highest version offered.
    pub version_max: u8,
    /// Lowest version offered.
    pub version_min: u8,
    /// ISID.
    pub isid: Isid,
    /// TSIH.
    pub tsih: Tsih,
    /// Task tag, the same through one login.
    pub itt: Itt,
    /// CID.
    pub cid: Cid,
    /// CmdSN.
    pub cmd_sn: Sn,
    /// ExpStatSN.
    pub exp_stat_sn: Sn,
}

impl LoginRequest {
    /// Reads the header.
    ///
    /// # Errors
    /// Stages that do not exist or go backwards, and T with C.
    pub fn parse(bhs: &Bhs) -> Result<Self, PduError> {
        let flags = bhs.flags();
        let current = Stage::from_bits(flags >> 2).ok_or(PduError::Field("CSG"))?;
        let continues = flags & FLAG_CONTINUE != 0;
        let transit = match flags & FLAG_FINAL != 0 {
            true => Some(Stage::from_bits(flags).ok_or(PduError::Field("NSG"))?),
            false => None,
        };
        if current == Stage::FullFeature || transit.is_some_and(|next| next <= current) {
            return Err(PduError::Field("CSG/NSG"));
        }
        if continues && transit.is_some() {
            return Err(PduError::Field("T and C")); // RFC 7143 §11.12.2
        }
        let b = &bhs.0;
        Ok(Self {
            continues,
            current,
            transit,
            version_max: b[2],
            version_min: b[3],
            isid: Isid([b[8], b[9], b[10], b[11], b[12], b[13]]),
            tsih: Tsih(bhs.u16(14)),
            itt: bhs.itt(),
            cid: Cid(bhs.u16(20)),
            cmd_sn: bhs.sn(),
            exp_stat_sn: bhs.exp_sn(),
        })
    }

    /// The PDU.
    #[must_use]
    pub fn encode(&self, text: Bytes) -> Outgoing {
        let mut bhs = Bhs::new(Opcode::LOGIN_REQUEST).with_immediate(true);
        bhs.0[1] = flags(self.continues, self.current, self.transit);
        bhs.put(2, &[self.version_max, self.version_min]);
        bhs.put(8, &self.isid.0);
        bhs.put(14, &self.tsih.0.to_be_bytes());
        bhs.put_u32(16, self.itt.0);
        bhs.put(20, &self.cid.0.to_be_bytes());
        bhs.put_u32(24, self.cmd_sn.0);
        bhs.put_u32(28, self.exp_stat_sn.0);
        Outgoing::with_bytes(bhs, text)
    }
}

fn flags(continues: bool, current: Stage, transit: Option<Stage>) -> u8 {
    let next = transit.map_or(0, |stage| FLAG_FINAL | stage.bits());
    next | current.bits() << 2 | if continues { FLAG_CONTINUE } else { 0 }
}

/// A Login Response PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginResponse {
    /// C bit.
    pub continues: bool,
    /// CSG.
    pub current: Stage,
    /// NSG, when the T bit is set.
    pub transit: Option<Stage>,
    /// ISID.
    pub isid: Isid,
    /// TSIH.
    pub tsih: Tsih,
    /// Task tag.
    pub itt: Itt,
    /// StatSN.
    pub stat_sn: Sn,
    /// ExpCmdSN.
    pub exp_cmd_sn: Sn,
    /// MaxCmdSN.
    pub max_cmd_sn: Sn,
    /// Status-Class and Status-Detail.
    pub status: (u8, u8),
}

impl LoginResponse {
    /// Reads the header.
    ///
    /// # Errors
    /// Stages that do not exist.
    pub fn parse(bhs: &Bhs) -> Result<Self, PduError> {
        let flags = bhs.flags();
        let b = &bhs.0;
        Ok(Self {
            continues: flags & FLAG_CONTINUE != 0,
            current: Stage::from_bits(flags >> 2).ok_or(PduError::Field("CSG"))?,
            transit: match flags & FLAG_FINAL != 0 {
                true => Some(Stage::from_bits(flags).ok_or(PduError::Field("NSG"))?),
                false => None,
            },
            isid: Isid([b[8], b[9], b[10], b[11], b[12], b[13]]),
            tsih: Tsih(bhs.u16(14)),
            itt: bhs.itt(),
            stat_sn: bhs.sn(),
            exp_cmd_sn: bhs.exp_sn(),
            max_cmd_sn: bhs.max_cmd_sn(),
            status: (bhs.u8(36), bhs.u8(37)),
        })
    }

    /// The PDU.
    #[must_use]
    pub fn encode(&self, text: Bytes) -> Outgoing {
        let mut bhs = Bhs::new(Opcode::LOGIN_RESPONSE);
        bhs.0[1] = flags(self.continues, self.current, self.transit);
        bhs.put(8, &self.isid.0);
        bhs.put(14, &self.tsih.0.to_be_bytes());
        bhs.put_u32(16, self.itt.0);
        bhs.put_u32(24, self.stat_sn.0);
        bhs.put_u32(28, self.exp_cmd_sn.0);
        bhs.put_u32(32, self.max_cmd_sn.0);
        bhs.put(36, &[self.status.0, self.status.1]);
        Outgoing::with_bytes(bhs, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> LoginRequest {
        LoginRequest {
            continues: false,
            current: Stage::Security,
            transit: Some(Stage::FullFeature),
            version_max: 0,
            version_min: 0,
            isid: Isid([0x80, 1, 2, 3, 4, 5]),
            tsih: Tsih(6),
            itt: Itt(7),
            cid: Cid(8),
            cmd_sn: Sn(9),
            exp_stat_sn: Sn(10),
        }
    }

    #[test]
    fn round_trip() {
        assert_eq!(LoginRequest::parse(&request().encode(Bytes::new()).bhs), Ok(request()));
        let response = LoginResponse {
            continues: false,
            current: Stage::Operational,
            transit: None,
            isid: request().isid,
            tsih: Tsih(1),
            itt: Itt(2),
            stat_sn: Sn(3),
            exp_cmd_sn: Sn(4),
            max_cmd_sn: Sn(5),
            status: (2, 1),
        };
        assert_eq!(LoginResponse::parse(&response.encode(Bytes::new()).bhs), Ok(response));
    }

    #[test]
    fn impossible_stages_are_refused() {
        let bad = |change: fn(&mut LoginRequest)| {
            let mut pdu = request();
            change(&mut pdu);
            LoginRequest::parse(&pdu.encode(Bytes::new()).bhs).unwrap_err()
        };
        assert_eq!(bad(|p| p.continues = true), PduError::Field("T and C"));
        assert_eq!(bad(|p| p.current = Stage::FullFeature), PduError::Field("CSG/NSG"));
        let mut bhs = request().encode(Bytes::new()).bhs;
        bhs.0[1] = 0x82;
        assert!(LoginRequest::parse(&bhs).is_err());
    }
}
