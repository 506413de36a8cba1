//! Runs of logical blocks. Commands that SBC requires to be atomic lock theirs exclusively, plain
//! reads and writes share.

use zgate_store::range_lock::Extent;

/// A run of logical blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockRange {
    /// First logical block.
    pub(crate) lba: u64,
    /// Number of logical blocks.
    pub(crate) blocks: u64,
}

impl BlockRange {
    /// All blocks.
    pub(crate) const WHOLE: Self = Self { lba: 0, blocks: u64::MAX };

    pub(crate) fn overlaps(self, other: Self) -> bool {
        Extent::from(self).overlaps(other.into())
    }
}

impl From<BlockRange> for Extent {
    fn from(range: BlockRange) -> Self {
        Self { start: range.lba, len: range.blocks }
    }
}
