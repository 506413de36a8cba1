//! Contexts that this server begins, for its calls to the callback services of
//! clients: establishment (RFC 2203 §5.2), calls and their replies (§5.3).
//!
//! A call is built without protection, and put under a context here; its reply is
//! returned without protection. Whoever sends them need not know of either.

use super::body::{open_body, seal_body};
use super::control::InitToken;
use super::credential::{Procedure, signed_header, write_credential};
use super::limits::{
    MAX_HANDLE_BYTES, MAX_INIT_EXCHANGES, MAX_SEQUENCE, MAX_TOKEN_BYTES, MIN_OUTGOING_WINDOW,
};
use super::service::Service;
use super::{COMPLETE, CONTINUE_NEEDED, SecurityContext};
use crate::auth::{OpaqueAuth, RPCSEC_GSS};
use crate::message::{AuthError, CallHeader, ReplyError, decode_verified_reply, encode_success};
use bytes::Bytes;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use thiserror::Error;
use zgate_xdr::{Decode, Decoder, Encode, Encoder, Message, XdrError};

/// Reason for which a call under a context has no results.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum OutgoingFault {
    /// The client no longer has the context: a new one is needed (RFC 2203
    /// §5.3.3.3).
    #[error("the client no longer has the security context")]
    ContextLost,
    /// The client refused the credential.
    #[error("the client refuses the credential (auth_stat {0})")]
    Refused(u32),
    /// The client refused the token of a new context.
    #[error("the client refuses the ticket (major status {major:#x}, minor status {minor:#x})")]
    TokenRefused {
        /// Major status.
        major: u32,
        /// The mechanism's status.
        minor: u32,
    },
    /// The call was not run (accept_stat number).
    #[error("the client has not run the call (accept_stat {0})")]
    NotRun(u32),
    /// The verifier of the reply is not the client's.
    #[error("the reply is not the client's: its verifier is wrong")]
    BadVerifier,
    /// The results are not what the client has protected.
    #[error("the results of the reply are changed or malformed")]
    BadResults,
    /// The bytes are no reply to the call.
    #[error("not a reply to the call")]
    NotAReply,
    /// The client asks for more tokens than any mechanism needs.
    #[error("the client asks for more than {MAX_INIT_EXCHANGES} tokens")]
    TooManyTokens,
    /// The client admits too few calls at a time.
    #[error("the client's window of {0} sequence numbers is too small")]
    SmallWindow(u32),
    /// The context can protect nothing any more.
    #[error("the security context has expired")]
    Expired,
}

impl From<ReplyError> for OutgoingFault {
    fn from(error: ReplyError) -> Self {
        const LOST: [u32; 2] =
            [AuthError::GssCredentialProblem as u32, AuthError::GssContextProblem as u32];
        match error {
            ReplyError::AuthRefused(stat) if LOST.contains(&stat) => Self::ContextLost,
            ReplyError::AuthRefused(stat) => Self::Refused(stat),
            ReplyError::NotRun(stat) => Self::NotRun(stat),
            ReplyError::NotAReply | ReplyError::RpcMismatch => Self::NotAReply,
        }
    }
}

/// Returns the verifier of a reply to `xid`, and leaves the decoder at the
/// results.
fn accepted(d: &mut Decoder<'_>, xid: u32) -> Result<OpaqueAuth, OutgoingFault> {
    let (replied, verifier) = decode_verified_reply(d).map_err(|(_, error)| error)?;
    if replied == xid { Ok(verifier) } else { Err(OutgoingFault::NotAReply) }
}

/// A context that is being established.
#[derive(Debug)]
pub struct Establishing {
    program: u32,
    version: u32,
    /// The client's name of the context; empty before its first reply.
    handle: Vec<u8>,
    exchanges: u32,
}

/// Reply of a client to a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerStep {
    /// Token of the client for the mechanism; may be empty.
    pub token: Vec<u8>,
    /// Proof that the client has the context: once it is established there.
    pub proof: Option<WindowProof>,
}

/// The window of sequence numbers, and the client's code over it (RFC 2203
/// §5.2.3.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowProof {
    window: u32,
    verifier: OpaqueAuth,
}

impl Establishing {
    /// A context with a program's server.
    #[must_use]
    pub fn new(program: u32, version: u32) -> Self {
        Self { program, version, handle: Vec::new(), exchanges: 0 }
    }

