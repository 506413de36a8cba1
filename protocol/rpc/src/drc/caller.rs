//! The caller of a call, as far as a copy of the call has the same.

use crate::auth::{AUTH_NONE, AUTH_SYS, Credential, RPCSEC_GSS};
use sha2::{Digest, Sha256};
use std::hash::{Hash, Hasher};

/// Hash for which nobody makes a credential whose digest is that of somebody else: a peer
/// chooses the groups of AUTH_SYS.
#[derive(Default)]
struct Cryptographic(Sha256);

impl Hasher for Cryptographic {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let digest: [u8; 32] = self.0.clone().finalize().into();
        let [a, b, c, d, e, f, g, h, ..] = digest;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
}

/// Digest of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallerDigest(u64);

impl CallerDigest {
    /// Computes the digest of a caller: its identity, without what may change with a
    /// reconnect (stamp and machine name, the context of RPCSEC_GSS). `connection`: what
    /// the connection has shown.
    #[must_use]
    pub fn new(credential: &Credential, connection: &impl Hash) -> Self {
        let mut hasher = Cryptographic::default();
        connection.hash(&mut hasher);
        match credential {
            Credential::None => AUTH_NONE.hash(&mut hasher),
            Credential::Sys(sys) => {
                (AUTH_SYS, sys.uid, sys.gid, &sys.groups).hash(&mut hasher);
            }
            Credential::Gss(caller) => {
                let principal = &caller.identity.principal;
                (RPCSEC_GSS, caller.service, principal).hash(&mut hasher);
            }
        }
        Self(hasher.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{AuthSys, GssCaller, GssIdentity, GssUser};
    use crate::gss::Service;
    use std::collections::HashSet;
    use std::sync::Arc;

    fn gss(principal: &str, service: Service, user: GssUser) -> Credential {
        let (principal, acceptor) = (principal.into(), "nfs/server@R".into());
        let identity = Arc::new(GssIdentity { principal, acceptor, user });
        Credential::Gss(GssCaller { service, identity })
    }

    fn sys(uid: u32, gid: u32, groups: &[u32]) -> Credential {
        Credential::Sys(AuthSys { uid, gid, groups: groups.to_vec(), ..AuthSys::default() })
    }

    #[test]
    fn different_callers_have_different_digests() {
        let callers = [
            Credential::None,
            sys(0, 0, &[]),
            sys(1, 0, &[]),
            sys(0, 1, &[]),
            sys(0, 0, &[1]),
            gss("a@R", Service::None, GssUser::Nobody),
            gss("a@R", Service::Integrity, GssUser::Nobody),
            gss("b@R", Service::None, GssUser::Nobody),
        ];
        let digests: HashSet<_> = callers
            .iter()
            .flat_map(|caller| [0, 1].map(|connection| CallerDigest::new(caller, &connection)))
            .collect();
        assert_eq!(digests.len(), 2 * callers.len());
    }

    #[test]
    fn a_reconnect_changes_nothing() {
        let digest = |credential: &Credential| CallerDigest::new(credential, &());
        let other = AuthSys { stamp: 7, machine: b"renamed".to_vec(), ..AuthSys::default() };
        assert_eq!(digest(&Credential::Sys(other)), digest(&sys(0, 0, &[])));
        let renewed = gss("a@R", Service::Privacy, GssUser::NotYetKnown);
        assert_eq!(digest(&renewed), digest(&gss("a@R", Service::Privacy, GssUser::Nobody)));
    }
}
