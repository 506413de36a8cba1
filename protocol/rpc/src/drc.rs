//! The duplicate request cache: a client that saw no reply sends its call
//! again, and a REMOVE that already ran must not answer "no such file". NFSv3
//! and NFSv4.0 need it; NFSv4.1 has sessions instead (RFC 8881 §2.10.6).
//!
//! Bounded in entries and bytes, for all clients and for each; the least
//! recently used reply goes first. It knows no clock.

use crate::limits::{
    MAX_DRC_BYTES, MAX_DRC_ENTRIES, MAX_DRC_ENTRIES_PER_CLIENT, MAX_DRC_REPLY_BYTES,
};
use crate::message::CallHeader;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use zgate_store::Payload;
use zgate_xdr::{Message, Segment};

/// What makes two calls the same call. The port is part of it: two programs on
/// one host number their calls alike, and a client that means to retry over a
/// new connection keeps its port, as kernels do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    client: IpAddr,
    port: u16,
    xid: u32,
    program: u32,
    version: u32,
    procedure: u32,
    args_len: usize,
    args_checksum: u64,
}

impl Key {
    /// The key of a call; `args` are the bytes after its header, without a
    /// body that was received apart.
    #[must_use]
    pub fn new(client: SocketAddr, call: &CallHeader, args: &[u8]) -> Self {
        Self {
            client: client.ip().to_canonical(),
            port: client.port(),
            xid: call.xid,
            program: call.program,
            version: call.version,
            procedure: call.procedure,
            args_len: args.len(),
            args_checksum: checksum(args),
        }
    }
}

/// Bytes of the arguments that are looked at: a whole WRITE need not be read
/// once more to recognize it; handle, offset and the first bytes are enough.
const CHECKED_BYTES: usize = 1024;

/// FNV-1a, eight bytes a step. It guards against reused transaction ids, not
/// against forgers, who could send the request itself.
fn checksum(args: &[u8]) -> u64 {
    let seen = &args[..args.len().min(CHECKED_BYTES)];
    let (words, tail) = seen.as_chunks::<8>();
    let step = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x100_0000_01b3).rotate_left(29);
    let hash = words
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, word| step(hash, u64::from_le_bytes(*word)));
    tail.iter().fold(hash, |hash, &byte| step(hash, u64::from(byte)))
}

/// What to do with a call.
#[derive(Clone, Debug)]
pub enum Begin {
    /// Never seen: run it, then [`ReplyCache::finish`] or
    /// [`ReplyCache::abandon`].
    New,
    /// It is being run: drop this copy, the answer comes.
    InProgress,
    /// It was run: send this.
    Replay(Message),
}

#[derive(Debug)]
enum State {
    InProgress,
    Done { reply: Message, stamp: u64 },
}

/// Bytes an entry costs beside its reply.
const ENTRY_OVERHEAD_BYTES: usize = 256;

#[derive(Debug, Default)]
struct Inner {
    entries: HashMap<Key, State>,
    /// Finished calls, least recently used first.
    order: BTreeMap<u64, Key>,
    /// The same for each client.
    clients: HashMap<IpAddr, BTreeSet<u64>>,
    bytes: usize,
    next_stamp: u64,
}

/// The cache; shared by all cores.
#[derive(Debug, Default)]
pub struct ReplyCache {
    inner: Mutex<Inner>,
}

impl ReplyCache {
    /// An empty cache.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Announces a call that is not idempotent.
    #[must_use]
    pub fn begin(&self, key: Key) -> Begin {
        let mut inner = self.lock();
        match inner.entries.get(&key) {
            Some(State::InProgress) => Begin::InProgress,
            Some(State::Done { reply, stamp }) => {
                let (reply, stamp) = (reply.clone(), *stamp);
                inner.touch(key, stamp);
                Begin::Replay(reply)
            }
            None => {
                // Calls under way are never evicted. Should they ever fill the
                // cache alone, further ones run without protection.
                inner.make_room(key.client, 0);
                if inner.entries.len() < MAX_DRC_ENTRIES {
                    inner.entries.insert(key, State::InProgress);
                }
                Begin::New
            }
        }
    }

