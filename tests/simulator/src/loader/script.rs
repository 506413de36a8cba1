//! The steps of a loader, and what must hold of their results.

use super::clock::Clock;
use super::model::tensors;
use crate::executor::SECOND;
use crate::gateway::{EXPORTS, Gateway};
use crate::history::{BLOCK_BYTES, Expected, History, Register};
use crate::invariant::Invariant;
use crate::loader::LOADER;
use crate::network::{LoaderDial, Network};
use crate::plan::{BLOCKS_PER_WORKER, PlannedStep, Step, WORKERS};
use crate::trace::Trace;
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Arguments;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::spawn_local;
use tokio::time::{Instant, timeout};
use zgate_loader::model::{FileStream, LoadError};
use zgate_loader::transport::{PlacementBuffer, ReadBuffer, TransportChoice};
use zgate_loader::{
    Client, ClientError, ClientOptions, File, Load, LoadOptions, Model, OpenMode, Plan, Wanted,
};
use zgate_nfs_wire::v4::Status;

/// Largest READ of the loader in bytes: its model has some twenty of them.
const TRANSFER_BYTES: u32 = 1024;
/// Most requests in flight.
const SLOTS: u32 = 6;
/// Time limit of a start while nothing answers.
const WAIT: Duration = Duration::from_secs(8);
/// Time limit of a request while the server cannot be reached: longer than all
/// faults and the grace period after them.
const PATIENCE: Duration = Duration::from_secs(150);
/// Time of a start beyond its limit: one attempt, and unregistering.
const START_SLACK: Duration = Duration::from_secs(4);
/// Time after the end of all faults at which the loader loads once more, and
/// unregisters, in seconds.
const LAST_SECONDS: u64 = 2;

/// Surroundings of a loader.
pub struct Surroundings {
    pub clock: Arc<Clock>,
    pub network: Arc<Network>,
    pub gateway: Arc<Gateway>,
    pub history: Arc<History>,
    pub trace: Arc<Trace>,
    /// Time of the end of all faults since the beginning, in seconds.
    pub faults_end_seconds: u64,
}

/// A loader of a run.
pub struct Loader {
    around: Surroundings,
    connections: usize,
    client: Option<Arc<Client>>,
    /// Clients so far: each has a name of its own.
    mounts: u32,
    /// The file that is open, and the client that writes it.
    open: Option<(usize, File)>,
    /// Pieces of memory that are lent, or on their way back.
    lent: Arc<AtomicUsize>,
}

/// Memory of the loader's user; it counts what exists.
struct Piece {
    data: [u8; BLOCK_BYTES],
    lent: Arc<AtomicUsize>,
}

impl Piece {
    fn new(lent: &Arc<AtomicUsize>) -> Self {
        lent.fetch_add(1, Ordering::AcqRel);
        Self { data: [0xee; BLOCK_BYTES], lent: Arc::clone(lent) }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.lent.fetch_sub(1, Ordering::AcqRel);
    }
}

