//! SCSI Command (RFC 7143 §11.3).

use super::{Ahs, Bhs, Frame, Itt, Lun, Opcode, Outgoing, PduError, encode_ahs, parse_ahs};
use crate::limits::MAX_CDB_BYTES;
use crate::serial::Sn;
use bytes::Bytes;
use std::fmt;
use std::ops::Deref;

/// A command descriptor block of 16 bytes or, extended, more.
#[derive(Clone, PartialEq, Eq)]
pub struct Cdb {
    first: [u8; 16],
    extended: Option<Box<[u8]>>,
}

impl Cdb {
    /// A CDB from its bytes; short ones are padded to 16 bytes with zeros.
    /// `None` if longer than [`MAX_CDB_BYTES`].
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > MAX_CDB_BYTES {
            return None;
        }
        let mut first = [0; 16];
        let head = bytes.len().min(16);
        first[..head].copy_from_slice(&bytes[..head]);
        Some(Self { first, extended: (bytes.len() > 16).then(|| bytes.into()) })
    }

    fn tail(&self) -> &[u8] {
        self.extended.as_deref().and_then(|all| all.get(16..)).unwrap_or(&[])
    }
}

impl Deref for Cdb {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.extended.as_deref().unwrap_or(&self.first)
    }
}

impl fmt::Debug for Cdb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cdb({:02x?})", &**self)
    }
}

/// Task attribute: order in which the device server may execute a task (RFC
/// 7143 §11.3.1, SAM-5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TaskAttribute {
    /// No attribute given.
    #[default]
    Untagged,
    /// SIMPLE.
    Simple,
    /// ORDERED.
    Ordered,
    /// HEAD OF QUEUE.
    HeadOfQueue,
    /// ACA.
    Aca,
}

/// A SCSI Command PDU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScsiCommand {
    /// I bit.
    pub immediate: bool,
    /// F bit: no unsolicited Data-Out follows.
    pub is_final: bool,
    /// R bit: data is expected from the target.
    pub read: bool,
    /// W bit: data is expected by the target.
    pub write: bool,
    /// Task attribute.
    pub attribute: TaskAttribute,
    /// Logical unit.
    pub lun: Lun,
    /// Task tag.
    pub itt: Itt,
    /// Expected Data Transfer Length in bytes.
    pub expected_bytes: u32,
    /// CmdSN.
    pub cmd_sn: Sn,
    /// ExpStatSN.
    pub exp_stat_sn: Sn,
    /// The command.
    pub cdb: Cdb,
    /// Expected read length of a bidirectional command.
    pub bidirectional_read_bytes: Option<u32>,
}

impl ScsiCommand {
    /// Reads the header and additional headers.
    ///
    /// # Errors
    /// A reserved task attribute, or malformed additional headers.
    pub fn parse(frame: &Frame) -> Result<Self, PduError> {
        let bhs = &frame.bhs;
        let attribute = match bhs.flags() & 7 {
            0 => TaskAttribute::Untagged,
            1 => TaskAttribute::Simple,
            2 => TaskAttribute::Ordered,
            3 => TaskAttribute::HeadOfQueue,
            4 => TaskAttribute::Aca,
            _ => return Err(PduError::Field("ATTR")),
        };
        let mut first = [0; 16];
        first.copy_from_slice(&bhs.0[32..48]);
        let mut cdb = Cdb { first, extended: None };
        let mut bidirectional_read_bytes = None;
        if !frame.ahs.is_empty() {
            let ahs = parse_ahs(&frame.ahs)?;
            bidirectional_read_bytes = ahs.bidirectional_read_bytes;
            if !ahs.extended_cdb.is_empty() {
                cdb.extended = Some([&first[..], &ahs.extended_cdb].concat().into());
            }
        }
        Ok(Self {
            immediate: bhs.is_immediate(),
            is_final: bhs.is_final(),
            read: bhs.flags() & 0x40 != 0,
            write: bhs.flags() & 0x20 != 0,
            attribute,
            lun: bhs.lun(),
            itt: bhs.itt(),
            expected_bytes: bhs.u32(20),
            cmd_sn: bhs.sn(),
            exp_stat_sn: bhs.exp_sn(),
            cdb,
            bidirectional_read_bytes,
        })
    }

    /// The PDU with its immediate data.
    #[must_use]
    pub fn encode(&self, immediate_data: Bytes) -> Outgoing {
        let mut bhs = Bhs::new(Opcode::SCSI_COMMAND).with_immediate(self.immediate);
        bhs.0[1] =
            u8::from(self.is_final) << 7 | u8::from(self.read) << 6 | u8::from(self.write) << 5;
        bhs.0[1] |= match self.attribute {
            TaskAttribute::Untagged => 0,
            TaskAttribute::Simple => 1,
            TaskAttribute::Ordered => 2,
            TaskAttribute::HeadOfQueue => 3,
            TaskAttribute::Aca => 4,
        };
        bhs.put(8, &self.lun.0.to_be_bytes());
        bhs.put_u32(16, self.itt.0);
        bhs.put_u32(20, self.expected_bytes);
        bhs.put_u32(24, self.cmd_sn.0);
        bhs.put_u32(28, self.exp_stat_sn.0);
        bhs.put(32, &self.cdb.first);
        let ahs = Ahs {
            extended_cdb: Bytes::copy_from_slice(self.cdb.tail()),
            bidirectional_read_bytes: self.bidirectional_read_bytes,
        };
        let mut out = Outgoing::with_bytes(bhs, immediate_data);
        out.ahs = encode_ahs(&ahs);
        out.bhs.set_ahs_bytes(out.ahs.len());
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_cdb_round_trips() {
        let command = ScsiCommand {
            immediate: true,
            is_final: true,
            read: true,
            write: true,
            attribute: TaskAttribute::Ordered,
            lun: Lun(0x0001_0000_0000_0000),
            itt: Itt(7),
            expected_bytes: 512,
            cmd_sn: Sn(3),
            exp_stat_sn: Sn(4),
            cdb: Cdb::new(&[0x7f; 32]).unwrap(),
            bidirectional_read_bytes: Some(1024),
        };
        let out = command.encode(Bytes::from_static(b"data"));
        let frame = Frame::new(out.bhs, out.ahs, vec![Bytes::from_static(b"data")]);
        assert_eq!(ScsiCommand::parse(&frame).unwrap(), command);
        assert_eq!(command.cdb.len(), 32);
    }
}
