//! Command descriptor blocks.

use crate::disk::block_range::BlockRange;
use crate::wire::{be16, be24, be32, be64, byte};

/// A command descriptor block of up to sixteen bytes; shorter ones end in
/// zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cdb([u8; 16]);

impl Cdb {
    /// Builds a CDB from the bytes a transport carried; bytes beyond sixteen
    /// are dropped, because no longer command is supported.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        let mut cdb = [0; 16];
        for (place, byte) in cdb.iter_mut().zip(bytes) {
            *place = *byte;
        }
        Self(cdb)
    }

    /// Returns the bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Returns OPERATION CODE.
    #[must_use]
    pub fn opcode(&self) -> u8 {
        self.0[0]
    }

    /// Returns SERVICE ACTION of the commands that have one in byte 1.
    pub(crate) fn service_action(&self) -> u8 {
        self.0[1] & 0x1F
    }

    pub(crate) fn byte(&self, at: usize) -> u8 {
        byte(&self.0, at)
    }

    pub(crate) fn be16(&self, at: usize) -> u16 {
        be16(&self.0, at)
    }

    pub(crate) fn be32(&self, at: usize) -> u32 {
        be32(&self.0, at)
    }

    pub(crate) fn be64(&self, at: usize) -> u64 {
        be64(&self.0, at)
    }

    /// Returns FUA. DPO and FUA have the same position in all READ and WRITE
    /// CDBs except the six-byte ones.
    pub(crate) fn fua(&self) -> bool {
        self.0[1] & 0x08 != 0
    }

    /// Returns the blocks that the CDB names.
    pub(crate) fn range(&self, shape: Shape) -> BlockRange {
        let (lba, blocks) = match shape {
            Shape::None => (0, 0),
            // SBC-3 §5.11: 21 bits of address, and 0 stands for 256 blocks.
            Shape::Six => {
                let lba = be24(&self.0, 1) & 0x001F_FFFF;
                let blocks = if self.0[4] == 0 { 256 } else { u64::from(self.0[4]) };
                (u64::from(lba), blocks)
            }
            Shape::Ten => (u64::from(self.be32(2)), u64::from(self.be16(7))),
            Shape::Twelve => (u64::from(self.be32(2)), u64::from(self.be32(6))),
            Shape::Sixteen => (self.be64(2), u64::from(self.be32(10))),
            Shape::Atomic => (self.be64(2), u64::from(self.be16(12))),
            Shape::CompareAndWrite => (self.be64(2), u64::from(self.0[13])),
        };
        BlockRange { lba, blocks }
    }
}

/// Position of the logical block address and the length in a CDB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// The CDB has neither.
    None,
    /// READ (6), WRITE (6).
    Six,
    /// Ten-byte CDBs.
    Ten,
    /// Twelve-byte CDBs.
    Twelve,
    /// Sixteen-byte CDBs.
    Sixteen,
    /// WRITE ATOMIC (16).
    Atomic,
    /// COMPARE AND WRITE.
    CompareAndWrite,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_byte_cdbs_wrap_to_256_blocks() {
        let range = Cdb::new(&[0x08, 0x1F, 0xFF, 0xFF, 0, 0]).range(Shape::Six);
        assert_eq!((range.lba, range.blocks), (0x1F_FFFF, 256));
    }

    #[test]
    fn lengths_are_where_each_command_has_them() {
        let mut cdb = [0u8; 16];
        cdb[13] = 9;
        let cdb = Cdb::new(&cdb);
        assert_eq!(cdb.range(Shape::CompareAndWrite).blocks, 9);
        assert_eq!(cdb.range(Shape::Atomic).blocks, 9);
        assert_eq!(cdb.range(Shape::Sixteen).blocks, 9);
    }
}
