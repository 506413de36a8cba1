//! TLS towards a gateway. The files are read for each connection: a certificate
//! or a token that is renewed takes effect without a restart.

use crate::settings::GatewaySettings;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Reads the certificates and the key of the settings.
///
/// # Errors
/// The file that cannot be read or used, and the reason.
pub(super) fn client_config(settings: &GatewaySettings) -> io::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = &settings.ca_file {
        for certificate in certificates(path)? {
            roots.add(certificate).map_err(|error| named(path, error))?;
        }
    }
    let builder =
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots);
    let (Some(chain), Some(key)) = (&settings.certificate_file, &settings.key_file) else {
        return Ok(builder.with_no_client_auth());
    };
    let pem = PrivateKeyDer::from_pem_file(key).map_err(|error| named(key, error))?;
    builder.with_client_auth_cert(certificates(chain)?, pem).map_err(|error| named(chain, error))
}

fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(path).map_err(|error| named(path, error))?.collect();
    let found = found.map_err(|error| named(path, error))?;
    if found.is_empty() {
        return Err(named(path, "no certificate in it"));
    }
    Ok(found)
}

fn named(path: &Path, reason: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("{}: {reason}", path.display()))
}
