//! TLS settings in the file (RFC 9289).

use crate::problem::{Findings, Place};
use crate::schema::Config;
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
}

impl TlsConfig {
    /// Lists the files with their keys.
    pub fn files(&self) -> impl Iterator<Item = (&'static str, &PathBuf)> {
        let ca = self.client_ca.as_ref().map(|path| ("client_ca", path));
        [("certificate", &self.certificate), ("key", &self.key)].into_iter().chain(ca)
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
    for (index, export) in config.exports.iter().enumerate() {
        let place = Place::root("export").item(index);
        for (index, client) in export.clients.iter().enumerate() {
            let place = place.key("clients").item(index).key("transport");
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
    fn files_are_read_again_by_a_reload() {
        let with = |text: &str| parse(text, Path::new("x")).unwrap();
        let (old, new) = (with(""), with(TLS));
        let changes = crate::diff(&old, &new);
        assert_eq!(changes.len(), 2, "{changes:?}");
        assert!(changes.iter().all(|change| change.effect == crate::Effect::Live));
        assert_eq!(crate::after_reload(&old, new.clone()).tls, new.tls);
        let entries = crate::changed_entries(&old, &new);
        assert!(entries.iter().any(|change| change.entry == "tls"), "{entries:?}");
    }
}
