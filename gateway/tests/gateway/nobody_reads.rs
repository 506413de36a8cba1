//! A command whose output is no longer read ends silently.

use std::process::{Command, Stdio};
use zgate_test_harness::zgate_binary;

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
