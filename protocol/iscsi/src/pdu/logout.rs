//! Logout Request and Response (RFC 7143 §11.14-15).

use super::{Bhs, Itt, Opcode, Outgoing};
use crate::names::Cid;
use crate::serial::Sn;

/// Reason code of a logout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogoutReason(pub u8);

#[allow(missing_docs)] // the names are the RFC's
impl LogoutReason {
    pub const CLOSE_SESSION: Self = Self(0);
    pub const CLOSE_CONNECTION: Self = Self(1);
    pub const REMOVE_FOR_RECOVERY: Self = Self(2);
}

/// Result code of a logout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogoutResult(pub u8);

#[allow(missing_docs)] // the names are the RFC's
impl LogoutResult {
    pub const CLOSED: Self = Self(0);
    pub const CID_NOT_FOUND: Self = Self(1);
    pub const RECOVERY_NOT_SUPPORTED: Self = Self(2);
    pub const CLEANUP_FAILED: Self = Self(3);
}

/// A Logout Request PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogoutRequest {
    /// I bit.
    pub immediate: bool,
    /// Reason.
    pub reason: LogoutReason,
    /// Task tag.
    pub itt: Itt,
    /// The connection to be closed; reserved if the whole session is closed.
    pub cid: Cid,
    /// CmdSN.
    pub cmd_sn: Sn,
    /// ExpStatSN.
    pub exp_stat_sn: Sn,
}

impl LogoutRequest {
    /// Reads the header.
    #[must_use]
    pub fn parse(bhs: &Bhs) -> Self {
        Self {
            immediate: bhs.is_immediate(),
            reason: LogoutReason(bhs.flags() & 0x7f),
            itt: bhs.itt(),
            cid: Cid(bhs.u16(20)),
            cmd_sn: bhs.sn(),
            exp_stat_sn: bhs.exp_sn(),
        }
    }

    /// The PDU.
    #[must_use]
    pub fn encode(&self) -> Outgoing {
        let mut bhs = Bhs::new(Opcode::LOGOUT_REQUEST).with_immediate(self.immediate);
        bhs.0[1] = 0x80 | self.reason.0;
        bhs.put_u32(16, self.itt.0);
        bhs.put(20, &self.cid.0.to_be_bytes());
        bhs.put_u32(24, self.cmd_sn.0);
        bhs.put_u32(28, self.exp_stat_sn.0);
        Outgoing::bare(bhs)
    }
}

/// A Logout Response PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogoutResponse {
    /// Result.
    pub result: LogoutResult,
    /// Task tag.
    pub itt: Itt,
    /// StatSN.
    pub stat_sn: Sn,
    /// Seconds to wait before reconnecting.
    pub time2wait_seconds: u16,
    /// Seconds for which tasks are kept after that.
    pub time2retain_seconds: u16,
}

impl LogoutResponse {
    /// Reads the header.
    #[must_use]
    pub fn parse(bhs: &Bhs) -> Self {
        Self {
            result: LogoutResult(bhs.u8(2)),
            itt: bhs.itt(),
            stat_sn: bhs.sn(),
            time2wait_seconds: bhs.u16(40),
            time2retain_seconds: bhs.u16(42),
        }
    }

    /// The PDU.
    #[must_use]
    pub fn encode(&self) -> Outgoing {
        let mut bhs = Bhs::new(Opcode::LOGOUT_RESPONSE);
        bhs.0[1] = 0x80;
        bhs.0[2] = self.result.0;
        bhs.put_u32(16, self.itt.0);
        bhs.put_u32(24, self.stat_sn.0);
        bhs.put(40, &self.time2wait_seconds.to_be_bytes());
        bhs.put(42, &self.time2retain_seconds.to_be_bytes());
        Outgoing::bare(bhs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        let request = LogoutRequest {
            immediate: true,
            reason: LogoutReason::REMOVE_FOR_RECOVERY,
            itt: Itt(1),
            cid: Cid(2),
            cmd_sn: Sn(3),
            exp_stat_sn: Sn(4),
        };
        assert_eq!(LogoutRequest::parse(&request.encode().bhs), request);
        let response = LogoutResponse {
            result: LogoutResult::CID_NOT_FOUND,
            itt: Itt(1),
            stat_sn: Sn(2),
            time2wait_seconds: 3,
            time2retain_seconds: 4,
        };
        assert_eq!(LogoutResponse::parse(&response.encode().bhs), response);
    }
}
