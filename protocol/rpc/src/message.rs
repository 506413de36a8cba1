//! Call and reply headers (RFC 5531 §9).

use crate::auth::{AUTH_NONE, AUTH_TLS, OpaqueAuth};
use zgate_xdr::{Decode, Decoder, Encode, Encoder, Message, XdrError};

const CALL: u32 = 0;
const REPLY: u32 = 1;
const RPC_VERSION: u32 = 2;
const MSG_ACCEPTED: u32 = 0;
const MSG_DENIED: u32 = 1;

/// The header of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallHeader {
    /// Transaction id.
    pub xid: u32,
    /// Program number.
    pub program: u32,
    /// Program version.
    pub version: u32,
    /// Procedure number.
    pub procedure: u32,
    /// Credential.
    pub credential: OpaqueAuth,
    /// Verifier.
    pub verifier: OpaqueAuth,
}

/// Reason for which a call was accepted but not run (RFC 5531 §9, accept_stat).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptError {
    /// Program not served.
    ProgramUnavailable,
    /// Version not served; lowest and highest versions that are.
    ProgramMismatch(u32, u32),
    /// Procedure unknown.
    ProcedureUnavailable,
    /// Arguments not decodable.
    GarbageArguments,
    /// The server failed.
    SystemError,
}

/// Reason for which a credential was refused (RFC 5531 §9, auth_stat).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum AuthError {
    /// Malformed credential.
    BadCredential = 1,
    /// Flavour refused, or the session must begin again.
    RejectedCredential = 2,
    /// Malformed verifier.
    BadVerifier = 3,
    /// Too weak for the request.
    TooWeak = 5,
    /// No such context, or a verifier that is not its client's (RFC 2203
    /// §5.3.3.3).
    GssCredentialProblem = 13,
    /// The context can no longer be used.
    GssContextProblem = 14,
}

/// A reply other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The RPC version is not 2.
    RpcMismatch,
    /// The credential was refused.
    Auth(AuthError),
    /// The program or its arguments were refused.
    Accept(AcceptError),
}

/// Reason for which bytes are not a valid call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallError {
    /// No transaction id, or not a call: close the connection.
    NotACall,
    /// A call that gets a rejection.
    Reject {
        /// Transaction id of the call.
        xid: u32,
        /// The rejection.
        why: Rejection,
    },
}

impl CallHeader {
    /// Reads the header of a call.
    ///
    /// # Errors
    /// [`CallError::NotACall`] when it cannot be answered,
    /// [`CallError::Reject`] when it can.
    pub fn decode(d: &mut Decoder<'_>) -> Result<Self, CallError> {
        let xid = d.u32().map_err(|_| CallError::NotACall)?;
        if d.u32() != Ok(CALL) {
            return Err(CallError::NotACall);
        }
        if d.u32().map_err(|_| CallError::NotACall)? != RPC_VERSION {
            return Err(CallError::Reject { xid, why: Rejection::RpcMismatch });
        }
        let garbage = |_: XdrError| CallError::Reject {
            xid,
            why: Rejection::Accept(AcceptError::GarbageArguments),
        };
        let program = d.u32().map_err(garbage)?;
        let version = d.u32().map_err(garbage)?;
        let procedure = d.u32().map_err(garbage)?;
        let bad = |why| move |_: XdrError| CallError::Reject { xid, why: Rejection::Auth(why) };
        let credential = OpaqueAuth::decode(d).map_err(bad(AuthError::BadCredential))?;
        let verifier = OpaqueAuth::decode(d).map_err(bad(AuthError::BadVerifier))?;
        Ok(Self { xid, program, version, procedure, credential, verifier })
    }
}

impl CallHeader {
    /// Returns whether a call with the flavor AUTH_TLS has the form of a request
    /// for TLS (RFC 9289 §4.1): procedure 0, an empty credential, and the
    /// verifier AUTH_NONE.
    #[must_use]
    pub fn asks_for_tls(&self) -> bool {
        self.credential.flavor == AUTH_TLS
            && self.credential.body.is_empty()
            && self.procedure == 0
            && self.verifier == OpaqueAuth::none()
    }
}

