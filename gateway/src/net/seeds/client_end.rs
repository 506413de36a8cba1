//! A client's end of a TCP connection to a gateway on the same thread. It never waits: what the
//! socket does not take, or has not got, is tried again.

use rustix::net::sockopt::set_tcp_congestion;
use socket2::{Domain, SockRef, Socket, Type};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// Room of a socket for what its peer has not read. A fixed one: what the kernel finds
/// out about a connection's speed must not change what a seed does.
pub(crate) const SOCKET_BYTES: usize = 208 << 10;
/// Bytes received at once.
const PART_BYTES: usize = 64 << 10;

/// The client's end of a connection.
#[derive(Debug)]
pub(crate) struct ClientEnd {
    pub(crate) stream: TcpStream,
    /// Its own address.
    pub(crate) address: SocketAddr,
    /// Bytes received and not taken yet.
    pub(crate) received: Vec<u8>,
    /// The gateway has ended the connection.
    pub(crate) is_over: bool,
    unsent: VecDeque<u8>,
    part: Vec<u8>,
}

impl ClientEnd {
    /// Connects from one of this machine's addresses. `room_bytes`: the socket's room for what
    /// is not read.
    pub(crate) fn connect(from: IpAddr, to: SocketAddr, room_bytes: usize) -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(room_bytes).unwrap();
        socket.set_send_buffer_size(SOCKET_BYTES).unwrap();
        // Others may send by a timer, which virtual time does not wait for.
        set_tcp_congestion(&socket, "reno").unwrap();
        socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
        socket.connect(&to.into()).unwrap();
        socket.set_tcp_nodelay(true).unwrap();
        socket.set_nonblocking(true).unwrap();
        let stream = TcpStream::from(socket);
        let address = stream.local_addr().unwrap();
        let (received, part) = (Vec::new(), vec![0; PART_BYTES]);
        Self { stream, address, received, is_over: false, unsent: VecDeque::new(), part }
    }

    /// Queues bytes; [`Self::flush`] sends them.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.unsent.extend(bytes);
    }

    /// Returns whether bytes wait for the socket.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Sends what the socket takes; returns whether it has taken anything.
    pub(crate) fn flush(&mut self) -> bool {
        let mut any = false;
        while !self.unsent.is_empty() {
            match self.stream.write(self.unsent.as_slices().0) {
                Ok(sent) => {
                    self.unsent.drain(..sent);
                    any = true;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => {
                    self.unsent.clear();
                    self.is_over = true;
                }
            }
        }
        any
    }

    /// Receives what is there; returns whether anything came, or the connection was found to be
    /// over.
    pub(crate) fn receive(&mut self) -> bool {
        let mut any = false;
        while !self.is_over {
            match self.stream.read(&mut self.part) {
                Ok(got) if got > 0 => self.received.extend_from_slice(&self.part[..got]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Ok(_) | Err(_) => self.is_over = true,
            }
            any = true;
        }
        any
    }

    /// Sends nothing any more.
    pub(crate) fn finish(&mut self) {
        self.flush();
        // The gateway may have reset the connection.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Resets the connection.
    pub(crate) fn reset(self) {
        // Without it the connection would be closed: also an end.
        let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
    }
}
