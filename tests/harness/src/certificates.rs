//! Certificates for tests of TLS, and clients that trust them.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
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
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Returns its own certificate as PEM.
    pub fn pem(&self) -> String {
        self.0.pem()
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
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.pem().as_bytes()).unwrap()).unwrap();
    let builder =
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
            let (certificate, key) = authority.leaf(now - 3600, now + 3600);
            let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            builder.with_client_auth_cert(vec![certificate], key).unwrap()
        }
    };
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap()
}