impl PlacementBuffer for Piece {
    fn bytes(&mut self) -> &mut [u8] {
        &mut self.data
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

fn blocks_of(client: usize) -> impl Iterator<Item = Register> {
    (0..WORKERS * BLOCKS_PER_WORKER).map(move |block| Register { client, block })
}

/// Returns whether an export has its other name.
fn is_renamed(error: &ClientError) -> bool {
    matches!(error, ClientError::Path { status: Status::Noent, .. })
}

impl Loader {
    /// A loader that has no connection yet.
    #[must_use]
    pub fn new(around: Surroundings, connections: usize) -> Self {
        Self { around, connections, client: None, mounts: 0, open: None, lent: Arc::default() }
    }

    fn note(&self, what: Arguments<'_>) {
        self.around.clock.catch_up();
        self.around.trace.note("loader", what);
    }

    fn fail(&self, invariant: Invariant, text: String) {
        self.around.clock.catch_up();
        self.around.history.fail(invariant, text);
        self.around.clock.ring();
    }

    /// Takes all steps; then, once the faults are over, loads once more and
    /// leaves.
    pub async fn run(mut self, steps: Vec<PlannedStep>) {
        for planned in steps {
            self.around.clock.sleep(planned.pause).await;
            self.note(format_args!("#{} {:?}", planned.number, planned.step));
            self.take(planned.step).await;
        }
        let end = (self.around.faults_end_seconds + LAST_SECONDS) * SECOND;
        self.around.clock.sleep_until(end).await;
        self.last().await;
        self.note(format_args!("done"));
    }

    async fn take(&mut self, step: Step) {
        match step {
            Step::Load { depth, inflight_bytes } => self.load(depth, inflight_bytes).await,
            Step::DropLoad { depth, after } => {
                let limit = Duration::from_nanos(after);
                let client = self.mounted().await;
                let ended = timeout(limit, self.loaded(client, depth, 1 << 14)).await;
                self.note(format_args!("  dropped: {}", ended.is_err()));
                if let Ok(end) = ended {
                    self.loads(end);
                }
            }
            Step::Stream { client, after } => self.stream(client, after).await,
            Step::ReadAll { client } => self.read_all(client).await,
            Step::CloseFile => {
                if let (Some((_, file)), Some(client)) = (self.open.take(), self.client.clone()) {
                    let end = file.close(&client).await;
                    self.ends("CLOSE", end.map_err(other));
                }
            }
            Step::Remount { drops } => {
                self.open = None;
                match self.client.take() {
                    Some(client) if !drops => client.close().await,
                    client => drop(client),
                }
            }
            // Steps of others.
            _ => {}
        }
    }

    /// The client; it registers if there is none.
    async fn mounted(&mut self) -> Arc<Client> {
        loop {
            if let Some(client) = &self.client {
                return Arc::clone(client);
            }
            self.mounts += 1;
            let dial =
                LoaderDial { network: Arc::clone(&self.around.network), clock: self.clock() };
            let options = ClientOptions {
                connections: self.connections,
                slots: SLOTS,
                max_transfer_bytes: TRANSFER_BYTES,
                owner: self.name().into_bytes(),
                verifier: u64::from(self.mounts).to_be_bytes(),
                wait: WAIT,
                patience: PATIENCE,
                transport: TransportChoice::dialed(Arc::new(dial)),
                ..ClientOptions::default()
            };
            let address = SocketAddr::from(([198, 51, 100, 1], 2049));
            let begun = Instant::now();
            match Client::connect(address, &options).await {
                Ok(client) => {
                    self.note(format_args!("  registered as {}", self.name()));
                    self.client = Some(Arc::new(client));
                }
                Err(error) => {
                    self.note(format_args!("  cannot register: {error}"));
                    self.start_fails(&error, begun.elapsed());
                    // A user tries again.
                    self.around.clock.sleep(SECOND).await;
                }
            }
        }
    }

    fn clock(&self) -> Arc<Clock> {
        Arc::clone(&self.around.clock)
    }

    /// The name of the client.
    fn name(&self) -> String {
        format!("loader {}", self.mounts)
    }

    /// A start may fail for what its user has set a time limit to, in time.
    fn start_fails(&self, error: &ClientError, took: Duration) {
        let limit = match error {
            ClientError::Unreachable { .. } | ClientError::Silent { .. } => WAIT,
            ClientError::Transport { .. } | ClientError::Refused { .. } => PATIENCE,
            _ => Duration::ZERO,
        };
        if took > limit + START_SLACK {
            self.fail(Invariant::LoadEnds, format!("the start fails after {took:?}: {error}"));
        }
    }

    /// Notes the end of something; an error that its user cannot explain is
    /// wrong.
    fn ends<T>(&self, what: &str, end: Result<T, LoadError>) -> Option<T> {
        match end {
            Ok(value) => Some(value),
            Err(LoadError::Client { source, .. }) if is_renamed(&source) => {
                self.note(format_args!("  {what}: the export has another name"));
                None
            }
            Err(error) => {
                self.fail(Invariant::LoadEnds, format!("{what}: {error}"));
                None
            }
        }
    }

    /// The open model, whichever name its export has.
    async fn model(&self, client: Arc<Client>) -> Result<Model, LoadError> {
        let mut last = None;
        for path in EXPORTS {
            match Model::open(Arc::clone(&client), path).await {
                Err(LoadError::Client { source, what }) if is_renamed(&source) => {
                    last = Some(LoadError::Client { source, what });
                }
                end => return end,
            }
        }
        Err(last.unwrap_or_else(|| LoadError::Missing("no path".to_owned())))
    }

    /// Loads the model; returns the number of its tensors.
    async fn loaded(
        &self,
        client: Arc<Client>,
        depth: u32,
        inflight_bytes: u64,
    ) -> Result<usize, LoadError> {
        let model = self.model(Arc::clone(&client)).await?;
        let plan = Plan::new(&model, &Wanted::default())?;
        let depth = depth as usize;
        let options = LoadOptions { inflight_bytes, depth, ..LoadOptions::default() };
        let mut load = Load::start(&model, plan, &options);
        let mut expected: BTreeMap<String, Vec<u8>> = tensors().collect();
        let all = expected.len();
        while let Some(tensor) = load.next().await? {
            let Some(data) = expected.remove(&tensor.name) else {
                let text = format!("tensor {} is loaded twice, or is none", tensor.name);
                self.fail(Invariant::LoadedData, text);
                continue;
            };
            self.same(&tensor.name, &data, &tensor.data);
        }
        if !expected.is_empty() {
            let text = format!("the load ends without {:?}", expected.keys());
            self.fail(Invariant::LoadedData, text);
        }
        model.close().await.map_err(other)?;
        Ok(all)
    }

    fn same(&self, name: &str, expected: &[u8], found: &[u8]) {
        let at = expected.iter().zip(found).position(|(one, other)| one != other);
        if at.is_some() || expected.len() != found.len() {
            let (at, len) = (at.unwrap_or(found.len()), found.len());
            let text = format!("{name} of {} bytes has {len}; byte {at} differs", expected.len());
            self.fail(Invariant::LoadedData, text);
        }
    }

    async fn load(&mut self, depth: u32, inflight_bytes: u64) {
        let client = self.mounted().await;
        let end = self.loaded(client, depth, inflight_bytes).await;
        self.loads(end);
    }

    fn loads(&self, end: Result<usize, LoadError>) {
        if let Some(tensors) = self.ends("the load", end) {
            self.note(format_args!("  {tensors} tensors"));
        }
    }

    /// Opens a client's file.
    async fn opened(&self, client: Arc<Client>, number: usize) -> Option<File> {
        let mut end = Err(LoadError::Missing("no path".to_owned()));
        for path in EXPORTS {
            end = open(Arc::clone(&client), path, number).await.map_err(other);
            if !matches!(&end, Err(LoadError::Client { source, .. }) if is_renamed(source)) {
                break;
            }
        }
        self.ends("OPEN", end)
    }

    /// Expectations of reads of a client's file that begin now.
    fn expected(&self, number: usize) -> Vec<(Register, Expected)> {
        self.around.clock.catch_up();
        let history = &self.around.history;
        blocks_of(number).map(|register| (register, history.expected(register))).collect()
    }

    /// Checks a block that was read.
    fn check(&self, (register, expected): (Register, Expected), data: &[u8]) {
        self.note(format_args!("  READ {register:?}: {:?}", register.version(data)));
        self.around.history.read(register, expected, data);
        self.around.history.read_beside_cache(LOADER, (register, expected), data);
        self.around.clock.ring();
    }

    /// Streams a client's file. If the loader says that it is unchanged, nothing
    /// that was written after its open is in what was read.
    async fn stream(&mut self, number: usize, after: u64) {
        let client = self.mounted().await;
        let Some(file) = self.opened(Arc::clone(&client), number).await else { return };
        let history = Arc::clone(&self.around.history);
        let sent: Vec<u32> = blocks_of(number).map(|register| history.sent(register)).collect();
        let is_delegated = file.is_delegated();
        self.around.clock.sleep(after).await;
        let expected = self.expected(number);
        let (name, range) = (format!("f{number}"), 0..file.size());
        let mut stream = FileStream::start(Arc::clone(&client), &name, file, range, 4);
        let mut data = Vec::new();
        let end = loop {
            match stream.next().await {
                Ok(Some(piece)) => data.extend_from_slice(&piece),
                Ok(None) => break Ok(true),
                Err(LoadError::Changed { .. }) => break Ok(false),
                Err(error) => break Err(error),
            }
        };
        let Some(is_unchanged) = self.ends("the stream", end) else { return };
        self.note(format_args!("  delegated: {is_delegated}, unchanged: {is_unchanged}"));
        for (one, block) in expected.into_iter().zip(data.chunks(BLOCK_BYTES)) {
            self.check(one, block);
        }
        let newer = blocks_of(number).zip(data.chunks(BLOCK_BYTES)).zip(sent).find(
            |((register, block), sent)| register.version(block).is_some_and(|found| found > *sent),
        );
        if let Some(((register, _), sent)) = newer.filter(|_| is_delegated && is_unchanged) {
            let text = format!(
                "{register:?} had version {sent} at the open, and a later one was read; the \
                 loader says that the file is unchanged"
            );
            self.fail(Invariant::LoadedData, text);
        }
    }

    /// Reads all blocks of a client's file at once, in memory of its own.
    async fn read_all(&mut self, number: usize) {
        let client = self.mounted().await;
        if self.open.as_ref().is_none_or(|(of, _)| *of != number) {
            let Some(file) = self.opened(Arc::clone(&client), number).await else { return };
            self.open = Some((number, file));
        }
        let Some((_, file)) = self.open.clone() else { return };
        let mut reads = Vec::new();
        for one in self.expected(number) {
            let (file, client) = (file.clone(), Arc::clone(&client));
            let piece = ReadBuffer::new(Piece::new(&self.lent));
            let read = async move { file.read_into(&client, one.0.offset(), piece).await };
            reads.push((one, spawn_local(read)));
        }
        drop((file, client));
        for (one, read) in reads {
            let Ok((end, piece)) = read.await else {
                let text = "a read of the loader panics".to_owned();
                self.fail(Invariant::NoPanic, text);
                continue;
            };
            let Some(piece) = piece.and_then(ReadBuffer::into::<Piece>) else {
                let text = "a read does not return the memory that it was lent".to_owned();
                self.fail(Invariant::LoaderLeaves, text);
                continue;
            };
            if let Some((_, count)) = self.ends("READ", end.map_err(other)) {
                self.check(one, &piece.data[..count]);
            }
        }
    }

    /// Loads and reads once more, while nothing is wrong, as a client that has
    /// abandoned nothing; closes all, and unregisters: nothing may be left.
    async fn last(&mut self) {
        self.take(Step::Remount { drops: false }).await;
        self.read_all(0).await;
        self.load(4, 1 << 16).await;
        self.take(Step::CloseFile).await;
        let name = self.name();
        let left = self.around.gateway.client(&name).filter(|it| it.opens + it.delegations > 0);
        if let Some(left) = left {
            let text = format!("{name} has closed its files, and the server has {left:?}");
            self.fail(Invariant::LoaderLeaves, text);
        }
        let Some(client) = self.client.take() else { return };
        client.close().await;
        drop(client);
        // Tasks that were stopped have ended by then.
        self.around.clock.sleep(SECOND / 100).await;
        if self.around.gateway.client(&name).is_some() {
            let text = format!("{name} has unregistered, and the server still knows it");
            self.fail(Invariant::LoaderLeaves, text);
        }
        let lent = self.lent.load(Ordering::Acquire);
        if lent > 0 {
            let text = format!("{lent} pieces of memory are still lent to a loader that has left");
            self.fail(Invariant::LoaderLeaves, text);
        }
    }
}

async fn open(client: Arc<Client>, path: &str, number: usize) -> Result<File, ClientError> {
    let dir = client.find(path).await?;
    File::open(&client, &dir.fh, &format!("f{number}"), OpenMode::Read).await
}

fn other(source: ClientError) -> LoadError {
    LoadError::Client { what: "a file".to_owned(), source }
}
