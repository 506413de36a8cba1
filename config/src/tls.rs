//! TLS settings in the file (RFC 9289).

use crate::certificate::ClientIdentity;
use crate::problem::{Findings, Place};
use crate::schema::{Config, ExportClient};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Protection that an export requires of a client's connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientTransport {
    /// With or without TLS.
    #[default]
    Any,
    /// TLS.
    Tls,
    /// TLS with a client certificate of `tls.client_ca`.
    Mtls,
}

/// `[tls]`: NFS over TCP offers TLS to clients that ask for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsConfig {
    /// PEM file with the server's certificate, then those between it and its
    /// root.
    pub certificate: PathBuf,
    /// PEM file with the private key of the certificate.
    pub key: PathBuf,
    /// PEM file with the certificates of the authorities whose client
    /// certificates are accepted; absent: no client certificate is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_ca: Option<PathBuf>,
    /// PEM file with the revocation lists of these authorities, one of each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_crl: Option<PathBuf>,
    /// Domain of the users that client certificates name as `user@domain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_domain: Option<String>,
    /// Has the kernel encrypt what is sent, where it can.
    #[serde(default = "yes")]
    pub kernel_records: bool,
}

const fn yes() -> bool {
    true
}

impl TlsConfig {
    /// Lists the files with their keys.
    pub fn files(&self) -> impl Iterator<Item = (&'static str, &PathBuf)> {
        let ca = self.client_ca.as_ref().map(|path| ("client_ca", path));
        let crl = self.client_crl.as_ref().map(|path| ("client_crl", path));
        [("certificate", &self.certificate), ("key", &self.key)].into_iter().chain(ca).chain(crl)
    }
}

/// Adds the problems of the TLS settings, and of exports that require TLS which
/// is not configured.
pub(crate) fn problems(config: &Config, found: &mut Findings) {
    let tls = config.tls.as_ref();
    for (key, path) in tls.into_iter().flat_map(TlsConfig::files) {
        if !path.is_absolute() {
            let place = Place::root("tls").key(key);
            found.add(place, "not an absolute path", "begin it with /");
        }
    }
    let has_ca = tls.is_some_and(|tls| tls.client_ca.is_some());
    if !has_ca && tls.is_some_and(|tls| tls.client_crl.is_some()) {
        let place = Place::root("tls").key("client_crl");
        found.add(place, "no client certificate is asked for", "set tls.client_ca");
    }
    let has_domain = tls.is_some_and(|tls| tls.user_domain.is_some());
    for (index, export) in config.exports.iter().enumerate() {
        let place = Place::root("export").item(index);
        for (index, client) in export.clients.iter().enumerate() {
            let entry = place.key("clients").item(index);
            certificate_problems(client, &entry, has_domain, found);
            let place = entry.key("transport");
            match client.transport {
                ClientTransport::Any => {}
                _ if tls.is_none() => {
                    let next = "add [tls] with certificate and key, or write \"any\"";
                    found.absent(place, "it needs TLS, which is not configured", next);
                }
                ClientTransport::Mtls if !has_ca => {
                    let next = "set tls.client_ca, or write \"tls\"";
                    found.absent(place, "no authority of client certificates is configured", next);
                }
                ClientTransport::Tls | ClientTransport::Mtls => {}
            }
        }
    }
}

/// Adds the problems of what an entry says about certificates.
fn certificate_problems(
    client: &ExportClient,
    entry: &Place,
    has_domain: bool,
    found: &mut Findings,
) {
    let by_certificate = client.identity == ClientIdentity::San;
    let is_mutual = client.transport == ClientTransport::Mtls;
    for (key, is_used) in
        [("certificate", !client.certificate.is_empty()), ("identity", by_certificate)]
    {
        if is_used && !is_mutual {
            let next = "write transport = \"mtls\" in the same entry";
            found.add(entry.key(key), "its clients need not have a certificate", next);
        }
    }
    if by_certificate && is_mutual && !has_domain {
        let next = "set tls.user_domain";
        let problem = "certificates name users as user@domain, and no domain is configured";
        found.add(entry.key("identity"), problem, next);
    }
}

