//! Byte streams to a server. They are sockets; a program that tests the client
//! on virtual time gives its own (docs/SIMULATOR.md).

use std::fmt;
use std::future::Future;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::tcp::OwnedReadHalf;

/// Receiving half of a byte stream.
pub trait ReceiveHalf: AsyncRead + Send + Unpin + 'static {
    /// Reads into several places, one after the other, as soon as there are
    /// bytes; 0 at the end of the stream.
    fn poll_read_vectored(
        &mut self,
        context: &mut Context<'_>,
        places: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>>;

    /// Makes the next wait end when `bytes` are available. A stream that cannot
    /// do that wakes up earlier.
    ///
    /// # Errors
    /// The error of the socket.
    fn wake_after(&mut self, bytes: usize) -> io::Result<()> {
        let _earlier = bytes;
        Ok(())
    }
}

impl ReceiveHalf for OwnedReadHalf {
    fn poll_read_vectored(
        &mut self,
        context: &mut Context<'_>,
        places: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.as_ref().poll_read_ready(context))?;
            match self.try_read_vectored(places) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }

    fn wake_after(&mut self, bytes: usize) -> io::Result<()> {
        zgate_io::low_water::set(self.as_ref(), bytes)
    }
}

impl ReceiveHalf for Box<dyn ReceiveHalf> {
    fn poll_read_vectored(
        &mut self,
        context: &mut Context<'_>,
        places: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        (**self).poll_read_vectored(context, places)
    }

    fn wake_after(&mut self, bytes: usize) -> io::Result<()> {
        (**self).wake_after(bytes)
    }
}

/// Halves of a stream that is no socket.
pub type Halves = (Box<dyn ReceiveHalf>, Box<dyn AsyncWrite + Send + Unpin>);
/// An attempt to connect.
pub type Dialing = Pin<Box<dyn Future<Output = io::Result<Halves>> + Send>>;

/// Connects to servers in place of the system's sockets.
pub trait Dial: fmt::Debug + Send + Sync {
    /// Makes one attempt to connect.
    fn dial(&self, address: SocketAddr) -> Dialing;
}
