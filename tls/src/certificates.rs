//! Files of `[tls]`: what they hold, when it expires, and what is wrong with
//! them. No message contains anything of a key.

use crate::authorities::{Authorities, CertificateDigest};
use crate::limits::{ALPN, CRL_EXPIRY_NOTICE, EXPIRY_NOTICE};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::time_provider::{DefaultTimeProvider, TimeProvider};
use rustls::{InconsistentKeys, ServerConfig};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use x509_cert::crl::CertificateList;
use x509_cert::der::Decode;
use zgate_config::TlsConfig;

/// Key of `[tls]` with the file of revocation lists.
const CRL_KEY: &str = "client_crl";

/// Form of a revocation list (RFC 5280 §5); OpenSSL makes others without settings.
const LIST_FORM: &str = "put X.509 revocation lists of version 2 there; `openssl ca -gencrl` makes them if its \
     configuration has `crlnumber` and `crl_extensions`";

/// A fault of one of the files, and the next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFault {
    /// Key of `[tls]` that names the file.
    pub key: &'static str,
    /// The fault.
    pub problem: String,
    /// The next step.
    pub next_step: &'static str,
}

/// Time in which all certificates of a file are valid, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Key of `[tls]` that names the file.
    pub key: &'static str,
    /// First second.
    pub from_unix_seconds: u64,
    /// Last second.
    pub until_unix_seconds: u64,
}

impl Validity {
    /// Returns the time before the expiry from which it is announced.
    #[must_use]
    pub fn notice(&self) -> Duration {
        if self.key == CRL_KEY { CRL_EXPIRY_NOTICE } else { EXPIRY_NOTICE }
    }

    /// Returns what is wrong with the certificates at this moment.
    #[must_use]
    pub fn fault(&self, now_unix_seconds: u64) -> Option<TlsFault> {
        let (problem, next_step) = if now_unix_seconds > self.until_unix_seconds {
            let problem = if self.key == CRL_KEY {
                "a revocation list has expired: no client certificate is accepted"
            } else {
                "the certificate has expired"
            };
            (problem, "put a new one there, then `zgate reload`")
        } else if now_unix_seconds < self.from_unix_seconds {
            let next = "check the clock of this machine, or put the right certificate there";
            ("the certificate is not valid yet", next)
        } else {
            return None;
        };
        Some(TlsFault { key: self.key, problem: problem.to_owned(), next_step })
    }
}

/// Certificates and keys that have been read.
#[derive(Clone, Debug)]
pub struct Certificates {
    /// Settings of handshakes.
    pub config: Arc<ServerConfig>,
    /// Authorities of client certificates; `None`: none is asked for.
    pub(super) clients: Option<Authorities>,
    /// Number of the replacement with which they came into effect.
    pub(super) number: u64,
    /// Domain of the users that client certificates name.
    pub user_domain: Option<Box<str>>,
    /// The kernel encrypts what is sent, where it can.
    pub kernel_records: bool,
    /// Validity of each file of certificates.
    pub validities: Vec<Validity>,
}

impl Certificates {
    /// Returns whether a client certificate can be signed by this authority.
    pub fn trusts(&self, authority: &CertificateDigest) -> bool {
        self.clients.as_ref().is_some_and(|clients| clients.contains(authority))
    }

    /// Reads the files. Certificates that are out of date are no fault here:
    /// see [`Validity::fault`].
    ///
    /// # Errors
    /// The first file that cannot be used.
    pub fn read(files: &TlsConfig) -> Result<Self, TlsFault> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        Self::new(Material::read(files)?, provider, Arc::new(DefaultTimeProvider))
    }

    /// Uses what has been read, with this cryptography and this wall clock.
    ///
    /// # Errors
    /// The first part that cannot be used.
    pub fn new(
        material: Material,
        provider: Arc<CryptoProvider>,
        clock: Arc<dyn TimeProvider>,
    ) -> Result<Self, TlsFault> {
        let Material { chain, key, clients, user_domain, kernel_records } = material;
        let mut validities = vec![validity("certificate", &chain)?];
        let certified = CertifiedKey::from_der(chain, key, &provider).map_err(pair_fault)?;
        let builder = ServerConfig::builder_with_details(Arc::clone(&provider), clock)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| fault("key", error, "report this"))?;
        let clients = match clients {
            None => None,
            Some((authorities, lists)) => {
                Some(checked_clients(authorities, lists, &provider, &mut validities)?)
            }
        };
        let builder = match &clients {
            None => builder.with_no_client_auth(),
            Some(authorities) => builder.with_client_cert_verifier(authorities.verifier()),
        };
        let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        config.alpn_protocols = vec![ALPN.to_vec()];
        // No tickets: there is no secret to be kept, and each connection shows
        // its certificate.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        let config = Arc::new(config);
        Ok(Self { config, clients, number: 0, user_domain, kernel_records, validities })
    }

    /// Returns the time by the clock of the certificates.
    pub(super) fn now(&self) -> Option<UnixTime> {
        self.config.time_provider.current_time()
    }
}

