//! A command whose output nobody reads on ends without a word.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::process::{Command, Stdio};

#[test]
fn no_panic_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("zgate.toml");
    std::fs::write(&config, "").unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let ended = Command::new(env!("CARGO_BIN_EXE_zgate"))
        .args(["config", "show", "--json", "--config"])
        .arg(&config)
        .stdout(Stdio::from(writer))
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "");
    assert_eq!(ended.status.code(), Some(141));
}
