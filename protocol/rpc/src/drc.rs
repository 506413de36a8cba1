//! The duplicate request cache: a client that saw no reply sends its call
//! again, and a REMOVE that already ran must not answer "no such file". NFSv3
//! and NFSv4.0 need it; NFSv4.1 has sessions instead (RFC 8881 §2.10.6).
//!
//! A copy of a running call waits for the reply of the first one (`copies`).
//!
//! Bounded in entries and bytes, for all hosts and for each. A host at its
//! bound loses its own least recently used replies. When the whole cache is
//! full, the host with the most bytes loses one: no host falls below an equal
//! share. It has no clock.

mod caller;
mod copies;

pub use caller::CallerDigest;
pub use copies::RunningCopy;

use crate::limits::{
    MAX_DRC_BYTES, MAX_DRC_BYTES_PER_CLIENT, MAX_DRC_ENTRIES, MAX_DRC_ENTRIES_PER_CLIENT,
    MAX_DRC_REPLY_BYTES,
};
use crate::message::CallHeader;
use ahash::HashMap;
use copies::{Copies, CopyEnd};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use zgate_store::Payload;
use zgate_xdr::{Message, Segment};

/// Identity of a call. The port is part of it: two programs on one host number
/// their calls alike, and a client that means to retry over a new connection
/// keeps its port, as kernels do. The caller is part of it: a reply is for the
/// one who was allowed to cause it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    client: IpAddr,
    port: u16,
    caller: CallerDigest,
    xid: u32,
    program: u32,
    version: u32,
    procedure: u32,
    args_len: usize,
    args_checksum: u64,
}

impl Key {
    /// Builds the key of a call; `args` are the bytes after its header, without
    /// a body that was received separately.
    #[must_use]
    pub fn new(client: SocketAddr, caller: CallerDigest, call: &CallHeader, args: &[u8]) -> Self {
        Self {
            client: client.ip().to_canonical(),
            port: client.port(),
            caller,
            xid: call.xid,
            program: call.program,
            version: call.version,
            procedure: call.procedure,
            args_len: args.len(),
            args_checksum: checksum(args),
        }
    }
}

/// Number of argument bytes in the checksum: handle, offset and the first bytes
/// suffice to recognize a WRITE without reading all of it again.
const CHECKED_BYTES: usize = 1024;

/// Computes FNV-1a, eight bytes a step. It guards against reused transaction
/// ids, not against forgery: the caller is in the key, and could send the request
/// itself.
fn checksum(args: &[u8]) -> u64 {
    let seen = &args[..args.len().min(CHECKED_BYTES)];
    let (words, tail) = seen.as_chunks::<8>();
    let step = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x100_0000_01b3).rotate_left(29);
    let hash = words
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, word| step(hash, u64::from_le_bytes(*word)));
    tail.iter().fold(hash, |hash, &byte| step(hash, u64::from(byte)))
}

/// Action for a call.
#[derive(Debug)]
pub enum Begin<'a> {
    /// A new call: run it, then [`Running::finish`].
    New(Running<'a>),
    /// The call is running: this copy waits for its reply.
    InProgress(RunningCopy),
    /// The call has ended: send this reply.
    Replay(Message),
}

/// Action for a call, once no copy of it runs.
#[derive(Debug)]
pub enum Claim<'a> {
    /// Run it, then [`Running::finish`].
    Run(Running<'a>),
    /// It has run: send this reply.
    Replay(Message),
    /// Newer copies of it wait for its reply: send nothing.
    Superseded,
}

/// A running call. If it is dropped without [`Self::finish`] (cancelled,
/// panicked, or without a reply worth keeping), it is removed from the cache: a
/// retry runs again.
#[derive(Debug)]
pub struct Running<'a> {
    cache: &'a ReplyCache,
    key: Key,
    /// Cleared once there is no entry to remove.
    known: bool,
}

impl Running<'_> {
    /// Keeps the complete reply of the call, unless it is too long or contains
    /// data that lies in a file. Copies that wait are answered with it, however
    /// long it is.
    pub fn finish(mut self, reply: &Message) {
        if !std::mem::take(&mut self.known) {
            return;
        }
        let is_short = reply.len() <= MAX_DRC_REPLY_BYTES;
        let kept = is_short.then(|| reply.compacted()).flatten();
        let told = kept.clone().or_else(|| in_memory(reply).then(|| reply.clone()));
        let copies = {
            let mut inner = self.cache.lock();
            match kept {
                Some(kept) => inner.finish(self.key, kept),
                None => inner.forget_running(self.key),
            }
        };
        copies.tell(|| told.clone().map_or(CopyEnd::NoReply, CopyEnd::Reply));
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if self.known {
            let copies = self.cache.lock().forget_running(self.key);
            copies.tell(|| CopyEnd::NoReply);
        }
    }
}

