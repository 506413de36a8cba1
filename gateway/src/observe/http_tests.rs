//! The HTTP server as its clients see it: pages, methods, and the bounds of a
//! connection. Time is virtual.

use super::*;
use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::time::Instant;

/// Bytes of the status page: more than the buffers of a socket take.
const STATUS_BYTES: usize = 16 << 20;
/// Field of each request of HTTP/1.1.
const HERE: &str = "Host: localhost\r\n";

struct Fixed {
    silent: Vec<usize>,
}

impl Pages for Fixed {
    fn metrics(self: &Arc<Self>) -> String {
        "zgate_up 1\n# EOF\n".to_owned()
    }

    async fn silent_cores(&self, _: Duration) -> Vec<usize> {
        self.silent.clone()
    }
}

async fn server(silent: &[usize]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let status = Bytes::from("7".repeat(STATUS_BYTES));
    let more = Router::new().route("/status", get(move || std::future::ready(status.clone())));
    let pages = Arc::new(Fixed { silent: silent.to_vec() });
    tokio::spawn(serve(listener, router(pages, more), None));
    address
}

/// Sends a request; returns the head and the body of its answer.
async fn ask(address: SocketAddr, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_ascii_lowercase(), body.to_owned())
}

#[tokio::test(start_paused = true)]
async fn pages_take_queries_and_head() {
    let address = server(&[]).await;
    for path in ["/metrics", "/metrics?x=y", "/metrics?name[]=zgate_up"] {
        let (head, body) = ask(address, &format!("GET {path} HTTP/1.1\r\n{HERE}\r\n")).await;
        assert!(head.starts_with("http/1.1 200 ok"), "{head}");
        assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
        assert!(head.contains("connection: close"), "{head}");
        assert_eq!(body, "zgate_up 1\n");
        let (headless, nothing) =
            ask(address, &format!("HEAD {path} HTTP/1.1\r\n{HERE}\r\n")).await;
        let dateless = |head: &str| {
            let mut lines: Vec<_> = head.lines().filter(|line| !line.starts_with("date")).collect();
            lines.sort_unstable();
            lines.join("\n")
        };
        assert_eq!(dateless(&headless), dateless(&head));
        assert!(head.contains(&format!("content-length: {}", body.len())), "{head}");
        assert_eq!(nothing, "");
    }
    let accept =
        "Accept: text/html\r\nAccept: Application/OpenMetrics-Text;version=1.0.0,*/*;q=0.1";
    let (head, body) =
        ask(address, &format!("GET /metrics HTTP/1.1\r\n{HERE}{accept}\r\n\r\n")).await;
    assert_eq!(body, "zgate_up 1\n# EOF\n");
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{head}");
    // Scripts without a library speak 1.0, and close their direction.
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.0 200 OK") && answer.ends_with("\r\n\r\nok\n"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn what_there_is_not_is_refused_with_a_reason() {
    let address = server(&[3, 5]).await;
    for (request, field, status, words) in [
        ("GET /x", "", "404 not found", "use /, /api"),
        ("GET /metrics/", "", "404 not found", "/metrics"),
        ("DELETE /nothing", "", "404 not found", "/metrics"),
        ("POST /metrics", "Content-Length: 9\r\n", "405 method", "GET and HEAD"),
        ("PUT /status", "Content-Length: 0\r\n", "405 method", "GET and HEAD"),
        ("GET /healthz", "", "503 service unavailable", "from core 3, 5"),
    ] {
        let (head, body) = ask(address, &format!("{request} HTTP/1.1\r\n{HERE}{field}\r\n")).await;
        assert!(head.starts_with(&format!("http/1.1 {status}")), "{request}: {head}");
        assert!(body.contains(words), "{request}: {body}");
        assert_eq!(head.contains("allow: get,head"), status.starts_with("405"), "{head}");
    }
}

/// RFC 9112 section 3.2: the server must answer 400.
#[tokio::test(start_paused = true)]
async fn a_request_names_its_host_once() {
    let address = server(&[]).await;
    for (version, fields, status) in [
        ("1.1", "Host: localhost\r\n", "200"),
        ("1.1", "Host: [fd00::1]:9469\r\n", "200"),
        ("1.1", "Host:\r\n", "200"),
        ("1.0", "", "200"),
        ("1.1", "", "400"),
        ("1.1", "Host: localhost\r\nHost: localhost\r\n", "400"),
        ("1.1", "Host: localhost\r\nHost: other.example\r\n", "400"),
        ("1.1", "Host: joe@localhost\r\n", "400"),
        ("1.1", "Host: localhost/metrics\r\n", "400"),
        ("1.1", "Host: local host\r\n", "400"),
        ("1.0", "Host: a\r\nHost: b\r\n", "400"),
    ] {
        for path in ["/metrics", "/nothing"] {
            let request = format!("GET {path} HTTP/{version}\r\n{fields}\r\n");
            let (head, body) = ask(address, &request).await;
            let status = if path == "/nothing" && status == "200" { "404" } else { status };
            assert!(head.starts_with(&format!("http/{version} {status} ")), "{request}: {head}");
            assert_eq!(body.contains("Host"), status == "400", "{request}: {body}");
        }
    }
}

