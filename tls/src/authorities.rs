//! Authorities of client certificates: verification, and what a certificate says
//! that they have signed.

use crate::limits::{MAX_CERTIFICATE_NAMES, MAX_CLIENT_AUTHORITIES, MAX_REVOCATION_CHECKS};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{CertificateError, Error, RootCertStore};
use sha2::{Digest, Sha256};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use x509_cert::der::asn1::{ObjectIdentifier, Utf8StringRef};
use x509_cert::der::{Decode, Encode};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// SHA-256 of a certificate in DER form.
pub type CertificateDigest = [u8; 32];

/// Type of the subject alternative name that is a user, `user@domain` in UTF-8.
/// It is of FreeBSD's arc; no other has been assigned.
const USER_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.2238.1.1.1");

/// A fault of the authorities or of their revocation lists.
#[derive(Debug, Error)]
#[error("{problem}")]
pub(super) struct WrongAuthorities {
    problem: String,
    /// It is one of the lists.
    pub(super) is_list: bool,
}

/// The authorities of `tls.client_ca`.
#[derive(Clone, Debug)]
pub(super) struct Authorities {
    all: Arc<dyn ClientCertVerifier>,
    /// Verifier of each one alone, by the digest of its certificate.
    each: Arc<[(CertificateDigest, Arc<dyn ClientCertVerifier>)]>,
}

/// A client certificate that an authority has signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// Its digest.
    pub digest: CertificateDigest,
    /// Authorities below which it was signed.
    pub authorities: Vec<CertificateDigest>,
    /// Subject alternative names as `kind:value`.
    pub names: Vec<Box<str>>,
    /// The user that it names, without the domain: it is that of the gateway.
    pub user: Option<Box<str>>,
}

impl Authorities {
    /// Uses these authorities. With revocation lists, each certificate below an
    /// authority must be covered by one that has not expired.
    pub(super) fn new(
        authorities: Vec<CertificateDer<'static>>,
        lists: Vec<CertificateRevocationListDer<'static>>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, WrongAuthorities> {
        if authorities.len() > MAX_CLIENT_AUTHORITIES {
            let problem = format!("more than {MAX_CLIENT_AUTHORITIES} authorities");
            return Err(WrongAuthorities { problem, is_list: false });
        }
        let mut each = Vec::new();
        for authority in &authorities {
            let alone = verifier(std::slice::from_ref(authority), Vec::new(), provider)?;
            each.push((digest(authority), alone));
        }
        Ok(Self { all: verifier(&authorities, lists, provider)?, each: each.into() })
    }

