//! Credentials: AUTH_NONE and AUTH_SYS (RFC 5531 §8, appendix A).

use crate::gss::Service;
use crate::limits::{MAX_AUTH_BYTES, MAX_AUTH_SYS_GROUPS, MAX_MACHINE_NAME_BYTES};
use crate::message::AuthError;
use std::sync::Arc;
use zgate_store::Caller;
use zgate_xdr::{Decode, Decoder, Encode, Encoder, XdrError};

/// Flavour numbers (RFC 5531 §8.2).
pub const AUTH_NONE: u32 = 0;
/// Unix-style identity.
pub const AUTH_SYS: u32 = 1;
/// RPCSEC_GSS (RFC 2203).
pub const RPCSEC_GSS: u32 = 6;
/// Request for TLS (RFC 9289 §4.1); carries no identity.
pub const AUTH_TLS: u32 = 7;

/// Pseudo flavour of Kerberos (RFC 2623 §2.2.3.1): stands for RPCSEC_GSS with
/// mechanism and service where only a number has room.
pub const PSEUDO_KRB5: u32 = 390_003;
/// Pseudo flavour of Kerberos with integrity.
pub const PSEUDO_KRB5I: u32 = 390_004;
/// Pseudo flavour of Kerberos with privacy.
pub const PSEUDO_KRB5P: u32 = 390_005;

/// A credential or verifier in wire form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpaqueAuth {
    /// Flavour number.
    pub flavor: u32,
    /// Body, at most [`MAX_AUTH_BYTES`].
    pub body: Vec<u8>,
}

impl OpaqueAuth {
    /// AUTH_NONE with an empty body.
    #[must_use]
    pub fn none() -> Self {
        Self { flavor: AUTH_NONE, body: Vec::new() }
    }
}

impl Encode for OpaqueAuth {
    fn encode(&self, e: &mut Encoder) {
        e.u32(self.flavor);
        e.opaque(&self.body);
    }
}

impl Decode for OpaqueAuth {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Self { flavor: d.u32()?, body: d.opaque(MAX_AUTH_BYTES)?.to_vec() })
    }
}

/// Body of an AUTH_SYS credential.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthSys {
    /// Arbitrary number chosen by the client.
    pub stamp: u32,
    /// Name of the client, as it claims; not trusted.
    pub machine: Vec<u8>,
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

impl Encode for AuthSys {
    fn encode(&self, e: &mut Encoder) {
        e.u32(self.stamp);
        e.opaque(&self.machine);
        e.u32(self.uid);
        e.u32(self.gid);
        e.array(&self.groups);
    }
}

impl Decode for AuthSys {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Self {
            stamp: d.u32()?,
            machine: d.opaque(MAX_MACHINE_NAME_BYTES)?.to_vec(),
            uid: d.u32()?,
            gid: d.u32()?,
            groups: d.array(MAX_AUTH_SYS_GROUPS)?,
        })
    }
}

/// Identity that a call claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// No identity.
    None,
    /// Unix ids.
    Sys(AuthSys),
    /// A caller whose identity the security context proves.
    Gss(GssCaller),
}

/// Caller of an RPCSEC_GSS call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GssCaller {
    /// Protection of the call's arguments and results.
    pub service: Service,
    /// The caller.
    pub identity: Arc<GssIdentity>,
}

/// Identity of a security context's client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GssIdentity {
    /// Its principal, with the realm.
    pub principal: Arc<str>,
    /// The principal of this server that it has called, with the realm.
    pub acceptor: Arc<str>,
    /// The user and groups that it is here.
    pub user: GssUser,
}

/// User of a principal on this server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GssUser {
    /// The name service has not told yet: it failed.
    NotYetKnown,
    /// No user: a machine, for example.
    Nobody,
    /// This user, with its groups.
    User(Caller),
}

impl From<Option<Caller>> for GssUser {
    fn from(user: Option<Caller>) -> Self {
        user.map_or(Self::Nobody, Self::User)
    }
}

impl Credential {
    /// Parses a call's credential; one of RPCSEC_GSS is for [`crate::gss`].
    ///
    /// # Errors
    /// [`AuthError::BadCredential`] for a malformed body,
    /// [`AuthError::RejectedCredential`] for a flavour that is not offered
    /// (RFC 5531 §9: AUTH_TOOWEAK and AUTH_REJECTEDCRED are what clients retry
    /// with another flavour on).
    pub fn parse(auth: &OpaqueAuth) -> Result<Self, AuthError> {
        match auth.flavor {
            AUTH_NONE => Ok(Self::None),
            AUTH_SYS => {
                let mut d = Decoder::new(&auth.body);
                let sys = AuthSys::decode(&mut d).map_err(|_| AuthError::BadCredential)?;
                d.finish().map_err(|_| AuthError::BadCredential)?;
                Ok(Self::Sys(sys))
            }
            _ => Err(AuthError::RejectedCredential),
        }
    }

    /// Encodes the credential as a client sends it. That of RPCSEC_GSS differs
    /// with each call: see [`crate::gss::GssCredential`].
    #[must_use]
    pub fn to_opaque(&self) -> OpaqueAuth {
        match self {
            Self::None | Self::Gss(_) => OpaqueAuth::none(),
            Self::Sys(sys) => {
                let mut e = Encoder::new();
                sys.encode(&mut e);
                let body = e.into_vec().unwrap_or_default();
                OpaqueAuth { flavor: AUTH_SYS, body }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auth_sys_survives_the_trip_and_refuses_rubbish() {
        let sys = AuthSys {
            stamp: 1,
            machine: b"host".to_vec(),
            uid: 10,
            gid: 20,
            groups: (0..16).collect(),
        };
        let mut auth = Credential::Sys(sys.clone()).to_opaque();
        assert_eq!(Credential::parse(&auth), Ok(Credential::Sys(sys)));
        auth.body.pop();
        assert_eq!(Credential::parse(&auth), Err(AuthError::BadCredential));
        auth.flavor = RPCSEC_GSS;
        assert_eq!(Credential::parse(&auth), Err(AuthError::RejectedCredential));
    }
}
