//! NFS over TLS (RFC 9289) with the gateway as a process: an outside judge, the
//! project's own client through a tunnel, and certificates that are replaced.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use zgate_loader::compound::Ops;
use zgate_loader::{Client, File, OpenMode};
use zgate_nfs_wire::v4::op::secinfo;
use zgate_nfs_wire::v4::{Component, OpNum, Status};
use zgate_test_harness::certificates::{Authority, client, server_files};
use zgate_test_harness::tls_tunnel::{TlsTunnel, begin};
use zgate_test_harness::{
    Client as Plain, Gateway, loader_options, noise, not_run, runtime, zgate_binary,
};

const SUNRPC: &[&[u8]] = &[b"sunrpc"];
const FILE_BYTES: usize = 3 << 20;

/// `[tls]`, and exports that require it.
const TLS: &str = "[tls]\ncertificate = \"{dir}/server.pem\"\nkey = \"{dir}/server.key\"\n\
    client_ca = \"{dir}/ca.pem\"\n\
    [[export]]\npath = \"{dir}/secure\"\npseudo = \"/tls\"\n\
    clients = [{ match = \"127.0.0.1\", access = \"rw\", squash = \"none\", transport = \"tls\" }]\n\
    [[export]]\npath = \"{dir}/mutual\"\npseudo = \"/mtls\"\n\
    clients = [{ match = \"127.0.0.1\", access = \"rw\", squash = \"none\", transport = \"mtls\" }]\n";

