//! State that clients believe to hold: leases, locks, opens with deny modes,
//! delegations with what is cached under them.

use super::{Cached, Expected, Held, History, Register};
use crate::executor::lock;
use crate::invariant::{Invariant, RECALL_SECONDS};

impl History {
    /// Checks what a client reads from its cache while it believes to hold a
    /// delegation. Without a valid lease it would not read there.
    pub fn read_cached(&self, client: usize, register: Register, content: &[u8]) {
        let now = self.executor.nanos();
        let valid = lock(&self.inside).leases.get(&client).is_some_and(|until| now < *until);
        let (expected, version) = (self.expected(register), register.version(content));
        let torn = version.is_none() && self.explains(register, expected, content);
        let is_gone = version.is_some_and(|version| self.must_be_forgotten(register, version));
        if valid && !torn && version.is_none_or(|version| version < expected.visible) {
            self.fail(
                Invariant::FreshDelegation,
                format!(
                    "client{client} reads {register:?} from its cache: version {version:?}; \
                     another client was told that there is {}",
                    expected.visible
                ),
            );
        } else if valid && is_gone {
            self.fail(
                Invariant::FreshDelegation,
                format!(
                    "client{client} reads {register:?} from its cache: version {version:?}, which \
                     a rollback took away {RECALL_SECONDS} s ago and longer"
                ),
            );
        }
    }

    /// Returns whether no cache may have a version any more: a rollback took it away, and the
    /// server has taken back what was delegated before.
    fn must_be_forgotten(&self, register: Register, version: u32) -> bool {
        let rollbacks = &lock(&self.inside).rollbacks;
        rollbacks.has_taken(register, version) && rollbacks.must_be_returned(self.executor.nanos())
    }

    /// Notes that a client has written a version to its cache, under a write
    /// delegation.
    pub fn cached(&self, register: Register, version: u32) {
        let mut inside = lock(&self.inside);
        let stale = inside.cached.remove(&register).and_then(|before| before.stale);
        inside.cached.insert(register, Cached { version, stale });
    }

    /// A version of the cache is lost, as its client knows, or a newer one has
    /// been written.
    pub fn uncached(&self, register: Register) {
        lock(&self.inside).cached.remove(&register);
    }

    /// The server has taken a version of the cache under the delegation: nobody
    /// may have read older data since it was written.
    pub fn written_back(&self, register: Register, version: u32) {
        let cached = lock(&self.inside).cached.remove(&register);
        self.stable(register, version, false);
        if let Some(text) = cached.and_then(|cached| cached.stale) {
            self.fail(Invariant::FreshDelegation, text);
        }
    }

    /// Compares what a client has read with what another one has in its cache.
    pub fn read_beside_cache(
        &self,
        client: usize,
        (register, expected): (Register, Expected),
        content: &[u8],
    ) {
        let (Some(least), Some(found)) = (expected.cached, register.version(content)) else {
            return;
        };
        if client == register.client || found >= least {
            return;
        }
        let mut inside = lock(&self.inside);
        if inside.rollbacks.count != expected.rollbacks {
            return;
        }
        if let Some(cached) = inside.cached.get_mut(&register) {
            let text = format!(
                "client{client} reads version {found} of {register:?}; its writer had {least} in \
                 its cache under a write delegation"
            );
            cached.stale.get_or_insert(text);
        }
    }

    /// Notes that the server granted an open with these access and deny modes,
    /// and checks it against those of others. A grant that arrives after the
    /// client's lease has ended may have been given to others meanwhile: the
    /// client does not rely on it.
    pub fn shared(&self, client: usize, worker: u32, share: (u32, u32)) {
        let now = self.executor.nanos();
        let relied_on = self.lease_is_valid(client);
        let conflict = {
            let mut inside = lock(&self.inside);
            let conflict = inside
                .shares
                .iter()
                .filter(|_| relied_on)
                .filter(|((holder, by), held)| {
                    let other = *holder != client || *by != worker;
                    let valid = inside.leases.get(holder).is_some_and(|until| now < *until);
                    let excluded = share.0 & held.1 != 0 || share.1 & held.0 != 0;
                    other && valid && excluded
                })
                .map(|(who, held)| (*who, *held))
                .next();
            inside.shares.insert((client, worker), share);
            conflict
        };
        if let Some(((holder, by), held)) = conflict {
            self.fail(
                Invariant::ShareExclusion,
                format!(
                    "client{client}.{worker} opens with access and deny {share:?} while \
                     client{holder}.{by} has {held:?}"
                ),
            );
        }
    }

    /// Notes that a client gives up an open with deny modes, or has lost it.
    pub fn unshared(&self, client: usize, worker: u32) {
        lock(&self.inside).shares.remove(&(client, worker));
    }

    /// Notes that a client's lease is valid until then.
    pub fn leased(&self, client: usize, until_nanos: u64) {
        let mut inside = lock(&self.inside);
        let lease = inside.leases.entry(client).or_default();
        *lease = until_nanos.max(*lease);
    }

    /// Returns whether a client's lease is valid.
    pub fn lease_is_valid(&self, client: usize) -> bool {
        let now = self.executor.nanos();
        lock(&self.inside).leases.get(&client).is_some_and(|until| now < *until)
    }

    /// Notes that the server granted a lock, and checks it against those that
    /// other clients hold at this moment, if the client's lease is still valid.
    pub fn locked(&self, client: usize, worker: u32, range: u32, write: bool) {
        let now = self.executor.nanos();
        let relied_on = self.lease_is_valid(client);
        let conflict = {
            let mut inside = lock(&self.inside);
            let conflict = inside
                .locks
                .iter()
                .filter(|_| relied_on)
                .filter(|((of, holder, by), held)| {
                    let other = *holder != client || *by != worker;
                    let valid = inside.leases.get(holder).is_some_and(|until| now < *until);
                    *of == range && other && valid && (held.write || write)
                })
                .map(|((_, holder, by), held)| (*holder, *by, held.write))
                .next();
            inside.locks.insert((range, client, worker), Held { write });
            conflict
        };
        if let Some((holder, by, exclusive)) = conflict {
            self.fail(
                Invariant::LockExclusion,
                format!(
                    "client{client}.{worker} gets range {range} (write: {write}) while \
                     client{holder}.{by} holds it (write: {exclusive})"
                ),
            );
        }
    }

    /// Notes that a client asks for a shared lock: from now on the server may
    /// have weakened the exclusive one that it holds.
    pub fn weakening(&self, client: usize, worker: u32, range: u32) {
        if let Some(held) = lock(&self.inside).locks.get_mut(&(range, client, worker)) {
            held.write = false;
        }
    }

    /// Notes that a client gives up a lock, or has lost it.
    pub fn unlocked(&self, client: usize, worker: u32, range: u32) {
        lock(&self.inside).locks.remove(&(range, client, worker));
    }
}
