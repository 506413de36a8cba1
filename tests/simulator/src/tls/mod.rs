//! TLS of a run: who has which certificate, and what the server takes. The
//! handshakes and records are those of rustls and of `zgate-tls`.

mod crypto;
mod identities;

use crate::executor::lock;
pub use crypto::seed;
use identities::{Identities, Shown};
use rustls::ClientConfig;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, OnceLock};
use zgate_nfs::runtime::Protection;
use zgate_nfs_wire::v4::Fh;
use zgate_tls::Certificates;

/// Number of the intruder in the network.
pub const STRANGER: usize = 90;

/// Certificate that the intruder shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mask {
    /// No certificate.
    None,
    /// One of an authority that the server does not know.
    Foreign,
    /// One that has been revoked.
    Revoked,
}

/// TLS of a run.
pub struct TlsSetup {
    /// The least that the export admits.
    pub least: Protection,
    /// Clients that show a certificate.
    with_certificate: Vec<bool>,
    inside: Mutex<Inside>,
    /// A file that the intruder wants to read.
    wanted: OnceLock<Fh>,
}

#[derive(Default)]
struct Inside {
    /// Number of each client's certificate, once it has had another one.
    replaced: Vec<usize>,
    /// Number of the server's certificate.
    of_server: usize,
    /// Serial numbers.
    revoked: BTreeSet<u64>,
}

impl TlsSetup {
    /// The export admits nothing less than this; these clients show certificates.
    #[must_use]
    pub fn new(least: Protection, with_certificate: Vec<bool>) -> Arc<Self> {
        let replaced = vec![0; with_certificate.len()];
        let inside = Mutex::new(Inside { replaced, ..Inside::default() });
        Arc::new(Self { least, with_certificate, inside, wanted: OnceLock::new() })
    }

    /// Sets the file that the intruder wants to read.
    pub fn want(&self, file: Fh) {
        // A second call would be a programming error; the first one stays.
        let _ = self.wanted.set(file);
    }

    /// The file that the intruder wants to read.
    #[must_use]
    pub fn wanted(&self) -> Option<&Fh> {
        self.wanted.get()
    }

    /// Returns how a client begins a handshake now.
    #[must_use]
    pub fn of_client(&self, client: usize) -> Arc<ClientConfig> {
        let shows = self.with_certificate.get(client).copied().unwrap_or_default();
        let number = lock(&self.inside).replaced.get(client).copied().unwrap_or_default();
        let shown = if shows { Shown::Client(client, number) } else { Shown::Nothing };
        Identities::get().client(shown)
    }

    /// Returns how the intruder begins a handshake.
    #[must_use]
    pub fn of_stranger(&self, mask: Mask) -> Arc<ClientConfig> {
        let shown = match mask {
            Mask::None => Shown::Nothing,
            Mask::Foreign => Shown::Foreign,
            Mask::Revoked => Shown::Revoked,
        };
        Identities::get().client(shown)
    }

    /// The server's certificate, its authority and its revocation list, as they are now.
    #[must_use]
    pub fn certificates(&self) -> Certificates {
        let inside = lock(&self.inside);
        Identities::get().server(inside.of_server, &inside.revoked)
    }

    /// The server's certificate is replaced.
    pub fn replace(&self) {
        lock(&self.inside).of_server += 1;
    }

    /// A client's certificate is revoked; it has another one.
    pub fn revoke(&self, client: usize) {
        let mut inside = lock(&self.inside);
        let Some(number) = inside.replaced.get_mut(client) else { return };
        let serial = identities::serial(client, *number);
        *number += 1;
        inside.revoked.insert(serial);
    }

    /// True if the certificate with this digest has been revoked.
    #[must_use]
    pub fn is_revoked(&self, digest: &[u8; 32]) -> bool {
        Identities::get().serial_of(digest).is_some_and(|serial| {
            serial == identities::REVOKED || lock(&self.inside).revoked.contains(&serial)
        })
    }
}
