//! `[api]`: the listeners of the HTTP API that changes the gateway.

use crate::problem::{Findings, Place};
use crate::schema::Config;
use crate::tls::TlsConfig;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Name of the usual admin socket, beside which the API's is `api.sock`.
const USUAL_ADMIN: &str = "admin.sock";

/// `[api]`. Over TCP there is only TLS, with tokens, client certificates or both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ApiConfig {
    /// Path of the Unix socket; absent: `api.sock` beside the admin socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
    /// Addresses over TCP, with TLS.
    #[serde(deserialize_with = "crate::text::list")]
    pub listen: Vec<SocketAddr>,
    /// PEM file with the server's certificate, then those between it and its
    /// root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// PEM file with the private key of the certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// PEM file with the authorities of client certificates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_ca: Option<PathBuf>,
    /// File with the token of those who may change something, mode 0600.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_token_file: Option<PathBuf>,
    /// File with the token of those who may only read, mode 0600.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_token_file: Option<PathBuf>,
    /// Names in client certificates (DNS names, or the common name) of those who
    /// may change something.
    pub admin_clients: Vec<String>,
    /// Names in client certificates of those who may only read.
    pub read_clients: Vec<String>,
}

impl ApiConfig {
    /// Returns the certificate files; none if they are not configured.
    #[must_use]
    pub fn tls(&self) -> Option<TlsConfig> {
        let (certificate, key) = (self.certificate.clone()?, self.key.clone()?);
        Some(TlsConfig { certificate, key, client_ca: self.client_ca.clone() })
    }

    /// Returns the path of the Unix socket.
    #[must_use]
    pub fn socket_path(&self, config: &Config) -> PathBuf {
        if let Some(path) = &self.socket {
            return path.clone();
        }
        let admin = &config.server.admin_socket;
        let name = admin.file_name().unwrap_or_default().to_string_lossy();
        let stem = name.strip_suffix(".sock").unwrap_or(&name);
        match name == USUAL_ADMIN {
            true => admin.with_file_name("api.sock"),
            false => admin.with_file_name(format!("{stem}-api.sock")),
        }
    }
}

/// Adds the problems of the listeners.
pub(crate) fn problems(config: &Config, found: &mut Findings) {
    let api = &config.api;
    let place = |key: &'static str| Place::root("api").key(key);
    let files = [
        ("socket", &api.socket),
        ("certificate", &api.certificate),
        ("key", &api.key),
        ("client_ca", &api.client_ca),
        ("admin_token_file", &api.admin_token_file),
        ("read_token_file", &api.read_token_file),
    ];
    for (key, file) in files {
        if file.as_ref().is_some_and(|file| !file.is_absolute()) {
            found.add(place(key), "not an absolute path", "begin it with /");
        }
    }
    for (key, names) in [("admin_clients", &api.admin_clients), ("read_clients", &api.read_clients)]
    {
        if !names.is_empty() && api.client_ca.is_none() {
            let next = "set api.client_ca";
            found.add(place(key), "no authority of client certificates is configured", next);
        }
    }
    if api.listen.is_empty() {
        return;
    }
    if api.tls().is_none() {
        let next = "set api.certificate and api.key, or leave api.listen out";
        found.add(place("listen"), "over TCP it needs TLS, which is not configured", next);
    }
    let has_role = api.admin_token_file.is_some()
        || api.read_token_file.is_some()
        || !api.admin_clients.is_empty()
        || !api.read_clients.is_empty();
    if !has_role {
        let next = "set api.admin_token_file, or api.client_ca and api.admin_clients";
        found.add(place("listen"), "nobody could use it", next);
    }
}

#[cfg(test)]
mod tests {
    use crate::parse;
    use std::path::Path;

    #[test]
    fn tcp_needs_certificates_and_roles() {
        let said = |text: &str| {
            let error = parse(text, Path::new("zgate.toml")).err();
            error.map(|error| error.to_string()).unwrap_or_default()
        };
        let listen = "[api]\nlisten = [\"127.0.0.1:9470\"]\n";
        assert!(said(listen).contains("needs TLS") && said(listen).contains("nobody could use it"));
        let tls = format!("{listen}certificate = \"/c\"\nkey = \"/k\"\n");
        assert!(said(&tls).contains("nobody"));
        assert_eq!(said(&format!("{tls}admin_token_file = \"/t\"\n")), "");
        let names = format!("{tls}admin_clients = [\"csi\"]\n");
        assert!(said(&names).contains("api.client_ca"));
        assert_eq!(said(&format!("{names}client_ca = \"/ca\"\n")), "");
        assert!(said(&format!("{tls}admin_token_file = \"t\"\n")).contains("absolute"));
    }

    #[test]
    fn each_gateway_has_a_socket_of_its_own() {
        let path = |text: &str| {
            let config = parse(text, Path::new("x")).unwrap();
            config.api.socket_path(&config).display().to_string()
        };
        assert_eq!(path(""), "/run/zgate/api.sock");
        assert_eq!(path("[server]\nadmin_socket = \"/run/b.sock\"\n"), "/run/b-api.sock");
        assert_eq!(path("[api]\nsocket = \"/run/x\"\n"), "/run/x");
    }
}
