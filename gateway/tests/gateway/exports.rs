//! Exports are separate even on one file system, and a reload does not affect
//! unchanged exports.

use std::fs;
use zgate_loader::ClientError;
use zgate_loader::compound::Ops;
use zgate_nfs_wire::v4::Fh;
use zgate_nfs_wire::v4::op::create;
use zgate_nfs_wire::v4::{OpNum, Status};
use zgate_store::file_store::NewNode;
use zgate_test_harness::{Client, Gateway, mode_attr};
use zgate_xdr::Opaque;

/// Position of the export's number in a file handle.
const EXPORT_NUMBER: std::ops::Range<usize> = 4..8;

fn export_root(client: &mut Client, name: &str) -> Fh {
    let ops = Ops::new().putrootfh().lookup(name.as_bytes()).getfh();
    let mut results = client.call(ops).unwrap();
    results.skip(OpNum::Putrootfh).unwrap();
    results.skip(OpNum::Lookup).unwrap();
    results.next(OpNum::Getfh).unwrap()
}

fn mkdir(client: &mut Client, at: &Fh, name: &str) -> Result<(), ClientError> {
    let args = create::Args {
        kind: create::Kind::Node(NewNode::Directory),
        name: Opaque(name.as_bytes().to_vec()),
        attrs: mode_attr(0o755),
    };
    let mut results = client.call(Ops::new().putfh(at).op(OpNum::Create, &args))?;
    results.skip(OpNum::Putfh)?;
    results.next::<create::Res>(OpNum::Create).map(|_| ())
}

#[test]
fn a_handle_opens_no_other_export() {
    let gateway = Gateway::start_with(
        60,
        "[[export]]\npath = \"{dir}/export\"\npseudo = \"/closed\"\nread_only = true\n\
         clients = [{ match = \"127.0.0.1\" }]\n",
    );
    let mut client = Client::ready(&gateway, "curious");
    let (open, closed) = (client.root.clone(), export_root(&mut client, "closed"));
    mkdir(&mut client, &open, "allowed").unwrap();
    assert_eq!(mkdir(&mut client, &closed, "refused").unwrap_err().status(), Some(Status::Rofs));
    // The closed tree's handle under the open export's number.
    let mut forged = closed.clone();
    forged.0[EXPORT_NUMBER].copy_from_slice(&open.0[EXPORT_NUMBER]);
    let status = mkdir(&mut client, &forged, "forged").unwrap_err().status();
    assert!(matches!(status, Some(Status::Badhandle | Status::Stale)), "{status:?}");
    assert!(!gateway.export().join("forged").exists());
}

#[test]
fn a_reload_keeps_what_it_does_not_change() {
    let gateway = Gateway::start(60);
    let mut client = Client::ready(&gateway, "patient");
    let root = client.root.clone();
    let file = client.create(&root, "open").unwrap();
    client.write(&file, 0, 2, b"before").unwrap();
    let config = gateway.dir.path().join("zgate.toml");
    let text = fs::read_to_string(&config).unwrap();
    let second = gateway.dir.path().join("second");
    fs::create_dir(&second).unwrap();
    let more = format!(
        "[[export]]\npath = \"{}\"\npseudo = \"/second\"\nclients = [{{ match = \"127.0.0.1\" }}]\n",
        second.display()
    );
    fs::write(&config, format!("{text}{more}")).unwrap();
    assert!(gateway.command(&["reload"]).status.success());
    export_root(&mut client, "second");
    // The open file and its handle stay valid.
    client.write(&file, 6, 2, b" and after").unwrap();
    let (_, data) = client.read(&file.fh, file.stateid, 0, 100).unwrap();
    assert_eq!(data, b"before and after");

    // A configuration with an error changes nothing.
    fs::write(&config, format!("{text}[[export]]\npaht = \"/\"\n")).unwrap();
    let refused = gateway.command(&["reload"]);
    assert!(!refused.status.success());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("paht") && said.contains("path"), "{said}");
    export_root(&mut client, "second");
}
