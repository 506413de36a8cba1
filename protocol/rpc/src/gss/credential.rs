//! The credential of a call (RFC 2203 §5.1), and the bytes that its verifier
//! covers.

use super::contexts::Handle;
use super::limits::MAX_HANDLE_BYTES;
use super::service::Service;
use crate::auth::{OpaqueAuth, RPCSEC_GSS};
use crate::message::{AuthError, CallHeader};
use zgate_xdr::{Decode, Decoder, Encode, Encoder, XdrError};

/// The only version of the credential.
const VERSION: u32 = 1;

/// Procedure of RPCSEC_GSS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Procedure {
    /// A call of the program.
    Data = 0,
    /// Begins a context.
    Init = 1,
    /// Carries a further token of a context.
    ContinueInit = 2,
    /// Ends a context.
    Destroy = 3,
}

impl Decode for Procedure {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        match d.u32()? {
            0 => Ok(Self::Data),
            1 => Ok(Self::Init),
            2 => Ok(Self::ContinueInit),
            3 => Ok(Self::Destroy),
            _ => Err(XdrError::BadValue),
        }
    }
}

impl Procedure {
    /// Returns whether it carries a token of a context that is being established.
    fn carries_token(self) -> bool {
        matches!(self, Self::Init | Self::ContinueInit)
    }
}

/// The credential of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GssCredential {
    /// Its procedure.
    pub procedure: Procedure,
    /// Its number in the context; means nothing while that is established.
    pub sequence: u32,
    /// Protection of its arguments and results; means nothing while the context
    /// is established.
    pub service: Service,
    /// The context; `None` for a handle that no server of ours has issued.
    pub handle: Option<Handle>,
    /// Set if the client has sent no handle at all.
    pub has_no_handle: bool,
}

impl GssCredential {
    /// Parses a credential of the flavor RPCSEC_GSS.
    ///
    /// # Errors
    /// [`AuthError::BadCredential`] for an unknown version, procedure or
    /// service, and for a malformed body (RFC 2203 §5.3.3.3).
    pub fn parse(auth: &OpaqueAuth) -> Result<Self, AuthError> {
        let mut d = Decoder::new(&auth.body);
        let parsed = Self::decode(&mut d).and_then(|parsed| d.finish().map(|()| parsed));
        parsed.map_err(|_| AuthError::BadCredential)
    }

    /// Returns whether the call carries a token of a context that is being
    /// established.
    #[must_use]
    pub fn carries_token(&self) -> bool {
        self.procedure.carries_token()
    }

    /// Encodes the credential as a client sends it.
    #[must_use]
    pub fn to_opaque(&self) -> OpaqueAuth {
        let mut e = Encoder::new();
        self.encode(&mut e);
        OpaqueAuth {
            flavor: RPCSEC_GSS,
            body: e.finish_bytes().map(|b| b.to_vec()).unwrap_or_default(),
        }
    }
}

impl Decode for GssCredential {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        if d.u32()? != VERSION {
            return Err(XdrError::BadValue);
        }
        let (procedure, sequence) = (Procedure::decode(d)?, d.u32()?);
        let service = match Service::decode(d) {
            // RFC 2203 §5.2.2: undefined in a request that creates a context, and
            // ignored by the server.
            Err(XdrError::BadValue) if procedure.carries_token() => Service::None,
            service => service?,
        };
        let handle = d.opaque(MAX_HANDLE_BYTES)?;
        let has_no_handle = handle.is_empty();
        let handle = handle.try_into().ok().map(Handle::from_bytes);
        Ok(Self { procedure, sequence, service, handle, has_no_handle })
    }
}

impl Encode for GssCredential {
    fn encode(&self, e: &mut Encoder) {
        for word in [VERSION, self.procedure as u32, self.sequence, self.service as u32] {
            e.u32(word);
        }
        match self.handle {
            Some(handle) => e.opaque(&handle.to_bytes()),
            None => e.opaque(&[]),
        }
    }
}

/// Builds the credential of a call to a server whose handles have any length.
pub(super) fn write_credential(
    procedure: Procedure,
    (service, sequence): (Service, u32),
    handle: &[u8],
) -> OpaqueAuth {
    let mut e = Encoder::new();
    for word in [VERSION, procedure as u32, sequence, service as u32] {
        e.u32(word);
    }
    e.opaque(handle);
    let body = e.finish_bytes().map(|body| body.to_vec()).unwrap_or_default();
    OpaqueAuth { flavor: RPCSEC_GSS, body }
}

