//! Bytes from and to the peer.

use std::io;

/// The two directions of a connection's bytes. Neither waits.
pub trait ByteStream {
    /// Reads bytes that have arrived. `Ok(0)`: the peer closed.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if there are none; the stream's error.
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Takes bytes to be sent; returns their number.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if there is no room; the stream's error.
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize>;
}
