//! Certificates of clients: what entries require of them, the user that they
//! name, and their revocation.

use super::tests::{NAMED, gateway_with};
use super::tls_tests::{
    ACCES, SUCCESS, SUNRPC, Secure, connect, ended, getattr, null, offer_with, run,
};
use crate::server::run::Gateway;
use sha2::{Digest, Sha256};
use zgate_test_harness::certificates::{Authority, Leaf, client_with};

/// Asks for the attributes of the export's root; returns the status.
async fn status(gateway: &Gateway, ca: &Authority, leaf: Option<&Leaf>) -> u32 {
    let tls = client_with(ca, leaf, SUNRPC);
    let secure = Secure::begin(connect(gateway, NAMED), tls).await.unwrap();
    let secure = tokio::sync::Mutex::new(secure);
    getattr(async |call| secure.lock().await.ask(&call).await).await
}

/// Fingerprint of a certificate in PEM form.
fn fingerprint(pem: &str) -> String {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    Sha256::digest(&der).iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":")
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
        let required = fingerprint(&required.pem());
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