    /// Keeps the whole reply of a call begun before. A reply that is too long,
    /// or holds data that lies in a file, is not kept.
    pub fn finish(&self, key: Key, reply: &Message) {
        let Some(reply) = compact(reply) else {
            return self.abandon(key);
        };
        let mut inner = self.lock();
        if !matches!(inner.entries.get(&key), Some(State::InProgress)) {
            return;
        }
        inner.entries.remove(&key);
        inner.make_room(key.client, reply.len());
        inner.insert_done(key, reply);
    }

    /// Forgets a call begun before that has no reply worth keeping.
    pub fn abandon(&self, key: Key) {
        let mut inner = self.lock();
        if matches!(inner.entries.get(&key), Some(State::InProgress)) {
            inner.entries.remove(&key);
        }
    }

    /// Calls known, under way or finished.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().entries.len()
    }

    /// Whether no call is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes the finished calls take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.lock().bytes
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A private copy of a reply, so that no larger buffer is kept alive by it.
fn compact(reply: &Message) -> Option<Message> {
    if reply.len() > MAX_DRC_REPLY_BYTES {
        return None;
    }
    let mut out = Vec::with_capacity(reply.len());
    for segment in &reply.segments {
        match segment {
            Segment::Bytes(bytes) | Segment::Payload(Payload::Bytes(bytes)) => {
                out.extend_from_slice(bytes);
            }
            Segment::Payload(Payload::Span(_)) => return None,
        }
    }
    Some(Message { direct: reply.direct.clone(), ..Message::from(Bytes::from(out)) })
}

impl Inner {
    fn insert_done(&mut self, key: Key, reply: Message) {
        let stamp = self.next_stamp;
        self.next_stamp += 1;
        self.bytes += reply.len() + ENTRY_OVERHEAD_BYTES;
        self.order.insert(stamp, key);
        self.clients.entry(key.client).or_default().insert(stamp);
        self.entries.insert(key, State::Done { reply, stamp });
    }

    fn touch(&mut self, key: Key, stamp: u64) {
        if let Some(State::Done { reply, .. }) = self.evict(stamp) {
            self.insert_done(key, reply);
        }
    }

    fn evict(&mut self, stamp: u64) -> Option<State> {
        let key = self.order.remove(&stamp)?;
        if let Some(stamps) = self.clients.get_mut(&key.client) {
            stamps.remove(&stamp);
            if stamps.is_empty() {
                self.clients.remove(&key.client);
            }
        }
        let state = self.entries.remove(&key);
        if let Some(State::Done { reply, .. }) = &state {
            self.bytes -= reply.len() + ENTRY_OVERHEAD_BYTES;
        }
        state
    }

