//! The way of a connection into TLS (RFC 9289 §4.1): the request of the client,
//! the end of what runs in the clear, and the handshake.

use super::record::Received;
use super::service::Protected;
use super::users;
use crate::net::connection_end::{ConnectionEnd, Slow};
use crate::net::tls::authorities::ClientCertificate;
use crate::net::tls::handshake::Handshake;
use crate::net::tls::offer::{HandshakeSlot, TlsOffer};
use crate::net::tls::session::TlsSession;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use zgate_nfs::dispatch::serves;
use zgate_nfs::runtime::{PeerCertificate, Protection};
use zgate_rpc::CallHeader;
use zgate_rpc::auth::AUTH_TLS;
use zgate_rpc::message::encode_starttls;
use zgate_xdr::{Decoder, Encoder, Message};

/// Position of the credential's flavor in a call (RFC 5531 §9).
const FLAVOR_AT: usize = 24;

/// Progress of a connection towards TLS.
#[derive(Default)]
pub(crate) enum StartTls {
    /// The client has not asked for it, or it has begun.
    #[default]
    Idle,
    /// The client has asked; the reply or an earlier request is under way.
    Asked(Box<Handshake>),
    /// The handshake runs.
    Running(Box<Handshake>),
}

/// Returns the transaction id of a record that is a request for TLS. A call with
/// the flavor AUTH_TLS that is none gets its error like any other call.
pub(crate) fn request(received: &Received) -> Option<u32> {
    let flavor = received.head.get(FLAVOR_AT..)?.first_chunk()?;
    if u32::from_be_bytes(*flavor) != AUTH_TLS {
        return None;
    }
    let header = CallHeader::decode(&mut Decoder::new(&received.head)).ok()?;
    let is_request = header.asks_for_tls() && serves(header.program, header.version);
    is_request.then_some(header.xid)
}

/// Returns the reply to a request that is granted.
pub(crate) fn reply(xid: u32) -> Message {
    let mut e = Encoder::new();
    encode_starttls(&mut e, xid);
    e.finish()
}

/// Returns the protection that a session gives, and what the peer has shown for
/// it. The user that a certificate names is looked up within the time of the
/// handshake; `slot` bounds how many look-ups run.
pub(crate) async fn protected(session: &TlsSession, slot: HandshakeSlot) -> Protected {
    let Some(certificate) = &session.certificate else {
        return Protected {
            protection: Protection::Tls,
            certificate: None,
            kernel_encrypts: session.by_kernel,
        };
    };
    let user = match certificate.user.clone() {
        None => None,
        Some(name) => users::look_up(name, slot).await,
    };
    let ClientCertificate { digest, authorities, names, .. } = certificate.clone();
    let certificate = PeerCertificate { digest, authorities, names, user: user.map(Arc::new) };
    Protected {
        protection: Protection::MutualTls,
        certificate: Some(Arc::new(certificate)),
        kernel_encrypts: session.by_kernel,
    }
}

impl StartTls {
    /// Grants a request; `None`: TLS is not configured.
    ///
    /// # Errors
    /// [`ConnectionEnd::Overloaded`].
    pub(crate) fn grant(
        offer: &Arc<TlsOffer>,
        peer: IpAddr,
    ) -> Result<Option<Self>, ConnectionEnd> {
        let Some(certificates) = offer.certificates() else { return Ok(None) };
        let slot = offer.admit(peer).ok_or(ConnectionEnd::Overloaded)?;
        Ok(Some(Self::Asked(Box::new(Handshake::new(certificates, slot)?))))
    }

    /// Returns whether nothing may be received in the clear.
    pub(crate) fn is_under_way(&self) -> bool {
        !matches!(self, Self::Idle)
    }

    /// Returns whether the handshake waits only for the end of requests.
    pub(crate) fn is_asked(&self) -> bool {
        matches!(self, Self::Asked(_))
    }

    /// Returns whether a running handshake waits for room in the socket; `None`
    /// if none runs.
    pub(crate) fn has_unsent(&self) -> Option<bool> {
        match self {
            Self::Running(handshake) => Some(handshake.has_unsent()),
            Self::Idle | Self::Asked(_) => None,
        }
    }

    /// Makes all progress that is possible without waiting; returns the session
    /// of a complete handshake. `is_quiet`: no request runs, and the peer has
    /// all replies.
    ///
    /// # Errors
    /// The reason for which the connection must end.
    pub(crate) fn advance(
        &mut self,
        socket: &TcpStream,
        is_quiet: bool,
    ) -> Result<Option<(TlsSession, HandshakeSlot)>, ConnectionEnd> {
        let mut handshake = match std::mem::take(self) {
            Self::Asked(handshake) if is_quiet => handshake,
            Self::Running(handshake) => handshake,
            other => {
                *self = other;
                return Ok(None);
            }
        };
        if handshake.advance(socket)? {
            return Ok(Some(handshake.finish(socket)));
        }
        *self = Self::Running(handshake);
        Ok(None)
    }

    /// Returns the time that is left for the handshake.
    pub(crate) fn left(&self) -> Option<Duration> {
        match self {
            Self::Idle => None,
            Self::Asked(handshake) | Self::Running(handshake) => Some(handshake.left()),
        }
    }

    /// Checks the time limit.
    pub(crate) fn check(&self) -> Result<(), Slow> {
        match self {
            Self::Idle => Ok(()),
            Self::Asked(handshake) | Self::Running(handshake) => handshake.check(),
        }
    }
}
