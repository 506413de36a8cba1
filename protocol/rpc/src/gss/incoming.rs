//! Calls of clients, up to the work of the mechanism and of the program, and
//! their replies (RFC 2203 §5.2, §5.3.3).

use super::contexts::{Contexts, Established, Handle};
use super::control::{InitResult, Step};
use super::credential::{GssCredential, Procedure, signed_header};
use super::window::SequenceFault;
use super::{NO_CONTEXT, SecurityContext};
use crate::auth::{OpaqueAuth, RPCSEC_GSS};
use crate::message::{AcceptError, AuthError, CallHeader, encode_accepted};
use std::sync::Arc;
use zgate_store::HostKey;
use zgate_xdr::{Encode, Encoder, Message};

/// Reason for which a call under a context is not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The context does not exist (any more).
    UnknownContext,
    /// The header is not the client's.
    BadVerifier,
    /// The sequence number.
    Sequence(SequenceFault),
}

impl Refusal {
    /// Returns what the client is told; `None`: the call is dropped without an
    /// answer (RFC 2203 §5.3.3.1).
    #[must_use]
    pub fn error(self) -> Option<AuthError> {
        match self {
            Self::UnknownContext | Self::BadVerifier => Some(AuthError::GssCredentialProblem),
            Self::Sequence(SequenceFault::Seen) => None,
            Self::Sequence(SequenceFault::Exhausted) => Some(AuthError::GssContextProblem),
        }
    }
}

/// Result of a token, and the verifier of its reply.
pub type Told = (InitResult, OpaqueAuth);

/// Checks a call that carries a token (RFC 2203 §5.2.2).
///
/// # Errors
/// The rule that it breaks.
pub fn check_token_call(header: &CallHeader, credential: &GssCredential) -> Result<(), AuthError> {
    let is_first = credential.procedure == Procedure::Init;
    if header.procedure != 0 || is_first != credential.has_no_handle {
        return Err(AuthError::BadCredential);
    }
    if header.verifier != OpaqueAuth::none() {
        return Err(AuthError::BadVerifier);
    }
    Ok(())
}

impl<C> Contexts<C> {
    /// Takes the context that a token continues; `Ok(None)`: the token is the first
    /// one.
    ///
    /// # Errors
    /// The result for the client: there is no such context.
    pub fn continued(
        &self,
        credential: &GssCredential,
        host: HostKey,
        now_seconds: u64,
    ) -> Result<Option<C>, InitResult> {
        if credential.procedure != Procedure::ContinueInit {
            return Ok(None);
        }
        let pending = credential
            .handle
            .and_then(|handle| self.take_pending(handle, host, now_seconds))
            .ok_or_else(|| InitResult::failed(NO_CONTEXT, 0))?;
        Ok(Some(pending))
    }
}

impl<C: SecurityContext> Contexts<C> {
    /// Finds the context of a call, verifies the call's header and takes its sequence
    /// number. `record`: the call, at least up to the end of its credential.
    ///
    /// # Errors
    /// [`Refusal`]; the sequence number of a call whose header is not the client's
    /// is not used up.
    pub fn admit(
        &self,
        credential: &GssCredential,
        (header, record): (&CallHeader, &[u8]),
        now_seconds: u64,
    ) -> Result<Arc<Established<C>>, Refusal> {
        let found = credential.handle.and_then(|handle| self.find(handle, now_seconds));
        let context = found.ok_or(Refusal::UnknownContext)?;
        let verifier = &header.verifier;
        let is_its = verifier.flavor == RPCSEC_GSS
            && signed_header(record, header)
                .is_some_and(|signed| context.security.verifies(signed, &verifier.body));
        if !is_its {
            return Err(Refusal::BadVerifier);
        }
        context.take(credential.sequence).map_err(Refusal::Sequence)?;
        Ok(context)
    }

    /// Ends the context of a DESTROY that was admitted (RFC 2203 §5.4).
    ///
    /// # Errors
    /// [`AuthError::BadCredential`]: it is not a NULL call.
    pub fn destroy(
        &self,
        header: &CallHeader,
        credential: &GssCredential,
    ) -> Result<(), AuthError> {
        if header.procedure != 0 {
            return Err(AuthError::BadCredential);
        }
        credential.handle.into_iter().for_each(|handle| self.remove(handle));
        Ok(())
    }

