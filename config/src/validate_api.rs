//! Rules of the API's listeners.

use crate::api::{ApiConfig, MetricsTransport};
use crate::problem::{Findings, Place};
use crate::schema::Config;
use crate::tls::TlsConfig;

/// Returns the certificate files of the API; none if they are not configured.
#[must_use]
pub fn api_tls(api: &ApiConfig) -> Option<TlsConfig> {
    let (certificate, key) = (api.certificate.clone()?, api.key.clone()?);
    let client_ca = api.client_ca.clone();
    Some(TlsConfig { certificate, key, client_ca, client_crl: None, user_domain: None })
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
    let transport = Place::root("server").key("metrics_transport");
    match config.server.metrics_transport {
        MetricsTransport::Plain => {}
        _ if api_tls(api).is_none() => {
            let next = "set api.certificate and api.key, or write \"plain\"";
            found.absent(transport, "it needs TLS, which is not configured", next);
        }
        MetricsTransport::Mtls if api.client_ca.is_none() => {
            let next = "set api.client_ca, or write \"tls\"";
            found.absent(transport, "no authority of client certificates is configured", next);
        }
        MetricsTransport::Tls | MetricsTransport::Mtls => {}
    }
    if api.listen.is_empty() {
        return;
    }
    if api_tls(api).is_none() {
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
    fn metrics_over_tls_need_the_certificate_of_the_api() {
        let said = |text: &str| {
            let error = parse(text, Path::new("zgate.toml")).err();
            error.map(|error| error.to_string()).unwrap_or_default()
        };
        let with = |transport: &str, api: &str| {
            said(&format!("[server]\nmetrics_transport = \"{transport}\"\n[api]\n{api}"))
        };
        let files = "certificate = \"/c\"\nkey = \"/k\"\n";
        assert_eq!(with("plain", ""), "");
        assert!(with("tls", "").contains("api.certificate"));
        assert_eq!(with("tls", files), "");
        assert!(with("mtls", files).contains("api.client_ca"));
        assert_eq!(with("mtls", &format!("{files}client_ca = \"/ca\"\n")), "");
        assert!(with("https", files).contains("mtls"));
    }

    #[test]
    fn each_gateway_has_a_socket_of_its_own() {
        let path = |text: &str| {
            let config = parse(text, Path::new("x")).unwrap();
            config.api.socket_path(&config.server.admin_socket).display().to_string()
        };
        assert_eq!(path(""), "/run/zgate/api.sock");
        assert_eq!(path("[server]\nadmin_socket = \"/run/b.sock\"\n"), "/run/b-api.sock");
        assert_eq!(path("[api]\nsocket = \"/run/x\"\n"), "/run/x");
    }
}
