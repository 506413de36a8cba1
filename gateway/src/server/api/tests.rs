//! The API as its clients see it: over the Unix socket and over TLS.

use super::credentials;
use super::listen::{Source, start};
use super::router;
use crate::observe::audit::Asker;
use crate::server::limits::{MAX_API_BODY_BYTES, MAX_API_CONNECTIONS};
use crate::server::volumes::tests::{PARENT, service};
use axum::Router;
use axum::routing::get;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use zgate_control::volume::model::Model;
use zgate_test_harness::certificates::{Authority, client, server_files};

const ADMIN: &str = "admin-token-of-32-characters-012";
const READ: &str = "read-token-of-32-characters-0123";

struct Fixture {
    dir: tempfile::TempDir,
    model: Arc<Model>,
    tcp: SocketAddr,
    ca: Authority,
    client_ca: Authority,
    /// Requests that the admin socket would carry out, and who asked.
    carried_out: Arc<Mutex<Vec<String>>>,
}

impl Fixture {
    /// Starts an API whose client certificates (of `localhost`) are of this role.
    fn new(certificate_role: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (ca, client_ca) = (Authority::new(), Authority::new());
        let files = server_files(dir.path(), &ca, Some(&client_ca));
        for (name, token) in [("admin", ADMIN), ("read", READ)] {
            let path = dir.path().join(name);
            std::fs::write(&path, token).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        }
        let at = |name: &str| dir.path().join(name).display().to_string();
        let text = format!(
            "[api]\nlisten = [\"127.0.0.1:9470\"]\ncertificate = {:?}\nkey = {:?}\n\
             client_ca = {:?}\nadmin_token_file = {:?}\nread_token_file = {:?}\n\
             {certificate_role}_clients = [\"localhost\"]\n",
            files.certificate,
            files.key,
            files.client_ca.unwrap(),
            at("admin"),
            at("read"),
        );
        let config = zgate_config::parse(&text, Path::new("x")).unwrap();
        let credentials = credentials::configured(&config).unwrap();
        let (volumes, model, _) = service();
        let carried_out = Arc::<Mutex<Vec<String>>>::default();
        let log = Arc::clone(&carried_out);
        let carry_out = Arc::new(move |request, by: Asker| {
            log.lock().unwrap().push(format!("{by}: {request:?}"));
            Ok(json!({ "done": true }))
        });
        let reading = Router::new().route("/api/v1/health", get(async || "{}"));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let tcp = listener.local_addr().unwrap();
        let source: Source = Arc::new(move || credentials.clone());
        let router = router(volumes, carry_out, reading);
        start(&dir.path().join("api.sock"), vec![listener], source, router).unwrap();
        Self { dir, model, tcp, ca, client_ca, carried_out }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("api.sock")
    }

    fn local(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        exchange(UnixStream::connect(self.socket()).unwrap(), method, path, "", &text(body))
    }

    /// Sends a request over TLS, with a token and with or without a certificate.
    fn remote(&self, token: Option<&str>, certified: bool, request: (&str, &str)) -> (u16, Value) {
        let field = token.map(|token| format!("Authorization: Bearer {token}\r\n"));
        self.remote_with(&field.unwrap_or_default(), certified, request)
    }

    /// Sends a request over TLS with further fields of its head.
    fn remote_with(&self, fields: &str, certified: bool, request: (&str, &str)) -> (u16, Value) {
        let identity = certified.then_some(&self.client_ca);
        let tls = client(&self.ca, identity, &[b"http/1.1"]);
        let stream = rustls::StreamOwned::new(tls, TcpStream::connect(self.tcp).unwrap());
        exchange(stream, request.0, request.1, fields, "")
    }
}

fn text(body: &Value) -> String {
    if body.is_null() { String::new() } else { body.to_string() }
}

fn exchange(
    mut stream: impl Read + Write,
    method: &str,
    path: &str,
    field: &str,
    body: &str,
) -> (u16, Value) {
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{field}Content-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    // The server may have answered and closed already.
    let _ = stream.write_all(body.as_bytes());
    let _ = stream.flush();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) =
        answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or(Value::Null))
}