    /// Evicts until one more entry of `client` with `more` bytes fits.
    fn make_room(&mut self, client: IpAddr, more: usize) {
        while let Some(stamps) = self.clients.get(&client) {
            let Some(&oldest) =
                stamps.first().filter(|_| stamps.len() >= MAX_DRC_ENTRIES_PER_CLIENT)
            else {
                break;
            };
            self.evict(oldest);
        }
        let more = more + ENTRY_OVERHEAD_BYTES;
        while self.entries.len() >= MAX_DRC_ENTRIES || self.bytes + more > MAX_DRC_BYTES {
            let Some((&oldest, _)) = self.order.first_key_value() else {
                break;
            };
            self.evict(oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::OpaqueAuth;

    fn key(client: u8, xid: u32, args: &[u8]) -> Key {
        let call = CallHeader {
            xid,
            program: 100_003,
            version: 3,
            procedure: 12,
            credential: OpaqueAuth::none(),
            verifier: OpaqueAuth::none(),
        };
        Key::new(SocketAddr::from(([10, 0, 0, client], 1000)), &call, args)
    }

    fn reply(bytes: &[u8]) -> Message {
        Message::from(Bytes::copy_from_slice(bytes))
    }

    #[test]
    fn a_call_runs_once_and_its_answer_is_sent_again() {
        let cache = ReplyCache::new();
        let call = key(1, 5, b"args");
        assert!(matches!(cache.begin(call), Begin::New));
        assert!(matches!(cache.begin(call), Begin::InProgress));
        cache.finish(call, &reply(b"done"));
        let Begin::Replay(again) = cache.begin(call) else { panic!() };
        assert_eq!(&again.flatten().unwrap()[..], b"done");
        assert_eq!(again.direct, []);
        for other in [key(2, 5, b"args"), key(1, 6, b"args"), key(1, 5, b"argz"), key(1, 5, b"")] {
            assert!(matches!(cache.begin(other), Begin::New));
        }
    }

    #[test]
    fn results_that_may_be_placed_directly_still_may_when_sent_again() {
        let cache = ReplyCache::new();
        let mut e = zgate_xdr::Encoder::new();
        e.direct_bulk(Payload::Bytes(Bytes::from_static(b"link")));
        let sent = e.finish();
        let call = key(1, 5, b"args");
        let _ = cache.begin(call);
        cache.finish(call, &sent);
        let Begin::Replay(again) = cache.begin(call) else { panic!() };
        assert_eq!((again.segments.len(), &again.direct), (1, &sent.direct));
    }

    #[test]
    fn an_abandoned_call_may_run_again() {
        let cache = ReplyCache::new();
        let call = key(1, 5, b"args");
        let _ = cache.begin(call);
        cache.abandon(call);
        assert!(cache.is_empty());
        assert!(matches!(cache.begin(call), Begin::New));
        cache.finish(call, &reply(&vec![0; MAX_DRC_REPLY_BYTES + 1]));
        assert!(matches!(cache.begin(call), Begin::New));
    }

    #[test]
    fn finishing_what_was_never_begun_keeps_nothing() {
        let cache = ReplyCache::new();
        cache.finish(key(1, 1, b""), &reply(b"x"));
        assert!(cache.is_empty());
        assert_eq!(cache.bytes(), 0);
    }

    #[test]
    fn one_client_cannot_push_another_out() {
        let cache = ReplyCache::new();
        let quiet = key(1, 0, b"");
        let _ = cache.begin(quiet);
        cache.finish(quiet, &reply(b"kept"));
        for xid in 0..3 * MAX_DRC_ENTRIES_PER_CLIENT as u32 {
            let call = key(2, xid, b"");
            let _ = cache.begin(call);
            cache.finish(call, &reply(b"noise"));
        }
        assert!(matches!(cache.begin(quiet), Begin::Replay(_)));
        assert!(cache.len() <= MAX_DRC_ENTRIES_PER_CLIENT + 1);
    }

    #[test]
    fn entries_and_bytes_are_bounded_and_the_oldest_goes_first() {
        let cache = ReplyCache::new();
        let body = vec![7; MAX_DRC_REPLY_BYTES];
        for xid in 0..2 * (MAX_DRC_BYTES / MAX_DRC_REPLY_BYTES) as u32 {
            let call = key((xid % 200) as u8, xid, b"");
            let _ = cache.begin(call);
            cache.finish(call, &reply(&body));
            assert!(cache.bytes() <= MAX_DRC_BYTES);
        }
        assert!(matches!(cache.begin(key(0, 0, b"")), Begin::New));
        let flood = ReplyCache::new();
        for xid in 0..MAX_DRC_ENTRIES as u32 + 10 {
            assert!(matches!(flood.begin(key(1, xid, b"")), Begin::New));
        }
        assert_eq!(flood.len(), MAX_DRC_ENTRIES);
    }

    #[test]
    fn a_used_reply_is_kept_longer() {
        let cache = ReplyCache::new();
        for xid in 0..MAX_DRC_ENTRIES_PER_CLIENT as u32 {
            let call = key(1, xid, b"");
            let _ = cache.begin(call);
            cache.finish(call, &reply(b"r"));
        }
        assert!(matches!(cache.begin(key(1, 0, b"")), Begin::Replay(_)));
        let _ = cache.begin(key(1, 1 << 30, b""));
        assert!(matches!(cache.begin(key(1, 0, b"")), Begin::Replay(_)));
        assert!(matches!(cache.begin(key(1, 1, b"")), Begin::New));
    }
}