/// Authorities of client certificates, and their revocation lists.
type Clients = (Vec<CertificateDer<'static>>, Vec<CertificateRevocationListDer<'static>>);

/// Contents of the files of `[tls]`.
#[derive(Debug)]
pub struct Material {
    /// The server's certificates, its own first.
    pub chain: Vec<CertificateDer<'static>>,
    /// The key of the first one.
    pub key: PrivateKeyDer<'static>,
    /// Authorities of client certificates, and their revocation lists; `None`: no
    /// certificate is asked for.
    pub clients: Option<Clients>,
    /// Domain of the users that client certificates name, in lower case.
    pub user_domain: Option<Box<str>>,
    /// The kernel encrypts what is sent, where it can.
    pub kernel_records: bool,
}

impl Material {
    fn read(files: &TlsConfig) -> Result<Self, TlsFault> {
        let certificates = chain("certificate", &files.certificate)?;
        let key = private_key(&files.key)?;
        let clients = match &files.client_ca {
            None => None,
            Some(path) => {
                let authorities = chain("client_ca", path)?;
                let lists = files.client_crl.as_deref().map(revocation_lists);
                Some((authorities, lists.transpose()?.unwrap_or_default()))
            }
        };
        let user_domain = files.user_domain.as_deref().map(str::to_ascii_lowercase);
        Ok(Self {
            chain: certificates,
            key,
            clients,
            user_domain: user_domain.map(String::into_boxed_str),
            kernel_records: files.kernel_records,
        })
    }
}

/// Checks the authorities of client certificates, and their revocation lists.
fn checked_clients(
    authorities: Vec<CertificateDer<'static>>,
    lists: Vec<CertificateRevocationListDer<'static>>,
    provider: &Arc<CryptoProvider>,
    validities: &mut Vec<Validity>,
) -> Result<Authorities, TlsFault> {
    validities.push(validity("client_ca", &authorities)?);
    if !lists.is_empty() {
        validities.push(list_validity(&lists)?);
    }
    Authorities::new(authorities, lists, provider).map_err(|wrong| {
        let (key, next) = if wrong.is_list {
            (CRL_KEY, LIST_FORM)
        } else {
            ("client_ca", "put certificates of authorities there")
        };
        fault(key, wrong, next)
    })
}

