//! Certificates of clients: what entries require of them, the user that they
//! name, and their revocation.

use super::tests::{NAMED, gateway_with, run};
use super::tls_tests::{ACCES, SUCCESS, SUNRPC, Secure, connect, ended, getattr, null, offer_with};
use crate::observe::log_of_test::logged;
use crate::server::run::Gateway;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use zgate_test_harness::certificates::{
    Authority, Leaf, client_config, client_with, connection, fingerprint,
};

/// Asks for the attributes of the export's root; returns the status.
async fn status(gateway: &Gateway, ca: &Authority, leaf: Option<&Leaf>) -> u32 {
    let tls = client_with(ca, leaf, SUNRPC);
    let secure = Secure::begin(connect(gateway, NAMED), tls).await.unwrap();
    let secure = tokio::sync::Mutex::new(secure);
    getattr(async |call| secure.lock().await.ask(&call).await).await
}

#[test]
fn an_entry_admits_the_certificates_that_it_requires() {
    let ca = Authority::new();
    let good = ca.client(1, &["dns:one.hpc.example", "user:root@lab.example"]);
    let other = ca.client(2, &["dns:one.example", "user:no such user@lab.example"]);
    let bare = ca.client(3, &["user:root@elsewhere.example"]);
    for entry in [
        format!("certificate = {{ fingerprints = [\"{}\"] }}", fingerprint(&good.certificate)),
        "certificate = { names = [\"dns:*.hpc.example\"] }".to_owned(),
        "identity = \"san\"".to_owned(),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let gateway = gateway_with(dir.path(), &format!("transport = \"mtls\"\n{entry}"));
        offer_with(&gateway, dir.path(), &ca, Some(&ca), None);
        run(false, async {
            assert_eq!(status(&gateway, &ca, Some(&good)).await, 0, "{entry}");
            for refused in [Some(&other), Some(&bare), None] {
                assert_eq!(status(&gateway, &ca, refused).await, ACCES, "{entry}");
            }
        });
        gateway.stop();
    }
    // The authority that has signed it, of several.
    for (required, expected) in [(&ca, 0), (&Authority::new(), ACCES)] {
        let dir = tempfile::tempdir().unwrap();
        let required = required.fingerprint();
        let entry =
            format!("transport = \"mtls\"\ncertificate = {{ authorities = [\"{required}\"] }}");
        let gateway = gateway_with(dir.path(), &entry);
        offer_with(&gateway, dir.path(), &ca, Some(&ca), None);
        run(false, async {
            assert_eq!(status(&gateway, &ca, Some(&good)).await, expected);
        });
        gateway.stop();
    }
}

#[test]
fn a_reload_ends_the_connections_of_revoked_certificates_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = gateway_with(dir.path(), "transport = \"tls\"");
    let ca = Authority::new();
    let offer = |serials: &[u64]| {
        let list = ca.revocation_list(serials, 3600);
        offer_with(&gateway, dir.path(), &ca, Some(&ca), Some(&list));
    };
    offer(&[]);
    let (one, two) = (ca.client(1, &[]), ca.client(2, &[]));
    run(false, async {
        let begin = async |leaf: Option<&Leaf>| {
            let tls = client_with(&ca, leaf, SUNRPC);
            Secure::begin(connect(&gateway, NAMED), tls).await.unwrap()
        };
        let mut first = begin(Some(&one)).await;
        let mut second = begin(Some(&two)).await;
        let mut without = begin(None).await;
        for secure in [&mut first, &mut second, &mut without] {
            assert_eq!(secure.ask(&null()).await, SUCCESS);
        }
        offer(&[2]);
        assert_eq!(first.ask(&null()).await, SUCCESS);
        assert_eq!(without.ask(&null()).await, SUCCESS);
        second.send_call(&null()).await;
        assert_eq!(second.read(1).await, None, "no answer, but the end");
        assert_eq!(ended(&gateway, "refused"), 1);
        // Nor does it come back; the others do.
        assert_eq!(begin(Some(&one)).await.ask(&null()).await, SUCCESS);
        let mut again = begin(Some(&two)).await;
        let refused = again.receive().await.unwrap_err().to_string();
        assert!(refused.contains("CertificateRevoked"), "{refused}");
    });
    let page = crate::server::metrics::render(&gateway.shared);
    assert!(page.contains("zgate_tls_certificate_expiry_seconds{file=\"client_crl\"}"), "{page}");
    gateway.stop();
}

