//! Roles, and the tokens and certificates that give them.

use crate::net::tls::certificates::Certificates;
use crate::server::web::access::Token;
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use std::io;
use std::sync::Arc;
use x509_cert::der::Decode;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use zgate_config::{ApiConfig, Config};

/// Protocol that clients offer in the handshake.
const ALPN: &[u8] = b"http/1.1";

/// Right of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// May look.
    Read,
    /// May change everything.
    Admin,
}

/// Certificates, tokens and names in effect for connections over TCP.
#[derive(Clone)]
pub(crate) struct Credentials {
    pub(super) tls: Arc<ServerConfig>,
    tokens: Vec<(Role, Token)>,
    names: Vec<(Role, String)>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials")
    }
}

/// Reads the credentials of a configuration; none if it has no certificate.
///
/// # Errors
/// The file, the reason and the next step.
pub(crate) fn configured(config: &Config) -> io::Result<Option<Arc<Credentials>>> {
    let ApiConfig { admin_token_file, read_token_file, admin_clients, read_clients, .. } =
        &config.api;
    let Some(files) = config.api.tls() else { return Ok(None) };
    let read = Certificates::read(&files).map_err(|fault| {
        let (key, problem, next) = (fault.key, fault.problem, fault.next_step);
        io::Error::new(io::ErrorKind::InvalidInput, format!("api.{key}: {problem}; {next}"))
    })?;
    let mut tls = ServerConfig::clone(&read.config);
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let mut tokens = Vec::new();
    for (role, file) in [(Role::Admin, admin_token_file), (Role::Read, read_token_file)] {
        if let Some(file) = file {
            tokens.push((role, Token::read(file)?));
        }
    }
    let named = |role, names: &[String]| -> Vec<(Role, String)> {
        names.iter().map(|name| (role, name.clone())).collect()
    };
    let mut names = named(Role::Admin, admin_clients);
    names.extend(named(Role::Read, read_clients));
    Ok(Some(Arc::new(Credentials { tls: Arc::new(tls), tokens, names })))
}

impl Credentials {
    /// Returns the role of a token. Each is compared, whatever the outcome.
    pub(super) fn of_token(&self, offered: &[u8]) -> Option<Role> {
        let fits = self.tokens.iter().filter(|(_, token)| token.is(offered));
        fits.map(|(role, _)| *role).max()
    }

    /// Returns the role of a verified client certificate, and its name.
    pub(super) fn of_certificate(&self, leaf: &CertificateDer<'_>) -> Option<(Role, String)> {
        let names = names_of(leaf);
        let known = self.names.iter().filter(|(_, name)| names.contains(name));
        known.max_by_key(|(role, _)| *role).cloned()
    }
}

/// Returns the DNS names of a certificate, and the common name.
fn names_of(leaf: &CertificateDer<'_>) -> Vec<String> {
    let Ok(parsed) = x509_cert::Certificate::from_der(leaf) else { return Vec::new() };
    let certificate = &parsed.tbs_certificate;
    let mut names = Vec::new();
    if let Ok(Some((_, SubjectAltName(all)))) = certificate.get::<SubjectAltName>() {
        names.extend(all.into_iter().filter_map(|name| match name {
            GeneralName::DnsName(name) => Some(name.to_string()),
            _ => None,
        }));
    }
    let subject = certificate.subject.to_string();
    names.extend(
        subject.split([',', '+']).filter_map(|part| Some(part.strip_prefix("CN=")?.to_owned())),
    );
    names
}
