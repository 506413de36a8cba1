//! Reads stretches of files into host memory: in pieces of the largest
//! transfer, many at a time, and each stretch only once for all ranks of this
//! host.

use super::checksum::{FileHash, Verify};
use super::options::{LoadOptions, Progress};
use super::plan::Plan;
use super::regions::stopped;
use super::share::{Shared, Stretch};
use super::stream::fill;
use super::{LoadError, Model};
use crate::client::Client;
use crate::file::File;
use bytes::BytesMut;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Memory for the data, in order.
pub(super) type Pieces = mpsc::UnboundedReceiver<BytesMut>;

/// The files of one load, and the limits for reading them.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) client: Arc<Client>,
    files: Vec<(String, File)>,
    hashes: Vec<Mutex<FileHash>>,
    /// Checksums to compare.
    pub(super) verifies: bool,
    depth: Arc<Semaphore>,
    /// Held while a stretch is requested, so that stretches become complete one
    /// after the other and not all at the same time.
    asking: tokio::sync::Mutex<()>,
    progress: Arc<Progress>,
    shared: Option<Shared>,
}

impl Reader {
    /// A reader for these stretches.
    ///
    /// # Errors
    /// The error of shared memory.
    pub(super) fn new(
        model: &Model,
        stretches: &Plan,
        options: &LoadOptions,
        progress: &Arc<Progress>,
    ) -> io::Result<Arc<Self>> {
        let shards = model.shards().iter();
        let known =
            || shards.clone().map(|s| (s.name.clone(), s.size, s.change)).collect::<Vec<_>>();
        let shared = options.share.as_ref().map(|share| Shared::open(share, stretches, &known()));
        Ok(Arc::new(Self {
            client: Arc::clone(model.client()),
            files: shards.clone().map(|s| (s.name.clone(), s.file.clone())).collect(),
            hashes: shards.clone().map(|s| Mutex::new(FileHash::new(s, &options.verify))).collect(),
            verifies: options.verify != Verify::Off,
            depth: Arc::new(Semaphore::new(options.depth.clamp(1, Semaphore::MAX_PERMITS))),
            asking: tokio::sync::Mutex::default(),
            progress: Arc::clone(progress),
            shared: shared.transpose()?,
        }))
    }

    pub(super) fn source(&self) -> (&Client, &[(String, File)]) {
        (&self.client, &self.files)
    }

    pub(super) fn file(&self, shard: usize) -> &(String, File) {
        &self.files[shard]
    }

    pub(super) fn hashes(&self) -> &[Mutex<FileHash>] {
        &self.hashes
    }

    pub(super) fn hash(&self, shard: usize) -> MutexGuard<'_, FileHash> {
        self.hashes[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts bytes received.
    pub(super) fn came(&self, bytes: usize) {
        self.progress.add(bytes as u64);
    }

    /// Returns whether the reads are shared with other ranks.
    pub(super) fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Waits for the permit of one more request in flight.
    pub(super) async fn permit(&self) -> Result<OwnedSemaphorePermit, LoadError> {
        Arc::clone(&self.depth).acquire_owned().await.map_err(stopped)
    }

    /// Splits memory into pieces of the largest transfer.
    pub(super) fn cut(&self, mut memory: BytesMut) -> Pieces {
        let (sender, pieces) = mpsc::unbounded_channel();
        let most = self.client.max_transfer_bytes() as usize;
        while !memory.is_empty() {
            // The receiver exists: it is returned.
            let _ = sender.send(memory.split_to(memory.len().min(most)));
        }
        pieces
    }

    /// Reads `len` bytes, each piece into its place.
    pub(super) async fn read(
        self: &Arc<Self>,
        shard: usize,
        mut offset: u64,
        len: usize,
        mut pieces: Pieces,
    ) -> Result<BytesMut, LoadError> {
        let mut reads = Vec::new();
        let asking = self.asking.lock().await;
        while let Some(piece) = pieces.recv().await {
            let permit = self.permit().await?;
            let (reader, at) = (Arc::clone(self), offset);
            offset += piece.len() as u64;
            reads.push(tokio::spawn(async move {
                let _permit = permit;
                let (name, file) = reader.file(shard);
                let piece = fill(&reader.client, file, name, at, piece).await?;
                reader.came(piece.len());
                Ok::<_, LoadError>(piece)
            }));
        }
        drop(asking);
        let mut whole = BytesMut::new();
        for read in reads {
            whole.unsplit(read.await.map_err(stopped)??);
        }
        if whole.len() == len { Ok(whole) } else { Err(stopped(())) }
    }

    /// Reads a stretch into `memory`, from another rank of this host if one has
    /// read it.
    pub(super) async fn read_shared(
        self: &Arc<Self>,
        number: usize,
        shard: usize,
        offset: u64,
        memory: impl FnOnce() -> BytesMut + Send + 'static,
    ) -> Result<BytesMut, LoadError> {
        let reader = Arc::clone(self);
        // Both the wait for other ranks and the kernel's allocation of pages
        // take long.
        let ask = move || {
            let memory = memory();
            reader.shared.as_ref().map(|shared| shared.stretch(number, memory))
        };
        let asked = tokio::task::spawn_blocking(ask).await.map_err(stopped)?;
        match asked.ok_or(()).map_err(stopped)?.map_err(|error| not_shared(&error))? {
            Stretch::Taken(data) => {
                self.came(data.len());
                Ok(data)
            }
            Stretch::Ours(claim, memory) => {
                let data = self.read(shard, offset, memory.len(), self.cut(memory)).await?;
                let put = tokio::task::spawn_blocking(move || claim.put(&data).map(|()| data));
                put.await.map_err(stopped)?.map_err(|error| not_shared(&error))
            }
        }
    }
}

pub(super) fn not_shared(error: &io::Error) -> LoadError {
    LoadError::SharedMemory(error.to_string())
}