fn start(ca: &Authority) -> Gateway {
    Gateway::start_prepared(60, TLS, |dir| {
        server_files(dir, ca, Some(ca));
        for name in ["secure", "mutual"] {
            fs::create_dir(dir.join(name)).unwrap();
        }
    })
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Returns whether the machine has a Python with the module ssl; otherwise the test
/// does not run.
fn has_judge(test: &str) -> bool {
    let asked = Command::new("python3").args(["-c", "import ssl"]).output();
    let found = asked.is_ok_and(|output| output.status.success());
    if !found {
        not_run(test, "it needs python3 with the module ssl");
    }
    found
}

/// Runs the judge; `Err`: the output of its failure.
fn judge(gateway: &Gateway, export: &str, identity: Option<&Authority>) -> Result<String, String> {
    let (dir, script) = (gateway.dir.path(), Path::new(env!("CARGO_MANIFEST_DIR")));
    let mut command = Command::new("python3");
    command.arg(script.join("../tests/gateway/tls_judge.py"));
    command.args(["127.0.0.1", &gateway.address.port().to_string()]);
    command.arg(dir.join("ca.pem")).arg(export);
    if let Some(authority) = identity {
        let (certificate, key) = authority.leaf(now() - 3600, now() + 3600);
        fs::write(dir.join("client.pem"), certificate).unwrap();
        fs::write(dir.join("client.key"), key).unwrap();
        command.args([dir.join("client.pem"), dir.join("client.key")]);
    }
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[test]
fn openssl_is_served_over_every_version() {
    if !has_judge("OpenSSL as a client of NFS over TLS") {
        return;
    }
    let ca = Authority::new();
    let gateway = start(&ca);
    for (export, identity) in [("/export", None), ("/tls", None), ("/mtls", Some(&ca))] {
        let said = judge(&gateway, export, identity).unwrap_or_else(|said| panic!("{said}"));
        assert!(said.starts_with("judged: TLSv1.3 sunrpc"), "{export}: {said}");
    }
    // NFS3ERR_ACCES for CREATE, as MNT gives the handle to everyone.
    let refused = judge(&gateway, "/mtls", None).unwrap_err();
    assert!(refused.contains("status 13"), "{refused}");
    let foreign = judge(&gateway, "/mtls", Some(&Authority::new())).unwrap_err();
    assert!(foreign.contains("alert"), "{foreign}");
}

#[test]
fn an_export_that_requires_tls_is_closed_in_the_clear() {
    let ca = Authority::new();
    let gateway = start(&ca);
    let mut plain = Plain::ready(&gateway, "plain");
    let root = plain.root.clone();
    plain.create(&root, "file").unwrap();
    for export in ["tls", "mtls"] {
        let refused = Plain::connect_from(&gateway, gateway.address.ip(), "refused", export);
        assert_eq!(refused.err().unwrap().status(), Some(Status::Wrongsec), "{export}");
    }
    // SECINFO offers nothing over a connection with which nothing would do.
    for (export, expected) in [("export", vec![1]), ("tls", Vec::new()), ("mtls", Vec::new())] {
        let name: Component = export.as_bytes().into();
        let ops = Ops::new().putrootfh().op(OpNum::Secinfo, &name);
        let mut results = plain.call(ops).unwrap();
        results.skip(OpNum::Putrootfh).unwrap();
        let offered: secinfo::Res = results.next(OpNum::Secinfo).unwrap();
        assert_eq!(offered.flavors, expected, "{export}");
    }
}

/// Reads a file under a delegation while somebody else opens it for writing: the
/// recall and its reply are on the connection in TLS.
#[test]
fn data_and_callbacks_go_through_tls() {
    let ca = Authority::new();
    let gateway = start(&ca);
    let content = noise(7, FILE_BYTES);
    fs::write(gateway.export().join("file"), &content).unwrap();
    let tunnel = TlsTunnel::to(gateway.address, move || client(&ca, None, SUNRPC));
    runtime().block_on(async {
        let secure = Client::connect(tunnel.address, &loader_options(2)).await.unwrap();
        let dir = secure.find("/export").await.unwrap().fh;
        let file = File::open(&secure, &dir, "file", OpenMode::Read).await.unwrap();
        assert_eq!(secure.delegations().granted, 1);
        for at in (0..FILE_BYTES).step_by(1 << 20) {
            let (_, data) = file.read(&secure, at as u64, 1 << 20).await.unwrap();
            assert!(data[..] == content[at..at + (1 << 20)], "at {at}");
        }
        let mut writer = Plain::ready(&gateway, "writer");
        let root = writer.root.clone();
        let opened = loop {
            match writer.open_existing(&root, "file") {
                Ok(opened) => break opened,
                Err(error) => assert_eq!(error.status(), Some(Status::Delay), "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        assert_eq!(secure.delegations().recalled, 1);
        writer.write(&opened, 0, 2, b"changed").unwrap();
        assert_eq!(&file.read(&secure, 0, 7).await.unwrap().1[..], b"changed");
        file.close(&secure).await.unwrap();
        secure.close().await;
    });
    let (moved, copied) = gateway.carried("tcp", "read");
    assert!(moved >= FILE_BYTES as u64 && copied >= FILE_BYTES as u64, "{moved} {copied}");
}

#[test]
fn a_reload_replaces_certificates_and_refuses_wrong_ones() {
    let (old, new, other) = (Authority::new(), Authority::new(), Authority::new());
    let gateway = start(&old);
    let dir = gateway.dir.path();
    let server = |ca: &Authority| begin(gateway.address, client(ca, None, SUNRPC));
    assert!(server(&old).is_ok() && server(&new).is_err());
    server_files(dir, &new, Some(&new));
    let said = gateway.command(&["reload"]);
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    assert!(server(&old).is_err() && server(&new).is_ok());
    // The key of another certificate: nothing changes.
    fs::write(dir.join("server.key"), other.leaf(0, now()).1).unwrap();
    let said = gateway.command(&["reload"]);
    let text = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(!said.status.success() && text.contains("tls.key: it is not the key"), "{text}");
    assert!(server(&new).is_ok());
}

#[test]
fn config_check_says_what_is_wrong_with_a_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let ca = Authority::new();
    let files = server_files(dir.path(), &ca, None);
    let file = dir.path().join("zgate.toml");
    let (certificate, key) = (files.certificate.display(), files.key.display());
    let config = format!("[tls]\ncertificate = \"{certificate}\"\nkey = \"{key}\"\n");
    fs::write(&file, config).unwrap();
    let check_with = |options: &[&str]| {
        let mut command = Command::new(zgate_binary());
        let done = command.args(["config", "check"]).args(options).arg(&file).output().unwrap();
        (done.status.success(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let check = || check_with(&[]);
    assert!(check().0);
    let (expired, its_key) = ca.leaf(0, now() - 5);
    fs::write(&files.certificate, expired).unwrap();
    let (ok, said) = check();
    assert!(!ok && said.contains("tls.key: it is not the key of the certificate"), "{said}");
    fs::write(&files.key, &its_key).unwrap();
    let (ok, said) = check();
    // A gateway starts with it, and its unit asks before each start.
    let expired = "tls.certificate: the certificate has expired";
    assert!(ok && said.contains(&format!("warning: {expired}")), "{said}");
    let (ok, said) = check_with(&["--strict"]);
    assert!(!ok && said.contains(&format!("error: {expired}")), "{said}");
    fs::remove_file(&files.key).unwrap();
    let (ok, said) = check();
    assert!(
        !ok && said.contains("tls.key: cannot read") && said.contains("zgate.toml:3"),
        "{said}"
    );
    assert!(!said.contains(its_key.lines().nth(1).unwrap()));
}

#[test]
fn config_check_says_which_authority_is_unknown() {
    let dir = tempfile::tempdir().unwrap();
    let ca = Authority::new();
    let files = server_files(dir.path(), &ca, Some(&ca));
    let file = dir.path().join("zgate.toml");
    let check = |authority: &Authority, options: &[&str]| {
        let pem = dir.path().join("required.pem");
        fs::write(&pem, authority.pem()).unwrap();
        let config = format!(
            "[tls]\ncertificate = {:?}\nkey = {:?}\nclient_ca = {:?}\n\
             [[export]]\npath = {:?}\npseudo = \"/export\"\n\
             clients = [{{ match = \"*\", transport = \"mtls\", \
             certificate = {{ authorities = [\"{}\"] }} }}]\n",
            files.certificate,
            files.key,
            files.client_ca.as_ref().unwrap(),
            dir.path(),
            authority.fingerprint()
        );
        fs::write(&file, config).unwrap();
        let mut command = Command::new(zgate_binary());
        let done = command.args(["config", "check"]).args(options).arg(&file).output().unwrap();
        (done.status.success(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let unknown = "no authority of tls.client_ca has the fingerprint";
    let (ok, said) = check(&ca, &[]);
    assert!(ok && !said.contains(unknown), "{said}");
    let other = Authority::new();
    let (ok, said) = check(&other, &[]);
    assert!(ok && said.contains("warning: ") && said.contains(unknown), "{said}");
    let (ok, said) = check(&other, &["--strict"]);
    assert!(!ok && said.contains("error: ") && said.contains(unknown), "{said}");
}
