//! Runs a plan: large reads, many at a time, straight into memory that the
//! tensors own afterwards. What is under way and not yet taken is bounded.

use super::checksum::{FileHash, Verify};
use super::memory::Memory;
use super::plan::{Plan, Region, Target};
use super::regions::{self, Delivery, stopped};
use super::share::{Share, Shared, Turn};
use super::stream::fill;
use super::{LoadError, Model};
use crate::client::Client;
use crate::file::File;
use bytes::BytesMut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;

/// How to load.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Bytes being read or waiting to be taken; one region more than this when
    /// it is larger.
    pub inflight_bytes: u64,
    /// Requests under way.
    pub depth: usize,
    /// Whether checksums are compared.
    pub verify: Verify,
    /// With whom on this host the reading is shared.
    pub share: Option<Share>,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self { inflight_bytes: 256 << 20, depth: 16, verify: Verify::Off, share: None }
    }
}

/// A tensor in memory. Its data is its own: it stays when the loader is gone.
#[derive(Clone, Debug)]
pub struct LoadedTensor {
    /// Name.
    pub name: String,
    /// Element type.
    pub dtype: String,
    /// Shape.
    pub shape: Vec<u64>,
    /// Elements, row after row, little endian. Nobody else has this memory.
    pub data: BytesMut,
}

/// How far it is.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
}

