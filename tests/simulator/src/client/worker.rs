//! A worker of a client: it carries out its steps one after the other, and
//! tells the history what it was told.

use super::{
    Delegations, LockEnd, NameChange, Named, OwnerClient, SessionClient, StatelessClient, Wire,
    Written,
};
use crate::executor::Executor;
use crate::history::{BLOCK_BYTES, History, Register};
use crate::invariant::Invariant;
use crate::plan::{NAMES_PER_WORKER, PlannedStep, Step};
use crate::trace::Trace;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use zgate_nfs_wire::v4::Verifier;

/// A client of either kind.
#[derive(Clone)]
pub enum AnyClient {
    /// With a session.
    Session(Arc<SessionClient>),
    /// NFSv3.
    Stateless(Arc<StatelessClient>),
    /// NFSv4.0.
    Owners(Arc<OwnerClient>),
}

impl AnyClient {
    fn wire(&self) -> &Wire {
        match self {
            Self::Session(client) => &client.wire,
            Self::Stateless(client) => &client.wire,
            Self::Owners(client) => &client.wire,
        }
    }

    async fn write(&self, worker: u32, offset: u64, data: &[u8], stable: bool) -> Written {
        match self {
            Self::Session(client) => client.write(worker, offset, data, stable).await,
            Self::Stateless(client) => client.write(client.wire.client, offset, data, stable).await,
            Self::Owners(client) => client.write(worker, offset, data, stable).await,
        }
    }

    async fn commit(&self, worker: u32) -> Option<Verifier> {
        match self {
            Self::Session(client) => client.commit(worker).await,
            Self::Stateless(client) => client.commit(client.wire.client).await,
            Self::Owners(client) => client.commit().await,
        }
    }

    async fn read(&self, worker: u32, file: usize, offset: u64) -> Option<Bytes> {
        let count = BLOCK_BYTES as u32;
        match self {
            Self::Session(client) => client.read(worker, file, offset, count).await,
            Self::Stateless(client) => client.read(file, offset, count).await,
            Self::Owners(client) => client.read(file, offset, count).await,
        }
    }

    async fn change(&self, worker: u32, change: &NameChange) -> Named {
        match self {
            Self::Session(client) => client.change(worker, change).await,
            Self::Stateless(client) => client.change(change).await,
            Self::Owners(client) => client.change(change).await,
        }
    }

    /// `None`: the protocol has no locks.
    async fn lock(&self, worker: u32, range: u32, write: bool) -> Option<LockEnd> {
        match self {
            Self::Session(client) => Some(client.lock(worker, range, write).await),
            Self::Stateless(_) => None,
            Self::Owners(client) => Some(client.lock(worker, range, write).await),
        }
    }

    async fn unlock(&self, worker: u32, range: u32) {
        match self {
            Self::Session(client) => client.unlock(worker, range).await,
            Self::Stateless(_) => {}
            Self::Owners(client) => client.unlock(worker, range).await,
        }
    }

    async fn close(&self, worker: u32) {
        match self {
            Self::Session(client) => client.close(worker).await,
            Self::Stateless(_) => {}
            Self::Owners(client) => client.close(worker).await,
        }
    }

