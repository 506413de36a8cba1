//! Callbacks to the client on the client's connection (RFC 8167).

use crate::nfs::back_channels::CallbackCall;
use bytes::Bytes;
use std::collections::{HashMap, VecDeque};
use tokio::sync::oneshot;
use zgate_fabric::SendPart;
use zgate_rpcrdma::{Body, Chunks, Credit, Header, SendCredits, Xid};

/// Most callbacks waiting for a credit.
const MAX_QUEUED: usize = 64;
/// Most outstanding callbacks, whatever the client grants: as many receives are
/// reserved for their replies.
pub(super) const MAX_OUTSTANDING: u32 = 8;

/// Callbacks of one connection.
#[derive(Debug, Default)]
pub(super) struct Callbacks {
    credits: SendCredits,
    sent: HashMap<u32, (oneshot::Sender<Bytes>, Credit)>,
    queued: VecDeque<CallbackCall>,
}

impl Callbacks {
    pub(super) fn push(&mut self, call: CallbackCall) {
        self.forget_abandoned();
        if self.queued.len() < MAX_QUEUED {
            self.queued.push_back(call);
        }
    }

    /// Returns the next message to send, if there is a credit for it. A callback that
    /// timed out holds its credit until the client answers it, or the connection ends:
    /// no more may be outstanding than were granted (RFC 8166 §3.3.1, RFC 8167 §4.1).
    pub(super) fn next(&mut self, send_bytes: u32) -> Option<SendPart> {
        self.forget_abandoned();
        while self.credits.in_use() < MAX_OUTSTANDING {
            if self.queued.is_empty() {
                return None;
            }
            let credit = self.credits.take()?;
            let Some(call) = self.queued.pop_front() else {
                self.credits.forfeit(credit);
                return None;
            };
            let body = Body::Message(Chunks::default());
            let header = Header { xid: Xid(call.xid), credits: MAX_OUTSTANDING, body }.encode();
            // Callbacks are only sent inline; dropping the channel reports the
            // failure to the caller.
            match call.message.flatten() {
                Some(message) if header.len() + message.len() <= send_bytes as usize => {
                    self.sent.insert(call.xid, (call.reply, credit));
                    let gather = vec![Bytes::from(header), message];
                    return Some(SendPart { gather, invalidate: None });
                }
                _ => self.credits.forfeit(credit),
            }
        }
        None
    }

    /// Handles a reply.
    pub(super) fn answered(&mut self, xid: Xid, granted: u32, message: &[u8]) {
        if let Some((waiting, credit)) = self.sent.remove(&xid.0) {
            self.credits.answered(credit, granted);
            // If the callback timed out, nothing receives the reply.
            let _ = waiting.send(Bytes::copy_from_slice(message));
        }
    }

    /// Handles a callback that the client could not process.
    pub(super) fn failed(&mut self, xid: Xid) {
        if let Some((_, credit)) = self.sent.remove(&xid.0) {
            self.credits.forfeit(credit);
        }
    }

    /// Forgets callbacks that timed out before they were sent.
    fn forget_abandoned(&mut self) {
        self.queued.retain(|call| !call.reply.is_closed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zgate_xdr::Encoder;

    fn call(xid: u32, len: usize) -> (CallbackCall, oneshot::Receiver<Bytes>) {
        let (reply, receiver) = oneshot::channel();
        let mut e = Encoder::new();
        e.raw(&vec![7; len]);
        (CallbackCall { xid, message: e.finish(), reply }, receiver)
    }

    #[test]
    fn one_at_a_time_until_the_client_grants_more() {
        let mut callbacks = Callbacks::default();
        let mut waiting = Vec::new();
        for xid in 0..4 {
            let (call, receiver) = call(xid, 40);
            callbacks.push(call);
            waiting.push(receiver);
        }
        assert!(callbacks.next(1024).is_some());
        assert!(callbacks.next(1024).is_none());
        callbacks.answered(Xid(0), 2, b"reply");
        assert_eq!(waiting[0].try_recv().unwrap(), b"reply"[..]);
        assert!(callbacks.next(1024).is_some());
        assert!(callbacks.next(1024).is_some());
        assert!(callbacks.next(1024).is_none());
    }

    #[test]
    fn one_that_timed_out_holds_its_credit_until_the_client_answers() {
        let mut callbacks = Callbacks::default();
        let (first, waiting) = call(1, 40);
        callbacks.push(first);
        assert!(callbacks.next(1024).is_some());
        drop(waiting);
        let (second, second_waiting) = call(2, 40);
        callbacks.push(second);
        assert!(callbacks.next(1024).is_none(), "one is granted, and one is outstanding");
        // The second one times out, too: it is never sent.
        drop(second_waiting);
        let (third, mut third_waiting) = call(3, 40);
        callbacks.push(third);
        assert!(callbacks.next(1024).is_none());
        callbacks.answered(Xid(1), 1, b"late");
        assert!(callbacks.next(1024).is_some());
        callbacks.answered(Xid(3), 1, b"reply");
        assert_eq!(third_waiting.try_recv().unwrap(), b"reply"[..]);
        assert_eq!(callbacks.credits.in_use(), 0);
    }

    #[test]
    fn those_that_timed_out_take_no_place_of_others() {
        let mut callbacks = Callbacks::default();
        let (first, _first_waiting) = call(0, 40);
        callbacks.push(first);
        assert!(callbacks.next(1024).is_some());
        for xid in 1..=MAX_QUEUED as u32 {
            callbacks.push(call(xid, 40).0);
        }
        let (last, mut waiting) = call(1000, 40);
        callbacks.push(last);
        callbacks.answered(Xid(0), 1, b"reply");
        assert!(callbacks.next(1024).is_some());
        callbacks.answered(Xid(1000), 1, b"reply");
        assert_eq!(waiting.try_recv().unwrap(), b"reply"[..]);
    }

    #[test]
    fn one_that_does_not_fit_is_not_sent() {
        let mut callbacks = Callbacks::default();
        let (long, mut waiting) = call(1, 2000);
        callbacks.push(long);
        assert!(callbacks.next(1024).is_none());
        assert!(waiting.try_recv().is_err());
        let (short, _waiting) = call(2, 20);
        callbacks.push(short);
        assert!(callbacks.next(1024).is_some());
    }
}