    /// Builds the NULL call that carries a token of the mechanism.
    ///
    /// # Errors
    /// [`OutgoingFault::TooManyTokens`].
    pub fn call(&mut self, xid: u32, token: Vec<u8>) -> Result<Message, OutgoingFault> {
        self.exchanges += 1;
        if self.exchanges > MAX_INIT_EXCHANGES {
            return Err(OutgoingFault::TooManyTokens);
        }
        let is_first = self.handle.is_empty();
        let procedure = if is_first { Procedure::Init } else { Procedure::ContinueInit };
        let mut e = Encoder::new();
        let header = CallHeader {
            xid,
            program: self.program,
            version: self.version,
            procedure: 0,
            credential: write_credential(procedure, (Service::None, 0), &self.handle),
            verifier: OpaqueAuth::none(),
        };
        header.encode(&mut e);
        InitToken(token).encode(&mut e);
        Ok(e.finish())
    }

    /// Reads the reply to the latest call.
    ///
    /// # Errors
    /// [`OutgoingFault`]: the context cannot be established.
    pub fn reply(&mut self, xid: u32, raw: &[u8]) -> Result<ServerStep, OutgoingFault> {
        let mut d = Decoder::new(raw);
        let verifier = accepted(&mut d, xid)?;
        let result = ForeignInitResult::decode(&mut d).map_err(|_| OutgoingFault::BadResults)?;
        let ForeignInitResult { handle, major, minor, window, token } = result;
        let proof = match major {
            COMPLETE => Some(WindowProof { window, verifier }),
            CONTINUE_NEEDED => None,
            _ => return Err(OutgoingFault::TokenRefused { major, minor }),
        };
        self.handle = handle;
        Ok(ServerStep { token, proof })
    }

    /// Ends with the mechanism's context, if the client proves that it has it.
    ///
    /// # Errors
    /// [`OutgoingFault::BadVerifier`], [`OutgoingFault::SmallWindow`].
    pub fn finish(
        self,
        security: BoxedSecurityContext,
        proof: &WindowProof,
        service: Service,
        ends_seconds: u64,
    ) -> Result<OutgoingContext, OutgoingFault> {
        let WindowProof { window, verifier } = proof;
        let is_proven = verifier.flavor == RPCSEC_GSS
            && security.verifies(&window.to_be_bytes(), &verifier.body);
        if !is_proven {
            return Err(OutgoingFault::BadVerifier);
        }
        if *window < MIN_OUTGOING_WINDOW {
            return Err(OutgoingFault::SmallWindow(*window));
        }
        let (next, on_drop) = (AtomicU32::new(1), None);
        let Self { program, version, handle, .. } = self;
        let target = (program, version);
        Ok(OutgoingContext { security, handle, target, service, next, ends_seconds, on_drop })
    }
}

/// rpc_gss_init_res of another implementation, whose handles have any length.
struct ForeignInitResult {
    handle: Vec<u8>,
    major: u32,
    minor: u32,
    window: u32,
    token: Vec<u8>,
}

impl Decode for ForeignInitResult {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Self {
            handle: d.opaque(MAX_HANDLE_BYTES)?.to_vec(),
            major: d.u32()?,
            minor: d.u32()?,
            window: d.u32()?,
            token: d.opaque(MAX_TOKEN_BYTES)?.to_vec(),
        })
    }
}

/// The mechanism's context.
pub type BoxedSecurityContext = Box<dyn SecurityContext + Send + Sync>;

/// Sends the call that ends a context at the other side.
type Farewell = Box<dyn FnOnce(ProtectedCall) + Send + Sync>;

/// A context for calls to a client.
pub struct OutgoingContext {
    security: BoxedSecurityContext,
    /// The client's name of the context.
    handle: Vec<u8>,
    /// Its program, and the version of that.
    target: (u32, u32),
    service: Service,
    next: AtomicU32,
    ends_seconds: u64,
    on_drop: Option<Farewell>,
}

impl Drop for OutgoingContext {
    fn drop(&mut self) {
        if let Some(on_drop) = self.on_drop.take()
            && let Some(call) = self.destroy(0)
        {
            on_drop(call);
        }
    }
}

impl fmt::Debug for OutgoingContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutgoingContext").field("service", &self.service).finish_non_exhaustive()
    }
}

/// A call under a context.
#[derive(Clone, Debug)]
pub struct ProtectedCall {
    /// The whole call.
    pub record: Vec<u8>,
    xid: u32,
    sequence: u32,
}

impl OutgoingContext {
    /// Returns whether the context may be used for another call.
    #[must_use]
    pub fn is_usable(&self, now_seconds: u64) -> bool {
        now_seconds < self.ends_seconds && self.next.load(Ordering::Relaxed) < MAX_SEQUENCE
    }