fn revocation_lists(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsFault> {
    let wrong = |error: pem::Error| pem_fault(CRL_KEY, path, &error);
    let all = CertificateRevocationListDer::pem_file_iter(path).map_err(wrong)?;
    let all: Vec<_> = all.collect::<Result<_, _>>().map_err(wrong)?;
    if all.is_empty() { Err(wrong(pem::Error::NoItemsFound)) } else { Ok(all) }
}

/// Returns the time in which all lists are valid. A list without an end says
/// nothing about its age (RFC 5280 §5.1.2.5 requires one).
fn list_validity(lists: &[CertificateRevocationListDer<'_>]) -> Result<Validity, TlsFault> {
    let mut all = Validity { key: CRL_KEY, from_unix_seconds: 0, until_unix_seconds: u64::MAX };
    for list in lists {
        let parsed =
            CertificateList::from_der(list).map_err(|error| fault(CRL_KEY, error, LIST_FORM))?;
        let times = parsed.tbs_cert_list;
        let from = times.this_update.to_unix_duration().as_secs();
        let until = times.next_update.ok_or_else(|| {
            fault(
                CRL_KEY,
                "a list does not say when the next one comes",
                "make one with nextUpdate",
            )
        })?;
        all.from_unix_seconds = all.from_unix_seconds.max(from);
        all.until_unix_seconds = all.until_unix_seconds.min(until.to_unix_duration().as_secs());
    }
    Ok(all)
}

fn fault(key: &'static str, error: impl std::fmt::Display, next_step: &'static str) -> TlsFault {
    TlsFault { key, problem: error.to_string(), next_step }
}

fn pem_fault(key: &'static str, path: &Path, error: &pem::Error) -> TlsFault {
    let path = path.display();
    match error {
        pem::Error::Io(error) => {
            let next = "put the file there, readable for the user that zgate runs as";
            fault(key, format!("cannot read {path}: {error}"), next)
        }
        pem::Error::NoItemsFound => {
            let what = match key {
                "key" => "private key",
                CRL_KEY => "revocation list",
                _ => "certificate",
            };
            fault(key, format!("{path} has no {what} in PEM form"), "put it there as PEM")
        }
        // The error itself would show lines of the file.
        _ => fault(key, format!("{path} is not a well-formed PEM file"), "write it again as PEM"),
    }
}

fn chain(key: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFault> {
    let wrong = |error: pem::Error| pem_fault(key, path, &error);
    let all = CertificateDer::pem_file_iter(path).map_err(wrong)?;
    let all: Vec<_> = all.collect::<Result<_, _>>().map_err(wrong)?;
    if all.is_empty() { Err(wrong(pem::Error::NoItemsFound)) } else { Ok(all) }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsFault> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| pem_fault("key", path, &error))
}

fn pair_fault(error: rustls::Error) -> TlsFault {
    match error {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => fault(
            "key",
            "it is not the key of the certificate",
            "name the key with which the first certificate of the file was made",
        ),
        rustls::Error::InvalidCertificate(error) => fault(
            "certificate",
            format!("the first certificate cannot be used: {error:?}"),
            "make an X.509 certificate of version 3",
        ),
        _ => fault("key", "this kind of key cannot be used", "make an ECDSA, Ed25519 or RSA key"),
    }
}

fn validity(key: &'static str, chain: &[CertificateDer<'_>]) -> Result<Validity, TlsFault> {
    let mut all = Validity { key, from_unix_seconds: 0, until_unix_seconds: u64::MAX };
    for certificate in chain {
        let parsed = x509_cert::Certificate::from_der(certificate)
            .map_err(|error| fault(key, error, "put an X.509 certificate there"))?;
        let validity = parsed.tbs_certificate.validity;
        let seconds = |time: x509_cert::time::Time| time.to_unix_duration().as_secs();
        all.from_unix_seconds = all.from_unix_seconds.max(seconds(validity.not_before));
        all.until_unix_seconds = all.until_unix_seconds.min(seconds(validity.not_after));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use zgate_test_harness::certificates::{Authority, server_files};

    /// A moment at which all certificates of [`files`] are valid.
    const NOW: u64 = 2_000_000_000;

    fn files(dir: &Path, ca: &Authority, client_ca: Option<&Authority>) -> TlsConfig {
        let files = server_files(dir, ca, client_ca);
        TlsConfig {
            certificate: files.certificate,
            key: files.key,
            client_ca: files.client_ca,
            client_crl: None,
            kernel_records: true,
            user_domain: None,
        }
    }

    #[test]
    fn each_file_is_checked_and_its_fault_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let (ca, other) = (Authority::new(), Authority::new());
        let good = files(dir.path(), &ca, Some(&ca));
        let read = Certificates::read(&good).unwrap();
        let keys: Vec<_> = read.validities.iter().map(|one| one.key).collect();
        assert_eq!(keys, ["certificate", "client_ca"]);
        assert!(read.validities.iter().all(|one| one.fault(NOW).is_none()));
        let said = |files: &TlsConfig| {
            let fault = Certificates::read(files).unwrap_err();
            (fault.key, fault.problem)
        };
        let absent = TlsConfig { key: dir.path().join("absent"), ..good.clone() };
        let (key, problem) = said(&absent);
        assert!(key == "key" && problem.contains("cannot read"), "{problem}");
        let swapped = TlsConfig { certificate: good.key.clone(), ..good.clone() };
        let (key, problem) = said(&swapped);
        assert!(key == "certificate" && problem.contains("no certificate"), "{problem}");
        let no_key = TlsConfig { key: good.certificate.clone(), ..good.clone() };
        assert!(said(&no_key).1.contains("no private key"));
        let foreign = dir.path().join("foreign.pem");
        std::fs::write(&foreign, other.leaf(NOW - 5, NOW + 5).1).unwrap();
        let (key, problem) = said(&TlsConfig { key: foreign.clone(), ..good.clone() });
        assert!(key == "key" && problem.contains("not the key of the certificate"), "{problem}");
        // What is in the file of a key is never shown.
        let secret = "-----BEGIN PRIVATE KEY-----\nsecret?\n-----END PRIVATE KEY-----\n";
        std::fs::write(&foreign, secret).unwrap();
        assert!(!said(&TlsConfig { key: foreign, ..good.clone() }).1.contains("secret"));
    }

    #[test]
    fn a_certificate_has_its_time() {
        let dir = tempfile::tempdir().unwrap();
        let ca = Authority::new();
        let good = files(dir.path(), &ca, None);
        let (certificate, key) = ca.leaf(NOW - 100, NOW + 100);
        std::fs::write(&good.certificate, certificate).unwrap();
        std::fs::write(&good.key, key).unwrap();
        let validity = Certificates::read(&good).unwrap().validities[0];
        assert_eq!(validity.until_unix_seconds, NOW + 100);
        assert_eq!(validity.fault(NOW), None);
        let problem = |at: u64| validity.fault(at).unwrap().problem;
        assert!(problem(NOW + 101).contains("expired"));
        assert!(problem(NOW - 101).contains("not valid yet"));
    }
}