#[derive(Debug)]
enum State {
    InProgress(Copies),
    Done { reply: Message, stamp: u64 },
}

/// Bytes of an entry besides its reply.
const ENTRY_OVERHEAD_BYTES: usize = 256;

fn cost(reply: &Message) -> usize {
    reply.len() + ENTRY_OVERHEAD_BYTES
}

/// Calls of one host.
#[derive(Debug, Default)]
struct Host {
    /// Finished calls, least recently used first.
    done: BTreeMap<u64, Key>,
    /// Bytes of the finished calls.
    done_bytes: usize,
    /// Number of running calls.
    running: usize,
}

impl Host {
    fn entries(&self) -> usize {
        self.done.len() + self.running
    }

    fn bytes(&self) -> usize {
        self.done_bytes + self.running * ENTRY_OVERHEAD_BYTES
    }
}

#[derive(Debug, Default)]
struct Inner {
    entries: HashMap<Key, State>,
    hosts: HashMap<IpAddr, Host>,
    /// Hosts with finished calls, by the bytes of these calls.
    heaviest: BTreeSet<(usize, IpAddr)>,
    bytes: usize,
    next_stamp: u64,
}

/// The duplicate request cache; shared by all cores.
#[derive(Debug, Default)]
pub struct ReplyCache {
    inner: Mutex<Inner>,
}

impl ReplyCache {
    /// Creates an empty cache.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a call that is not idempotent.
    #[must_use]
    pub fn begin(&self, key: Key) -> Begin<'_> {
        let mut inner = self.lock();
        match inner.entries.get_mut(&key) {
            Some(State::InProgress(copies)) => {
                let (copy, superseded) = copies.join();
                drop(inner);
                superseded.tell(|| CopyEnd::Superseded);
                Begin::InProgress(copy)
            }
            Some(State::Done { reply, stamp }) => {
                let (reply, stamp) = (reply.clone(), *stamp);
                inner.touch(key, stamp);
                Begin::Replay(reply)
            }
            None => {
                // Running calls are never evicted. If those of a host fill its
                // share, further ones run without protection.
                let known = inner.make_room(key.client, ENTRY_OVERHEAD_BYTES);
                if known {
                    inner.insert_running(key);
                }
                Begin::New(Running { cache: self, key, known })
            }
        }
    }

    /// Registers a call that is not idempotent, as soon as no copy of it runs.
    /// A copy of one that ends without a reply worth keeping runs again, as a
    /// later one would. Cancel safe.
    pub async fn claim(&self, key: Key) -> Claim<'_> {
        loop {
            match self.begin(key) {
                Begin::New(running) => return Claim::Run(running),
                Begin::Replay(reply) => return Claim::Replay(reply),
                Begin::InProgress(copy) => match copy.end().await {
                    CopyEnd::Reply(reply) => return Claim::Replay(reply),
                    CopyEnd::Superseded => return Claim::Superseded,
                    CopyEnd::NoReply => {}
                },
            }
        }
    }

    /// Returns the number of calls, running or finished.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().entries.len()
    }

    /// Returns whether the cache is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes of all calls.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.lock().bytes
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether no part of a reply lies in a file, which may change.
fn in_memory(reply: &Message) -> bool {
    !reply.segments.iter().any(|part| matches!(part, Segment::Payload(Payload::Span(_))))
}

impl Inner {
    fn insert_running(&mut self, key: Key) {
        self.bytes += ENTRY_OVERHEAD_BYTES;
        self.hosts.entry(key.client).or_default().running += 1;
        self.entries.insert(key, State::InProgress(Copies::default()));
    }

    /// Removes a running call; returns the copies that wait for it.
    fn forget_running(&mut self, key: Key) -> Copies {
        let entry = self.entries.remove(&key);
        self.bytes -= ENTRY_OVERHEAD_BYTES;
        if let Some(host) = self.hosts.get_mut(&key.client) {
            host.running -= 1;
            if host.entries() == 0 {
                self.hosts.remove(&key.client);
            }
        }
        match entry {
            Some(State::InProgress(copies)) => copies,
            _ => Copies::default(),
        }
    }

    /// As [`Self::forget_running`], and keeps the reply.
    fn finish(&mut self, key: Key, reply: Message) -> Copies {
        let copies = self.forget_running(key);
        if self.make_room(key.client, cost(&reply)) {
            self.insert_done(key, reply);
        }
        copies
    }

