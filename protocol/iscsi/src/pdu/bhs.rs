//! The basic header of 48 bytes, and fields common to all PDUs.

use crate::limits::BHS_BYTES;
use crate::serial::Sn;
use bytes::Bytes;
use std::fmt;
use zgate_store::Payload;

/// The type of a PDU (RFC 7143 §11.2.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Opcode(pub u8);

impl Opcode {
    /// NOP-Out.
    pub const NOP_OUT: Self = Self(0x00);
    /// SCSI Command.
    pub const SCSI_COMMAND: Self = Self(0x01);
    /// Task Management Function Request.
    pub const TASK_REQUEST: Self = Self(0x02);
    /// Login Request.
    pub const LOGIN_REQUEST: Self = Self(0x03);
    /// Text Request.
    pub const TEXT_REQUEST: Self = Self(0x04);
    /// SCSI Data-Out.
    pub const DATA_OUT: Self = Self(0x05);
    /// Logout Request.
    pub const LOGOUT_REQUEST: Self = Self(0x06);
    /// SNACK Request.
    pub const SNACK: Self = Self(0x10);
    /// NOP-In.
    pub const NOP_IN: Self = Self(0x20);
    /// SCSI Response.
    pub const SCSI_RESPONSE: Self = Self(0x21);
    /// Task Management Function Response.
    pub const TASK_RESPONSE: Self = Self(0x22);
    /// Login Response.
    pub const LOGIN_RESPONSE: Self = Self(0x23);
    /// Text Response.
    pub const TEXT_RESPONSE: Self = Self(0x24);
    /// SCSI Data-In.
    pub const DATA_IN: Self = Self(0x25);
    /// Logout Response.
    pub const LOGOUT_RESPONSE: Self = Self(0x26);
    /// Ready To Transfer.
    pub const R2T: Self = Self(0x31);
    /// Asynchronous Message.
    pub const ASYNC_MESSAGE: Self = Self(0x32);
    /// Reject.
    pub const REJECT: Self = Self(0x3f);
}

/// Initiator Task Tag (RFC 7143 §11.2.1.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Itt(pub u32);

/// Target Transfer Tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ttt(pub u32);

impl Itt {
    /// "No task".
    pub const NONE: Self = Self(0xffff_ffff);
}

impl Ttt {
    /// "No transfer".
    pub const NONE: Self = Self(0xffff_ffff);
}

/// A logical unit number as SAM encodes it, in eight bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lun(pub u64);

/// F bit of byte 1 in most PDUs.
pub const FLAG_FINAL: u8 = 0x80;
/// C bit of byte 1 in login and text PDUs.
pub const FLAG_CONTINUE: u8 = 0x40;

/// A basic header segment (RFC 7143 §11.2.1).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Bhs(pub [u8; BHS_BYTES]);

impl Bhs {
    /// An empty header with the given opcode.
    #[must_use]
    pub fn new(opcode: Opcode) -> Self {
        let mut bytes = [0; BHS_BYTES];
        bytes[0] = opcode.0;
        Self(bytes)
    }

    /// The PDU's opcode.
    #[must_use]
    pub fn opcode(&self) -> Opcode {
        Opcode(self.0[0] & 0x3f)
    }

    /// The I bit: the PDU takes no CmdSN of its own.
    #[must_use]
    pub fn is_immediate(&self) -> bool {
        self.0[0] & 0x40 != 0
    }

    /// Sets or clears the I bit.
    #[must_use]
    pub fn with_immediate(mut self, immediate: bool) -> Self {
        self.0[0] = (self.0[0] & 0x3f) | if immediate { 0x40 } else { 0 };
        self
    }

    /// Byte 1.
    #[must_use]
    pub fn flags(&self) -> u8 {
        self.0[1]
    }

