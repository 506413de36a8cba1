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
        if self.queued.len() < MAX_QUEUED {
            self.queued.push_back(call);
        }
    }

    /// Returns the next message to send, if there is a credit for it.
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

    fn forget_abandoned(&mut self) {
        let abandoned =
            |(_, (waiting, _)): &(&u32, &(oneshot::Sender<Bytes>, Credit))| waiting.is_closed();
        let gone: Vec<u32> = self.sent.iter().filter(abandoned).map(|(xid, _)| *xid).collect();
        gone.into_iter().for_each(|xid| self.failed(Xid(xid)));
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
        // A callback that timed out makes room.
        waiting.remove(1);
        assert!(callbacks.next(1024).is_some());
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