    async fn delegate(&self, worker: u32, file: usize) -> Option<&'static str> {
        match self {
            Self::Session(client) => Some(client.delegate(worker, file).await),
            Self::Stateless(_) => None,
            Self::Owners(client) => Some(client.delegate(worker, file).await),
        }
    }

    /// NFSv4.0 has no such wish: the server may grant one at any open.
    async fn delegate_own(&self, worker: u32) -> Option<&'static str> {
        match self {
            Self::Session(client) => Some(client.delegate_own(worker).await),
            Self::Stateless(_) | Self::Owners(_) => None,
        }
    }

    /// `None`: the protocol has no share reservations.
    async fn share(&self, worker: u32, share: (u32, u32)) -> Option<LockEnd> {
        match self {
            Self::Session(client) => Some(client.share(worker, share).await),
            Self::Stateless(_) => None,
            Self::Owners(client) => Some(client.share(worker, share).await),
        }
    }

    async fn unshare(&self, worker: u32) {
        match self {
            Self::Session(client) => client.unshare(worker).await,
            Self::Stateless(_) => {}
            Self::Owners(client) => client.unshare(worker).await,
        }
    }

    /// The client restarts without a word.
    fn restart(&self) {
        match self {
            Self::Session(client) => client.restart(),
            Self::Stateless(client) => client.wire.break_connections(),
            Self::Owners(client) => client.restart(),
        }
    }

    async fn end_session(&self) {
        if let Self::Session(client) = self {
            let end = client.end_session().await;
            client.wire.trace.note(&client.wire.name, format_args!("DESTROY_SESSION: {end:?}"));
        }
    }

    /// Reads take write delegations back: those of NFSv3 do not in grace
    /// (docs/spec-exceptions/nfsv3-in-grace.md).
    fn recalls(&self) -> bool {
        match self {
            Self::Stateless(client) => !client.is_grace(),
            Self::Session(_) | Self::Owners(_) => true,
        }
    }

    /// Writes to the cache, if a delegation allows it.
    fn write_cached(&self, block: u32, version: u32, data: Bytes) -> bool {
        let Some(held) = self.delegations() else { return false };
        let fh = match self {
            Self::Session(client) => client.own_file(),
            Self::Owners(client) => client.own_file(),
            Self::Stateless(_) => return false,
        };
        held.put(fh, block, version, data)
    }

    fn delegations(&self) -> Option<&Delegations> {
        match self {
            Self::Session(client) => Some(&client.delegations),
            Self::Stateless(_) => None,
            Self::Owners(client) => Some(&client.delegations),
        }
    }

    /// The client goes away without a word.
    pub fn vanish(&self) {
        match self {
            Self::Session(client) => client.vanish(),
            Self::Stateless(_) => {}
            Self::Owners(client) => client.vanish(),
        }
    }
}

/// A worker.
pub struct Worker {
    client: AnyClient,
    number: u32,
    name: String,
    executor: Arc<Executor>,
    trace: Arc<Trace>,
    history: Arc<History>,
    /// Written and not yet committed: the version, and the verifier of the
    /// reply.
    uncommitted: BTreeMap<u32, (u32, Verifier)>,
    /// Existence of names, where the client can know; the number of losses at
    /// which it was only found so.
    names: BTreeMap<u32, (bool, Option<u64>)>,
    /// Number of rollbacks at which it knew them.
    rollbacks: u64,
}

impl Worker {
    /// A worker that has done nothing yet: none of its names exists.
    #[must_use]
    pub fn new(client: AnyClient, number: u32, history: &Arc<History>) -> Self {
        let (executor, trace) =
            (Arc::clone(&client.wire().executor), Arc::clone(&client.wire().trace));
        let first = number * NAMES_PER_WORKER;
        Self {
            name: format!("{}.{number}", client.wire().name),
            client,
            number,
            executor,
            trace,
            history: Arc::clone(history),
            uncommitted: BTreeMap::new(),
            names: (first..first + NAMES_PER_WORKER).map(|name| (name, (false, None))).collect(),
            rollbacks: history.rollbacks(),
        }
    }

    fn register(&self, block: u32) -> Register {
        Register { client: self.client.wire().client, block }
    }

    /// Carries out all steps.
    pub async fn run(&mut self, steps: Vec<PlannedStep>) {
        for planned in steps {
            self.executor.sleep(planned.pause).await;
            self.trace.note(&self.name, format_args!("#{} {:?}", planned.number, planned.step));
            self.take(planned.step).await;
        }
        self.trace.note(&self.name, format_args!("done"));
    }

