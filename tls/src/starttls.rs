//! The way of a connection into TLS (RFC 9289 §4.1): the request of the client,
//! the end of what runs in the clear, and the handshake.

use crate::handshake::{Handshake, HandshakeFault};
use crate::stream::ByteStream;
use std::time::Duration;
use zgate_rpc::CallHeader;
use zgate_rpc::auth::AUTH_TLS;
use zgate_rpc::message::encode_starttls;
use zgate_xdr::{Decoder, Encoder, Message};

/// Position of the credential's flavor in a call (RFC 5531 §9).
const FLAVOR_AT: usize = 24;

/// Returns the transaction id of a record that is a request for TLS; `head` is its
/// beginning, `serves` tells the programs and versions that are served. A call
/// with the flavor AUTH_TLS that is none gets its error like any other call.
pub fn request(head: &[u8], serves: impl FnOnce(u32, u32) -> bool) -> Option<u32> {
    let flavor = head.get(FLAVOR_AT..)?.first_chunk()?;
    if u32::from_be_bytes(*flavor) != AUTH_TLS {
        return None;
    }
    let header = CallHeader::decode(&mut Decoder::new(head)).ok()?;
    let is_request = header.asks_for_tls() && serves(header.program, header.version);
    is_request.then_some(header.xid)
}

/// Returns the reply to a request that is granted.
#[must_use]
pub fn reply(xid: u32) -> Message {
    let mut e = Encoder::new();
    encode_starttls(&mut e, xid);
    e.finish()
}

/// Progress of a connection towards TLS.
#[derive(Default)]
pub enum StartTls {
    /// The client has not asked for it, or it has begun.
    #[default]
    Idle,
    /// The client has asked; the reply or an earlier request is under way.
    Asked(Box<Handshake>),
    /// The handshake runs.
    Running(Box<Handshake>),
}

impl StartTls {
    /// The client has asked, and the request is granted.
    #[must_use]
    pub fn granted(handshake: Handshake) -> Self {
        Self::Asked(Box::new(handshake))
    }

    /// Returns whether nothing may be received in the clear.
    #[must_use]
    pub fn is_under_way(&self) -> bool {
        !matches!(self, Self::Idle)
    }

    /// Returns whether the handshake waits only for the end of requests.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        matches!(self, Self::Asked(_))
    }

    /// Returns whether a running handshake waits for room in the stream; `None`
    /// if none runs.
    #[must_use]
    pub fn has_unsent(&self) -> Option<bool> {
        match self {
            Self::Running(handshake) => Some(handshake.has_unsent()),
            Self::Idle | Self::Asked(_) => None,
        }
    }

    /// Makes all progress that is possible without waiting; returns the handshake
    /// once it is complete. `is_quiet`: no request runs, and the peer has all
    /// replies.
    ///
    /// # Errors
    /// The reason for which the connection must end.
    pub fn advance(
        &mut self,
        stream: &impl ByteStream,
        is_quiet: bool,
    ) -> Result<Option<Box<Handshake>>, HandshakeFault> {
        let mut handshake = match std::mem::take(self) {
            Self::Asked(handshake) if is_quiet => handshake,
            Self::Running(handshake) => handshake,
            other => {
                *self = other;
                return Ok(None);
            }
        };
        if handshake.advance(stream)? {
            return Ok(Some(handshake));
        }
        *self = Self::Running(handshake);
        Ok(None)
    }

    /// Returns the time that is left for the handshake at a moment of the clock
    /// that [`Handshake::new`] was given.
    #[must_use]
    pub fn left(&self, now: Duration) -> Option<Duration> {
        match self {
            Self::Idle => None,
            Self::Asked(handshake) | Self::Running(handshake) => Some(handshake.left(now)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zgate_rpc::auth::OpaqueAuth;
    use zgate_xdr::Encode;

    fn probe(flavor: u32) -> Vec<u8> {
        let credential = OpaqueAuth { flavor, body: Default::default() };
        let verifier = OpaqueAuth::none();
        let (program, version) = (100_003, 4);
        let mut e = Encoder::new();
        CallHeader { xid: 7, program, version, procedure: 0, credential, verifier }.encode(&mut e);
        e.finish().flatten().unwrap().to_vec()
    }

    #[test]
    fn a_request_is_one_of_a_served_program() {
        let nfs = |program, version| (program, version) == (100_003, 4);
        assert_eq!(request(&probe(AUTH_TLS), nfs), Some(7));
        assert_eq!(request(&probe(AUTH_TLS), |_, _| false), None);
        assert_eq!(request(&probe(0), nfs), None);
        let whole = probe(AUTH_TLS);
        assert!((0..whole.len()).all(|end| request(&whole[..end], nfs).is_none()));
    }
}
