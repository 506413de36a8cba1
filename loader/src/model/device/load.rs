//! Runs a plan into a device's memory.

use super::place::{DevicePlace, Reachable};
use super::staging::{Buffers, STAGING_BYTES};
use super::{DeviceSlice, DeviceTensor};
use crate::client::Client;
use crate::file::File;
use crate::model::checksum::{FileHash, Verify};
use crate::model::load::{LoadOptions, LoadedTensor, Progress, not_shared, share_of};
use crate::model::plan::{Plan, Region, Target};
use crate::model::regions::{self, Delivery, stopped};
use crate::model::share::{Shared, Turn};
use crate::model::stream::fill;
use crate::model::{LoadError, Model};
use crate::transport::Landing;
use bytes::BytesMut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinHandle, JoinSet};
use zgate_cuda::{CudaError, Device, DeviceMemory, Grid};
use zgate_fabric::{Fabric, Window};

/// The largest registration with an RDMA device, in bytes.
const WINDOW_BYTES: usize = 1 << 30;

/// How data came to the device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Written by an RDMA device, in bytes.
    pub direct_bytes: u64,
    /// Copied from host memory, in bytes.
    pub staged_bytes: u64,
    /// How the device's memory was registered, or why it was not.
    pub reason: String,
}

/// A load to a device under way. Dropping it stops it.
#[derive(Debug)]
pub struct DeviceLoad {
    total_bytes: u64,
    progress: Arc<Progress>,
    figures: Arc<Figures>,
    arriving: mpsc::UnboundedReceiver<Delivery<DeviceTensor>>,
    waiting: std::vec::IntoIter<DeviceTensor>,
    driver: JoinHandle<()>,
}

impl Drop for DeviceLoad {
    fn drop(&mut self) {
        self.driver.abort();
    }
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

impl DeviceLoad {
    /// Starts loading; needs a tokio runtime. What is under way is bounded as in
    /// [`crate::Load`], in the memory of the device; of host memory it takes two
    /// buffers.
    #[must_use]
    pub fn start(model: &Model, plan: Plan, options: &LoadOptions, device: &Arc<Device>) -> Self {
        let (sender, arriving) = mpsc::unbounded_channel();
        let (progress, figures) = (Arc::<Progress>::default(), Arc::<Figures>::default());
        let total_bytes = plan.bytes();
        let stretches = stretches(&plan);
        let shared = options.share.as_ref().map(|share| share_of(model, &stretches.0, share));
        let driver = match shared.transpose() {
            Ok(shared) => {
                let shards = model.shards().iter();
                let hashes = shards.clone().map(|s| Mutex::new(FileHash::new(s, &options.verify)));
                let work = Arc::new(Work {
                    client: Arc::clone(model.client()),
                    files: shards.clone().map(|s| (s.name.clone(), s.file.clone())).collect(),
                    verify: (options.verify != Verify::Off).then(|| hashes.collect()),
                    depth: Arc::new(Semaphore::new(options.depth.max(1))),
                    progress: Arc::clone(&progress),
                    figures: Arc::clone(&figures),
                    device: Arc::clone(device),
                    fabric: Mutex::new(model.client().fabric().filter(|_| shared.is_none())),
                    buffers: Buffers::new(device),
                    shared,
                });
                let numbered = stretches.1.into_iter().zip(plan.regions).collect();
                figures.say(if work.shared.is_some() {
                    "the ranks share what is read"
                } else {
                    "no RDMA"
                });
                tokio::spawn(work.drive(numbered, options.inflight_bytes, sender))
            }
            Err(error) => {
                // Nobody else has the channel: it is there.
                let _ = sender.send((Err(not_shared(&error)), None));
                tokio::spawn(std::future::ready(()))
            }
        };
        let waiting = Vec::new().into_iter();
        Self { total_bytes, progress, figures, arriving, waiting, driver }
    }

