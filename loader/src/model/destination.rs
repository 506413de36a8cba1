//! Memory that tensors are loaded to.

use super::LoadError;
use super::plan::Region;
use super::reader::Reader;
use bytes::BytesMut;
use std::sync::Arc;

/// A tensor in memory. It owns its data, which outlives the loader.
#[derive(Clone, Debug)]
pub struct Tensor<T> {
    /// Name.
    pub name: String,
    /// Element type.
    pub dtype: String,
    /// Shape.
    pub shape: Vec<u64>,
    /// Elements, row after row, little endian.
    pub data: T,
}

/// A tensor in this host's memory, with a single owner.
pub type LoadedTensor = Tensor<BytesMut>;

/// Memory that tensors are loaded to.
pub trait Destination: Send + Sync + 'static {
    /// The elements of a tensor there.
    type Data: Send + 'static;
}

/// Transfer of regions to a destination.
pub(super) trait RegionLoader: Destination {
    /// Longest stretch of a region that is read in one step and shared by
    /// ranks, in bytes.
    const STRETCH_BYTES: usize;

    /// Loads the tensors of a region, whose first stretch has this number.
    fn load_region(
        &self,
        reader: &Arc<Reader>,
        first: usize,
        region: Region,
    ) -> impl Future<Output = Result<Vec<Tensor<Self::Data>>, LoadError>> + Send;
}