    fn insert_done(&mut self, key: Key, reply: Message) {
        let stamp = self.next_stamp;
        self.next_stamp += 1;
        let cost = cost(&reply);
        self.bytes += cost;
        let host = self.hosts.entry(key.client).or_default();
        host.done.insert(stamp, key);
        self.heaviest.remove(&(host.done_bytes, key.client));
        host.done_bytes += cost;
        self.heaviest.insert((host.done_bytes, key.client));
        self.entries.insert(key, State::Done { reply, stamp });
    }

    fn touch(&mut self, key: Key, stamp: u64) {
        if let Some(reply) = self.evict(key, stamp) {
            self.insert_done(key, reply);
        }
    }

    fn evict(&mut self, key: Key, stamp: u64) -> Option<Message> {
        let Some(State::Done { reply, .. }) = self.entries.remove(&key) else { return None };
        let cost = cost(&reply);
        self.bytes -= cost;
        let host = self.hosts.get_mut(&key.client)?;
        host.done.remove(&stamp);
        self.heaviest.remove(&(host.done_bytes, key.client));
        host.done_bytes -= cost;
        if !host.done.is_empty() {
            self.heaviest.insert((host.done_bytes, key.client));
        }
        if host.entries() == 0 {
            self.hosts.remove(&key.client);
        }
        Some(reply)
    }

    /// Evicts a host's least recently used reply; false if it has none.
    fn evict_oldest(&mut self, client: IpAddr) -> bool {
        let oldest = self.hosts.get(&client).and_then(|host| host.done.first_key_value());
        let Some((&stamp, &key)) = oldest else { return false };
        self.evict(key, stamp).is_some()
    }

    /// Evicts until one more entry of `client` with `more` bytes fits; false if
    /// running calls leave no room.
    fn make_room(&mut self, client: IpAddr, more: usize) -> bool {
        let full = |host: &Host| {
            host.entries() >= MAX_DRC_ENTRIES_PER_CLIENT
                || host.bytes() + more > MAX_DRC_BYTES_PER_CLIENT
        };
        while self.hosts.get(&client).is_some_and(full) {
            if !self.evict_oldest(client) {
                return false;
            }
        }
        while self.entries.len() >= MAX_DRC_ENTRIES || self.bytes + more > MAX_DRC_BYTES {
            let Some(&(_, heaviest)) = self.heaviest.last() else { return false };
            if !self.evict_oldest(heaviest) {
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Credential;
    use crate::auth::OpaqueAuth;
    use bytes::Bytes;

    fn key(client: u8, xid: u32, args: &[u8]) -> Key {
        let call = CallHeader {
            xid,
            program: 100_003,
            version: 3,
            procedure: 12,
            credential: OpaqueAuth::none(),
            verifier: OpaqueAuth::none(),
        };
        let caller = CallerDigest::new(&Credential::None, &());
        Key::new(SocketAddr::from(([10, 0, 0, client], 1000)), caller, &call, args)
    }

    fn reply(bytes: &[u8]) -> Message {
        Message::from(Bytes::copy_from_slice(bytes))
    }

    /// Runs a call to its end; false if it was known.
    fn run(cache: &ReplyCache, call: Key, answer: &[u8]) -> bool {
        let Begin::New(running) = cache.begin(call) else { return false };
        running.finish(&reply(answer));
        true
    }

    #[test]
    fn a_call_runs_once_and_its_answer_is_sent_again() {
        let cache = ReplyCache::new();
        let call = key(1, 5, b"args");
        let Begin::New(running) = cache.begin(call) else { panic!() };
        assert!(matches!(cache.begin(call), Begin::InProgress(_)));
        running.finish(&reply(b"done"));
        let Begin::Replay(again) = cache.begin(call) else { panic!() };
        assert_eq!(&again.flatten().unwrap()[..], b"done");
        assert_eq!(again.direct, []);
        for other in [key(2, 5, b"args"), key(1, 6, b"args"), key(1, 5, b"argz"), key(1, 5, b"")] {
            assert!(matches!(cache.begin(other), Begin::New(_)));
        }
    }

    #[test]
    fn results_that_may_be_placed_directly_still_may_when_sent_again() {
        let cache = ReplyCache::new();
        let mut e = zgate_xdr::Encoder::new();
        e.direct_bulk(Payload::Bytes(Bytes::from_static(b"link")));
        let sent = e.finish();
        let call = key(1, 5, b"args");
        let Begin::New(running) = cache.begin(call) else { panic!() };
        running.finish(&sent);
        let Begin::Replay(again) = cache.begin(call) else { panic!() };
        assert_eq!((again.segments.len(), &again.direct), (1, &sent.direct));
    }

    #[test]
    fn a_call_that_ends_without_a_reply_may_run_again() {
        let cache = ReplyCache::new();
        let call = key(1, 5, b"args");
        drop(cache.begin(call));
        assert!(cache.is_empty() && cache.bytes() == 0);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _running = cache.begin(call);
            panic!("a request that panics");
        }));
        assert!(panicked.is_err() && cache.is_empty());
        assert!(run(&cache, call, &vec![0; MAX_DRC_REPLY_BYTES + 1]), "too long to be kept");
        assert!(matches!(cache.begin(call), Begin::New(_)));
        assert!(cache.is_empty());
    }