impl Encode for CallHeader {
    fn encode(&self, e: &mut Encoder) {
        for word in [self.xid, CALL, RPC_VERSION, self.program, self.version, self.procedure] {
            e.u32(word);
        }
        self.credential.encode(e);
        self.verifier.encode(e);
    }
}

/// Writes the header of a successful reply; the results follow it.
pub fn encode_success(e: &mut Encoder, xid: u32) {
    for word in [xid, REPLY, MSG_ACCEPTED, 0, 0, 0] {
        e.u32(word);
    }
}

/// Writes the header of a reply to a call that was accepted, with a verifier of
/// the server. Results follow it if there is no error.
pub fn encode_accepted(
    e: &mut Encoder,
    xid: u32,
    verifier: &OpaqueAuth,
    error: Option<AcceptError>,
) {
    for word in [xid, REPLY, MSG_ACCEPTED] {
        e.u32(word);
    }
    verifier.encode(e);
    match error {
        None => e.u32(0),
        Some(error) => encode_accept_error(e, error),
    }
}

/// Verifier of a reply that offers TLS (RFC 9289 §4.1).
const STARTTLS: &[u8] = b"STARTTLS";

/// Writes the complete reply to a request for TLS that is granted: the peer
/// begins the handshake when it has read it.
pub fn encode_starttls(e: &mut Encoder, xid: u32) {
    for word in [xid, REPLY, MSG_ACCEPTED, AUTH_NONE] {
        e.u32(word);
    }
    e.opaque(STARTTLS);
    e.u32(0);
}

/// Builds the reply that rejects a call.
#[must_use]
pub fn rejection(xid: u32, why: Rejection) -> Message {
    let mut e = Encoder::new();
    encode_rejection(&mut e, xid, why);
    e.finish()
}

/// Writes a complete rejection.
pub fn encode_rejection(e: &mut Encoder, xid: u32, why: Rejection) {
    e.u32(xid);
    e.u32(REPLY);
    match why {
        Rejection::RpcMismatch => {
            for word in [MSG_DENIED, 0, RPC_VERSION, RPC_VERSION] {
                e.u32(word);
            }
        }
        Rejection::Auth(stat) => {
            for word in [MSG_DENIED, 1, stat as u32] {
                e.u32(word);
            }
        }
        Rejection::Accept(error) => {
            for word in [MSG_ACCEPTED, 0, 0] {
                e.u32(word);
            }
            encode_accept_error(e, error);
        }
    }
}

/// Writes accept_stat and what belongs to it.
fn encode_accept_error(e: &mut Encoder, error: AcceptError) {
    match error {
        AcceptError::ProgramUnavailable => e.u32(1),
        AcceptError::ProgramMismatch(low, high) => {
            for word in [2, low, high] {
                e.u32(word);
            }
        }
        AcceptError::ProcedureUnavailable => e.u32(3),
        AcceptError::GarbageArguments => e.u32(4),
        AcceptError::SystemError => e.u32(5),
    }
}

/// Reason for which a reply carries no results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyError {
    /// The bytes are no reply.
    NotAReply,
    /// The server refused the credential (auth_stat number).
    AuthRefused(u32),
    /// The server speaks another RPC version.
    RpcMismatch,
    /// accept_stat other than success.
    NotRun(u32),
}

/// Reads the header of a reply; on success the decoder is positioned at the
/// results.
///
/// # Errors
/// [`ReplyError`] with the transaction id where there is one.
pub fn decode_reply(d: &mut Decoder<'_>) -> Result<u32, (Option<u32>, ReplyError)> {
    decode_verified_reply(d).map(|(xid, _)| xid)
}

