//! Files that another one replaces between the search for their name and their
//! open: what counts is the length of the file that is open.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use zgate_test_harness::{Gateway, noise, zgate_binary};

/// Name of the file. A client names it when it looks it up, and when it opens
/// it.
const NAME: &str = "x.gguf";

/// Requests seen so far, and what happens before the second one with the name.
struct Watch {
    requests: Vec<u8>,
    before_open: Option<Box<dyn FnOnce() + Send>>,
}

impl Watch {
    fn see(&mut self, bytes: &[u8]) {
        self.requests.extend_from_slice(bytes);
        let windows = self.requests.windows(NAME.len());
        let named = windows.filter(|window| *window == NAME.as_bytes()).count();
        if named >= 2
            && let Some(before_open) = self.before_open.take()
        {
            before_open();
        }
    }
}

/// Starts a proxy; returns its address.
fn proxy(server: SocketAddr, before_open: impl FnOnce() + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let before_open: Option<Box<dyn FnOnce() + Send>> = Some(Box::new(before_open));
    let watch = Arc::new(Mutex::new(Watch { requests: Vec::new(), before_open }));
    std::thread::spawn(move || {
        while let Ok((mut client, _)) = listener.accept() {
            let Ok(mut upstream) = TcpStream::connect(server) else { continue };
            let (mut back, mut out) = (upstream.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut back, &mut out));
            let watch = Arc::clone(&watch);
            std::thread::spawn(move || {
                let mut buffer = vec![0; 64 << 10];
                while let Ok(got @ 1..) = client.read(&mut buffer) {
                    watch.lock().unwrap().see(&buffer[..got]);
                    if upstream.write_all(&buffer[..got]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

fn content(seed: u64, len: usize) -> Vec<u8> {
    [b"GGUF", &noise(seed, len)[..]].concat()
}

/// Runs `zgate` on a short file that a longer one replaces; returns the JSON it
/// prints.
fn run(command: &str, to: Option<&Path>) -> serde_json::Value {
    let gateway = Gateway::start(20);
    let path = gateway.export().join(NAME);
    std::fs::write(&path, content(1, 1000)).unwrap();
    let address = proxy(gateway.address, move || {
        let other = path.with_extension("new");
        std::fs::write(&other, content(2, 3000)).unwrap();
        std::fs::rename(&other, &path).unwrap();
    });
    let url = format!("nfs://127.0.0.1:{}/export/{NAME}?rdma=off&connections=1", address.port());
    let mut zgate = Command::new(zgate_binary());
    let said = zgate.args([command, "--json", &url]).args(to).output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    serde_json::from_slice(&said.stdout).unwrap()
}

#[test]
fn a_copy_has_the_length_of_the_file_that_is_open() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("copy");
    assert_eq!(run("cp", Some(&to))["bytes"], 3004);
    assert!(std::fs::read(to).unwrap() == content(2, 3000), "it is not the longer file");
}

#[test]
fn a_load_has_the_length_of_the_file_that_is_open() {
    assert_eq!(run("load", None)[0]["bytes"], 3004);
}
