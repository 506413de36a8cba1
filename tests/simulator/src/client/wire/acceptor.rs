//! The callback service of a client with Kerberos. It takes calls apart with the
//! product's own side of a server.

use crate::executor::{Executor, SECOND, lock};
use crate::history::History;
use crate::invariant::Invariant;
use crate::kerberos::{Acceptor, ServerContext};
use bytes::Bytes;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use zgate_rpc::auth::{OpaqueAuth, RPCSEC_GSS};
use zgate_rpc::gss::{
    Contexts, GssCredential, Handle, InitToken, Procedure, check_token_call, open_arguments,
    results_reply, seal_results, token_reply,
};
use zgate_rpc::message::{decode_reply, rejection};
use zgate_rpc::{AuthError, CallHeader, Rejection};
use zgate_store::HostKey;
use zgate_xdr::{Decode, Decoder, Encode, Encoder, Message};

/// Answers the server's calls under contexts that the server begins.
pub(super) struct CallbackAcceptor {
    acceptor: Acceptor,
    contexts: Contexts<ServerContext>,
    next_handle: Mutex<u64>,
    executor: Arc<Executor>,
    history: Arc<History>,
    /// The server, as the table of contexts sees it.
    server: HostKey,
}

impl CallbackAcceptor {
    pub(super) fn new(seed: u64, executor: &Arc<Executor>, history: &Arc<History>) -> Self {
        Self {
            acceptor: Acceptor::new(seed, executor),
            contexts: Contexts::default(),
            next_handle: Mutex::new(1),
            executor: Arc::clone(executor),
            history: Arc::clone(history),
            server: HostKey::from(IpAddr::from([192, 0, 2, 1])),
        }
    }

    /// Forgets all contexts: the client restarts.
    pub(super) fn restart(&self) {
        self.contexts.clear();
    }

    fn next_handle(&self) -> u64 {
        let mut next = lock(&self.next_handle);
        *next += 1;
        *next
    }

    /// Answers a call, which `answer` is given without protection.
    pub(super) fn answered(
        &self,
        call: &[u8],
        answer: impl FnOnce(&[u8]) -> Option<Bytes>,
    ) -> Option<Bytes> {
        let record = Bytes::copy_from_slice(call);
        let mut d = Decoder::new(&record);
        let header = CallHeader::decode(&mut d).ok()?;
        if header.credential.flavor != RPCSEC_GSS {
            let text = "a callback without the Kerberos of its client (RFC 7530 §3.3.3)";
            self.history.fail(Invariant::OnlyAuthentic, text.to_owned());
            return None;
        }
        let xid = header.xid;
        let credential = GssCredential::parse(&header.credential).ok()?;
        let reply = match credential.carries_token() {
            true => self.take_token(&header, &credential, &mut d),
            false => self.run((&header, &credential), &record, d.position(), answer),
        };
        let reply = reply.unwrap_or_else(|error| Some(rejection(xid, Rejection::Auth(error))));
        reply?.flatten()
    }

    fn take_token(
        &self,
        header: &CallHeader,
        credential: &GssCredential,
        d: &mut Decoder<'_>,
    ) -> Result<Option<Message>, AuthError> {
        check_token_call(header, credential)?;
        let now_seconds = self.executor.nanos() / SECOND;
        self.contexts.expire(now_seconds);
        let token = InitToken::decode(d).ok().map(|InitToken(token)| {
            let waiting = self.contexts.continued(credential, self.server, now_seconds);
            let waiting = match waiting {
                Ok(waiting) => waiting,
                Err(told) => return (told, OpaqueAuth::none()),
            };
            let step = self.acceptor.accept(waiting, &token, self.next_handle());
            let handle = Handle(self.next_handle());
            self.contexts.keep_and_tell(step, handle, self.server, now_seconds)
        });
        Ok(Some(token_reply(header.xid, token.as_ref())))
    }

    fn run(
        &self,
        (header, credential): (&CallHeader, &GssCredential),
        record: &Bytes,
        at: usize,
        answer: impl FnOnce(&[u8]) -> Option<Bytes>,
    ) -> Result<Option<Message>, AuthError> {
        let now_seconds = self.executor.nanos() / SECOND;
        let context = match self.contexts.admit(credential, (header, record), now_seconds) {
            Ok(context) => context,
            Err(refusal) => return refusal.error().map_or(Ok(None), Err),
        };
        let results = if credential.procedure == Procedure::Destroy {
            self.contexts.destroy(header, credential)?;
            Ok(Bytes::new())
        } else {
            match open_arguments(&context.security, credential, record, at) {
                Ok(arguments) => match plain_results(header, &arguments, answer) {
                    Some(results) => Ok(results),
                    None => return Ok(None),
                },
                Err(error) => Err(error),
            }
        };
        let sealed = results.and_then(|results| {
            seal_results(&context.security, credential, Message::from(results))
        });
        results_reply(&context.security, credential.sequence, header.xid, sealed).map(Some)
    }
}

/// Results of the call without protection.
fn plain_results(
    header: &CallHeader,
    arguments: &[u8],
    answer: impl FnOnce(&[u8]) -> Option<Bytes>,
) -> Option<Bytes> {
    let (credential, verifier) = (OpaqueAuth::none(), OpaqueAuth::none());
    let mut e = Encoder::new();
    CallHeader { credential, verifier, ..header.clone() }.encode(&mut e);
    e.raw(arguments);
    let reply = answer(&e.finish_bytes()?)?;
    let mut d = Decoder::new(&reply);
    decode_reply(&mut d).ok()?;
    Some(reply.slice(d.position()..))
}