/// Reads the header of a reply likewise, and returns the server's verifier, too.
///
/// # Errors
/// As [`decode_reply`].
pub fn decode_verified_reply(
    d: &mut Decoder<'_>,
) -> Result<(u32, OpaqueAuth), (Option<u32>, ReplyError)> {
    let lost = |_: XdrError| (None, ReplyError::NotAReply);
    let xid = d.u32().map_err(lost)?;
    let short = |_: XdrError| (Some(xid), ReplyError::NotAReply);
    if d.u32().map_err(lost)? != REPLY {
        return Err((None, ReplyError::NotAReply));
    }
    if d.u32().map_err(short)? == MSG_DENIED {
        return match d.u32().map_err(short)? {
            0 => Err((Some(xid), ReplyError::RpcMismatch)),
            _ => Err((Some(xid), ReplyError::AuthRefused(d.u32().map_err(short)?))),
        };
    }
    let verifier = OpaqueAuth::decode(d).map_err(short)?;
    match d.u32().map_err(short)? {
        0 => Ok((xid, verifier)),
        stat => Err((Some(xid), ReplyError::NotRun(stat))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(build: impl FnOnce(&mut Encoder)) -> Vec<u8> {
        let mut e = Encoder::new();
        build(&mut e);
        e.finish().flatten().unwrap().to_vec()
    }

    #[test]
    fn a_call_survives_the_trip() {
        let call = CallHeader {
            xid: 9,
            program: 100_003,
            version: 4,
            procedure: 1,
            credential: OpaqueAuth::none(),
            verifier: OpaqueAuth::none(),
        };
        let raw = bytes(|e| call.encode(e));
        assert_eq!(CallHeader::decode(&mut Decoder::new(&raw)), Ok(call));
        assert_eq!(CallHeader::decode(&mut Decoder::new(&raw[..7])), Err(CallError::NotACall));
        assert!(matches!(
            CallHeader::decode(&mut Decoder::new(&raw[..20])),
            Err(CallError::Reject { xid: 9, .. })
        ));
    }

    #[test]
    fn a_request_for_tls_is_a_bare_null_call() {
        let call = |procedure, body: &[u8], verifier| CallHeader {
            xid: 9,
            program: 100_003,
            version: 4,
            procedure,
            credential: OpaqueAuth { flavor: AUTH_TLS, body: body.to_vec() },
            verifier,
        };
        assert!(call(0, b"", OpaqueAuth::none()).asks_for_tls());
        assert!(!call(1, b"", OpaqueAuth::none()).asks_for_tls());
        assert!(!call(0, b"more", OpaqueAuth::none()).asks_for_tls());
        let verifier = OpaqueAuth { flavor: AUTH_TLS, body: Vec::new() };
        assert!(!call(0, b"", verifier).asks_for_tls());
        let sys = CallHeader { credential: OpaqueAuth::none(), ..call(0, b"", OpaqueAuth::none()) };
        assert!(!sys.asks_for_tls());
        let raw = bytes(|e| encode_starttls(e, 9));
        // MSG_ACCEPTED, AUTH_NONE with eight bytes, SUCCESS.
        let (head, rest) = raw.split_at(20);
        let words: Vec<_> = head.chunks(4).map(|word| word[3]).collect();
        assert_eq!((&words[..], rest), (&[9, 1, 0, 0, 8][..], &b"STARTTLS\0\0\0\0"[..]));
    }

    #[test]
    fn replies_say_what_they_mean() {
        let ok = bytes(|e| encode_success(e, 3));
        assert_eq!(decode_reply(&mut Decoder::new(&ok)), Ok(3));
        let table = [
            (Rejection::RpcMismatch, ReplyError::RpcMismatch),
            (Rejection::Auth(AuthError::TooWeak), ReplyError::AuthRefused(5)),
            (Rejection::Accept(AcceptError::ProgramUnavailable), ReplyError::NotRun(1)),
            (Rejection::Accept(AcceptError::ProgramMismatch(3, 4)), ReplyError::NotRun(2)),
            (Rejection::Accept(AcceptError::ProcedureUnavailable), ReplyError::NotRun(3)),
            (Rejection::Accept(AcceptError::GarbageArguments), ReplyError::NotRun(4)),
            (Rejection::Accept(AcceptError::SystemError), ReplyError::NotRun(5)),
        ];
        for (sent, seen) in table {
            let raw = bytes(|e| encode_rejection(e, 3, sent));
            assert_eq!(decode_reply(&mut Decoder::new(&raw)), Err((Some(3), seen)));
        }
    }
}
