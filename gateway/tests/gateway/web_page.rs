//! The web page and the API of a running gateway: names that a client chose, the
//! history, and the token at a reload.

use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};
use zgate_test_harness::{Client, Gateway};

const HOSTILE: &str = "<script>alert(1)</script><img src=x>";
const TOKENS: [&str; 2] = ["first-token-0123456789", "second-token-9876543210"];
/// The longest that the line of the log may take.
const LOG_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest that the first point of the history may take.
const HISTORY_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the status address, which is in the log as soon as the gateway serves. The
/// log has those of earlier starts, too, at which nobody answers.
pub(crate) fn address(gateway: &Gateway) -> SocketAddr {
    let deadline = Instant::now() + LOG_TIMEOUT;
    loop {
        let log = fs::read_to_string(gateway.dir.path().join("zgate.log")).unwrap();
        let line = log.lines().rfind(|line| line.contains(" serving "));
        let word = line.and_then(|line| line.split_once("metrics=")?.1.split_whitespace().next());
        if let Some(address) = word.and_then(|word| word.parse().ok())
            && TcpStream::connect(address).is_ok()
        {
            return address;
        }
        assert!(Instant::now() < deadline, "no address in {log}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the status line and the body of an answer.
fn get(gateway: &Gateway, path: &str, token: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address(gateway)).unwrap();
    let request = format!("GET {path} HTTP/1.0\r\nAuthorization: Bearer {token}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

fn json(gateway: &Gateway, path: &str) -> Value {
    let (line, body) = get(gateway, path, "");
    assert!(line.contains(" 200 "), "{path}: {line}");
    serde_json::from_str(&body).unwrap()
}

#[test]
fn a_name_that_a_client_chose_is_text_on_the_page_and_the_same_as_in_the_command() {
    let gateway = Gateway::start(60);
    let _client = Client::ready(&gateway, HOSTILE);
    // Collected before the client came, it may be almost a second old.
    let deadline = Instant::now() + Duration::from_secs(30);
    while json(&gateway, "/api/v1/clients")["total"] != 1 {
        assert!(Instant::now() < deadline, "the client is not shown");
    }
    let listed = json(&gateway, "/api/v1/clients");
    let output = gateway.command(&["clients", "--json"]);
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    for key in ["id", "name", "address", "minor", "implementation", "opens"] {
        assert_eq!(listed["items"][0][key], shown[0][key], "{key}");
    }
    assert_eq!(json(&gateway, "/api/v1/exports")["items"][0]["pseudo_path"], "/export");
    let (_, page) = get(&gateway, "/", "");
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;&lt;img src=x&gt;"), "{page}");
    assert!(!page.contains(HOSTILE) && !page.contains("<img"), "{page}");
    let deadline = Instant::now() + HISTORY_TIMEOUT;
    let points = loop {
        let history = json(&gateway, "/api/v1/history");
        let points = history["points"].as_array().unwrap().clone();
        if !points.is_empty() {
            break points;
        }
        assert!(Instant::now() < deadline, "no history");
        std::thread::sleep(Duration::from_millis(100));
    };
    assert!(points[0]["unix_seconds"].as_u64().unwrap() > 1_600_000_000, "{points:?}");
    assert!(points[0]["seconds"].as_f64().unwrap() > 4.0, "{points:?}");
}

#[test]
fn the_token_is_read_again_at_a_reload_and_never_logged() {
    let gateway = Gateway::start(60);
    let token = gateway.dir.path().join("token");
    let write = |text: &str, mode: u32| {
        fs::write(&token, text).unwrap();
        fs::set_permissions(&token, fs::Permissions::from_mode(mode)).unwrap();
    };
    let line = |given: &str| get(&gateway, "/api/v1/health", given).0;
    assert!(line("").contains(" 200 "), "on loopback without a token");
    let config = gateway.dir.path().join("zgate.toml");
    let text = fs::read_to_string(&config).unwrap();
    let key = format!("lease_seconds = 60\nstatus_token_file = \"{}\"", token.display());
    fs::write(&config, text.replace("lease_seconds = 60", &key)).unwrap();
    // A file that others can read is refused, and nothing changes.
    write(TOKENS[0], 0o644);
    let refused = gateway.command(&["reload"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("users other than its owner"), "{said}");
    assert!(line("").contains(" 200 "));
    for (index, now) in TOKENS.iter().enumerate() {
        write(now, 0o600);
        let output = gateway.command(&["reload"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(line(now).contains(" 200 ") && line("").contains(" 401 "));
        assert!(line(TOKENS[1 - index]).contains(" 401 "));
    }
    assert!(get(&gateway, "/metrics", "").0.contains(" 200 "));
    assert!(get(&gateway, "/healthz", "").0.contains(" 200 "));
    let log = fs::read_to_string(gateway.dir.path().join("zgate.log")).unwrap();
    assert!(log.contains("HTTP refused") && log.contains("wrong token"), "{log}");
    assert!(!TOKENS.iter().any(|token| log.contains(token)), "{log}");
}