/// Returns what the server answers to these bytes, and after how long it closes.
async fn until_closed(address: SocketAddr, bytes: &[u8]) -> (String, Duration) {
    let begun = Instant::now();
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The server may have closed the connection before it has all of them.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    (String::from_utf8(answer).unwrap(), begun.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_head_is_bounded() {
    let address = server(&[]).await;
    let long = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(MAX_HEAD_BYTES));
    let fields = |count: usize| HERE.to_owned() + &"X: y\r\n".repeat(count - 1);
    let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", fields(MAX_HEADERS + 1));
    let path = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(MAX_HEAD_BYTES));
    for request in [&long, &many, &path] {
        let (answer, took) = until_closed(address, request.as_bytes()).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
        assert!(took < HEAD_TIMEOUT, "{took:?}");
    }
    let most = format!("GET /metrics HTTP/1.1\r\n{}\r\n", fields(MAX_HEADERS));
    assert!(ask(address, &most).await.0.starts_with("http/1.1 200"));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_does_not_arrive_is_given_up() {
    let address = server(&[]).await;
    for begin in ["", "GET /metr", "GET /metrics HTTP/1.1\r\nHost: x\r\n"] {
        let (answer, took) = until_closed(address, begin.as_bytes()).await;
        assert!(!answer.contains("200"), "{answer}");
        let bound = HEAD_TIMEOUT..HEAD_TIMEOUT + Duration::from_secs(1);
        assert!(bound.contains(&took), "{begin}: {took:?}");
    }
    // Nor does it help to send a byte now and then.
    let begun = Instant::now();
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n").await.unwrap();
    while stream.write_all(b"X: y\r\n").await.is_ok() {
        assert!(begun.elapsed() < 2 * HEAD_TIMEOUT);
        tokio::time::sleep(Duration::from_millis(700)).await;
    }
}

/// Connects from a host of the loopback network, by its last number.
async fn connect_from(host: u8, address: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, host], 0))).unwrap();
    socket.connect(address).await.unwrap()
}

/// Takes all connections that the server has, from as few hosts as may have them.
async fn connect_all(address: SocketAddr) -> Vec<TcpStream> {
    let mut all = Vec::new();
    for number in 0..MAX_CONNECTIONS {
        let host = 2 + number / MAX_CONNECTIONS_PER_HOST;
        all.push(connect_from(host as u8, address).await);
    }
    all
}

#[tokio::test(start_paused = true)]
async fn one_host_keeps_no_other_one_out() {
    let address = server(&[]).await;
    let begun = Instant::now();
    let mut silent = Vec::new();
    for _ in 0..MAX_CONNECTIONS {
        silent.push(connect_from(2, address).await);
    }
    let (head, _) = ask(address, &format!("GET /metrics HTTP/1.1\r\n{HERE}\r\n")).await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert!(begun.elapsed() < HEAD_TIMEOUT, "{:?}", begun.elapsed());
    // What the host has beyond its share is closed already.
    let mut last = silent.pop().unwrap();
    let told = last.read(&mut [0; 1]).await;
    assert!(matches!(told, Ok(0) | Err(_)), "{told:?}");
    assert!(begun.elapsed() < HEAD_TIMEOUT, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn silent_clients_keep_others_out_for_seconds_only() {
    let address = server(&[]).await;
    let begun = Instant::now();
    let _silent = connect_all(address).await;
    let (head, _) = ask(address, &format!("GET /metrics HTTP/1.1\r\n{HERE}\r\n")).await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    let waited = begun.elapsed();
    assert!((HEAD_TIMEOUT..2 * HEAD_TIMEOUT).contains(&waited), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_nobody_takes_is_given_up() {
    let address = server(&[]).await;
    let begun = Instant::now();
    let mut idle = connect_all(address).await;
    for stream in &mut idle {
        let request = format!("GET /status HTTP/1.1\r\n{HERE}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
    }
    let (head, _) = ask(address, &format!("GET /metrics HTTP/1.1\r\n{HERE}\r\n")).await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    let waited = begun.elapsed();
    assert!((CONNECTION_TIMEOUT..2 * CONNECTION_TIMEOUT).contains(&waited), "{waited:?}");
}
