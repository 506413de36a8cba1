//! Builder for a disk with other than the default properties.

use super::SimDisk;
use super::media::SECTOR_BYTES;
use zgate_store::block_store::BlockGeometry;

/// Builder of a [`SimDisk`].
#[derive(Clone, Debug)]
#[must_use]
pub struct SimDiskBuilder {
    geometry: BlockGeometry,
    thin_limit_bytes: Option<u64>,
}

impl SimDiskBuilder {
    /// Starts from a disk of `capacity_bytes` (rounded down to sectors of 512)
    /// with physical blocks of 4 KiB, a volatile cache, and discard.
    pub(crate) fn new(capacity_bytes: u64) -> Self {
        let geometry = BlockGeometry {
            capacity_bytes: capacity_bytes / SECTOR_BYTES * SECTOR_BYTES,
            physical_block_bytes: 4096,
            optimal_io_bytes: 128 << 10,
            discard_granularity_bytes: Some(4096),
            discard_zeroes: true,
            write_cache: true,
            read_only: false,
        };
        Self { geometry, thin_limit_bytes: None }
    }

    /// Sets the unit of allocation and discard in bytes; a multiple of 512.
    pub fn physical_block_bytes(mut self, bytes: u32) -> Self {
        self.geometry.physical_block_bytes = bytes;
        if self.geometry.discard_granularity_bytes.is_some() {
            self.geometry.discard_granularity_bytes = Some(bytes);
        }
        self
    }

    /// Sets whether discard works (default: yes).
    pub fn discard(mut self, works: bool) -> Self {
        let unit = works.then_some(self.geometry.physical_block_bytes);
        self.geometry.discard_granularity_bytes = unit;
        self
    }

    /// Sets whether writes stay in a volatile cache until `sync` (default:
    /// yes).
    pub fn write_cache(mut self, volatile: bool) -> Self {
        self.geometry.write_cache = volatile;
        self
    }

    /// Sets whether writes are refused (default: no).
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.geometry.read_only = read_only;
        self
    }

    /// Sets the actual space in bytes, for thin provisioning. Writes that need
    /// more fail with [`zgate_store::StoreError::NoSpace`].
    pub fn thin_limit_bytes(mut self, bytes: u64) -> Self {
        self.thin_limit_bytes = Some(bytes);
        self
    }

    /// Builds the disk.
    #[must_use]
    pub fn build(self) -> SimDisk {
        SimDisk::assemble(self.geometry, self.thin_limit_bytes)
    }
}