    pub(super) fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::clone(&self.all)
    }

    pub(super) fn contains(&self, authority: &CertificateDigest) -> bool {
        self.each.iter().any(|(digest, _)| digest == authority)
    }

    /// Returns whether the chain of a client is revoked. Other faults are of the
    /// handshake: a connection outlives its certificate. What has expired is verified
    /// before its lists are asked, so they are asked about the time before.
    pub(super) fn revokes(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> bool {
        let Some((leaf, between)) = chain.split_first() else { return false };
        let mut time = now;
        for _ in 0..MAX_REVOCATION_CHECKS {
            let verified = self.all.verify_client_cert(leaf, between, time);
            let Err(Error::InvalidCertificate(fault)) = verified else { return false };
            if matches!(fault, CertificateError::Revoked) {
                return true;
            }
            match before_expiry(&fault) {
                Some(earlier) if earlier < time => time = earlier,
                _ => return false,
            }
        }
        false
    }

    /// Returns what the chain of a client says, which the handshake has verified.
    pub(super) fn describe(
        &self,
        chain: &[CertificateDer<'_>],
        user_domain: Option<&str>,
        now: UnixTime,
    ) -> Option<ClientCertificate> {
        let (leaf, between) = chain.split_first()?;
        let signed = |(_, verifier): &&(_, Arc<dyn ClientCertVerifier>)| {
            verifier.verify_client_cert(leaf, between, now).is_ok()
        };
        let authorities = self.each.iter().filter(signed).map(|(digest, _)| *digest).collect();
        let names = names(leaf);
        let user = user_domain.and_then(|domain| user(&names, domain));
        Some(ClientCertificate { digest: digest(leaf), authorities, names, user })
    }
}

/// Returns the last moment at which what has expired was valid; `None` for any other
/// fault.
fn before_expiry(fault: &CertificateError) -> Option<UnixTime> {
    match fault {
        CertificateError::ExpiredContext { not_after, .. } => Some(*not_after),
        // A list is valid until the second before its successor is due.
        CertificateError::ExpiredRevocationListContext { next_update, .. } => {
            let last = next_update.as_secs().checked_sub(1)?;
            Some(UnixTime::since_unix_epoch(Duration::from_secs(last)))
        }
        _ => None,
    }
}

/// Returns a verifier that asks for a certificate and does without: a client
/// without one reaches what requires none.
fn verifier(
    authorities: &[CertificateDer<'static>],
    lists: Vec<CertificateRevocationListDer<'static>>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, WrongAuthorities> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots
            .add(authority.clone())
            .map_err(|error| WrongAuthorities { problem: error.to_string(), is_list: false })?;
    }
    let mut builder =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
            .allow_unauthenticated();
    if !lists.is_empty() {
        builder = builder.with_crls(lists).enforce_revocation_expiration();
    }
    builder.build().map_err(|error| WrongAuthorities {
        problem: error.to_string(),
        is_list: matches!(error, VerifierBuilderError::InvalidCrl(_)),
    })
}

fn digest(certificate: &CertificateDer<'_>) -> CertificateDigest {
    Sha256::digest(certificate).into()
}

/// Returns the subject alternative names of a certificate; kinds that no rule can
/// name are left out.
fn names(leaf: &CertificateDer<'_>) -> Vec<Box<str>> {
    let parsed = x509_cert::Certificate::from_der(leaf).ok();
    let found = parsed.and_then(|parsed| parsed.tbs_certificate.get::<SubjectAltName>().ok()?);
    let Some((_, SubjectAltName(all))) = found else { return Vec::new() };
    all.iter().take(MAX_CERTIFICATE_NAMES).filter_map(name).map(String::into_boxed_str).collect()
}

fn name(name: &GeneralName) -> Option<String> {
    Some(match name {
        GeneralName::DnsName(name) => format!("dns:{}", name.as_str().to_ascii_lowercase()),
        GeneralName::Rfc822Name(name) => format!("email:{}", name.as_str()),
        GeneralName::UniformResourceIdentifier(name) => format!("uri:{}", name.as_str()),
        GeneralName::IpAddress(octets) => format!("ip:{}", address(octets.as_bytes())?),
        GeneralName::OtherName(other) if other.type_id == USER_NAME => {
            let value = other.value.to_der().ok()?;
            format!("user:{}", Utf8StringRef::from_der(&value).ok()?.as_str())
        }
        _ => return None,
    })
}

fn address(octets: &[u8]) -> Option<IpAddr> {
    let address = <[u8; 4]>::try_from(octets).map(IpAddr::from);
    let address = address.or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from)).ok()?;
    Some(address.to_canonical())
}

