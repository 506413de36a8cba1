//! Notifications of systemd: ready, and watchdog.

use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::Duration;
use zgate_test_harness::{Gateway, zgate_binary};

/// Returns the command that serves a stopped gateway's configuration, and the socket to which that
/// sends its notifications.
pub(crate) fn serve_notifying(gateway: &Gateway) -> (UnixDatagram, Command) {
    let path = gateway.dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut serve = Command::new(zgate_binary());
    serve.args(["serve", "--config"]).arg(gateway.dir.path().join("zgate.toml"));
    serve.env("NOTIFY_SOCKET", &path).stdout(Stdio::null());
    (socket, serve)
}

#[test]
fn a_gateway_whose_cores_answer_gives_signs_of_life() {
    let mut gateway = Gateway::start(90);
    gateway.stop();
    let (socket, mut serve) = serve_notifying(&gateway);
    let mut child = serve.env("WATCHDOG_USEC", "200000").stderr(Stdio::null()).spawn().unwrap();
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
