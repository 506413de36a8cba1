//! A command whose output is no longer read ends silently. A gateway whose log cannot be
//! written serves on.

use crate::watchdog::serve_notifying;
use std::fs::File;
use std::process::{Command, Stdio};
use zgate_test_harness::{Gateway, zgate_binary};

#[test]
fn no_panic_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("zgate.toml");
    std::fs::write(&config, "").unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let ended = Command::new(zgate_binary())
        .args(["config", "show", "--json", "--config"])
        .arg(&config)
        .stdout(Stdio::from(writer))
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "");
    assert_eq!(ended.status.code(), Some(141));
}

#[test]
fn a_gateway_whose_log_is_on_a_full_disk_serves() {
    let mut gateway = Gateway::start(90);
    gateway.stop();
    let (socket, mut serve) = serve_notifying(&gateway);
    // Each write to it fails, as to a file on a disk that is full.
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut child = serve.env("ZGATE_LOG", "info").stderr(Stdio::from(full)).spawn().unwrap();
    let mut buffer = [0; 256];
    let said = socket.recv(&mut buffer).map(|len| buffer[..len].to_vec());
    let ended = child.try_wait().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    // It logs before and after this.
    assert_eq!(said.unwrap(), b"READY=1", "{ended:?}");
    assert_eq!(ended, None);
}
