//! Assurance of a connection: what the other end has shown for who it is, besides the
//! credentials of its calls.

use crate::runtime::{Peer, Protection};

/// Kind of the names of a certificate that are users.
const USER_NAME: &str = "user:";

/// Protection of a connection, and the users that its certificate names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Assurance {
    protection: Protection,
    /// As the certificate has them: the name service may not have told yet which
    /// users of this machine they are.
    users: Vec<Box<str>>,
}

impl Assurance {
    /// The assurance that a peer gives.
    #[must_use]
    pub fn of(peer: &Peer) -> Self {
        let names = peer.certificate.iter().flat_map(|certificate| &certificate.names);
        let users = names.filter(|name| name.starts_with(USER_NAME)).cloned().collect();
        Self { protection: peer.protection, users }
    }

    /// An assurance from before a restart. The users are as [`Self::users`] has them.
    #[must_use]
    pub fn kept(protection: Protection, users: Vec<Box<str>>) -> Self {
        Self { protection, users }
    }

    /// The protection of the connection.
    #[must_use]
    pub fn protection(&self) -> Protection {
        self.protection
    }

    /// The names of users in the certificate.
    #[must_use]
    pub fn users(&self) -> &[Box<str>] {
        &self.users
    }

    /// Returns whether it does not suffice to be taken for the one who gave `earlier`:
    /// the protection is weaker, or the certificate does not name the same users.
    #[must_use]
    pub fn falls_short_of(&self, earlier: &Self) -> bool {
        let is_another_user = !earlier.users.is_empty() && self.users != earlier.users;
        is_another_user || self.protection < earlier.protection
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::PeerCertificate;
    use crate::v3::proc::rig::a_call;
    use std::sync::Arc;

    fn with(protection: Protection, names: &[&str]) -> Assurance {
        let names = names.iter().map(|&name| name.into()).collect();
        let certificate = PeerCertificate { names, ..PeerCertificate::default() };
        let certificate = Some(Arc::new(certificate));
        Assurance::of(&Peer { protection, certificate, ..a_call().peer })
    }

    #[test]
    fn less_protection_and_another_user_fall_short() {
        let plain = Assurance::of(&a_call().peer);
        let tls = with(Protection::Tls, &[]);
        let host = with(Protection::MutualTls, &["dns:a.example"]);
        let alice = with(Protection::MutualTls, &["dns:a.example", "user:alice@example"]);
        let bob = with(Protection::MutualTls, &["dns:a.example", "user:bob@example"]);
        let renewed = with(Protection::MutualTls, &["user:alice@example"]);
        for (less, more) in [(&plain, &tls), (&tls, &host), (&plain, &host), (&host, &alice)] {
            assert!(less.falls_short_of(more) && !more.falls_short_of(less), "{less:?} {more:?}");
        }
        assert!(alice.falls_short_of(&bob) && bob.falls_short_of(&alice));
        assert!(!renewed.falls_short_of(&alice) && !alice.falls_short_of(&renewed));
    }
}
