//! The way of a connection into TLS: the rules are those of `zgate-tls`, on a
//! socket, with tokio's clock and with the kernel's records.

use super::service::Protected;
use super::users;
use crate::net::connection_end::{ConnectionEnd, Slow};
use crate::net::tls::Socket;
use crate::net::tls::kernel::{self, SendSecret};
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::Instant;
use zgate_nfs::runtime::{PeerCertificate, Protection};
use zgate_tls::{ClientCertificate, Handshake, HandshakeSlot, TlsOffer, TlsSession};

/// Returns the protection that a session gives, and what the peer has shown for
/// it. The user that a certificate names is waited for within the time of the
/// handshake, which holds `slot` for that time.
pub(crate) async fn protected(session: &TlsSession, slot: HandshakeSlot) -> Protected {
    let Some(certificate) = &session.certificate else {
        return Protected {
            protection: Protection::Tls,
            certificate: None,
            kernel_encrypts: session.by_kernel,
        };
    };
    let ClientCertificate { digest, authorities, names, user: name } = certificate.clone();
    let user = if name.is_none() { OnceLock::from(None) } else { OnceLock::new() };
    let certificate = Arc::new(PeerCertificate { digest, authorities, names, user });
    if let Some(name) = name {
        let host = slot.host();
        users::look_up(&certificate, name, users::find, host, slot).await;
    }
    Protected {
        protection: Protection::MutualTls,
        certificate: Some(certificate),
        kernel_encrypts: session.by_kernel,
    }
}

/// Progress of a connection towards TLS.
#[derive(Default)]
pub(crate) struct StartTls {
    progress: zgate_tls::StartTls,
    granted: Option<Granted>,
}

/// A request that was granted.
struct Granted {
    at: Instant,
    /// Secret of what is sent, if the kernel is to encrypt it.
    secret: Option<Arc<SendSecret>>,
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
        let secret = certificates.kernel_records.then(Arc::<SendSecret>::default);
        let key_log = secret.clone().map(|secret| secret as _);
        let handshake = Handshake::new(certificates, slot, key_log, Duration::ZERO)
            .map_err(ConnectionEnd::framing)?;
        let progress = zgate_tls::StartTls::granted(handshake);
        Ok(Some(Self { progress, granted: Some(Granted { at: Instant::now(), secret }) }))
    }

    /// Returns whether nothing may be received in the clear.
    pub(crate) fn is_under_way(&self) -> bool {
        self.progress.is_under_way()
    }

    /// Returns whether the handshake waits only for the end of requests.
    pub(crate) fn is_asked(&self) -> bool {
        self.progress.is_asked()
    }

    /// Returns whether a running handshake waits for room in the socket; `None`
    /// if none runs.
    pub(crate) fn has_unsent(&self) -> Option<bool> {
        self.progress.has_unsent()
    }

    /// Makes all progress that is possible without waiting; returns the session
    /// of a complete handshake. `is_quiet`: no request runs, and the peer has
    /// all replies. From the end of the handshake on the kernel encrypts what is
    /// sent, if it can.
    ///
    /// # Errors
    /// The reason for which the connection must end.
    pub(crate) fn advance(
        &mut self,
        socket: &TcpStream,
        is_quiet: bool,
    ) -> Result<Option<(TlsSession, HandshakeSlot)>, ConnectionEnd> {
        let advanced = self.progress.advance(&Socket(socket), is_quiet)?;
        let Some(handshake) = advanced else { return Ok(None) };
        let by_kernel = self.hand_over(&handshake, socket);
        Ok(Some(handshake.finish(by_kernel)))
    }

    fn hand_over(&mut self, handshake: &Handshake, socket: &TcpStream) -> bool {
        let secret = self.granted.take().and_then(|granted| granted.secret);
        let (Some(secret), Some(suite)) = (secret, handshake.suite_to_hand_over()) else {
            return false;
        };
        match kernel::begin(socket, suite, &secret) {
            Ok(()) => true,
            Err(error) => {
                tracing::debug!(%error, "TLS: the kernel makes no records");
                false
            }
        }
    }

    /// Returns the time that is left for the handshake.
    pub(crate) fn left(&self) -> Option<Duration> {
        let granted = self.granted.as_ref()?;
        self.progress.left(granted.at.elapsed())
    }

    /// Checks the time limit.
    pub(crate) fn check(&self) -> Result<(), Slow> {
        if self.left().is_some_and(|left| left.is_zero()) { Err(Slow::Handshake) } else { Ok(()) }
    }
}