    /// Bytes it reads in total.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// How far it is; can be kept and asked from elsewhere.
    #[must_use]
    pub fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    /// How the data came there, so far.
    #[must_use]
    pub fn placement(&self) -> Placement {
        Placement {
            direct_bytes: self.figures.direct.load(Ordering::Relaxed),
            staged_bytes: self.figures.staged.load(Ordering::Relaxed),
            reason: self.figures.reason.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    /// The next tensor that is there, in about the order of the file; none
    /// when all have been taken.
    ///
    /// # Errors
    /// Why the rest does not come.
    pub async fn next(&mut self) -> Result<Option<DeviceTensor>, LoadError> {
        loop {
            if let Some(tensor) = self.waiting.next() {
                return Ok(Some(tensor));
            }
            match self.arriving.recv().await {
                Some((region, _room)) => self.waiting = region?.into_iter(),
                None => return Ok(None),
            }
        }
    }
}

/// The stretches that regions are staged in, and the number of each region's
/// first.
fn stretches(plan: &Plan) -> (Plan, Vec<usize>) {
    let (mut all, mut first) = (Plan::default(), Vec::new());
    for region in &plan.regions {
        first.push(all.regions.len());
        for at in (0..region.bytes).step_by(STAGING_BYTES) {
            let bytes = (region.bytes - at).min(STAGING_BYTES as u64);
            let (shard, offset) = (region.shard, region.offset + at);
            all.regions.push(Region { shard, offset, bytes, targets: Vec::new() });
        }
    }
    (all, first)
}

#[derive(Debug)]
struct Work {
    client: Arc<Client>,
    files: Vec<(String, File)>,
    /// Of each file, if checksums are compared.
    verify: Option<Vec<Mutex<FileHash>>>,
    depth: Arc<Semaphore>,
    progress: Arc<Progress>,
    figures: Arc<Figures>,
    device: Arc<Device>,
    /// What can write to the device's memory, until it has refused to.
    fabric: Mutex<Option<Arc<dyn Fabric>>>,
    buffers: Arc<Buffers>,
    shared: Option<Shared>,
}

/// Calls of the driver take their time.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CudaError> + Send + 'static,
) -> Result<T, LoadError> {
    tokio::task::spawn_blocking(work).await.map_err(stopped)?.map_err(LoadError::Device)
}

impl Work {
    async fn drive(
        self: Arc<Self>,
        numbered: Vec<(usize, Region)>,
        inflight_bytes: u64,
        sender: mpsc::UnboundedSender<Delivery<DeviceTensor>>,
    ) {
        let units = regions::units(inflight_bytes);
        let hashes = self.verify.as_deref().unwrap_or_default();
        let one = |first, region| {
            let work = Arc::clone(&self);
            async move { work.region(first, region).await }
        };
        let source = (&*self.client, &*self.files);
        regions::bring(numbered, units, source, hashes, &sender, one).await;
        // Whoever hears of the end finds the buffers unlocked.
        drop(self);
    }

    async fn region(
        self: &Arc<Self>,
        first: usize,
        region: Region,
    ) -> Result<Vec<DeviceTensor>, LoadError> {
        let (device, bytes) = (Arc::clone(&self.device), region.bytes as usize);
        let memory = blocking(move || DeviceMemory::allocate(&device, bytes)).await?;
        let memory = Arc::new(memory);
        if !self.direct(&region, &memory).await? {
            self.staged(first, &region, &memory).await?;
        }
        let (work, shard, offset) = (Arc::clone(self), region.shard, region.offset);
        let finish = move || {
            let mut tensors = Vec::with_capacity(region.targets.len());
            for target in region.targets {
                tensors.push(finish(target, &memory).map_err(LoadError::Device)?);
            }
            work.check(shard, offset, &memory, &tensors)?;
            Ok(tensors)
        };
        tokio::task::spawn_blocking(finish).await.map_err(stopped)?
    }

    /// Has a region written to the device's memory by an RDMA device. Says
    /// whether that is possible.
    async fn direct(
        self: &Arc<Self>,
        region: &Region,
        memory: &Arc<DeviceMemory>,
    ) -> Result<bool, LoadError> {
        let fabric = self.fabric.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(fabric) = fabric.filter(|_| region.bytes > 0) else { return Ok(false) };
        if !self.client.is_rdma().await {
            self.figures.say("no RDMA connection");
            return Ok(false);
        }
        let exposed = Arc::clone(memory);
        let windows = tokio::task::spawn_blocking(move || windows(&*fabric, &exposed));
        let windows = match windows.await.map_err(stopped)? {
            Ok(windows) => windows,
            Err(error) => {
                tracing::info!(%error, "device memory cannot be registered: through host memory");
                self.figures.say(&error.to_string());
                self.fabric.lock().unwrap_or_else(PoisonError::into_inner).take();
                return Ok(false);
            }
        };
        self.figures.say(windows.first().map_or("", |(_, window)| window.how));
        let most = self.client.max_transfer_bytes() as usize;
        let mut pieces = JoinSet::new();
        for (begin, window) in &windows {
            for at in (0..window.len).step_by(most) {
                let place = DevicePlace::new(window, at, most.min(window.len - at));
                let (work, memory) = (Arc::clone(self), Arc::clone(memory));
                let (shard, begin) = (region.shard, begin + at);
                let offset = region.offset + begin as u64;
                let permit = Arc::clone(&self.depth).acquire_owned().await.map_err(stopped)?;
                pieces.spawn(async move {
                    let _permit = permit;
                    work.land(shard, offset, place, &memory, begin).await
                });
            }
        }
        while let Some(piece) = pieces.join_next().await {
            piece.map_err(stopped)??;
        }
        // Out of everybody's reach before anybody looks at it.
        drop(windows);
        let device = Arc::clone(&self.device);
        blocking(move || device.flush_remote_writes()).await?;
        Ok(true)
    }

