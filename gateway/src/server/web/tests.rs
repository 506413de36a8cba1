//! The routes as a client of HTTP sees them, beside `/metrics` and `/healthz`.

use super::access::{Access, Token};
use super::latest::Latest;
use super::sample::{HOSTILE, overview, point};
use super::state::WebState;
use super::{api, router};
use crate::observe::http::{self, Pages, TlsSource};
use crate::server::api::credentials;
use crate::server::limits::{MAX_API_ROWS, MAX_PAGE_ROWS};
use crate::server::throughput::History;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;
use zgate_test_harness::certificates::{Authority, client, server_files};

const TOKEN: &str = "a-token-of-32-characters-0123456";

struct Fixed;

impl Pages for Fixed {
    fn metrics(self: &Arc<Self>) -> String {
        "zgate_up 1\n# EOF\n".to_owned()
    }

    async fn silent_cores(&self, _: Duration) -> Vec<usize> {
        Vec::new()
    }
}

/// A server with so many clients; its access rules may be changed.
fn start(clients: usize) -> (SocketAddr, Arc<Access>) {
    start_with(clients, None)
}

fn start_with(clients: usize, tls: Option<TlsSource>) -> (SocketAddr, Arc<Access>) {
    let (history, access) = (Arc::new(History::default()), Arc::new(Access::default()));
    history.push(point(1000, 4096.0, Some(0.001)));
    let latest = Latest::start("test", move || overview(clients, 2, 2)).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    access.set_address(listener.local_addr().unwrap());
    let document = <super::api::Document as utoipa::OpenApi>::openapi();
    let state =
        WebState { doctor: Arc::default(), latest, history, access: Arc::clone(&access), document };
    let routes = router(&Arc::new(state));
    (http::start(listener, Arc::new(Fixed), routes, tls).unwrap().address, access)
}

/// Sends a request with this method, path and field; returns the head, in lower
/// case, and the body.
fn ask(address: SocketAddr, request: &str, field: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let field = if field.is_empty() { String::new() } else { format!("{field}\r\n") };
    let head = format!("{request} HTTP/1.1\r\nHost: localhost\r\n{field}\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_ascii_lowercase(), body.to_owned())
}

fn json(address: SocketAddr, path: &str) -> Value {
    let (head, body) = ask(address, &format!("GET {path}"), "");
    assert!(head.starts_with("http/1.1 200"), "{path}: {head}");
    assert!(head.contains("content-type: application/json"), "{path}: {head}");
    serde_json::from_str(&body).unwrap()
}

#[test]
fn each_route_answers_with_json_and_safe_headers() {
    let (address, _) = start(2);
    for (path, _) in api::routes() {
        json(address, path);
        let (head, body) = ask(address, &format!("HEAD {path}"), "");
        assert!(head.starts_with("http/1.1 200") && body.is_empty(), "{path}: {head}");
        for field in ["cache-control: no-store", "x-content-type-options: nosniff"] {
            assert!(head.contains(field), "{path}: {head}");
        }
        for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"] {
            let (head, _) = ask(address, &format!("{method} {path}"), "Content-Length: 0");
            assert!(head.starts_with("http/1.1 405"), "{method} {path}: {head}");
        }
    }
    assert_eq!(json(address, "/api/v1/health")["verdict"], "failing");
    let points = json(address, "/api/v1/history");
    assert_eq!(
        (&points["step_seconds"], &points["points"][0]["unix_seconds"]),
        (&5.into(), &1000.into())
    );
    assert_eq!(points["points"][0]["read"]["bytes_per_second"], 4096.0);
    let status = json(address, "/api/v1/status");
    assert_eq!((&status["totals"]["luns"], &status["version"]), (&2.into(), &"0.1.0".into()));
    assert_eq!(json(address, "/status")["clients"], status["clients"]);
    assert_eq!(json(address, "/api/v1/pools")["items"], status["pools"]);
    assert_eq!(json(address, "/api/v1/targets")["items"][0]["luns"][1]["number"], 1);
}

#[test]
fn the_page_is_whole_without_a_script_and_loads_nothing_from_elsewhere() {
    let (address, _) = start(2);
    let (head, page) = ask(address, "GET /", "");
    assert!(head.contains("content-type: text/html; charset=utf-8"), "{head}");
    let policy =
        "content-security-policy: default-src 'none'; style-src 'self'; script-src 'self';";
    assert!(head.contains(policy), "{head}");
    for part in ["iqn.1993-08.org.debian:1", "/dev/zvol/tank/", "DEGRADED", "tank/vm", "<svg "] {
        assert!(page.contains(part), "{part:?} is missing in {page}");
    }
    assert!(!page.contains(HOSTILE));
    let loaded = page.split(['"', '\'']).filter(|text| text.starts_with("/page."));
    let loaded: Vec<_> = loaded.collect();
    assert_eq!(loaded, ["/page.css", "/page.js"]);
    for (path, kind) in [("/page.css", "text/css"), ("/page.js", "text/javascript")] {
        let (head, body) = ask(address, &format!("GET {path}"), "");
        assert!(head.contains(&format!("content-type: {kind}")), "{head}");
        assert!(!body.contains("//") || path.ends_with("js"), "{body}");
        assert!(!body.contains("http") && !body.contains("url("), "{body}");
    }
}

