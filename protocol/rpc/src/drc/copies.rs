//! Copies of a running call. A client whose connection broke repeats its call
//! over a new one while the first still runs: each copy waits for the reply of
//! the first, to be answered over the connection on which it came.

use crate::limits::MAX_DRC_COPIES;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use zgate_xdr::Message;

/// End of a copy's wait.
#[derive(Debug)]
pub(super) enum CopyEnd {
    /// The call has ended with this reply.
    Reply(Message),
    /// The call has ended without a reply that may be sent twice.
    NoReply,
    /// Newer copies wait instead.
    Superseded,
}

#[derive(Debug, Default)]
struct Waited {
    end: Option<CopyEnd>,
    waker: Option<Waker>,
}

/// A copy of a running call. If it is dropped, nobody waits for its reply.
#[derive(Debug)]
pub struct RunningCopy(Arc<Mutex<Waited>>);

fn lock(waited: &Mutex<Waited>) -> MutexGuard<'_, Waited> {
    waited.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RunningCopy {
    /// Waits for the end of the first copy, or until it is superseded.
    pub(super) async fn end(self) -> CopyEnd {
        poll_fn(|task| {
            let mut waited = lock(&self.0);
            match waited.end.take() {
                Some(end) => Poll::Ready(end),
                None => {
                    waited.waker = Some(task.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

/// The copies that wait for one call, oldest first.
#[derive(Debug, Default)]
pub(super) struct Copies(VecDeque<Arc<Mutex<Waited>>>);

impl Copies {
    /// Adds a copy. The second value is the copy that it supersedes: its
    /// connection is the most likely to be gone.
    pub(super) fn join(&mut self) -> (RunningCopy, Self) {
        let waited = Arc::<Mutex<Waited>>::default();
        self.0.push_back(Arc::clone(&waited));
        let excess = self.0.len().saturating_sub(MAX_DRC_COPIES);
        (RunningCopy(waited), Self(self.0.drain(..excess).collect()))
    }

    /// Ends the waits. Called without the lock of the cache: wakers run code of
    /// others.
    pub(super) fn tell(self, end: impl Fn() -> CopyEnd) {
        for waited in self.0 {
            let waker = {
                let mut waited = lock(&waited);
                waited.end = Some(end());
                waited.waker.take()
            };
            waker.into_iter().for_each(Waker::wake);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Begin, CallerDigest, Claim, Key, ReplyCache};
    use super::*;
    use crate::auth::OpaqueAuth;
    use crate::{CallHeader, Credential};
    use bytes::Bytes;
    use std::future::Future;
    use std::pin::Pin;
    use std::task::Context;

    fn key() -> Key {
        let call = CallHeader {
            xid: 5,
            program: 100_003,
            version: 3,
            procedure: 12,
            credential: OpaqueAuth::none(),
            verifier: OpaqueAuth::none(),
        };
        let caller = CallerDigest::new(&Credential::None, &());
        Key::new(([10, 0, 0, 1], 1000).into(), caller, &call, b"args")
    }

    type Waiting<'a> = Pin<Box<dyn Future<Output = Claim<'a>> + 'a>>;

    fn poll<'a>(waiting: &mut Waiting<'a>) -> Option<Claim<'a>> {
        match waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(claim) => Some(claim),
            Poll::Pending => None,
        }
    }

    fn copy(cache: &ReplyCache) -> Waiting<'_> {
        let mut waiting: Waiting<'_> = Box::pin(cache.claim(key()));
        assert!(poll(&mut waiting).is_none(), "the first copy runs");
        waiting
    }

    fn replied(claim: Option<Claim<'_>>) -> usize {
        match claim {
            Some(Claim::Replay(reply)) => reply.len(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_newest_copies_are_answered_with_the_first_and_the_others_dropped() {
        let cache = ReplyCache::new();
        let Begin::New(running) = cache.begin(key()) else { panic!() };
        let mut copies: Vec<_> = (0..MAX_DRC_COPIES + 3).map(|_| copy(&cache)).collect();
        let newest = copies.split_off(3);
        for mut copy in copies {
            assert!(matches!(poll(&mut copy), Some(Claim::Superseded)));
        }
        running.finish(&Message::from(Bytes::from_static(b"done")));
        for mut copy in newest {
            assert_eq!(replied(poll(&mut copy)), 4);
        }
        assert_eq!(cache.len(), 1, "the reply is kept for later copies");
    }

    #[test]
    fn a_reply_that_is_too_long_to_be_kept_still_answers_its_copies() {
        let cache = ReplyCache::new();
        let Begin::New(running) = cache.begin(key()) else { panic!() };
        let mut waiting = copy(&cache);
        let long = crate::limits::MAX_DRC_REPLY_BYTES + 1;
        running.finish(&Message::from(Bytes::from(vec![0; long])));
        assert_eq!(replied(poll(&mut waiting)), long);
        assert!(cache.is_empty());
    }

    #[test]
    fn a_copy_runs_if_the_first_ends_without_a_reply_and_the_next_waits_for_it() {
        let cache = ReplyCache::new();
        let Begin::New(running) = cache.begin(key()) else { panic!() };
        let (mut second, mut third) = (copy(&cache), copy(&cache));
        drop(running);
        let Some(Claim::Run(running)) = poll(&mut second) else { panic!() };
        assert!(poll(&mut third).is_none());
        running.finish(&Message::from(Bytes::from_static(b"again")));
        assert_eq!(replied(poll(&mut third)), 5);
    }

    #[test]
    fn copies_whose_connections_ended_leave_nothing() {
        let cache = ReplyCache::new();
        let Begin::New(running) = cache.begin(key()) else { panic!() };
        let bytes = cache.bytes();
        for _ in 0..100 {
            drop(copy(&cache));
        }
        assert_eq!(cache.bytes(), bytes);
        drop(running);
        assert!(cache.is_empty() && cache.bytes() == 0);
    }
}
