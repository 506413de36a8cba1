//! Certificates for tests of TLS, and clients that trust them.

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, OtherNameValue,
    RevokedCertParams, SanType,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Files of a server.
#[derive(Clone, Debug)]
pub struct ServerFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
    pub client_ca: Option<PathBuf>,
}

/// An authority that signs certificates.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    #[allow(clippy::new_without_default, reason = "each is another one")]
    pub fn new() -> Self {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let mut params = CertificateParams::default();
        let name = format!("authority {}", MADE.fetch_add(1, Ordering::Relaxed));
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Returns its own certificate as PEM.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Returns the SHA-256 of its certificate in hexadecimal.
    pub fn fingerprint(&self) -> String {
        fingerprint(&self.pem())
    }

    /// Signs a certificate for `localhost`; returns it and its key as PEM.
    pub fn leaf(&self, from_unix_seconds: u64, until_unix_seconds: u64) -> (String, String) {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let moment = |seconds| (UNIX_EPOCH + Duration::from_secs(seconds)).into();
        params.not_before = moment(from_unix_seconds);
        params.not_after = moment(until_unix_seconds);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

/// Returns the SHA-256 of a certificate in PEM form in hexadecimal.
pub fn fingerprint(pem: &str) -> String {
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let digest = Sha256::digest(&certificate);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A certificate and its key as PEM.
#[derive(Clone, Debug)]
pub struct Leaf {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    /// Signs a certificate of a client, valid from an hour ago for an hour, with
    /// names as `kind:value`.
    pub fn client(&self, serial: u64, names: &[&str]) -> Leaf {
        let mut params = CertificateParams::default();
        let now = SystemTime::now();
        let hour = Duration::from_secs(3600);
        (params.not_before, params.not_after) = ((now - hour).into(), (now + hour).into());
        params.serial_number = Some(serial.into());
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.subject_alt_names = names.iter().map(|name| san(name)).collect();
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Leaf { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    /// Returns a revocation list as PEM that names these serial numbers, made a
    /// day ago; its successor is due in `seconds`.
    pub fn revocation_list(&self, serials: &[u64], seconds: i64) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let moment = |unix_seconds| (UNIX_EPOCH + Duration::from_secs(unix_seconds)).into();
        let day_ago = now - 24 * 60 * 60;
        let revoked = |&serial: &u64| RevokedCertParams {
            serial_number: serial.into(),
            revocation_time: moment(day_ago),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: moment(day_ago),
            next_update: moment(now.checked_add_signed(seconds).unwrap()),
            crl_number: 1.into(),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.0).unwrap().pem().unwrap()
    }
}

fn san(name: &str) -> SanType {
    let (kind, value) = name.split_once(':').unwrap();
    match kind {
        "dns" => SanType::DnsName(value.try_into().unwrap()),
        "email" => SanType::Rfc822Name(value.try_into().unwrap()),
        "ip" => SanType::IpAddress(value.parse().unwrap()),
        "user" => SanType::OtherName((
            vec![1, 3, 6, 1, 4, 1, 2238, 1, 1, 1],
            OtherNameValue::Utf8String(value.to_owned()),
        )),
        _ => panic!("{name}"),
    }
}

/// Writes the files of a server, valid from 1970 to 2099. Files that exist are
/// replaced.
pub fn server_files(dir: &Path, ca: &Authority, client_ca: Option<&Authority>) -> ServerFiles {
    let path = |name: &str| dir.join(name);
    let (certificate, key) = ca.leaf(0, 4_100_000_000);
    std::fs::write(path("server.pem"), certificate).unwrap();
    std::fs::write(path("server.key"), key).unwrap();
    if let Some(client_ca) = client_ca {
        std::fs::write(path("ca.pem"), client_ca.pem()).unwrap();
    }
    ServerFiles {
        certificate: path("server.pem"),
        key: path("server.key"),
        client_ca: client_ca.map(|_| path("ca.pem")),
    }
}

/// A client of the server; `identity` signs its certificate, if it has one.
pub fn client(ca: &Authority, identity: Option<&Authority>, alpn: &[&[u8]]) -> ClientConnection {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let leaf = identity.map(|authority| {
        let (certificate, key) = authority.leaf(now - 3600, now + 3600);
        Leaf { certificate, key }
    });
    client_with(ca, leaf.as_ref(), alpn)
}

/// A client of the server that shows this certificate.
pub fn client_with(ca: &Authority, leaf: Option<&Leaf>, alpn: &[&[u8]]) -> ClientConnection {
    connection(client_config(ca, leaf, alpn))
}

/// A client of `localhost`.
pub fn connection(config: ClientConfig) -> ClientConnection {
    ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap()
}

/// As [`client_with`], to be changed.
pub fn client_config(ca: &Authority, leaf: Option<&Leaf>, alpn: &[&[u8]]) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.pem().as_bytes()).unwrap()).unwrap();
    let builder =
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots);
    let mut config = match leaf {
        None => builder.with_no_client_auth(),
        Some(leaf) => {
            let certificate = CertificateDer::from_pem_slice(leaf.certificate.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(leaf.key.as_bytes()).unwrap();
            builder.with_client_auth_cert(vec![certificate], key).unwrap()
        }
    };
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    config
}