fn volume(name: &str) -> Value {
    json!({ "name": name, "parent": PARENT, "owner": "csi", "kind": "block", "size_bytes": 1 << 30 })
}

const A: &str = "/api/v1/volumes/tank%2Fk8s%2Fa";

#[test]
fn a_volume_lives_over_the_socket() {
    let fixture = Fixture::new("admin");
    let mode = std::fs::metadata(fixture.socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let nothing = Value::Null;
    for status in [201, 200] {
        let (found, volume) = fixture.local("POST", "/api/v1/volumes", &volume("a"));
        assert_eq!((found, &volume["id"]), (status, &json!("tank/k8s/a")), "{volume}");
    }
    let node = json!({ "owner": "csi", "initiator": "iqn.2026-11.test:n" });
    let (status, access) = fixture.local("PUT", &format!("{A}/access/n"), &node);
    assert_eq!((status, &access["reach"]["protocol"]), (200, &json!("iscsi")), "{access}");
    let grown = json!({ "owner": "csi", "size_bytes": 2_u64 << 30 });
    assert_eq!(fixture.local("PATCH", A, &grown).1["size_bytes"], json!(2_u64 << 30));
    let owner = json!({ "owner": "csi" });
    assert_eq!(fixture.local("PUT", &format!("{A}/snapshots/s"), &owner).0, 201);
    assert_eq!(fixture.local("PUT", &format!("{A}/snapshots/s"), &owner).0, 200);
    let (status, listed) = fixture.local("GET", "/api/v1/volume-snapshots?owner=csi", &nothing);
    assert_eq!((status, &listed["items"][0]["id"]), (200, &json!("tank/k8s/a@s")));
    let (status, listed) = fixture.local("GET", "/api/v1/volume-snapshots?name=t", &nothing);
    assert_eq!((status, &listed["items"]), (200, &json!([])));
    let (status, error) = fixture.local("DELETE", &format!("{A}?owner=csi"), &nothing);
    assert_eq!((status, &error["error"]["code"]), (409, &json!("in_use")));
    assert_eq!(fixture.local("DELETE", &format!("{A}/snapshots/s?owner=csi"), &nothing).0, 204);
    let (status, error) = fixture.local("POST", &format!("{A}/delete"), &owner);
    assert_eq!((status, &error["error"]["code"]), (409, &json!("in_use")));
    assert_eq!(fixture.local("DELETE", &format!("{A}/access/n?owner=csi"), &nothing).0, 204);
    let names = json!({ "owner": "csi", "nodes": ["m", "n"] });
    let left = fixture.local("POST", &format!("{A}/withdraw"), &names);
    assert_eq!(left, (200, json!({ "access": [] })));
    for _ in 0..2 {
        assert_eq!(fixture.local("DELETE", &format!("{A}?owner=csi"), &nothing).0, 204);
    }
    assert_eq!(fixture.local("POST", &format!("{A}/delete"), &owner).0, 204);
    assert_eq!(fixture.local("GET", A, &nothing).0, 404);
    assert_eq!(fixture.local("GET", "/api/v1/capacity?parent=tank%2Fk8s", &nothing).0, 200);
    assert!(!fixture.model.names().contains(&"tank/k8s/a".to_owned()));
}

#[test]
fn wrong_requests_have_a_code_and_a_next_step() {
    let fixture = Fixture::new("admin");
    let nothing = Value::Null;
    let mut odd = volume("a");
    odd["sise"] = json!(1);
    let long = json!({ "name": "x".repeat(MAX_API_BODY_BYTES) });
    let cases = [
        ("POST", "/api/v1/volumes", &odd, 400, "invalid"),
        ("POST", "/api/v1/volumes", &nothing, 400, "invalid"),
        ("POST", "/api/v1/volumes", &long, 400, "invalid"),
        ("GET", "/api/v1/nothing", &nothing, 404, "not_found"),
        ("PUT", "/api/v1/volumes", &nothing, 405, "invalid"),
        ("POST", "/api/v1/health", &nothing, 405, "invalid"),
        ("GET", "/api/v1/volumes/tank%2Fother", &nothing, 403, "forbidden"),
        ("GET", "/api/v1/volumes/tank%2Fk8s%2Fx%00", &nothing, 400, "invalid"),
        ("GET", "/api/v1/volumes?limit=0", &nothing, 400, "invalid"),
        ("GET", "/api/v1/volumes?limit=all", &nothing, 400, "invalid"),
        ("DELETE", "/api/v1/volumes/tank%2Fk8s%2Fa", &nothing, 400, "invalid"),
        ("PUT", "/api/v1/targets/iqn.2026-11.test:t/luns/x", &nothing, 400, "invalid"),
    ];
    for (method, path, body, status, code) in cases {
        let (found, answer) = fixture.local(method, path, body);
        assert_eq!((found, &answer["error"]["code"]), (status, &json!(code)), "{path}: {answer}");
        for part in ["message", "next_step"] {
            assert!(answer["error"][part].as_str().is_some_and(|text| text.len() > 5), "{answer}");
        }
    }
}

/// Sends a head to the socket as it is; returns the whole answer.
fn said(fixture: &Fixture, head: &str) -> String {
    let mut stream = UnixStream::connect(fixture.socket()).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_request_names_its_host_once() {
    let fixture = Fixture::new("admin");
    for (fields, status) in [("Host: a\r\n", 200), ("", 400), ("Host: a\r\nHost: a\r\n", 400)] {
        let answer = said(&fixture, &format!("GET /api/v1/volumes HTTP/1.1\r\n{fields}\r\n"));
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert_eq!(answer.contains("{\"code\":\"invalid\""), status == 400, "{answer}");
    }
}

#[test]
fn a_path_names_its_methods_to_who_asks_with_another() {
    let fixture = Fixture::new("admin");
    for (request, methods) in
        [("PUT /api/v1/volumes", "GET,HEAD,POST"), ("DELETE /api/v1/health", "GET,HEAD")]
    {
        let answer = said(&fixture, &format!("{request} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
        assert!(answer.contains(&format!("\r\nallow: {methods}\r\n")), "{answer}");
    }
}

#[test]
fn over_tcp_there_are_roles() {
    let fixture = Fixture::new("read");
    let look = ("GET", "/api/v1/volumes");
    let status = |token, certified, request| fixture.remote(token, certified, request).0;
    assert_eq!(status(None, false, look), 401);
    assert_eq!(status(Some("another-token-of-32-characters-0"), false, look), 401);
    assert_eq!(status(Some(READ), false, look), 200);
    assert_eq!(status(None, true, look), 200);
    assert_eq!(status(Some(ADMIN), false, ("GET", "/api/v1/health")), 200);
    let change = ("POST", "/api/v1/drain");
    assert_eq!(status(None, false, change), 401);
    assert_eq!(status(Some(READ), false, change), 403);
    assert_eq!(status(None, true, change), 403);
    assert!(fixture.carried_out.lock().unwrap().is_empty());
    assert_eq!(status(Some(ADMIN), true, change), 200);
    assert_eq!(status(Some(ADMIN), false, change), 200);
    let admins = Fixture::new("admin");
    assert_eq!(admins.remote(None, true, change).0, 200);
    let log = admins.carried_out.lock().unwrap();
    assert!(log[0].starts_with("localhost at 127.0.0.1:") && log[0].ends_with("Drain"), "{log:?}");
}

#[test]
fn a_page_in_the_browser_of_an_admin_changes_nothing() {
    let fixture = Fixture::new("admin");
    let (look, change) = (("GET", "/api/v1/volumes"), ("POST", "/api/v1/drain"));
    for field in [
        "Origin: https://other.example\r\n",
        "Origin: null\r\n",
        "Sec-Fetch-Site: cross-site\r\n",
        "Sec-Fetch-Site: same-origin\r\n",
        "Sec-Fetch-Site: none\r\nSec-Fetch-Site: cross-site\r\n",
    ] {
        let (status, answer) = fixture.remote_with(field, true, change);
        assert_eq!((status, &answer["error"]["code"]), (403, &json!("forbidden")), "{field}");
        assert_eq!(fixture.remote_with(field, true, look).0, 200, "{field}");
    }
    assert!(fixture.carried_out.lock().unwrap().is_empty());
    // What the user asks for, and a process at the socket.
    assert_eq!(fixture.remote_with("Sec-Fetch-Site: none\r\n", true, change).0, 200);
    let stream = UnixStream::connect(fixture.socket()).unwrap();
    assert_eq!(exchange(stream, change.0, change.1, "Origin: null\r\n", "").0, 200);
}

#[test]
fn without_tls_and_with_another_authority_nobody_gets_in() {
    let fixture = Fixture::new("admin");
    let mut plain = TcpStream::connect(fixture.tcp).unwrap();
    plain.write_all(b"GET /api/v1/volumes HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!String::from_utf8_lossy(&answer).contains("HTTP"), "{answer:?}");
    let other = Authority::new();
    let tls = client(&fixture.ca, Some(&other), &[b"http/1.1"]);
    let mut stream = rustls::StreamOwned::new(tls, TcpStream::connect(fixture.tcp).unwrap());
    let sent = stream.write_all(b"GET /api/v1/volumes HTTP/1.1\r\n\r\n");
    let mut text = String::new();
    assert!(sent.is_err() || stream.read_to_string(&mut text).is_err(), "{text}");
}

#[test]
fn silent_connections_do_not_keep_others_out_for_long() {
    let fixture = Fixture::new("admin");
    let silent: Vec<_> = (0..MAX_API_CONNECTIONS / 2)
        .map(|_| UnixStream::connect(fixture.socket()).unwrap())
        .collect();
    assert_eq!(fixture.local("GET", "/api/v1/volumes", &Value::Null).0, 200);
    drop(silent);
}

#[test]
fn changes_of_the_command_line_are_its_requests() {
    let fixture = Fixture::new("admin");
    let target = "/api/v1/targets/iqn.2026-11.test:t";
    let lun = json!({ "path": "/luns/7", "size_bytes": 4096, "runtime_only": true });
    let rule = json!({ "clients": ["10.0.0.0/8"], "luns": [7] });
    let dataset = json!({ "dataset": "tank/a", "seconds": 60 });
    let cases = [
        ("PUT", format!("{target}/luns/7"), lun, "LunAdd"),
        ("POST", format!("{target}/luns/7/size"), json!({ "size_bytes": 8192 }), "LunResize"),
        ("DELETE", format!("{target}/luns/7?runtime_only=true"), Value::Null, "LunRemove"),
        ("PUT", format!("{target}/initiators/iqn.2026-11.test:*"), rule, "AclAdd"),
        ("DELETE", format!("{target}/initiators/iqn.2026-11.test:*"), Value::Null, "AclRemove"),
        ("POST", "/api/v1/reload".to_owned(), json!({ "force": true }), "Reload { force: true }"),
        ("POST", "/api/v1/release".to_owned(), dataset, "Release"),
        ("POST", "/api/v1/resume".to_owned(), json!({ "dataset": "tank/a" }), "Resume"),
        ("POST", "/api/v1/replaced".to_owned(), json!({ "dataset": "tank/a" }), "Replaced"),
        ("POST", "/api/v1/drain".to_owned(), Value::Null, "Drain"),
    ];
    for (method, path, body, request) in cases {
        assert_eq!(fixture.local(method, &path, &body), (200, json!({ "done": true })), "{path}");
        let last = fixture.carried_out.lock().unwrap().pop().unwrap();
        let who = format!("uid {} pid {}", rustix::process::getuid().as_raw(), std::process::id());
        assert!(last.starts_with(&format!("{who}: {request}")), "{last}");
    }
    let wrong = fixture.local("PUT", &format!("{target}/initiators/joe"), &json!({}));
    assert_eq!(wrong.0, 400, "{}", wrong.1);
}