/// Returns the bytes that the verifier of a call covers: from the transaction
/// id to the end of the credential (RFC 2203 §5.3.1).
#[must_use]
pub fn signed_header<'a>(record: &'a [u8], header: &CallHeader) -> Option<&'a [u8]> {
    // Six words, the flavor, the length of the body, the body with its padding.
    record.get(..8 * 4 + header.credential.body.len().next_multiple_of(4))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u32], handle: &[u8]) -> OpaqueAuth {
        let mut e = Encoder::new();
        words.iter().for_each(|word| e.u32(*word));
        e.opaque(handle);
        OpaqueAuth { flavor: RPCSEC_GSS, body: e.finish_bytes().unwrap().to_vec() }
    }

    #[test]
    fn credentials_survive_the_trip() {
        let handle = Some(Handle::from_bytes([1, 2, 3, 4, 5, 6, 7, 8]));
        for procedure in
            [Procedure::Data, Procedure::Init, Procedure::ContinueInit, Procedure::Destroy]
        {
            for service in Service::ALL {
                let sent = GssCredential {
                    procedure,
                    sequence: 77,
                    service,
                    handle,
                    has_no_handle: false,
                };
                assert_eq!(GssCredential::parse(&sent.to_opaque()), Ok(sent));
            }
        }
    }

    #[test]
    fn unknown_versions_procedures_and_services_are_bad_credentials() {
        let parse = |auth| GssCredential::parse(&auth);
        assert!(parse(words(&[1, 0, 7, 3], b"12345678")).is_ok());
        for bad in [[0, 0, 7, 1], [2, 0, 7, 1], [1, 4, 7, 1], [1, 0, 7, 0], [1, 0, 7, 4]] {
            let parsed = parse(words(&bad, b"12345678"));
            assert_eq!(parsed, Err(AuthError::BadCredential), "{bad:?}");
        }
        let long = words(&[1, 0, 7, 1], &[0; MAX_HANDLE_BYTES + 4]);
        assert_eq!(parse(long), Err(AuthError::BadCredential));
        let foreign = parse(words(&[1, 0, 7, 1], b"123")).unwrap();
        assert_eq!((foreign.handle, foreign.has_no_handle), (None, false));
        let none = parse(words(&[1, 1, 7, 1], b"")).unwrap();
        assert_eq!((none.handle, none.has_no_handle), (None, true));
    }

    #[test]
    fn a_request_that_creates_a_context_has_no_service() {
        let parse = |auth| GssCredential::parse(&auth);
        for (procedure, handle) in [(1, &b""[..]), (2, &b"12345678"[..])] {
            for service in [0, 4, u32::MAX] {
                let parsed = parse(words(&[1, procedure, 7, service], handle)).unwrap();
                assert!(parsed.carries_token(), "{service}");
                assert_eq!(parsed.has_no_handle, handle.is_empty());
            }
        }
        // That of the context's last call counts, as that of any other.
        let last = parse(words(&[1, 3, 7, 0], b"12345678"));
        assert_eq!(last, Err(AuthError::BadCredential));
        // What is cut short is no credential all the same.
        let mut cut = words(&[1, 1, 7], b"");
        cut.body.truncate(3 * 4);
        assert_eq!(parse(cut), Err(AuthError::BadCredential));
    }

    #[test]
    fn the_verifier_covers_the_header_and_the_credential() {
        let header = CallHeader {
            xid: 1,
            program: 2,
            version: 3,
            procedure: 4,
            credential: OpaqueAuth { flavor: 6, body: vec![9; 5] },
            verifier: OpaqueAuth { flavor: 6, body: vec![8; 4] },
        };
        let mut e = Encoder::new();
        header.encode(&mut e);
        let raw = e.finish_bytes().unwrap();
        let signed = signed_header(&raw, &header).unwrap();
        assert_eq!(signed.len(), raw.len() - 12);
        assert_eq!(signed_header(&raw[..signed.len() - 1], &header), None);
    }
}
