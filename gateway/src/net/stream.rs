//! Events of a socket, and reads without a second system call.

use super::connection_end::{Closed, ConnectionEnd};
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

/// State of a socket that was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ready {
    Read,
    Write,
}

/// Waits until data can be sent, if there is any, or received, if it may be.
/// Cancel safe.
///
/// # Errors
/// The socket's error.
pub(crate) async fn ready(
    stream: &TcpStream,
    has_unsent: bool,
    may_read: bool,
) -> io::Result<Ready> {
    tokio::select! {
        biased;
        ready = stream.writable(), if has_unsent => ready.map(|()| Ready::Write),
        ready = stream.readable(), if may_read => ready.map(|()| Ready::Read),
        else => std::future::pending().await,
    }
}

/// Returns the number of bytes that a read without waiting received.
///
/// # Errors
/// The end of the connection.
pub(crate) fn received(read: io::Result<usize>) -> Result<usize, ConnectionEnd> {
    match read {
        Ok(0) => Err(Closed::ByPeer.into()),
        Ok(got) => Ok(got),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        Err(error) => Err(error.into()),
    }
}
