//! Free ports for servers that are about to start.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the ephemeral ports: another connection could take one of those in the
/// meantime, and a client that connects before the server listens could be
/// assigned the same port and connect to itself.
const PORTS: std::ops::Range<u16> = 15_000..32_000;

/// Returns a free port on the loopback interface, a different one each time.
///
/// # Errors
/// The system's error for the last port tried, if none is free.
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
