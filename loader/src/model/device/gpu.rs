//! Loads to a device's memory.

use super::buffer::{DeviceBuffer, Reachable};
use super::staging::{Buffers, STAGING_BYTES};
use super::{DeviceSlice, DeviceTensor};
use crate::model::destination::{Destination, RegionLoader};
use crate::model::load::{Load, run};
use crate::model::options::LoadOptions;
use crate::model::plan::{Plan, Region, Target};
use crate::model::reader::Reader;
use crate::model::regions::stopped;
use crate::model::{LoadError, Model};
use crate::transport::ReadBuffer;
use bytes::BytesMut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::JoinSet;
use zgate_cuda::{CudaError, Device, DeviceMemory, Grid};
use zgate_fabric::{Fabric, Window};

/// Largest registration with an RDMA device, in bytes.
const WINDOW_BYTES: usize = 1 << 30;

/// Placement of the data in the device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Written by an RDMA device, in bytes.
    pub direct_bytes: u64,
    /// Copied from host memory, in bytes.
    pub staged_bytes: u64,
    /// Method by which the device's memory was registered, or the reason why it
    /// was not.
    pub reason: String,
}

/// The memory of a CUDA device.
#[derive(Debug)]
pub struct Gpu {
    device: Arc<Device>,
    /// Fabric that can write to the device's memory, until it has refused to.
    fabric: Mutex<Option<Arc<dyn Fabric>>>,
    buffers: Arc<Buffers>,
    figures: Figures,
}

#[derive(Debug, Default)]
struct Figures {
    direct: AtomicU64,
    staged: AtomicU64,
    reason: Mutex<String>,
}