#[test]
fn ten_thousand_clients_are_cut_everywhere() {
    let (address, _) = start(10_000);
    for path in ["/api/v1/clients", "/api/v1/status", "/status"] {
        let answer = json(address, path);
        let (list, total) = match answer.get("items") {
            Some(items) => (items, &answer["total"]),
            None => (&answer["clients"], &answer["totals"]["clients"]),
        };
        assert_eq!(
            (list.as_array().unwrap().len(), total),
            (MAX_API_ROWS, &10_000.into()),
            "{path}"
        );
    }
    let (_, page) = ask(address, "GET /", "");
    assert!(page.contains(&format!("{MAX_PAGE_ROWS} of 10000 are shown")));
    assert!(page.len() < 256 << 10, "{}", page.len());
}

#[test]
fn other_machines_need_the_token_for_everything_but_health_and_metrics() {
    let (address, access) = start(2);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    std::fs::write(&file, TOKEN).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    access.set_address("192.0.2.1:9469".parse().unwrap());
    let mut paths: Vec<_> = api::routes().into_iter().map(|(path, _)| path).collect();
    paths.extend(["/", "/page.css", "/page.js"]);
    let token = format!("Authorization: Bearer {TOKEN}");
    let answers = |field: &str, expected: &str| {
        for path in &paths {
            let (head, body) = ask(address, &format!("GET {path}"), field);
            assert!(head.starts_with(&format!("http/1.1 {expected}")), "{path}: {head}");
            let refused = expected != "200";
            assert!(!refused || !body.contains("tank") && !body.contains("10.0.0.1"), "{body}");
            assert!(head.contains("content-security-policy:"), "{path}: {head}");
        }
        for path in ["/metrics", "/healthz"] {
            assert!(ask(address, &format!("GET {path}"), field).0.starts_with("http/1.1 200"));
        }
    };
    answers(&token, "403");
    access.set_token(Some(Token::read(&file).unwrap()));
    answers("", "401");
    answers("Authorization: Bearer another-token-of-32-characters-0", "401");
    answers(&token, "200");
    let (head, body) = ask(address, "GET /", "");
    assert!(head.contains("www-authenticate: bearer realm="), "{head}");
    assert!(head.contains("www-authenticate: basic realm="), "{head}");
    assert!(body.contains("status_token_file") && !body.contains(TOKEN), "{body}");
    // A path that does not exist says nothing.
    assert!(ask(address, "GET /api/v1/nothing", "").0.starts_with("http/1.1 404"));
}

/// Sends a request over TLS, with or without a certificate; returns the status.
fn ask_tls(address: SocketAddr, (ca, own): (&Authority, Option<&Authority>), request: &str) -> u16 {
    let tls = client(ca, own, &[b"http/1.1"]);
    let mut stream = rustls::StreamOwned::new(tls, TcpStream::connect(address).unwrap());
    stream.write_all(format!("{request}\r\nHost: localhost\r\n\r\n").as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn over_tls_a_token_or_a_known_certificate_gives_access() {
    let dir = tempfile::tempdir().unwrap();
    let (ca, own) = (Authority::new(), Authority::new());
    let files = server_files(dir.path(), &ca, Some(&own));
    let known_as = |name: &str| {
        let text = format!(
            "[api]\ncertificate = {:?}\nkey = {:?}\nclient_ca = {:?}\nread_clients = [{name:?}]\n",
            files.certificate,
            files.key,
            files.client_ca.as_ref().unwrap()
        );
        let config = zgate_config::parse(&text, std::path::Path::new("x")).unwrap();
        credentials::configured(&config).unwrap()
    };
    let served = |requires_certificate: bool, name: &str| {
        let in_effect = known_as(name);
        let source: TlsSource =
            Arc::new(move || Some(in_effect.clone()?.for_metrics(requires_certificate)));
        let (address, access) = start_with(2, Some(source));
        let path = dir.path().join("token");
        std::fs::write(&path, TOKEN).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        access.set_token(Some(Token::read(&path).unwrap()));
        address
    };
    let (metrics, page) = ("GET /metrics HTTP/1.1", "GET / HTTP/1.1");
    let with_token = format!("{page}\r\nAuthorization: Bearer {TOKEN}");
    let address = served(false, "localhost");
    assert_eq!(ask_tls(address, (&ca, None), metrics), 200);
    assert_eq!(ask_tls(address, (&ca, None), page), 401);
    assert_eq!(ask_tls(address, (&ca, None), &with_token), 200);
    assert_eq!(ask_tls(address, (&ca, Some(&own)), page), 200);
    // Without TLS nothing is said.
    let mut plain = TcpStream::connect(address).unwrap();
    plain.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!String::from_utf8_lossy(&answer).contains("HTTP"), "{answer:?}");
    let address = served(true, "somebody.else");
    assert_eq!(ask_tls(address, (&ca, None), metrics), 403);
    assert_eq!(ask_tls(address, (&ca, Some(&own)), metrics), 200);
    assert_eq!(ask_tls(address, (&ca, Some(&own)), page), 401, "a name that has no role");
    assert_eq!(ask_tls(address, (&ca, Some(&own)), &with_token), 200);
}
