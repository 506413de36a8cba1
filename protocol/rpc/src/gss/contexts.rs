//! The contexts of a server, by their handles. Their number is bounded for each
//! host and for all; a host at its bound loses its own least recently used
//! context, and where all are too many, the host with the most loses one. A
//! client whose context is gone makes a new one (RFC 2203 §5.3.3.3). It has no
//! clock: times are seconds of the caller's.

use super::control::{InitResult, Step};
use super::limits::{
    CONTEXT_IDLE_SECONDS, MAX_CONTEXTS, MAX_CONTEXTS_PER_HOST, MAX_PENDING, MAX_PENDING_PER_HOST,
    PENDING_SECONDS, SEQUENCE_WINDOW,
};
use super::window::{SequenceFault, SequenceWindow};
use super::{COMPLETE, CONTINUE_NEEDED, FAILURE};
use ahash::{HashMap, HashSet};
use dashmap::DashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zgate_store::HostKey;

/// Handle of a context: a random number of the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle(pub u64);

impl Handle {
    /// The handle in the form that is sent.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }

    /// Reads that form.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(u64::from_be_bytes(bytes))
    }
}

/// A context that is established.
#[derive(Debug)]
pub struct Established<C> {
    /// The mechanism's context.
    pub security: C,
    window: Mutex<SequenceWindow>,
    expires_seconds: u64,
    used_seconds: AtomicU64,
    origin: HostKey,
}

impl<C> Established<C> {
    /// Takes a sequence number, once. The caller has verified the call's header.
    ///
    /// # Errors
    /// [`SequenceFault`].
    pub fn take(&self, sequence: u32) -> Result<(), SequenceFault> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner).take(sequence)
    }

    fn is_over(&self, now_seconds: u64) -> bool {
        let used = self.used_seconds.load(Ordering::Relaxed);
        now_seconds >= self.expires_seconds || now_seconds >= used + CONTEXT_IDLE_SECONDS
    }
}

/// A context that waits for another token of its client.
#[derive(Debug)]
struct Pending<C> {
    context: C,
    origin: HostKey,
    until_seconds: u64,
}

/// Numbers of contexts, by host.
#[derive(Debug, Default)]
struct Accounts(HashMap<HostKey, HashSet<Handle>>);

impl Accounts {
    fn heaviest(&self) -> Option<HostKey> {
        self.0.iter().max_by_key(|(_, held)| held.len()).map(|(origin, _)| *origin)
    }

    fn remove(&mut self, origin: HostKey, handle: Handle) {
        if let Some(held) = self.0.get_mut(&origin) {
            held.remove(&handle);
            if held.is_empty() {
                self.0.remove(&origin);
            }
        }
    }
}

/// The contexts of a server; shared by all cores.
#[derive(Debug)]
pub struct Contexts<C> {
    established: DashMap<Handle, Arc<Established<C>>, ahash::RandomState>,
    /// Locked after `established` is left, never within.
    accounts: Mutex<Accounts>,
    pending: Mutex<HashMap<Handle, Pending<C>>>,
}

impl<C> Default for Contexts<C> {
    fn default() -> Self {
        Self {
            established: DashMap::default(),
            accounts: Mutex::default(),
            pending: Mutex::default(),
        }
    }
}

impl<C> Contexts<C> {
    fn accounts(&self) -> MutexGuard<'_, Accounts> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pending(&self) -> MutexGuard<'_, HashMap<Handle, Pending<C>>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the context with a handle, if it is valid.
    #[must_use]
    pub fn find(&self, handle: Handle, now_seconds: u64) -> Option<Arc<Established<C>>> {
        let found = self.established.get(&handle).map(|entry| Arc::clone(entry.value()))?;
        if found.is_over(now_seconds) {
            self.remove(handle);
            return None;
        }
        // A store for each call would move the line between the cores.
        if found.used_seconds.load(Ordering::Relaxed) != now_seconds {
            found.used_seconds.store(now_seconds, Ordering::Relaxed);
        }
        Some(found)
    }

    /// Ends a context.
    pub fn remove(&self, handle: Handle) {
        if let Some((_, gone)) = self.established.remove(&handle) {
            self.accounts().remove(gone.origin, handle);
        }
    }