    /// Keeps the result of a step under a handle that nobody can guess. Returns what
    /// the client is told; if the context is established, with the code over the
    /// window, which proves the server to the client (RFC 2203 §5.2.3.1).
    pub fn keep_and_tell(
        &self,
        step: Step<C>,
        handle: Handle,
        host: HostKey,
        now_seconds: u64,
    ) -> Told {
        let (told, established) = self.keep(step, handle, host, now_seconds);
        let proof = established
            .and_then(|context| context.security.mic(&told.sequence_window.to_be_bytes()));
        let verifier = proof.map(|body| OpaqueAuth { flavor: RPCSEC_GSS, body });
        (told, verifier.unwrap_or_else(OpaqueAuth::none))
    }
}

/// Builds the reply to a token; `None`: the arguments were no token.
#[must_use]
pub fn token_reply(xid: u32, told: Option<&Told>) -> Message {
    let mut e = Encoder::new();
    match told {
        Some((result, verifier)) => {
            encode_accepted(&mut e, xid, verifier, None);
            result.encode(&mut e);
        }
        None => {
            let garbage = Some(AcceptError::GarbageArguments);
            encode_accepted(&mut e, xid, &OpaqueAuth::none(), garbage);
        }
    }
    e.finish()
}

/// Builds the reply to a call that was admitted; its results are protected
/// already. Its verifier is the code over the sequence number (RFC 2203 §5.3.3.2).
///
/// # Errors
/// [`AuthError::GssContextProblem`]: the context no longer can sign.
pub fn results_reply(
    context: &(impl SecurityContext + ?Sized),
    sequence: u32,
    xid: u32,
    result: Result<Message, AcceptError>,
) -> Result<Message, AuthError> {
    let mic = context.mic(&sequence.to_be_bytes());
    let body = mic.ok_or(AuthError::GssContextProblem)?;
    let mut e = Encoder::new();
    let verifier = OpaqueAuth { flavor: RPCSEC_GSS, body };
    encode_accepted(&mut e, xid, &verifier, result.as_ref().err().copied());
    let mut message = result.unwrap_or_default();
    if let Some(header) = e.finish_bytes() {
        message.prepend(header);
    }
    Ok(message)
}

#[cfg(test)]
mod tests {
    use super::super::fake::{FakeCall, FakeContext};
    use super::super::{CONTEXT_IDLE_SECONDS, FAILURE, MAX_SEQUENCE, SEQUENCE_WINDOW, Service};
    use super::*;
    use crate::message::decode_verified_reply;
    use std::net::IpAddr;
    use zgate_xdr::Decoder;

    const CONTEXT: FakeContext = FakeContext { key: 0x5a };
    const HANDLE: Handle = Handle(5);

    fn host() -> HostKey {
        IpAddr::from([10, 0, 0, 1]).into()
    }

    fn contexts() -> Contexts<FakeContext> {
        let contexts = Contexts::default();
        let step = Step::Complete { context: CONTEXT, token: vec![7], lifetime_seconds: 100 };
        let (told, verifier) = contexts.keep_and_tell(step, HANDLE, host(), 0);
        assert!(told.is_complete());
        assert!(CONTEXT.verifies(&SEQUENCE_WINDOW.to_be_bytes(), &verifier.body));
        contexts
    }

