//! Notifications of systemd: ready, and watchdog.

use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::Duration;
use zgate_test_harness::{Gateway, zgate_binary};

#[test]
fn a_gateway_whose_cores_answer_gives_signs_of_life() {
    let mut gateway = Gateway::start(90);
    gateway.stop();
    let path = gateway.dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut child = Command::new(zgate_binary())
        .args(["serve", "--config"])
        .arg(gateway.dir.path().join("zgate.toml"))
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "200000")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut said = Vec::new();
    let mut buffer = [0; 256];
    while said.iter().filter(|state| *state == "WATCHDOG=1").count() < 3 {
        let Ok(len) = socket.recv(&mut buffer) else { break };
        said.push(String::from_utf8_lossy(&buffer[..len]).into_owned());
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(said.contains(&"READY=1".to_owned()), "{said:?}");
    assert_eq!(said.iter().filter(|state| *state == "WATCHDOG=1").count(), 3, "{said:?}");
}