impl Progress {
    /// Bytes read.
    #[must_use]
    pub fn done_bytes(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Memory to be read to, in order.
type Pieces = mpsc::UnboundedReceiver<BytesMut>;

/// A load under way. Dropping it stops it.
#[derive(Debug)]
pub struct Load {
    total_bytes: u64,
    progress: Arc<Progress>,
    arriving: mpsc::UnboundedReceiver<Delivery<LoadedTensor>>,
    waiting: std::vec::IntoIter<LoadedTensor>,
    /// The room of what is in `waiting`.
    held: Option<OwnedSemaphorePermit>,
    /// All the room there is, in units.
    units: u32,
    driver: JoinHandle<()>,
}

impl Drop for Load {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Load {
    /// Starts loading; needs a tokio runtime.
    #[must_use]
    pub fn start(model: &Model, plan: Plan, options: &LoadOptions) -> Self {
        let (sender, arriving) = mpsc::unbounded_channel();
        let progress = Arc::new(Progress::default());
        let total_bytes = plan.bytes();
        let shared = options.share.as_ref().map(|share| share_of(model, &plan, share)).transpose();
        let shared = match shared {
            Ok(shared) => shared,
            Err(error) => {
                // Nobody else has the channel: it is there.
                let _ = sender.send((Err(not_shared(&error)), None));
                let driver = tokio::spawn(std::future::ready(()));
                let waiting = Vec::new().into_iter();
                return Self {
                    total_bytes,
                    progress,
                    arriving,
                    waiting,
                    held: None,
                    units: 0,
                    driver,
                };
            }
        };
        let work = Work {
            client: Arc::clone(model.client()),
            files: model
                .shards()
                .iter()
                .map(|shard| (shard.name.clone(), shard.file.clone()))
                .collect(),
            hashes: model
                .shards()
                .iter()
                .map(|shard| Mutex::new(FileHash::new(shard, &options.verify)))
                .collect(),
            depth: Arc::new(Semaphore::new(options.depth.max(1))),
            asking: tokio::sync::Mutex::default(),
            progress: Arc::clone(&progress),
            memory: Memory::new(options.inflight_bytes),
            shared,
        };
        let units = regions::units(options.inflight_bytes);
        let driver = tokio::spawn(drive(Arc::new(work), plan, units, sender));
        let waiting = Vec::new().into_iter();
        Self { total_bytes, progress, arriving, waiting, held: None, units, driver }
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

    /// The next tensor that is there, in about the order of the file; none
    /// when all have been taken.
    ///
    /// # Errors
    /// Why the rest does not come.
    pub async fn next(&mut self) -> Result<Option<LoadedTensor>, LoadError> {
        loop {
            if let Some(tensor) = self.waiting.next() {
                return Ok(Some(tensor));
            }
            // Whoever lets tensors go has let the last one go by now: its
            // memory is there for what is read next.
            self.held = None;
            match self.arriving.recv().await {
                Some((region, room)) => {
                    self.waiting = region?.into_iter();
                    // One that fills all the room is taken while the next one
                    // is read.
                    let all = self.units as usize;
                    self.held = room.filter(|room| room.num_permits() < all);
                }
                None => return Ok(None),
            }
        }
    }
}

struct Work {
    client: Arc<Client>,
    files: Vec<(String, File)>,
    hashes: Vec<Mutex<FileHash>>,
    depth: Arc<Semaphore>,
    /// Held while a region is asked for, so that regions become complete one
    /// after the other and not all at the same time.
    asking: tokio::sync::Mutex<()>,
    progress: Arc<Progress>,
    memory: Memory,
    shared: Option<Shared>,
}

async fn drive(
    work: Arc<Work>,
    plan: Plan,
    units: u32,
    sender: mpsc::UnboundedSender<Delivery<LoadedTensor>>,
) {
    let numbered = plan.regions.into_iter().enumerate();
    let one = |index, region| {
        let work = Arc::clone(&work);
        async move { work.region(index, region).await }
    };
    let source = (&*work.client, &*work.files);
    regions::bring(numbered, units, source, &work.hashes, &sender, one).await;
    // Whoever hears of the end finds given back what nobody uses.
    drop(work);
}

impl Work {
    async fn region(
        self: &Arc<Self>,
        index: usize,
        region: Region,
    ) -> Result<Vec<LoadedTensor>, LoadError> {
        let mut data = self.bring(index, &region).await?;
        let hash = &self.hashes[region.shard];
        hash.lock().unwrap_or_else(PoisonError::into_inner).add(region.offset, &data);
        let mut tensors = Vec::with_capacity(region.targets.len());
        let mut at = 0;
        for target in region.targets {
            let _gap = data.split_to((target.start - at) as usize);
            at = target.start + target.bytes;
            let tensor = finish(target, &mut data);
            hash.lock().unwrap_or_else(PoisonError::into_inner).check(&tensor)?;
            tensors.push(tensor);
        }
        Ok(tensors)
    }

    /// What is in a region; from another rank of this host, if one has read it.
    async fn bring(self: &Arc<Self>, index: usize, region: &Region) -> Result<BytesMut, LoadError> {
        let len = region.bytes as usize;
        if self.shared.is_none() || len == 0 {
            return match self.memory.again(len) {
                Some(memory) => self.read(region, self.cut(memory)).await,
                None => self.read(region, self.prepare(len)).await,
            };
        }
        let work = Arc::clone(self);
        // Other ranks take their time, and so does the kernel to find pages.
        let taken = tokio::task::spawn_blocking(move || match &work.shared {
            Some(shared) => match shared.turn(index, work.memory.take(len))? {
                Turn::Taken(data) => {
                    work.progress.done.fetch_add(len as u64, Ordering::Relaxed);
                    Ok((data, None))
                }
                Turn::Ours(claim, memory) => Ok((memory, Some(claim))),
            },
            None => Ok((work.memory.take(len), None)),
        });
        let taken: std::io::Result<_> = taken.await.map_err(stopped)?;
        let (memory, claim) = taken.map_err(|error| not_shared(&error))?;
        let Some(claim) = claim else { return Ok(memory) };
        let data = self.read(region, self.cut(memory)).await?;
        let put = tokio::task::spawn_blocking(move || claim.put(&data).map(|()| data));
        put.await.map_err(stopped)?.map_err(|error| not_shared(&error))
    }

    /// Pieces of the largest transfer.
    fn cut(&self, mut memory: BytesMut) -> Pieces {
        let (sender, pieces) = mpsc::unbounded_channel();
        let most = self.client.max_transfer_bytes() as usize;
        while !memory.is_empty() {
            // The other end is there: it is returned.
            let _ = sender.send(memory.split_to(memory.len().min(most)));
        }
        pieces
    }

    /// The same of fresh memory, as it gets its pages: the kernel takes its time
    /// to find them.
    fn prepare(self: &Arc<Self>, len: usize) -> Pieces {
        let (sender, pieces) = mpsc::unbounded_channel();
        let work = Arc::clone(self);
        tokio::task::spawn_blocking(move || {
            let most = work.client.max_transfer_bytes() as usize;
            let memory = work.memory.fresh(len);
            work.memory.prepare(memory, most, |piece| sender.send(piece).is_ok());
        });
        pieces
    }

    /// Reads a region, each piece into its place.
    async fn read(
        self: &Arc<Self>,
        region: &Region,
        mut pieces: Pieces,
    ) -> Result<BytesMut, LoadError> {
        let mut reads = Vec::new();
        let mut offset = region.offset;
        let asking = self.asking.lock().await;
        while let Some(piece) = pieces.recv().await {
            let Ok(permit) = Arc::clone(&self.depth).acquire_owned().await else { break };
            let (work, shard, len) = (Arc::clone(self), region.shard, piece.len());
            reads.push(tokio::spawn(async move {
                let _permit = permit;
                work.piece(shard, offset, piece).await
            }));
            offset += len as u64;
        }
        drop(asking);
        let mut whole = BytesMut::new();
        for read in reads {
            whole.unsplit(read.await.map_err(stopped)??);
        }
        if whole.len() as u64 == region.bytes { Ok(whole) } else { Err(stopped(())) }
    }

    /// Fills one piece.
    async fn piece(
        &self,
        shard: usize,
        offset: u64,
        piece: BytesMut,
    ) -> Result<BytesMut, LoadError> {
        let (name, file) = &self.files[shard];
        let piece = fill(&self.client, file, name, offset, piece).await?;
        self.progress.done.fetch_add(piece.len() as u64, Ordering::Relaxed);
        Ok(piece)
    }
}

pub(super) fn share_of(model: &Model, plan: &Plan, share: &Share) -> std::io::Result<Shared> {
    let files: Vec<_> = model.shards().iter().map(|s| (s.name.clone(), s.size, s.change)).collect();
    Shared::open(share, plan, &files)
}

pub(super) fn not_shared(error: &std::io::Error) -> LoadError {
    LoadError::Missing(format!("shared memory (/dev/shm): {error}"))
}

/// Takes a tensor off the beginning of what is left of its region.
fn finish(target: Target, region: &mut BytesMut) -> LoadedTensor {
    let mut data = region.split_to(target.bytes as usize);
    if let Some(cut) = &target.cut {
        data = cut.gather(&data);
    }
    LoadedTensor { name: target.name, dtype: target.dtype, shape: target.shape, data }
}
