//! SNACK Request (RFC 7143 §11.16).

use super::{Bhs, Itt, Lun, Opcode, Outgoing, PduError, Ttt};
use crate::serial::Sn;

/// Object of a SNACK: retransmission or acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnackKind {
    /// Data-In PDUs or R2Ts.
    DataOrR2t,
    /// Statuses.
    Status,
    /// Acknowledges Data-In PDUs.
    DataAck,
    /// Data-In with a new segmentation, and the status after it.
    ResegmentData,
}

/// A SNACK Request PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snack {
    /// Kind.
    pub kind: SnackKind,
    /// Logical unit, for DataACK.
    pub lun: Lun,
    /// Task tag.
    pub itt: Itt,
    /// Transfer tag of the acknowledged Data-In, or SNACK Tag of R-Data.
    pub ttt: Ttt,
    /// ExpStatSN.
    pub exp_stat_sn: Sn,
    /// First missing number, or the next expected one for DataACK.
    pub begin_run: u32,
    /// Number of missing PDUs; 0 means all from the first.
    pub run_length: u32,
}

impl Snack {
    /// Reads the header.
    ///
    /// # Errors
    /// An unknown type.
    pub fn parse(bhs: &Bhs) -> Result<Self, PduError> {
        let kind = match bhs.flags() & 0x0f {
            0 => SnackKind::DataOrR2t,
            1 => SnackKind::Status,
            2 => SnackKind::DataAck,
            3 => SnackKind::ResegmentData,
            _ => return Err(PduError::Field("SNACK type")),
        };
        Ok(Self {
            kind,
            lun: bhs.lun(),
            itt: bhs.itt(),
            ttt: bhs.ttt(),
            exp_stat_sn: bhs.exp_sn(),
            begin_run: bhs.u32(40),
            run_length: bhs.u32(44),
        })
    }

    /// The PDU.
    #[must_use]
    pub fn encode(&self) -> Outgoing {
        let mut bhs = Bhs::new(Opcode::SNACK);
        bhs.0[1] = 0x80
            | match self.kind {
                SnackKind::DataOrR2t => 0,
                SnackKind::Status => 1,
                SnackKind::DataAck => 2,
                SnackKind::ResegmentData => 3,
            };
        bhs.put(8, &self.lun.0.to_be_bytes());
        bhs.put_u32(16, self.itt.0);
        bhs.put_u32(20, self.ttt.0);
        bhs.put_u32(28, self.exp_stat_sn.0);
        bhs.put_u32(40, self.begin_run);
        bhs.put_u32(44, self.run_length);
        Outgoing::bare(bhs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        let pdu = Snack {
            kind: SnackKind::ResegmentData,
            lun: Lun(1),
            itt: Itt(2),
            ttt: Ttt(3),
            exp_stat_sn: Sn(4),
            begin_run: 5,
            run_length: 6,
        };
        assert_eq!(Snack::parse(&pdu.encode().bhs), Ok(pdu));
    }
}