#[cfg(test)]
mod tests {
    use crate::parse;
    use std::path::Path;

    fn export(transport: &str) -> String {
        format!(
            "[[export]]\npath = \"/a\"\npseudo = \"/a\"\n\
             clients = [{{ match = \"*\", transport = \"{transport}\" }}]\n"
        )
    }

    const TLS: &str = "[tls]\ncertificate = \"/c.pem\"\nkey = \"/k.pem\"\n";

    #[test]
    fn an_export_requires_only_what_is_configured() {
        let said =
            |text: &str| parse(text, Path::new("zgate.toml")).err().map(|error| error.to_string());
        let with_ca = format!("{TLS}client_ca = \"/ca.pem\"\n");
        assert_eq!(said(&export("any")), None);
        assert_eq!(said(&format!("{TLS}{}", export("tls"))), None);
        assert_eq!(said(&format!("{with_ca}{}", export("mtls"))), None);
        assert!(said(&export("tls")).unwrap().contains("[tls]"));
        assert!(said(&export("mtls")).unwrap().contains("[tls]"));
        let no_ca = said(&format!("{TLS}{}", export("mtls"))).unwrap();
        assert!(no_ca.contains("tls.client_ca"), "{no_ca}");
        let relative = said("[tls]\ncertificate = \"c.pem\"\nkey = \"/k.pem\"\n").unwrap();
        assert!(relative.contains("tls.certificate"), "{relative}");
        assert!(said("[tls]\ncertificate = \"/c.pem\"\n").unwrap().contains("key"));
        assert!(said(&export("ssl")).unwrap().contains("mtls"));
    }

    #[test]
    fn what_an_entry_says_about_certificates_needs_mutual_tls() {
        let with = |keys: &str, tls: &str| {
            let text = format!(
                "{TLS}client_ca = \"/ca.pem\"\n{tls}\
                 [[export]]\npath = \"/a\"\npseudo = \"/a\"\n\
                 clients = [{{ match = \"*\", {keys} }}]\n"
            );
            parse(&text, Path::new("zgate.toml")).err().map(|error| error.to_string())
        };
        let names = "certificate = { names = [\"dns:a.example\"] }";
        let domain = "user_domain = \"example.org\"\n";
        assert_eq!(with(&format!("transport = \"mtls\", {names}"), ""), None);
        assert_eq!(with("transport = \"mtls\", identity = \"san\"", domain), None);
        for (keys, said) in [
            (format!("transport = \"tls\", {names}"), "need not have a certificate"),
            ("identity = \"san\"".to_owned(), "need not have a certificate"),
            ("transport = \"mtls\", identity = \"san\"".to_owned(), "tls.user_domain"),
            ("transport = \"mtls\", identity = \"cn\"".to_owned(), "cn"),
            (
                "transport = \"mtls\", certificate = { fingerprints = [\"ab\"] }".to_owned(),
                "openssl x509",
            ),
        ] {
            let found = with(&keys, "").unwrap();
            assert!(found.contains(said), "{keys}: {found}");
        }
        let text = "[tls]\ncertificate = \"/c.pem\"\nkey = \"/k.pem\"\nclient_crl = \"/crl.pem\"\n";
        let found = parse(text, Path::new("zgate.toml")).unwrap_err().to_string();
        assert!(found.contains("tls.client_ca"), "{found}");
    }

    #[test]
    fn files_are_read_again_by_a_reload() {
        let with = |text: &str| parse(text, Path::new("x")).unwrap();
        let (old, new) = (with(""), with(TLS));
        let changes = crate::diff(&old, &new);
        assert_eq!(changes.len(), 3, "{changes:?}");
        assert!(changes.iter().all(|change| change.effect == crate::Effect::Live));
        assert_eq!(crate::after_reload(&old, new.clone()).tls, new.tls);
        let entries = crate::changed_entries(&old, &new);
        assert!(entries.iter().any(|change| change.entry == "tls"), "{entries:?}");
    }
}
