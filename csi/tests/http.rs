//! The client of the API: TLS, the token, the certificate, ids as one segment of a
//! path, errors.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::convert::Infallible;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use zgate_api::{ErrorCode, GrantAccess, WithdrawAccess};
use zgate_csi::gateway::http::HttpGateway;
use zgate_csi::gateway::{Gateway, Of, Page};
use zgate_csi::limits::MAX_GATEWAY_REQUESTS;
use zgate_csi::settings::Settings;

/// Requests that arrived: method, path and query, token, body.
type Seen = Arc<Mutex<Vec<[String; 4]>>>;

struct Fixture {
    dir: tempfile::TempDir,
    seen: Seen,
    port: u16,
}

fn write(dir: &Path, name: &str, text: &str) {
    std::fs::write(dir.join(name), text).unwrap();
}

/// Answers with a page for lists, as a server without the API for what is elsewhere or
/// malformed, and with an error for everything else.
async fn answer(
    seen: Seen,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let token = request.headers().get("authorization").map(|value| value.to_str().unwrap());
    let line =
        [request.method().to_string(), request.uri().to_string(), token.unwrap_or("").to_owned()];
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let [method, path, token] = line;
    let is_list = method == "GET" && path.contains('?');
    let is_elsewhere = path.contains("elsewhere");
    let is_malformed = path.contains("malformed");
    seen.lock().unwrap().push([method, path, token, String::from_utf8(body.to_vec()).unwrap()]);
    let (status, text) = if is_list {
        (200, r#"{"items": [], "next": "t/b"}"#)
    } else if is_elsewhere {
        (404, "<html>no such page</html>")
    } else if is_malformed {
        (400, "<html>bad request</html>")
    } else {
        (409, r#"{"error": {"code": "in_use", "message": "m", "next_step": "n"}}"#)
    };
    Ok(Response::builder()
        .status(status)
        .body(Full::new(Bytes::from_static(text.as_bytes())))
        .unwrap())
}

async fn fixture() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    write(dir.path(), "ca.pem", &ca.pem());
    let signed = |name: &str| {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &ca).unwrap(), key)
    };
    let (own, own_key) = signed("driver");
    write(dir.path(), "own.pem", &own.pem());
    write(dir.path(), "own.key", &own_key.serialize_pem());
    write(dir.path(), "token", "secret\n");
    let (certificate, key) = signed("127.0.0.1");
    let mut roots = RootCertStore::empty();
    roots.add(ca.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.allow_unauthenticated().build().unwrap())
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let seen = Seen::default();
    let kept = seen.clone();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(stream) = acceptor.accept(stream).await else { continue };
            // The subject of a client's certificate stands for a token.
            let seen = kept.clone();
            if stream.get_ref().1.peer_certificates().is_some() {
                seen.lock().unwrap().push(["certificate"; 4].map(str::to_owned));
            }
            let service = service_fn(move |request| answer(seen.clone(), request));
            let connection = hyper::server::conn::http1::Builder::new();
            let _ = connection.serve_connection(TokioIo::new(stream), service).await;
        }
    });
    Fixture { dir, seen, port }
}

impl Fixture {
    fn gateway(&self, more: &str) -> HttpGateway {
        let dir = self.dir.path().display();
        let text = format!(
            "owner = \"c\"\n[[gateway]]\nname = \"g\"\nurl = \"https://127.0.0.1:{}\"\n\
             ca_file = \"{dir}/ca.pem\"\nparents = [\"t/k\"]\n{}",
            self.port,
            more.replace("DIR", &dir.to_string())
        );
        HttpGateway::new(Settings::parse(&text).unwrap().gateways.remove(0))
    }