    /// Fills a place, which is at `at` of `memory`.
    async fn land(
        &self,
        shard: usize,
        mut offset: u64,
        mut place: DevicePlace,
        memory: &Arc<DeviceMemory>,
        mut at: usize,
    ) -> Result<(), LoadError> {
        let (name, file) = &self.files[shard];
        loop {
            let (result, landing) = file.read_into(&self.client, offset, Landing::new(place)).await;
            let failed = |source| LoadError::Client { what: name.clone(), source };
            let (_, got) = result.map_err(failed)?;
            let landed = landing.and_then(Landing::into::<DevicePlace>);
            let mut landed = landed.ok_or(()).map_err(stopped)?;
            if got == 0 {
                let reason = format!("it ends at byte {offset}: it was cut while it was read");
                return Err(LoadError::Format { file: name.clone(), reason });
            }
            let figure = match landed.beside() {
                Some(beside) => {
                    let memory = Arc::clone(memory);
                    blocking(move || memory.write(at, &beside[..got])).await?;
                    &self.figures.staged
                }
                None => &self.figures.direct,
            };
            figure.fetch_add(got as u64, Ordering::Relaxed);
            self.progress.add(got as u64);
            (offset, at) = (offset + got as u64, at + got);
            place = match landed.rest(got) {
                Some(rest) => rest,
                None => return Ok(()),
            };
        }
    }

    /// Brings a region to the device by way of host memory.
    async fn staged(
        self: &Arc<Self>,
        first: usize,
        region: &Region,
        memory: &Arc<DeviceMemory>,
    ) -> Result<(), LoadError> {
        let mut copies = JoinSet::new();
        for (number, at) in (0..region.bytes as usize).step_by(STAGING_BYTES).enumerate() {
            let len = STAGING_BYTES.min(region.bytes as usize - at);
            let (lease, empty) = self.buffers.take(len).await?;
            let offset = region.offset + at as u64;
            let filled = self.bring(first + number, region.shard, offset, empty).await?;
            let memory = Arc::clone(memory);
            copies.spawn_blocking(move || lease.copy(filled, &memory, at));
            self.figures.staged.fetch_add(len as u64, Ordering::Relaxed);
        }
        while let Some(copied) = copies.join_next().await {
            copied.map_err(stopped)??;
        }
        Ok(())
    }

    /// Fills host memory, from another rank of this host if that has it.
    async fn bring(
        self: &Arc<Self>,
        index: usize,
        shard: usize,
        offset: u64,
        memory: BytesMut,
    ) -> Result<BytesMut, LoadError> {
        if self.shared.is_none() {
            return self.read(shard, offset, memory).await;
        }
        let (work, len) = (Arc::clone(self), memory.len());
        let turn = move || work.shared.as_ref().map(|shared| shared.turn(index, memory));
        let turn = tokio::task::spawn_blocking(turn).await.map_err(stopped)?;
        match turn.ok_or(()).map_err(stopped)?.map_err(|error| not_shared(&error))? {
            Turn::Taken(data) => {
                self.progress.add(len as u64);
                Ok(data)
            }
            Turn::Ours(claim, memory) => {
                let data = self.read(shard, offset, memory).await?;
                let put = tokio::task::spawn_blocking(move || claim.put(&data).map(|()| data));
                put.await.map_err(stopped)?.map_err(|error| not_shared(&error))
            }
        }
    }

    /// Reads in pieces of the largest transfer.
    async fn read(
        self: &Arc<Self>,
        shard: usize,
        mut offset: u64,
        mut memory: BytesMut,
    ) -> Result<BytesMut, LoadError> {
        let most = self.client.max_transfer_bytes() as usize;
        let mut pieces = Vec::new();
        while !memory.is_empty() {
            let piece = memory.split_to(memory.len().min(most));
            let permit = Arc::clone(&self.depth).acquire_owned().await.map_err(stopped)?;
            let (work, at, len) = (Arc::clone(self), offset, piece.len() as u64);
            pieces.push(tokio::spawn(async move {
                let _permit = permit;
                let (name, file) = &work.files[shard];
                let piece = fill(&work.client, file, name, at, piece).await?;
                work.progress.add(len);
                Ok::<_, LoadError>(piece)
            }));
            offset += len;
        }
        let mut whole = BytesMut::new();
        for piece in pieces {
            whole.unsplit(piece.await.map_err(stopped)??);
        }
        Ok(whole)
    }

    /// Compares checksums of what the device has.
    fn check(
        &self,
        shard: usize,
        offset: u64,
        memory: &Arc<DeviceMemory>,
        tensors: &[DeviceTensor],
    ) -> Result<(), LoadError> {
        let Some(hash) = self.verify.as_ref().and_then(|all| all.get(shard)) else { return Ok(()) };
        let mut data = BytesMut::zeroed(memory.len());
        memory.read(0, &mut data).map_err(LoadError::Device)?;
        let mut hash = hash.lock().unwrap_or_else(PoisonError::into_inner);
        hash.add(offset, &data);
        for tensor in tensors {
            hash.check(&LoadedTensor {
                name: tensor.name.clone(),
                dtype: tensor.dtype.clone(),
                shape: tensor.shape.clone(),
                data: tensor.data.to_host().map_err(LoadError::Device)?,
            })?;
        }
        Ok(())
    }
}

/// The registrations of a region's memory, each with its first byte.
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

/// A tensor of a region that is there.
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