    #[test]
    fn a_host_evicts_its_own_replies_only() {
        let cache = ReplyCache::new();
        let quiet = key(1, 0, b"");
        assert!(run(&cache, quiet, b"kept"));
        for (xid, len) in (0..).zip([5, MAX_DRC_REPLY_BYTES].iter().cycle()).take(5000) {
            assert!(run(&cache, key(2, xid, b""), &vec![0; *len]));
            assert!(cache.bytes() <= MAX_DRC_BYTES_PER_CLIENT + 2 * ENTRY_OVERHEAD_BYTES + 4);
        }
        assert!(matches!(cache.begin(quiet), Begin::Replay(_)));
        assert!(cache.len() <= MAX_DRC_ENTRIES_PER_CLIENT + 1);
    }

    #[test]
    fn a_full_cache_is_shared_evenly() {
        let cache = ReplyCache::new();
        let answer = vec![7; 4096];
        let hosts = 100;
        let share = MAX_DRC_BYTES / (hosts * (answer.len() + ENTRY_OVERHEAD_BYTES));
        for xid in 0..share as u32 {
            (0..hosts).for_each(|host| assert!(run(&cache, key(host as u8, xid, b""), &answer)));
        }
        for xid in 0..4 * MAX_DRC_ENTRIES_PER_CLIENT as u32 {
            assert!(run(&cache, key(200, xid, b""), &answer));
            assert!(cache.bytes() <= MAX_DRC_BYTES && cache.len() <= MAX_DRC_ENTRIES);
        }
        let kept = |host: usize| {
            let known =
                |xid: &u32| matches!(cache.begin(key(host as u8, *xid, b"")), Begin::Replay(_));
            (0..share as u32).filter(known).count()
        };
        assert!((0..hosts).all(|host| kept(host) + 1 >= share), "a share of {share} was cut");
    }

    #[test]
    fn entries_and_bytes_are_bounded_and_the_oldest_goes_first() {
        let cache = ReplyCache::new();
        let body = vec![7; MAX_DRC_REPLY_BYTES];
        for xid in 0..2 * (MAX_DRC_BYTES / MAX_DRC_REPLY_BYTES) as u32 {
            assert!(run(&cache, key((xid % 200) as u8, xid, b""), &body));
            assert!(cache.bytes() <= MAX_DRC_BYTES);
        }
        assert!(matches!(cache.begin(key(0, 0, b"")), Begin::New(_)));
        let flood = ReplyCache::new();
        let running: Vec<_> = (0..MAX_DRC_ENTRIES_PER_CLIENT as u32 + 10)
            .map(|xid| flood.begin(key(1, xid, b"")))
            .collect();
        assert!(running.iter().all(|begun| matches!(begun, Begin::New(_))));
        assert_eq!(flood.len(), MAX_DRC_ENTRIES_PER_CLIENT);
        assert!(run(&flood, key(2, 1, b""), b"r"), "another host has room");
        assert!(matches!(flood.begin(key(2, 1, b"")), Begin::Replay(_)));
        drop(running);
        assert_eq!(flood.len(), 1);
    }

    #[test]
    fn a_used_reply_is_kept_longer() {
        let cache = ReplyCache::new();
        for xid in 0..MAX_DRC_ENTRIES_PER_CLIENT as u32 {
            assert!(run(&cache, key(1, xid, b""), b"r"));
        }
        assert!(matches!(cache.begin(key(1, 0, b"")), Begin::Replay(_)));
        drop(cache.begin(key(1, 1 << 30, b"")));
        assert!(matches!(cache.begin(key(1, 0, b"")), Begin::Replay(_)));
        assert!(matches!(cache.begin(key(1, 1, b"")), Begin::New(_)));
    }
}