    fn take(&self) -> Vec<[String; 4]> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

const TOKEN: &str = "token_file = \"DIR/token\"";

#[tokio::test]
async fn requests_carry_token_path_and_body() {
    let fixture = fixture().await;
    let gateway = fixture.gateway(TOKEN);
    let page = Page { after: Some("t/a".to_owned()), limit: Some(2) };
    let listed = gateway.volumes("c", &page).await.unwrap();
    assert_eq!(listed.next.as_deref(), Some("t/b"));
    let all = Page::default();
    for of in [Of::All, Of::Parent("t/k"), Of::Volume("t/k/a")] {
        gateway.snapshots("c", of, &all).await.unwrap();
    }
    gateway.snapshots_named("c", Of::Volume("t/k/a"), "s", &all).await.unwrap();
    let grant = GrantAccess {
        owner: "c".to_owned(),
        addresses: vec!["10.0.0.1".parse().unwrap()],
        initiator: None,
        read_only: true,
        sole: None,
    };
    let error = gateway.grant("t/k/a", "n_w", &grant).await.unwrap_err();
    assert_eq!((error.code, error.to_string().as_str()), (ErrorCode::InUse, "m; n"));
    let seen = fixture.take();
    assert_eq!(seen[0][1], "/api/v1/volumes?owner=c&after=t%2Fa&limit=2");
    let asked: Vec<&str> = seen[1..5].iter().map(|one| one[1].as_str()).collect();
    let list = "/api/v1/volume-snapshots?owner=c";
    let of_parent = format!("{list}&parent=t%2Fk");
    let of_volume = format!("{list}&volume=t%2Fk%2Fa");
    let named = format!("{of_volume}&name=s");
    assert_eq!(asked, [list, of_parent.as_str(), of_volume.as_str(), named.as_str()]);
    assert_eq!(seen[5][..3], ["PUT", "/api/v1/volumes/t%2Fk%2Fa/access/n_w", "Bearer secret"]);
    assert_eq!(serde_json::from_str::<GrantAccess>(&seen[5][3]).unwrap(), grant);
}

#[tokio::test]
async fn what_is_refused_while_nodes_have_access_is_a_request_of_its_own() {
    let fixture = fixture().await;
    let gateway = fixture.gateway(TOKEN);
    let asked = WithdrawAccess { owner: "c".to_owned(), nodes: Some(vec!["n_w".to_owned()]) };
    for error in [
        gateway.delete_detached("t/k/a", "c").await.unwrap_err(),
        gateway.withdraw("t/k/a", &asked).await.unwrap_err(),
    ] {
        assert_eq!(error.code, ErrorCode::InUse, "{error}");
    }
    let seen = fixture.take();
    assert_eq!(seen[0][..3], ["POST", "/api/v1/volumes/t%2Fk%2Fa/delete", "Bearer secret"]);
    assert_eq!(seen[0][3], r#"{"owner":"c"}"#);
    assert_eq!(seen[1][..2], ["POST", "/api/v1/volumes/t%2Fk%2Fa/withdraw"]);
    assert_eq!(seen[1][3], r#"{"owner":"c","nodes":["n_w"]}"#);
    // What does not come from a gateway says nothing about it, nor that it is an older one.
    let error = gateway.delete_detached("t/k/elsewhere", "c").await.unwrap_err();
    assert_eq!(error.code, ErrorCode::Storage, "{error}");
}

/// A wrong `url`, or a proxy: what answers there knows nothing of volumes.
#[tokio::test]
async fn a_page_that_is_not_found_is_no_absent_volume() {
    let fixture = fixture().await;
    let gateway = fixture.gateway(TOKEN);
    for id in ["t/k/elsewhere", "t/k/malformed"] {
        let error = gateway.volume(id).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::Storage, "{error}");
        let error = gateway.delete_volume(id, "c").await.unwrap_err();
        assert_eq!(error.code, ErrorCode::Storage, "{error}");
    }
}

#[tokio::test]
async fn a_certificate_shows_who_asks() {
    let fixture = fixture().await;
    let own = "certificate_file = \"DIR/own.pem\"\nkey_file = \"DIR/own.key\"";
    assert!(fixture.gateway(own).volumes("c", &Page::default()).await.is_ok());
    let seen = fixture.take();
    assert_eq!((seen[0][0].as_str(), seen[1][2].as_str()), ("certificate", ""));
}

#[tokio::test]
async fn no_token_goes_to_a_gateway_that_is_not_verified() {
    let fixture = fixture().await;
    let other = fixture_ca();
    write(fixture.dir.path(), "ca.pem", &other);
    let error = fixture.gateway(TOKEN).volumes("c", &Page::default()).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::Busy);
    assert!(error.to_string().contains("ca_file"), "{error}");
    assert!(fixture.take().is_empty());
}

/// A certificate that has signed nothing.
fn fixture_ca() -> String {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
}

/// A gateway closes what a host has beyond its places.
#[tokio::test]
async fn few_requests_to_a_gateway_are_under_way_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("api.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let text = format!(
        "owner = \"c\"\n[[gateway]]\nname = \"g\"\nurl = \"unix:{}\"\naddress = \"10.0.0.9\"\n\
         parents = [\"t/k\"]\n",
        path.display()
    );
    let gateway = HttpGateway::new(Settings::parse(&text).unwrap().gateways.remove(0));
    let gateway = Arc::new(gateway);
    let mut requests = JoinSet::new();
    for _ in 0..=MAX_GATEWAY_REQUESTS {
        let gateway = Arc::clone(&gateway);
        requests.spawn(async move { gateway.volume("t/k/a").await });
    }
    let mut held = Vec::new();
    for _ in 0..MAX_GATEWAY_REQUESTS {
        held.push(listener.accept().await.unwrap());
    }
    assert!(timeout(Duration::from_millis(200), listener.accept()).await.is_err());
    // The end of one makes room for the last.
    drop(held.pop());
    assert!(timeout(Duration::from_secs(10), listener.accept()).await.unwrap().is_ok());
}