    async fn take(&mut self, step: Step) {
        self.forget_what_was_rolled_back();
        match step {
            Step::Write { block, stable } => self.write(block, stable).await,
            Step::Commit => self.commit().await,
            Step::Read { client, block } => self.read(Register { client, block }).await,
            Step::Make { name } => {
                let change = NameChange::Make(self.text(name));
                let expected =
                    self.known(name).map(|is| if is { Named::Exists } else { Named::Done });
                let end = self.change(&change, expected).await;
                self.learn(name, end, true);
            }
            Step::Remove { name } => {
                let change = NameChange::Remove(self.text(name));
                let expected =
                    self.known(name).map(|is| if is { Named::Done } else { Named::Absent });
                let end = self.change(&change, expected).await;
                self.learn(name, end, false);
            }
            Step::Rename { name } => self.rename(name).await,
            Step::Lock { range, write } => {
                if let Some(end) = self.client.lock(self.number, range, write).await {
                    self.trace.note(&self.name, format_args!("  LOCK {range}: {end:?}"));
                }
            }
            Step::Unlock { range } => self.client.unlock(self.number, range).await,
            Step::Close => self.client.close(self.number).await,
            // What the client itself writes would have to go to its cache.
            Step::Delegate { client: file } if self.client.wire().client != file => {
                if let Some(end) = self.client.delegate(self.number, file).await {
                    self.trace.note(&self.name, format_args!("  delegation: {end}"));
                }
            }
            Step::Delegate { .. } => {}
            Step::DelegateOwn => {
                if let Some(end) = self.client.delegate_own(self.number).await {
                    self.trace.note(&self.name, format_args!("  delegation: {end}"));
                }
            }
            Step::ReadCached { client: file, block } => self.read_cached(file, block),
            Step::WriteCached { block } => self.write_cached(block).await,
            Step::Share { access, deny } => {
                if let Some(end) = self.client.share(self.number, (access, deny)).await {
                    self.trace.note(&self.name, format_args!("  OPEN: {end:?}"));
                }
            }
            Step::Unshare => self.client.unshare(self.number).await,
            Step::Restart => self.client.restart(),
            Step::EndSession => self.client.end_session().await,
            // Steps of hosts.
            _ => {}
        }
    }

    /// After a rollback the client knows of no name whether it exists.
    fn forget_what_was_rolled_back(&mut self) {
        let rollbacks = self.history.rollbacks();
        if std::mem::replace(&mut self.rollbacks, rollbacks) != rollbacks {
            self.names.clear();
        }
    }

    fn read_cached(&self, file: usize, block: u32) {
        let cached = self.client.delegations().and_then(|held| held.cached(file, block));
        let Some(data) = cached else { return };
        let register = Register { client: file, block };
        let version = register.version(&data);
        self.trace.note(&self.name, format_args!("  cached {register:?}: {version:?}"));
        self.history.read_cached(self.client.wire().client, register, &data);
    }

    /// Writes a version to the cache, or to the server if there is no
    /// delegation.
    async fn write_cached(&mut self, block: u32) {
        let register = self.register(block);
        // What is on its way to the server must not pass it.
        let client = self.client.clone();
        let alone = match client.delegations() {
            Some(held) => Some(held.writing.lock().await),
            None => None,
        };
        let version = self.history.next_version(register);
        let data = Bytes::from(register.content(version));
        if self.client.write_cached(block, version, data) {
            self.trace.note(&self.name, format_args!("  to the cache: {version}"));
            self.uncommitted.remove(&block);
            return self.history.cached(register, version);
        }
        drop(alone);
        self.put(register, version, true).await;
    }

    /// Writes a version; returns whether it was acknowledged as unstable, and no rollback came
    /// between.
    async fn put(&mut self, register: Register, version: u32, stable: bool) -> bool {
        let rollbacks = self.history.write_begins(register, version);
        let data = register.content(version);
        let client = self.client.clone();
        let _alone = match client.delegations() {
            Some(held) => {
                let alone = held.writing.lock().await;
                held.superseded(register.block);
                self.history.uncached(register);
                Some(alone)
            }
            None => None,
        };
        let end = self.client.write(self.number, register.offset(), &data, stable).await;
        let is_kept = self.history.write_ends(register, version) == rollbacks;
        self.trace.note(&self.name, format_args!("  WRITE {version}: {end:?}"));
        let Written::Done { stable, verifier } = end else { return false };
        if stable {
            self.uncommitted.remove(&register.block);
            if is_kept {
                self.history.stable(register, version, false);
            }
        } else {
            self.uncommitted.insert(register.block, (version, verifier));
        }
        !stable && is_kept
    }

    async fn write(&mut self, block: u32, stable: bool) {
        let register = self.register(block);
        let version = self.history.next_version(register);
        // A loss between the write and its reply is not told to the client.
        let losses = self.history.losses();
        let unstable = self.put(register, version, stable).await;
        if unstable && self.history.losses() == losses {
            self.history.written(register, version);
        }
    }

