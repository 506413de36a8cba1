//! Loads to this host's memory.

use super::LoadError;
use super::destination::{Destination, LoadedTensor, RegionLoader};
use super::memory::{Memory, has_room};
use super::plan::{Region, Target};
use super::reader::{Pieces, Reader};
use bytes::BytesMut;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Size above which the allocator is asked before a region is loaded, in bytes. It is a
/// single tensor, and may be in a sparse file: the header can claim any size.
const LARGE_BYTES: usize = 1 << 30;

/// Memory of this host.
#[derive(Debug)]
pub struct Host {
    memory: Arc<Memory>,
}

impl Host {
    pub(super) fn new(inflight_bytes: u64) -> Self {
        Self { memory: Arc::new(Memory::new(inflight_bytes)) }
    }

    /// Pieces of fresh memory, as it gets its pages: the kernel takes its time
    /// to find them.
    fn prepare(&self, reader: &Reader, len: usize) -> Pieces {
        let (sender, pieces) = mpsc::unbounded_channel();
        let (memory, most) = (Arc::clone(&self.memory), reader.client.max_transfer_bytes());
        tokio::task::spawn_blocking(move || {
            let fresh = memory.fresh(len);
            memory.prepare(fresh, most as usize, |piece| sender.send(piece).is_ok());
        });
        pieces
    }
}

impl Destination for Host {
    type Data = BytesMut;
}

impl RegionLoader for Host {
    const STRETCH_BYTES: usize = usize::MAX;

    async fn load_region(
        &self,
        reader: &Arc<Reader>,
        first: usize,
        region: Region,
    ) -> Result<Vec<LoadedTensor>, LoadError> {
        let (shard, offset, len) = (region.shard, region.offset, region.bytes as usize);
        if len > LARGE_BYTES && !has_room(len) {
            let file = reader.file(shard).0.clone();
            return Err(LoadError::TooLarge { file, bytes: region.bytes });
        }
        let mut data = if reader.is_shared() && len > 0 {
            let memory = Arc::clone(&self.memory);
            reader.read_shared(first, shard, offset, move || memory.take(len)).await?
        } else {
            let pieces = match self.memory.again(len) {
                Some(memory) => reader.cut(memory),
                None => self.prepare(reader, len),
            };
            reader.read(shard, offset, len, pieces).await?
        };
        reader.hash(shard).add(offset, &data);
        let mut tensors = Vec::with_capacity(region.targets.len());
        let mut at = 0;
        for target in region.targets {
            let _gap = data.split_to((target.start - at) as usize);
            at = target.start + target.bytes;
            let tensor = finish(target, &mut data);
            reader.hash(shard).check(&tensor.name, &tensor.data)?;
            tensors.push(tensor);
        }
        Ok(tensors)
    }
}

/// Splits a tensor off the beginning of its region.
fn finish(target: Target, region: &mut BytesMut) -> LoadedTensor {
    let mut data = region.split_to(target.bytes as usize);
    if let Some(cut) = &target.cut {
        data = cut.gather(&data);
    }
    LoadedTensor { name: target.name, dtype: target.dtype, shape: target.shape, data }
}