    /// Removes the contexts that are over.
    pub fn expire(&self, now_seconds: u64) {
        let over = |entry: &Arc<Established<C>>| entry.is_over(now_seconds);
        let handles: Vec<Handle> = self
            .established
            .iter()
            .filter(|entry| over(entry.value()))
            .map(|entry| *entry.key())
            .collect();
        handles.into_iter().for_each(|handle| self.remove(handle));
        self.pending().retain(|_, pending| now_seconds < pending.until_seconds);
    }

    /// Removes all contexts.
    pub fn clear(&self) {
        self.expire(u64::MAX);
    }

    /// Returns the number of established contexts.
    #[must_use]
    pub fn len(&self) -> usize {
        self.established.len()
    }

    /// Returns whether none is established.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.established.is_empty()
    }

    /// Takes the context that waits for a token of this host.
    #[must_use]
    pub fn take_pending(&self, handle: Handle, origin: HostKey, now_seconds: u64) -> Option<C> {
        let mut pending = self.pending();
        let is_its = pending
            .get(&handle)
            .is_some_and(|pending| pending.origin == origin && now_seconds < pending.until_seconds);
        if is_its { pending.remove(&handle).map(|pending| pending.context) } else { None }
    }

    /// Keeps the result of a step under a handle that nobody can guess. Returns
    /// what the client is told, and the context once it is established.
    pub fn keep(
        &self,
        step: Step<C>,
        handle: Handle,
        origin: HostKey,
        now_seconds: u64,
    ) -> (InitResult, Option<Arc<Established<C>>>) {
        match step {
            Step::Failed { major, minor } => (InitResult::failed(major, minor), None),
            Step::Continue { context, token } => {
                let until_seconds = now_seconds + PENDING_SECONDS;
                if !self.wait(handle, Pending { context, origin, until_seconds }, now_seconds) {
                    return (InitResult::failed(FAILURE, 0), None);
                }
                (told(handle, CONTINUE_NEEDED, token), None)
            }
            Step::Complete { context, token, lifetime_seconds } => {
                let established = Arc::new(Established {
                    security: context,
                    window: Mutex::default(),
                    expires_seconds: now_seconds.saturating_add(lifetime_seconds),
                    used_seconds: AtomicU64::new(now_seconds),
                    origin,
                });
                self.establish(handle, &established);
                (told(handle, COMPLETE, token), Some(established))
            }
        }
    }

    /// Keeps a context that waits; false: too many do.
    fn wait(&self, handle: Handle, waiting: Pending<C>, now_seconds: u64) -> bool {
        let mut pending = self.pending();
        pending.retain(|_, pending| now_seconds < pending.until_seconds);
        let own = pending.values().filter(|pending| pending.origin == waiting.origin).count();
        if pending.len() >= MAX_PENDING || own >= MAX_PENDING_PER_HOST {
            return false;
        }
        pending.insert(handle, waiting);
        true
    }

    fn establish(&self, handle: Handle, context: &Arc<Established<C>>) {
        let origin = context.origin;
        let mut accounts = self.accounts();
        while accounts.0.get(&origin).is_some_and(|held| held.len() >= MAX_CONTEXTS_PER_HOST) {
            self.evict(&mut accounts, origin);
        }
        while self.established.len() >= MAX_CONTEXTS
            && let Some(heaviest) = accounts.heaviest()
        {
            self.evict(&mut accounts, heaviest);
        }
        accounts.0.entry(origin).or_default().insert(handle);
        self.established.insert(handle, Arc::clone(context));
    }

    /// Removes the least recently used context of a host.
    fn evict(&self, accounts: &mut Accounts, origin: HostKey) {
        let Some(held) = accounts.0.get(&origin) else { return };
        let used = |handle: &Handle| {
            let entry = self.established.get(handle);
            entry.map_or(0, |entry| entry.used_seconds.load(Ordering::Relaxed))
        };
        if let Some(oldest) = held.iter().min_by_key(|handle| used(handle)).copied() {
            self.established.remove(&oldest);
            accounts.remove(origin, oldest);
        }
    }
}