    /// The F bit.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.0[1] & FLAG_FINAL != 0
    }

    /// Bytes of additional header segments.
    #[must_use]
    pub fn ahs_bytes(&self) -> usize {
        usize::from(self.0[4]) * 4
    }

    /// Bytes of data, without padding.
    #[must_use]
    pub fn data_bytes(&self) -> usize {
        (self.u32(4) & 0x00ff_ffff) as usize
    }

    /// The initiator's task tag.
    #[must_use]
    pub fn itt(&self) -> Itt {
        Itt(self.u32(16))
    }

    /// The target transfer tag, where the PDU has one.
    #[must_use]
    pub fn ttt(&self) -> Ttt {
        Ttt(self.u32(20))
    }

    /// The logical unit number, where the PDU has one.
    #[must_use]
    pub fn lun(&self) -> Lun {
        Lun(self.u64(8))
    }

    /// CmdSN (in requests), StatSN (in responses): bytes 24-27.
    #[must_use]
    pub fn sn(&self) -> Sn {
        Sn(self.u32(24))
    }

    /// ExpStatSN (in requests), ExpCmdSN (in responses): bytes 28-31.
    #[must_use]
    pub fn exp_sn(&self) -> Sn {
        Sn(self.u32(28))
    }

    /// MaxCmdSN of a response: bytes 32-35.
    #[must_use]
    pub fn max_cmd_sn(&self) -> Sn {
        Sn(self.u32(32))
    }

    /// One byte.
    #[must_use]
    pub fn u8(&self, at: usize) -> u8 {
        self.0[at]
    }

    /// Two bytes, big-endian.
    #[must_use]
    pub fn u16(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.0[at], self.0[at + 1]])
    }

    /// Four bytes, big-endian.
    #[must_use]
    pub fn u32(&self, at: usize) -> u32 {
        u32::from_be_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }

    /// Eight bytes, big-endian.
    #[must_use]
    pub fn u64(&self, at: usize) -> u64 {
        (u64::from(self.u32(at)) << 32) | u64::from(self.u32(at + 4))
    }

    /// Sets bytes.
    pub fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Sets four bytes, big-endian.
    pub fn put_u32(&mut self, at: usize, value: u32) {
        self.put(at, &value.to_be_bytes());
    }

    /// Sets DataSegmentLength.
    pub fn set_data_bytes(&mut self, len: usize) {
        debug_assert!(len < 1 << 24);
        let len = (len as u32).to_be_bytes();
        self.put(5, &len[1..]);
    }

    /// Sets TotalAHSLength from a length in bytes, a multiple of four.
    pub fn set_ahs_bytes(&mut self, len: usize) {
        debug_assert!(len.is_multiple_of(4) && len <= 1020);
        self.0[4] = (len / 4) as u8;
    }
}

impl fmt::Debug for Bhs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bhs(opcode {:#04x}", self.opcode().0)?;
        write!(
            f,
            ", flags {:#04x}, ITT {:#x}, {} data bytes)",
            self.flags(),
            self.itt().0,
            self.data_bytes()
        )
    }
}

/// A PDU as delivered by the framing: with a parsed basic header, and data as
/// slices of the receive buffers.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The basic header.
    pub bhs: Bhs,
    /// The additional header segments, padding included.
    pub ahs: Bytes,
    /// The data segment without padding, in order.
    pub data: Vec<Bytes>,
    /// False when a data digest was in use and did not match.
    pub data_digest_ok: bool,
}

impl Frame {
    /// A frame built locally instead of received: for tests and other
    /// transports.
    #[must_use]
    pub fn new(mut bhs: Bhs, ahs: Bytes, data: Vec<Bytes>) -> Self {
        bhs.set_ahs_bytes(ahs.len());
        bhs.set_data_bytes(data.iter().map(Bytes::len).sum());
        Self { bhs, ahs, data, data_digest_ok: true }
    }

    /// Bytes of data.
    #[must_use]
    pub fn data_bytes(&self) -> usize {
        self.data.iter().map(Bytes::len).sum()
    }

    /// True if the header announces data that the receiver has thrown away.
    #[must_use]
    pub fn lacks_data(&self) -> bool {
        self.data.is_empty() && self.bhs.data_bytes() > 0
    }

    /// The data in one slice; copies only if there are several.
    #[must_use]
    pub fn contiguous_data(&self) -> Bytes {
        match self.data.as_slice() {
            [] => Bytes::new(),
            [one] => one.clone(),
            many => many.concat().into(),
        }
    }
}

/// A PDU to be sent: the framing adds lengths, padding and digests.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// The basic header.
    pub bhs: Bhs,
    /// The additional header segments, a multiple of four bytes.
    pub ahs: Bytes,
    /// The data segment.
    pub data: Vec<Payload>,
}

impl Outgoing {
    /// A PDU without data.
    #[must_use]
    pub fn bare(bhs: Bhs) -> Self {
        Self { bhs, ahs: Bytes::new(), data: Vec::new() }
    }

    /// A PDU with data in memory.
    #[must_use]
    pub fn with_bytes(mut bhs: Bhs, data: Bytes) -> Self {
        bhs.set_data_bytes(data.len());
        let data = if data.is_empty() { Vec::new() } else { vec![Payload::Bytes(data)] };
        Self { bhs, ahs: Bytes::new(), data }
    }

    /// A PDU with data of any kind.
    #[must_use]
    pub fn with_payload(mut bhs: Bhs, data: Vec<Payload>) -> Self {
        bhs.set_data_bytes(data.iter().map(Payload::len).sum());
        Self { bhs, ahs: Bytes::new(), data }
    }

    /// Bytes of data.
    #[must_use]
    pub fn data_bytes(&self) -> usize {
        self.data.iter().map(Payload::len).sum()
    }
}