/// Returns the user of a domain. A certificate with two users names none, because
/// nobody could tell which one is meant.
fn user(names: &[Box<str>], domain: &str) -> Option<Box<str>> {
    let mut users = names.iter().filter_map(|name| name.strip_prefix("user:"));
    let (user, of) = users.next()?.split_once('@')?;
    let is_sound = users.next().is_none()
        && !user.is_empty()
        && !user.chars().any(char::is_control)
        && of.eq_ignore_ascii_case(domain);
    is_sound.then(|| user.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::pem::PemObject;
    use zgate_test_harness::certificates::{Authority, Leaf};

    fn der(pem: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
    }

    fn of(authorities: &[&Authority], lists: &[String]) -> Result<Authorities, WrongAuthorities> {
        let certificates = authorities.iter().map(|one| der(&one.pem())).collect();
        let lists = lists
            .iter()
            .map(|pem| CertificateRevocationListDer::from_pem_slice(pem.as_bytes()).unwrap());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        Authorities::new(certificates, lists.collect(), &provider)
    }

    fn chain(leaf: &Leaf) -> [CertificateDer<'static>; 1] {
        [der(&leaf.certificate)]
    }

    #[test]
    fn a_certificate_says_its_names_its_authority_and_its_user() {
        let (one, two) = (Authority::new(), Authority::new());
        let all = of(&[&one, &two], &[]).unwrap();
        let names = ["dns:Nas.Example", "ip:192.0.2.1", "user:alice@Example.org"];
        let leaf = one.client(1, &names);
        let said = all.describe(&chain(&leaf), Some("example.org"), UnixTime::now()).unwrap();
        let expected = ["dns:nas.example", "ip:192.0.2.1", "user:alice@Example.org"];
        assert_eq!(said.names.iter().map(|name| &**name).collect::<Vec<_>>(), expected);
        assert_eq!(said.authorities, [digest(&der(&one.pem()))]);
        assert_eq!(said.digest, digest(&chain(&leaf)[0]));
        assert_eq!(said.user.as_deref(), Some("alice"));
        assert_eq!(
            all.describe(&chain(&leaf), Some("example.com"), UnixTime::now()).unwrap().user,
            None
        );
        assert_eq!(all.describe(&chain(&leaf), None, UnixTime::now()).unwrap().user, None);
        assert_eq!(all.describe(&[], None, UnixTime::now()), None);
    }

    #[test]
    fn two_users_or_a_strange_one_are_none() {
        let ca = Authority::new();
        let all = of(&[&ca], &[]).unwrap();
        for names in [
            &["user:alice@x", "user:bob@x"][..],
            &["user:@x"],
            &["user:alice"],
            &["user:a\nb@x"],
            &["email:alice@x"],
            &[],
        ] {
            let said =
                all.describe(&chain(&ca.client(1, names)), Some("x"), UnixTime::now()).unwrap();
            assert_eq!(said.user, None, "{names:?}");
        }
    }

    #[test]
    fn a_revoked_certificate_is_told_from_an_unknown_one() {
        let (ca, other) = (Authority::new(), Authority::new());
        let (good, bad) = (ca.client(1, &[]), ca.client(2, &[]));
        let all = of(&[&ca], &[ca.revocation_list(&[2], 60)]).unwrap();
        assert!(
            !all.revokes(&chain(&good), UnixTime::now())
                && all.revokes(&chain(&bad), UnixTime::now())
        );
        let verify = |all: &Authorities, leaf: &Leaf| {
            all.verifier().verify_client_cert(&chain(leaf)[0], &[], UnixTime::now()).is_ok()
        };
        assert!(verify(&all, &good) && !verify(&all, &bad));
        // Neither of another authority, nor of one without a list.
        assert!(!all.revokes(&chain(&other.client(2, &[])), UnixTime::now()));
        let both = of(&[&ca, &other], &[ca.revocation_list(&[2], 60)]).unwrap();
        assert!(!verify(&both, &other.client(1, &[])), "no list of its authority");
        let old = of(&[&ca], &[ca.revocation_list(&[], -60)]).unwrap();
        assert!(!verify(&old, &good), "the list has expired");
    }

    #[test]
    fn a_certificate_that_has_expired_is_still_revoked() {
        let ca = Authority::new();
        let (good, bad) = (ca.client(1, &[]), ca.client(2, &[]));
        let hour = 60 * 60;
        let later = UnixTime::now().as_secs() + 2 * hour;
        let later = UnixTime::since_unix_epoch(Duration::from_secs(later));
        // The list is valid, has expired after the certificate, or before it.
        for list_seconds in [3 * hour, 3 * hour / 2, hour / 2] {
            let list = ca.revocation_list(&[2], list_seconds as i64);
            let all = of(&[&ca], &[list]).unwrap();
            assert!(all.revokes(&chain(&bad), later), "{list_seconds}");
            assert!(!all.revokes(&chain(&good), later), "{list_seconds}");
        }
    }

    #[test]
    fn authorities_are_bounded() {
        let ca = Authority::new();
        let many = vec![&ca; MAX_CLIENT_AUTHORITIES + 1];
        assert!(of(&many, &[]).unwrap_err().to_string().contains("more than 32"));
    }
}