impl Figures {
    fn say(&self, reason: &str) {
        reason.clone_into(&mut self.reason.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Load<Gpu> {
    /// Starts loading to a device; needs a tokio runtime. What is under way is
    /// bounded as on the host, in the memory of the device; of host memory it
    /// takes two buffers.
    #[must_use]
    pub fn to_device(
        model: &Model,
        plan: Plan,
        options: &LoadOptions,
        device: &Arc<Device>,
    ) -> Self {
        let (shared, figures) = (options.share.is_some(), Figures::default());
        figures.say(if shared { "the ranks share the data they read" } else { "no RDMA" });
        let gpu = Gpu {
            device: Arc::clone(device),
            fabric: Mutex::new(model.client().fabric().filter(|_| !shared)),
            buffers: Buffers::new(device),
            figures,
        };
        run(model, plan, options, gpu)
    }

    /// Returns the placement of the data so far.
    #[must_use]
    pub fn placement(&self) -> Placement {
        let figures = &self.destination.figures;
        Placement {
            direct_bytes: figures.direct.load(Ordering::Relaxed),
            staged_bytes: figures.staged.load(Ordering::Relaxed),
            reason: figures.reason.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

impl Destination for Gpu {
    type Data = DeviceSlice;
}

/// Runs a blocking call of the driver.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CudaError> + Send + 'static,
) -> Result<T, LoadError> {
    tokio::task::spawn_blocking(work).await.map_err(stopped)?.map_err(LoadError::Device)
}

impl RegionLoader for Gpu {
    const STRETCH_BYTES: usize = STAGING_BYTES;

    async fn load_region(
        &self,
        reader: &Arc<Reader>,
        first: usize,
        region: Region,
    ) -> Result<Vec<DeviceTensor>, LoadError> {
        let (device, bytes) = (Arc::clone(&self.device), region.bytes as usize);
        let memory = blocking(move || DeviceMemory::allocate(&device, bytes)).await?;
        let memory = Arc::new(memory);
        if !self.direct(reader, &region, &memory).await? {
            self.staged(reader, first, &region, &memory).await?;
        }
        let (reader, shard, offset) = (Arc::clone(reader), region.shard, region.offset);
        let finish = move || {
            let mut tensors = Vec::with_capacity(region.targets.len());
            for target in region.targets {
                tensors.push(finish(target, &memory).map_err(LoadError::Device)?);
            }
            if reader.verifies {
                check(&reader, shard, offset, &memory, &tensors)?;
            }
            Ok(tensors)
        };
        tokio::task::spawn_blocking(finish).await.map_err(stopped)?
    }
}

impl Gpu {
    /// Loads a region by an RDMA device directly into the device's memory.
    /// Returns whether that is possible.
    async fn direct(
        &self,
        reader: &Arc<Reader>,
        region: &Region,
        memory: &Arc<DeviceMemory>,
    ) -> Result<bool, LoadError> {
        let fabric = self.fabric.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(fabric) = fabric.filter(|_| region.bytes > 0) else { return Ok(false) };
        if !reader.client.is_rdma().await {
            self.figures.say("no RDMA connection");
            return Ok(false);
        }
        let exposed = Arc::clone(memory);
        let windows = tokio::task::spawn_blocking(move || windows(&*fabric, &exposed));
        let windows = match windows.await.map_err(stopped)? {
            Ok(windows) => windows,
            Err(error) => {
                tracing::info!(%error, "cannot register device memory: using host memory");
                self.figures.say(&error.to_string());
                self.fabric.lock().unwrap_or_else(PoisonError::into_inner).take();
                return Ok(false);
            }
        };
        self.figures.say(windows.first().map_or("", |(_, window)| window.how));
        let most = reader.client.max_transfer_bytes() as usize;
        let mut pieces = JoinSet::new();
        for (begin, window) in &windows {
            for at in (0..window.len).step_by(most) {
                let buffer = DeviceBuffer::new(window, at, most.min(window.len - at));
                let (reader, memory) = (Arc::clone(reader), Arc::clone(memory));
                let (shard, begin) = (region.shard, begin + at);
                let offset = region.offset + begin as u64;
                let permit = reader.permit().await?;
                pieces.spawn(async move {
                    let _permit = permit;
                    land(&reader, shard, offset, buffer, &memory, begin).await
                });
            }
        }
        while let Some(piece) = pieces.join_next().await {
            let (direct, staged) = piece.map_err(stopped)??;
            self.figures.direct.fetch_add(direct, Ordering::Relaxed);
            self.figures.staged.fetch_add(staged, Ordering::Relaxed);
        }
        // End the peers' access before the memory is used.
        drop(windows);
        let device = Arc::clone(&self.device);
        blocking(move || device.flush_remote_writes()).await?;
        Ok(true)
    }

    /// Loads a region to the device through host memory.
    async fn staged(
        &self,
        reader: &Arc<Reader>,
        first: usize,
        region: &Region,
        memory: &Arc<DeviceMemory>,
    ) -> Result<(), LoadError> {
        let (mut copies, shard) = (JoinSet::new(), region.shard);
        for (number, at) in (0..region.bytes as usize).step_by(STAGING_BYTES).enumerate() {
            let len = STAGING_BYTES.min(region.bytes as usize - at);
            let (lease, empty) = self.buffers.take(len).await?;
            let offset = region.offset + at as u64;
            let filled = if reader.is_shared() {
                reader.read_shared(first + number, shard, offset, move || empty).await?
            } else {
                reader.read(shard, offset, len, reader.cut(empty)).await?
            };
            let memory = Arc::clone(memory);
            copies.spawn_blocking(move || lease.copy(filled, &memory, at));
            self.figures.staged.fetch_add(len as u64, Ordering::Relaxed);
        }
        while let Some(copied) = copies.join_next().await {
            copied.map_err(stopped)??;
        }
        Ok(())
    }
}

/// Fills a buffer, which is at `at` of `memory`. Returns the bytes that a device wrote
/// there, and those copied from host memory.
async fn land(
    reader: &Reader,
    shard: usize,
    mut offset: u64,
    mut buffer: DeviceBuffer,
    memory: &Arc<DeviceMemory>,
    mut at: usize,
) -> Result<(u64, u64), LoadError> {
    let (name, file) = reader.file(shard);
    let (mut direct, mut staged) = (0, 0);
    loop {
        let (result, read_buffer) =
            file.read_into(&reader.client, offset, ReadBuffer::new(buffer)).await;
        let failed = |source| LoadError::Client { what: name.clone(), source };
        let (_, got) = result.map_err(failed)?;
        let landed = read_buffer.and_then(ReadBuffer::into::<DeviceBuffer>);
        let mut landed = landed.ok_or(()).map_err(stopped)?;
        if got == 0 {
            let reason = format!(
                "the file ends at byte {offset}: it was truncated while it \
                    was read"
            );
            return Err(LoadError::Format { file: name.clone(), reason });
        }
        let figure = match landed.beside() {
            Some(beside) => {
                let memory = Arc::clone(memory);
                blocking(move || memory.write(at, &beside[..got])).await?;
                &mut staged
            }
            None => &mut direct,
        };
        *figure += got as u64;
        reader.came(got);
        (offset, at) = (offset + got as u64, at + got);
        buffer = match landed.rest(got) {
            Some(rest) => rest,
            None => return Ok((direct, staged)),
        };
    }
}

/// Compares checksums of data in the device.
fn check(
    reader: &Reader,
    shard: usize,
    offset: u64,
    memory: &Arc<DeviceMemory>,
    tensors: &[DeviceTensor],
) -> Result<(), LoadError> {
    let mut data = BytesMut::zeroed(memory.len());
    memory.read(0, &mut data).map_err(LoadError::Device)?;
    let mut hash = reader.hash(shard);
    hash.add(offset, &data);
    for tensor in tensors {
        hash.check(&tensor.name, &tensor.data.to_host().map_err(LoadError::Device)?)?;
    }
    Ok(())
}

/// Registers a region's memory; returns the registrations, each with its first
/// byte.
fn windows(
    fabric: &dyn Fabric,
    memory: &Arc<DeviceMemory>,
) -> std::io::Result<Vec<(usize, Arc<Window>)>> {
    memory.order_with_peers()?;
    (0..memory.len())
        .step_by(WINDOW_BYTES)
        .map(|begin| {
            let range = begin..memory.len().min(begin + WINDOW_BYTES);
            let window = fabric.expose_foreign(Arc::new(Reachable(Arc::clone(memory))), range)?;
            Ok((begin, Arc::new(window)))
        })
        .collect()
}

/// Returns a tensor of a complete region.
fn finish(target: Target, memory: &Arc<DeviceMemory>) -> Result<DeviceTensor, CudaError> {
    let (start, bytes) = (target.start as usize, target.bytes as usize);
    let data = match &target.cut {
        None => DeviceSlice { memory: Arc::clone(memory), start, bytes },
        Some(cut) => {
            let part = DeviceMemory::allocate(memory.device(), cut.bytes() as usize)?;
            let grid = Grid {
                start_bytes: cut.start_bytes as usize,
                piece_bytes: cut.piece_bytes as usize,
                stride_bytes: cut.stride_bytes as usize,
                count: cut.count as usize,
            };
            part.gather(memory, start, grid)?;
            let bytes = part.len();
            DeviceSlice { memory: Arc::new(part), start: 0, bytes }
        }
    };
    Ok(DeviceTensor { name: target.name, dtype: target.dtype, shape: target.shape, data })
}
