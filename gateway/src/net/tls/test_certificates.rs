//! Certificates for tests.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use zgate_config::TlsConfig;

/// A moment at which the certificates of [`files`] are valid.
pub(crate) const NOW: u64 = 2_000_000_000;

/// An authority that signs certificates.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Returns its own certificate as PEM.
    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// Signs a certificate for `localhost`; returns it and its key as PEM.
    pub(crate) fn leaf(&self, from_unix_seconds: u64, until_unix_seconds: u64) -> (String, String) {
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

/// Writes the files of a server: valid from 1970 to 2100.
pub(crate) fn files(dir: &Path, ca: &Authority, client_ca: Option<&Authority>) -> TlsConfig {
    let path = |name: &str| dir.join(name);
    let (certificate, key) = ca.leaf(0, 4_100_000_000);
    std::fs::write(path("server.pem"), certificate).unwrap();
    std::fs::write(path("server.key"), key).unwrap();
    if let Some(client_ca) = client_ca {
        std::fs::write(path("ca.pem"), client_ca.pem()).unwrap();
    }
    TlsConfig {
        certificate: path("server.pem"),
        key: path("server.key"),
        client_ca: client_ca.map(|_| path("ca.pem")),
    }
}

/// A client of the server; `identity` signs its certificate, if it has one.
pub(crate) fn client(
    ca: &Authority,
    identity: Option<&Authority>,
    alpn: &[&[u8]],
) -> ClientConnection {
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