    /// Has the call that ends the context ([`Self::destroy`], transaction id 0) handed
    /// to `send` when the context is dropped, if it still can sign one. `send` must
    /// not wait: the context may be dropped under a lock.
    #[must_use]
    pub fn told_when_dropped(
        mut self,
        send: impl FnOnce(ProtectedCall) + Send + Sync + 'static,
    ) -> Self {
        self.on_drop = Some(Box::new(send));
        self
    }

    /// Builds the call that ends the context at the other side (RFC 2203 §5.4): a
    /// NULL call without arguments. `None`: the context can no longer sign.
    pub fn destroy(&self, xid: u32) -> Option<ProtectedCall> {
        let (program, version) = self.target;
        let (credential, verifier) = (OpaqueAuth::none(), OpaqueAuth::none());
        let header = CallHeader { xid, program, version, procedure: 0, credential, verifier };
        self.signed(Procedure::Destroy, header, |_| Some(Bytes::new()))
    }

    /// Checks that the other side has answered a [`Self::destroy`].
    ///
    /// # Errors
    /// [`OutgoingFault`].
    pub fn open_destroyed(&self, call: &ProtectedCall, raw: &[u8]) -> Result<(), OutgoingFault> {
        self.verified(call, &mut Decoder::new(raw))
    }

    /// Puts a call under the context: its credential and verifier are replaced,
    /// its arguments protected.
    ///
    /// # Errors
    /// [`OutgoingFault::Expired`]: the context can no longer sign, or the call
    /// consists of something else than bytes in memory.
    pub fn protect(&self, call: &Message) -> Result<ProtectedCall, OutgoingFault> {
        self.protected(call).ok_or(OutgoingFault::Expired)
    }

    fn protected(&self, call: &Message) -> Option<ProtectedCall> {
        let plain = call.flatten()?;
        let mut d = Decoder::new(&plain);
        let header = CallHeader::decode(&mut d).ok()?;
        let arguments = Message::from(plain.slice(d.position()..));
        self.signed(Procedure::Data, header, |numbers| {
            seal_body(&*self.security, numbers, arguments)?.flatten()
        })
    }

    /// Builds a call from its header and its body, which is protected with these
    /// numbers.
    fn signed(
        &self,
        procedure: Procedure,
        mut header: CallHeader,
        body: impl FnOnce((Service, u32)) -> Option<Bytes>,
    ) -> Option<ProtectedCall> {
        let sequence = self.next.fetch_add(1, Ordering::Relaxed);
        if sequence > MAX_SEQUENCE {
            return None;
        }
        let numbers = (self.service, sequence);
        header.credential = write_credential(procedure, numbers, &self.handle);
        header.verifier = OpaqueAuth::none();
        let unsigned = encoded(&header)?;
        let mic = self.security.mic(signed_header(&unsigned, &header)?)?;
        header.verifier = OpaqueAuth { flavor: RPCSEC_GSS, body: mic };
        let record = [&encoded(&header)?[..], &body(numbers)?].concat();
        Some(ProtectedCall { record, xid: header.xid, sequence })
    }

    /// Checks the verifier of a reply, and leaves the decoder at the results.
    fn verified(&self, call: &ProtectedCall, d: &mut Decoder<'_>) -> Result<(), OutgoingFault> {
        let verifier = accepted(d, call.xid)?;
        let is_its = verifier.flavor == RPCSEC_GSS
            && self.security.verifies(&call.sequence.to_be_bytes(), &verifier.body);
        if is_its { Ok(()) } else { Err(OutgoingFault::BadVerifier) }
    }

    /// Returns the reply to a call without its protection: a successful one.
    ///
    /// # Errors
    /// [`OutgoingFault`]; the results are not known then.
    pub fn open(&self, call: &ProtectedCall, raw: &Bytes) -> Result<Bytes, OutgoingFault> {
        let mut d = Decoder::new(raw);
        self.verified(call, &mut d)?;
        let numbers = (self.service, call.sequence);
        let results = open_body(&*self.security, numbers, raw, d.position());
        let results = results.ok_or(OutgoingFault::BadResults)?;
        let mut e = Encoder::new();
        encode_success(&mut e, call.xid);
        e.raw(&results);
        e.finish_bytes().ok_or(OutgoingFault::BadResults)
    }
}

fn encoded(header: &CallHeader) -> Option<Bytes> {
    let mut e = Encoder::new();
    header.encode(&mut e);
    e.finish_bytes()
}

#[cfg(test)]
#[path = "outgoing_tests.rs"]
mod tests;
