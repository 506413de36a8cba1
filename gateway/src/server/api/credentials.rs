//! Roles, and the tokens and certificates that give them.

use crate::observe::http::HttpTls;
use crate::server::web::access::Token;
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use std::io;
use std::sync::Arc;
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::der::Decode;
use x509_cert::der::asn1::{ObjectIdentifier, PrintableStringRef, Utf8StringRef};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use zgate_config::{ApiConfig, Config};
use zgate_tls::Certificates;

/// Type of a common name (RFC 5280 Appendix A.1).
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

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
    let Some(files) = zgate_config::api_tls(&config.api) else { return Ok(None) };
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

    /// Returns TLS with these certificates, for the address of metrics and status.
    pub(crate) fn for_metrics(self: &Arc<Self>, requires_certificate: bool) -> HttpTls {
        let known = Arc::clone(self);
        let is_known =
            Box::new(move |leaf: &CertificateDer<'_>| known.of_certificate(leaf).is_some());
        HttpTls { config: Arc::clone(&self.tls), requires_certificate, is_known }
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
    let attributes = certificate.subject.0.iter().flat_map(|part| part.0.iter());
    names.extend(attributes.filter(|one| one.oid == COMMON_NAME).filter_map(common_name));
    names
}

/// Returns the text of a common name; nobody can put a second one into it.
fn common_name(attribute: &AttributeTypeAndValue) -> Option<String> {
    let value = &attribute.value;
    let printable = || Some(value.decode_as::<PrintableStringRef<'_>>().ok()?.to_string());
    value.decode_as::<Utf8StringRef<'_>>().ok().map(|text| text.to_string()).or_else(printable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, DnValue, KeyPair};

    #[test]
    fn a_certificate_has_the_names_that_it_was_given() {
        let names = |common: DnValue| {
            let mut params = CertificateParams::new(vec!["csi.example".to_owned()]).unwrap();
            params.distinguished_name.push(DnType::CommonName, common);
            let made = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
            names_of(made.der())
        };
        let utf8 = |text: &str| DnValue::Utf8String(text.to_owned());
        assert_eq!(names(utf8("node-1")), ["csi.example", "node-1"]);
        let printable = DnValue::PrintableString("node-2".try_into().unwrap());
        assert_eq!(names(printable), ["csi.example", "node-2"]);
        // One name, not two.
        assert_eq!(names(utf8("node,CN=admin")), ["csi.example", "node,CN=admin"]);
    }
}