/// Secrets of a client's sessions, as it derives them.
#[derive(Debug, Default)]
struct Secrets(Mutex<Vec<Vec<u8>>>);

impl rustls::KeyLog for Secrets {
    fn log(&self, _label: &str, _client_random: &[u8], secret: &[u8]) {
        self.0.lock().unwrap().push(secret.to_vec());
    }
}

#[test]
fn no_secret_reaches_the_log_at_any_level() {
    let secrets = Arc::new(Secrets::default());
    let (key, text) = logged(tracing::Level::TRACE, || {
        let dir = tempfile::tempdir().unwrap();
        let gateway = gateway_with(dir.path(), "transport = \"mtls\"\nidentity = \"san\"");
        let ca = Authority::new();
        offer_with(&gateway, dir.path(), &ca, Some(&ca), None);
        let good = ca.client(1, &["user:no such user@lab.example"]);
        run(false, async {
            assert_eq!(status(&gateway, &ca, Some(&good)).await, ACCES);
            let mut config = client_config(&ca, Some(&good), SUNRPC);
            config.key_log = Arc::<Secrets>::clone(&secrets);
            let stream = connect(&gateway, NAMED);
            let mut secure = Secure::begin(stream, connection(config)).await.unwrap();
            assert_eq!(secure.ask(&null()).await, SUCCESS);
            // A violation, which is logged.
            secure.send_in_the_clear(&[0; 64]).await;
            while ended(&gateway, "protocol") == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        gateway.stop();
        std::fs::read_to_string(dir.path().join("server.key")).unwrap()
    });
    assert!(text.contains("no user of this machine"), "{text}");
    assert!(text.contains("closing the connection"), "{text}");
    assert!(!text.contains(key.lines().nth(1).unwrap()));
    let secrets = secrets.0.lock().unwrap();
    assert!(secrets.len() >= 4, "the client has told its secrets");
    for secret in secrets.iter() {
        let hexadecimal: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(!text.to_lowercase().contains(&hexadecimal));
        assert!(!text.contains(&format!("{secret:?}")));
        assert!(!text.as_bytes().windows(secret.len()).any(|window| window == secret));
    }
}

/// TLS 1.3 has no renegotiation: whoever tries it loses the connection.
#[test]
fn a_second_handshake_and_a_flood_of_keys_cost_their_connection_at_most() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = gateway_with(dir.path(), "transport = \"tls\"");
    let ca = Authority::new();
    offer_with(&gateway, dir.path(), &ca, Some(&ca), None);
    run(false, async {
        let begin = async || {
            let tls = client_with(&ca, None, SUNRPC);
            Secure::begin(connect(&gateway, NAMED), tls).await.unwrap()
        };
        let mut other = begin().await;
        let mut hello = Vec::new();
        client_with(&ca, None, SUNRPC).write_tls(&mut hello).unwrap();
        let mut again = begin().await;
        again.send_in_the_clear(&hello).await;
        assert!(again.receive().await.is_err(), "an alert");
        assert_eq!(ended(&gateway, "protocol"), 1);
        // New keys now and then are welcome; over and over, without a call, they are
        // work for nothing.
        let mut flood = begin().await;
        for _ in 0..200 {
            flood.tls.refresh_traffic_keys().unwrap();
            assert_eq!(flood.ask(&null()).await, SUCCESS);
        }
        let mut updates = Vec::new();
        for _ in 0..200 {
            flood.tls.refresh_traffic_keys().unwrap();
            flood.tls.write_tls(&mut updates).unwrap();
        }
        flood.send_in_the_clear(&updates).await;
        while ended(&gateway, "protocol") < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(other.ask(&null()).await, SUCCESS);
    });
    gateway.stop();
}
