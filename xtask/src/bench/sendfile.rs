//! Upper limit: a loop that answers eight bytes of offset with 1 MiB of
//! `sendfile`, and its client.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Instant;

/// Size of one answer in bytes.
const BLOCK_BYTES: usize = 1 << 20;

/// Serves `file` on `port` until killed, one connection after the other.
///
/// # Errors
/// The error of the operating system.
pub(crate) fn serve(port: u16, file: &Path) -> io::Result<()> {
    let file = File::open(file)?;
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    loop {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let mut request = [0; 8];
        while stream.read_exact(&mut request).is_ok() {
            let mut offset = u64::from_be_bytes(request);
            let end = offset + BLOCK_BYTES as u64;
            while offset < end {
                let rest = (end - offset) as usize;
                if rustix::fs::sendfile(&stream, &file, Some(&mut offset), rest)? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
        }
    }
}

/// Reads `size` bytes with `depth` requests in flight; returns the seconds it
/// took.
///
/// # Errors
/// The error of the connection.
pub(crate) fn load(address: SocketAddr, size: u64, depth: u64) -> io::Result<f64> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let blocks = size / BLOCK_BYTES as u64;
    let mut block = vec![0; BLOCK_BYTES];
    let begun = Instant::now();
    let mut asked = 0;
    for done in 0..blocks {
        while asked < blocks.min(done + depth) {
            stream.write_all(&(asked * BLOCK_BYTES as u64).to_be_bytes())?;
            asked += 1;
        }
        stream.read_exact(&mut block)?;
    }
    Ok(begun.elapsed().as_secs_f64())
}
