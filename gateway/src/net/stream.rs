//! Reads of a socket without a second system call.

use std::io;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// Reads the available data without waiting. A read that leaves room in
/// `buffer` has emptied the socket; the runtime is informed of that at once,
/// instead of by a second read that finds nothing.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] if no data is available; the socket's error.
pub(crate) fn read_some(stream: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    let mut got = None;
    let result = stream.try_io(Interest::READABLE, || {
        let count = rustix::net::recv(stream, &mut *buffer, rustix::net::RecvFlags::empty())?.0;
        got = Some(count);
        if (1..buffer.len()).contains(&count) {
            Err(io::ErrorKind::WouldBlock.into())
        } else {
            Ok(())
        }
    });
    match (got, result) {
        (Some(count), _) => Ok(count),
        (None, Err(error)) => Err(error),
        // If no read was made, there is an error.
        (None, Ok(())) => Err(io::ErrorKind::WouldBlock.into()),
    }
}