fn told(handle: Handle, major: u32, token: Vec<u8>) -> InitResult {
    let handle = Some(handle);
    InitResult { handle, major, minor: 0, sequence_window: SEQUENCE_WINDOW, token }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn host(last: u8) -> HostKey {
        IpAddr::from([10, 0, 0, last]).into()
    }

    fn complete(lifetime_seconds: u64) -> Step<u32> {
        Step::Complete { context: 1, token: vec![7], lifetime_seconds }
    }

    #[test]
    fn a_context_is_found_until_it_ends() {
        let contexts = Contexts::default();
        let (told, made) = contexts.keep(complete(100), Handle(5), host(1), 1000);
        assert!(told.is_complete() && made.is_some());
        assert_eq!((told.handle, told.sequence_window), (Some(Handle(5)), SEQUENCE_WINDOW));
        assert!(contexts.find(Handle(5), 1099).is_some());
        assert!(contexts.find(Handle(6), 1099).is_none());
        assert!(contexts.find(Handle(5), 1100).is_none());
        assert!(contexts.is_empty() && contexts.accounts().0.is_empty());
    }

    #[test]
    fn a_context_that_nobody_uses_ends() {
        let contexts = Contexts::default();
        for number in 0..3 {
            contexts.keep(complete(u64::MAX), Handle(number), host(1), 0);
        }
        assert!(contexts.find(Handle(1), CONTEXT_IDLE_SECONDS - 1).is_some());
        contexts.remove(Handle(2));
        contexts.expire(CONTEXT_IDLE_SECONDS);
        assert_eq!(contexts.len(), 1);
        assert!(contexts.find(Handle(1), CONTEXT_IDLE_SECONDS).is_some());
    }

    #[test]
    fn a_host_that_has_many_loses_its_own() {
        let contexts = Contexts::default();
        contexts.keep(complete(u64::MAX), Handle(u64::MAX), host(2), 0);
        let most = MAX_CONTEXTS_PER_HOST as u64;
        for number in 0..most + 10 {
            contexts.keep(complete(u64::MAX), Handle(number), host(1), number);
        }
        assert_eq!(contexts.len(), MAX_CONTEXTS_PER_HOST + 1);
        assert!(contexts.find(Handle(9), most).is_none());
        assert!(contexts.find(Handle(10), most).is_some());
        assert!(contexts.find(Handle(u64::MAX), most).is_some(), "another host's");
    }

    #[test]
    fn where_all_are_too_many_the_heaviest_host_loses() {
        let contexts = Contexts::default();
        let mut number = 0;
        for last in 0..4 {
            for _ in 0..MAX_CONTEXTS_PER_HOST {
                contexts.keep(complete(u64::MAX), Handle(number), host(last), 0);
                number += 1;
            }
        }
        assert_eq!(contexts.len(), MAX_CONTEXTS);
        for _ in 0..5 {
            contexts.keep(complete(u64::MAX), Handle(number), host(9), 0);
            number += 1;
        }
        assert_eq!(contexts.len(), MAX_CONTEXTS);
        assert_eq!(contexts.accounts().0.get(&host(9)).map(HashSet::len), Some(5));
    }

    #[test]
    fn a_context_waits_for_its_own_host_and_not_for_long() {
        let contexts = Contexts::default();
        let wait = |number| {
            let step = Step::Continue { context: 1_u32, token: vec![] };
            contexts.keep(step, Handle(number), host(1), 0).0
        };
        for number in 0..MAX_PENDING_PER_HOST as u64 {
            assert!(wait(number).needs_more());
        }
        assert_eq!(wait(99), InitResult::failed(FAILURE, 0));
        assert_eq!(contexts.take_pending(Handle(0), host(2), 0), None);
        assert_eq!(contexts.take_pending(Handle(0), host(1), PENDING_SECONDS), None);
        assert_eq!(contexts.take_pending(Handle(0), host(1), 0), Some(1));
        assert_eq!(contexts.take_pending(Handle(0), host(1), 0), None);
        assert!(contexts.find(Handle(1), 0).is_none(), "it is not established");
        contexts.expire(PENDING_SECONDS);
        assert!(contexts.pending().is_empty());
    }
}