    /// COMMIT; what may be lost since its write is written again, if nothing newer was sent.
    async fn commit(&mut self) {
        let rollbacks = self.history.rollbacks();
        let Some(verifier) = self.client.commit(self.number).await else {
            return self.trace.note(&self.name, format_args!("  COMMIT fails"));
        };
        self.trace.note(&self.name, format_args!("  COMMIT: {verifier:02x?}"));
        for (block, (version, written)) in std::mem::take(&mut self.uncommitted) {
            let register = self.register(block);
            if written == verifier {
                // Otherwise it was true before the rollback.
                if self.history.rollbacks() == rollbacks {
                    self.history.stable(register, version, true);
                }
            } else if self.history.sent(register) == version {
                // If it fails, the version may be lost, as its writer knows.
                let _ = self.put(register, version, true).await;
            } else {
                // The write of a newer version has failed since. That version may be there all
                // the same, and others may have read it: an attempt stored it whose reply was
                // lost and not kept, and the next attempt failed. A kernel's client would not
                // undo it: its cache has the newest version alone.
                self.trace.note(&self.name, format_args!("  {version} is not written again"));
            }
        }
    }

    async fn read(&mut self, register: Register) {
        if self.is_dirty(register) {
            // It is read from the cache.
            return;
        }
        let (expected, recalls) = (self.history.expected(register), self.client.recalls());
        let data = self.client.read(self.number, register.client, register.offset()).await;
        let Some(data) = data else {
            return self.trace.note(&self.name, format_args!("  READ fails"));
        };
        let version = register.version(&data);
        self.trace.note(&self.name, format_args!("  READ {register:?}: {version:?}"));
        self.history.read(register, expected, &data);
        if recalls && self.client.recalls() {
            let client = self.client.wire().client;
            self.history.read_beside_cache(client, (register, expected), &data);
        }
    }

    fn is_dirty(&self, register: Register) -> bool {
        register.client == self.client.wire().client
            && self.client.delegations().is_some_and(|held| held.is_dirty(register.block))
    }

    /// Reads everything, to be called when nothing else happens.
    pub async fn read_all(&mut self, registers: Vec<Register>) {
        for register in registers {
            self.read(register).await;
        }
    }

    fn text(&self, name: u32) -> String {
        format!("d{}-{name}", self.client.wire().client)
    }

    /// Existence of a name, if the client can know.
    fn known(&self, name: u32) -> Option<bool> {
        let (exists, seen_at) = *self.names.get(&name)?;
        seen_at.is_none_or(|losses| losses == self.history.losses()).then_some(exists)
    }

    /// Learns from the end of a change that was to lead to `exists`. What was
    /// acknowledged survives; what was only found may be lost with the power.
    fn learn(&mut self, name: u32, end: Named, exists: bool) {
        let durable = end == Named::Done;
        let found = match end {
            Named::Done => Some(exists),
            Named::Exists => Some(true),
            Named::Absent => Some(false),
            Named::Failed | Named::Unknown => None,
        };
        let kept_already = found.is_some()
            && self
                .names
                .get(&name)
                .is_some_and(|known| known.1.is_none() && Some(known.0) == found);
        match found {
            _ if kept_already => return,
            Some(found) => {
                let seen_at = (!durable).then(|| self.history.losses());
                self.names.insert(name, (found, seen_at));
            }
            None => {
                self.names.remove(&name);
            }
        }
        self.history.named(&self.text(name), found.filter(|_| durable));
    }

    /// Changes names; nobody else does, so that the end is known beforehand.
    async fn change(&self, change: &NameChange, expected: Option<Named>) -> Named {
        let names = change.names();
        let rollbacks = self.history.names_change(&names);
        let end = self.client.change(self.number, change).await;
        let told = matches!(end, Named::Done | Named::Exists | Named::Absent);
        // Otherwise it may have been done before the rollback, or behind it.
        let is_kept = self.history.names_changed(&names, told) == rollbacks;
        let end = if is_kept { end } else { Named::Unknown };
        self.trace.note(&self.name, format_args!("  {change:?}: {end:?}"));
        if told && is_kept && expected.is_some_and(|expected| expected != end) {
            self.history.fail(
                Invariant::ExactlyOnce,
                format!("{}: {change:?} ends with {end:?}, expected {expected:?}", self.name),
            );
        }
        end
    }

    async fn rename(&mut self, name: u32) {
        let first = self.number * NAMES_PER_WORKER;
        let to = first + (name - first + 1) % NAMES_PER_WORKER;
        let change = NameChange::Rename(self.text(name), self.text(to));
        let expected = self.known(name).map(|is| if is { Named::Done } else { Named::Absent });
        let end = self.change(&change, expected).await;
        if end == Named::Done {
            self.learn(to, end, true);
        } else if end != Named::Absent {
            self.learn(to, Named::Unknown, true);
        }
        self.learn(name, end, false);
    }
}