    fn call(context: FakeContext, sequence: u32) -> FakeCall<'static> {
        FakeCall {
            context,
            handle: Some(HANDLE),
            procedure: Procedure::Data,
            sequence,
            service: Service::None,
            words: [9, 100_003, 4, 0],
            arguments: b"",
        }
    }

    fn parsed(record: &[u8]) -> (CallHeader, GssCredential) {
        let header = CallHeader::decode(&mut Decoder::new(record)).unwrap();
        let credential = GssCredential::parse(&header.credential).unwrap();
        (header, credential)
    }

    fn admit(contexts: &Contexts<FakeContext>, call: &FakeCall<'_>, now: u64) -> Option<Refusal> {
        let record = call.record();
        let (header, credential) = parsed(&record);
        contexts.admit(&credential, (&header, &record), now).err()
    }

    #[test]
    fn a_number_is_used_up_by_its_client_alone() {
        let contexts = contexts();
        let forged = call(FakeContext { key: 0x5b }, 7);
        assert_eq!(admit(&contexts, &forged, 1), Some(Refusal::BadVerifier));
        let far = call(FakeContext { key: 0x5b }, 7 + 2 * SEQUENCE_WINDOW);
        assert_eq!(admit(&contexts, &far, 1), Some(Refusal::BadVerifier));
        let its = call(CONTEXT, 7);
        assert_eq!(admit(&contexts, &its, 1), None);
        let seen = Refusal::Sequence(SequenceFault::Seen);
        assert_eq!(admit(&contexts, &its, 1), Some(seen));
        assert_eq!(seen.error(), None, "dropped");
        let last = call(CONTEXT, MAX_SEQUENCE + 1);
        let exhausted = admit(&contexts, &last, 1).and_then(Refusal::error);
        assert_eq!(exhausted, Some(AuthError::GssContextProblem));
    }

    #[test]
    fn a_context_that_is_over_is_not_known() {
        let unknown = Some(Refusal::UnknownContext);
        assert_eq!(admit(&contexts(), &call(CONTEXT, 1), 99), None);
        assert_eq!(admit(&contexts(), &call(CONTEXT, 1), 100), unknown);
        assert_eq!(admit(&contexts(), &call(CONTEXT, 1), CONTEXT_IDLE_SECONDS), unknown);
        let other = FakeCall { handle: Some(Handle(6)), ..call(CONTEXT, 1) };
        assert_eq!(admit(&contexts(), &other, 1), unknown);
        let none = FakeCall { handle: None, ..call(CONTEXT, 1) };
        assert_eq!(admit(&contexts(), &none, 1), unknown);
    }

    #[test]
    fn only_a_null_call_ends_a_context() {
        let contexts = contexts();
        let (mut header, credential) = parsed(&call(CONTEXT, 1).record());
        header.procedure = 1;
        assert_eq!(contexts.destroy(&header, &credential), Err(AuthError::BadCredential));
        assert_eq!(contexts.len(), 1);
        header.procedure = 0;
        assert_eq!(contexts.destroy(&header, &credential), Ok(()));
        assert!(contexts.is_empty());
    }

    #[test]
    fn the_second_token_finds_its_context_once() {
        let contexts = Contexts::default();
        let step = Step::Continue { context: CONTEXT, token: vec![] };
        let (told, verifier) = contexts.keep_and_tell(step, HANDLE, host(), 0);
        assert!(told.needs_more() && verifier == OpaqueAuth::none());
        let of = |procedure| parsed(&FakeCall { procedure, ..call(CONTEXT, 0) }.record()).1;
        let again = of(Procedure::ContinueInit);
        assert_eq!(contexts.continued(&of(Procedure::Init), host(), 1), Ok(None));
        assert_eq!(contexts.continued(&again, host(), 1), Ok(Some(CONTEXT)));
        let gone = Err(InitResult::failed(NO_CONTEXT, 0));
        assert_eq!(contexts.continued(&again, host(), 1), gone);
        let failed = Step::Failed { major: FAILURE, minor: 3 };
        let (told, verifier) = contexts.keep_and_tell(failed, HANDLE, host(), 0);
        assert_eq!((told, verifier), (InitResult::failed(FAILURE, 3), OpaqueAuth::none()));
    }

    #[test]
    fn a_reply_has_the_code_of_its_number() {
        let reply = |context: &FakeContext, result| {
            let message = results_reply(context, 7, 9, result)?;
            Ok(message.flatten().unwrap())
        };
        let raw = reply(&CONTEXT, Ok(Message::from(bytes::Bytes::from_static(b"done")))).unwrap();
        let mut d = Decoder::new(&raw);
        let (xid, verifier) = decode_verified_reply(&mut d).unwrap();
        assert_eq!((xid, d.rest()), (9, &b"done"[..]));
        assert!(CONTEXT.verifies(&7_u32.to_be_bytes(), &verifier.body));
        let broken = reply(&FakeContext { key: 0 }, Ok(Message::default()));
        assert_eq!(broken, Err(AuthError::GssContextProblem));
    }
}
