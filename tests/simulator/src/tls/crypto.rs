//! The cryptography of runs: that of `ring`, but for what is random. The seed
//! decides that, so that a run has the same bytes each time; it protects against
//! nobody.

use crate::dice::Dice;
use crate::gateway::WALL_SECONDS;
use rustls::crypto::{
    ActiveKeyExchange, CryptoProvider, GetRandomFailed, SecureRandom, SharedSecret,
    SupportedKxGroup,
};
use rustls::ffdhe_groups::FfdheGroup;
use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;
use rustls::{Error, NamedGroup};
use sha2::{Digest, Sha256};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of a share of the key exchange.
const SHARE_BYTES: usize = 32;
/// A group for private use (RFC 8446 §4.2.7).
const GROUP: NamedGroup = NamedGroup::Unknown(0xfe00);

thread_local! {
    /// Random bytes of the run on this thread.
    static RANDOM: RefCell<Dice> = RefCell::new(Dice::new(0, "cryptography"));
}

/// Random bytes of the run that begins on this thread come from its seed.
pub fn seed(seed: u64) {
    RANDOM.with_borrow_mut(|random| *random = Dice::new(seed, "cryptography"));
}

fn fill(bytes: &mut [u8]) {
    RANDOM.with_borrow_mut(|random| {
        for part in bytes.chunks_mut(8) {
            part.copy_from_slice(&random.u64().to_be_bytes()[..part.len()]);
        }
    });
}

/// Random bytes of the seed.
#[derive(Debug)]
struct Seeded;

impl SecureRandom for Seeded {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), GetRandomFailed> {
        fill(bytes);
        Ok(())
    }
}

/// A key exchange without secrets: the key is the digest of both shares.
#[derive(Debug)]
struct Exchange;

impl SupportedKxGroup for Exchange {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let mut share = [0; SHARE_BYTES];
        fill(&mut share);
        Ok(Box::new(Begun(share)))
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn name(&self) -> NamedGroup {
        GROUP
    }
}

/// A key exchange that has begun, with the share of this side.
struct Begun([u8; SHARE_BYTES]);

impl ActiveKeyExchange for Begun {
    fn complete(self: Box<Self>, theirs: &[u8]) -> Result<SharedSecret, Error> {
        if theirs.len() != SHARE_BYTES {
            return Err(Error::General("a share of another length".to_owned()));
        }
        let (first, second) = (self.0.as_slice().min(theirs), self.0.as_slice().max(theirs));
        let secret = Sha256::new().chain_update(first).chain_update(second).finalize();
        Ok(SharedSecret::from(secret.as_slice()))
    }

    fn pub_key(&self) -> &[u8] {
        &self.0
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn group(&self) -> NamedGroup {
        GROUP
    }
}

/// The wall clock by which certificates are valid: it stands still.
#[derive(Debug)]
struct Still;

impl TimeProvider for Still {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(WALL_SECONDS.unsigned_abs())))
    }
}

/// The cryptography of runs.
pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        kx_groups: vec![&Exchange],
        secure_random: &Seeded,
        ..rustls::crypto::ring::default_provider()
    })
}

/// The wall clock of certificates.
pub(super) fn clock() -> Arc<dyn TimeProvider> {
    Arc::new(Still)
}

#[cfg(test)]
mod tests {
    use super::super::{Mask, TlsSetup};
    use super::*;
    use rustls::{ClientConnection, ConnectionCommon, ServerConnection};
    use std::io::Write;
    use zgate_nfs::runtime::Protection;

    fn pass<A, B>(
        from: &mut ConnectionCommon<A>,
        to: &mut ConnectionCommon<B>,
        seen: &mut Vec<u8>,
    ) -> bool {
        let mut bytes = Vec::new();
        while from.wants_write() {
            from.write_tls(&mut bytes).unwrap();
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            to.read_tls(&mut rest).unwrap();
            to.process_new_packets().unwrap();
        }
        seen.extend_from_slice(&bytes);
        !bytes.is_empty()
    }

    /// All bytes of a handshake and of a record behind it.
    fn conversation(seed_of_run: u64) -> Vec<u8> {
        seed(seed_of_run);
        let setup = TlsSetup::new(Protection::MutualTls, vec![true]);
        let mut server = ServerConnection::new(setup.certificates().config).unwrap();
        let name = "server".try_into().unwrap();
        let mut client = ClientConnection::new(setup.of_client(0), name).unwrap();
        let mut seen = Vec::new();
        while pass(&mut client, &mut server, &mut seen) | pass(&mut server, &mut client, &mut seen)
        {
        }
        assert!(server.peer_certificates().is_some());
        client.writer().write_all(b"a call").unwrap();
        assert!(pass(&mut client, &mut server, &mut seen));
        seen
    }

    #[test]
    fn a_seed_has_the_same_bytes_each_time() {
        let first = conversation(1);
        assert_eq!(conversation(1), first);
        assert_ne!(conversation(2), first);
    }

    #[test]
    fn who_comes_without_a_good_certificate_is_refused() {
        seed(1);
        let setup = TlsSetup::new(Protection::MutualTls, vec![true]);
        for mask in [Mask::Foreign, Mask::Revoked] {
            let mut server = ServerConnection::new(setup.certificates().config).unwrap();
            let name = "server".try_into().unwrap();
            let mut client = ClientConnection::new(setup.of_stranger(mask), name).unwrap();
            let mut seen = Vec::new();
            pass(&mut client, &mut server, &mut seen);
            pass(&mut server, &mut client, &mut seen);
            let mut bytes = Vec::new();
            while client.wants_write() {
                client.write_tls(&mut bytes).unwrap();
            }
            server.read_tls(&mut &bytes[..]).unwrap();
            assert!(server.process_new_packets().is_err(), "{mask:?}");
        }
    }
}
