//! `[api]`: the listeners of the HTTP API that changes the gateway.

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Name of the usual admin socket, beside which the API's is `api.sock`.
const USUAL_ADMIN: &str = "admin.sock";

/// Protection of the address of metrics and status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MetricsTransport {
    /// None: HTTP.
    #[default]
    Plain,
    /// TLS with the certificate of `[api]`.
    Tls,
    /// TLS, for clients with a certificate of `api.client_ca`.
    Mtls,
}

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
    /// Returns the path of the Unix socket, of a gateway with this admin socket.
    #[must_use]
    pub fn socket_path(&self, admin_socket: &Path) -> PathBuf {
        if let Some(path) = &self.socket {
            return path.clone();
        }
        let name = admin_socket.file_name().unwrap_or_default().to_string_lossy();
        let stem = name.strip_suffix(".sock").unwrap_or(&name);
        match name == USUAL_ADMIN {
            true => admin_socket.with_file_name("api.sock"),
            false => admin_socket.with_file_name(format!("{stem}-api.sock")),
        }
    }
}
