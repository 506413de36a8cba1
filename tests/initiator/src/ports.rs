//! Ports for servers yet to come.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// Below those the system gives to clients: another one's connection could take
/// such a port meanwhile, and a client that tries it before the server is there
/// may be given it, too, and talk to itself.
const PORTS: std::ops::Range<u16> = 15_000..32_000;

/// A free port on the loopback interface, another one each time.
///
/// # Errors
/// What the system says of the last one tried when none can be had.
pub fn free_port() -> io::Result<u16> {
    static TRIED: AtomicU16 = AtomicU16::new(0);
    let count = PORTS.end - PORTS.start;
    let first = std::process::id().wrapping_mul(97) as u16;
    let mut tries = 0;
    loop {
        let tried = TRIED.fetch_add(1, Ordering::Relaxed);
        let port = PORTS.start + first.wrapping_add(tried) % count;
        tries += 1;
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(_) => return Ok(port),
            Err(error) if tries == count => return Err(error),
            Err(_) => {}
        }
    }
}
