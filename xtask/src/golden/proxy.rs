//! A TCP proxy that records both directions of its connections.

use super::stream::Stream;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};

/// Bytes that are forwarded at once.
const CHUNK_BYTES: usize = 64 << 10;

/// A connection, recorded.
#[derive(Debug)]
pub(super) struct Recording {
    /// The bytes of the client.
    pub(super) sent: Stream,
    /// The bytes of the server.
    pub(super) received: Stream,
}

/// A proxy before a server; [`Self::finish`] returns its recording.
#[derive(Debug)]
pub(super) struct Recorder {
    /// Its own address, for the client.
    pub(super) address: SocketAddr,
    listener: TcpListener,
    accepting: JoinHandle<io::Result<Vec<Recording>>>,
}

impl Recorder {
    /// Starts a proxy before the server at `to`.
    ///
    /// # Errors
    /// Errors of the system.
    pub(super) fn start(to: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let accepted = listener.try_clone()?;
        let accepting = thread::spawn(move || accept(&accepted, to));
        Ok(Self { address, listener, accepting })
    }

    /// Returns all connections. The client must have ended: its
    /// connections are read to their ends.
    ///
    /// # Errors
    /// If a connection broke.
    pub(super) fn finish(self) -> io::Result<Vec<Recording>> {
        // `accept` ends when no connection waits. One that waits for the next
        // connection is woken by an empty one.
        self.listener.set_nonblocking(true)?;
        drop(TcpStream::connect(self.address)?);
        self.accepting.join().map_err(|_| io::Error::other("the recording proxy panicked"))?
    }
}

/// Serves connections until the listener no longer blocks and none waits.
fn accept(listener: &TcpListener, to: SocketAddr) -> io::Result<Vec<Recording>> {
    let mut connections = Vec::new();
    loop {
        match listener.accept() {
            Ok((client, from)) => {
                client.set_nonblocking(false)?;
                // A server that is not there refuses the client by the end of its connection.
                let Ok(server) = TcpStream::connect(to) else { continue };
                let (back_from, back_to) = (server.try_clone()?, client.try_clone()?);
                let back = thread::spawn(move || forward(back_from, back_to));
                let forth = thread::spawn(move || {
                    let sent = forward(client, server.try_clone()?);
                    // The client is gone. This ends the other direction behind the
                    // bytes that have arrived.
                    match server.shutdown(Shutdown::Both) {
                        Err(error) if error.kind() != io::ErrorKind::NotConnected => Err(error),
                        _ => Ok(sent),
                    }
                });
                connections.push((from, forth, back));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    let panicked = |_| io::Error::other("a forwarding thread panicked");
    let mut recordings = Vec::new();
    for (from, forth, back) in connections {
        let sent = Stream::whole(from, to, forth.join().map_err(panicked)??);
        let received = Stream::whole(to, from, back.join().map_err(panicked)?);
        recordings.push(Recording { sent, received });
    }
    Ok(recordings)
}

/// Copies one direction to its end; returns its bytes.
fn forward(mut from: TcpStream, mut to: TcpStream) -> Vec<u8> {
    let (mut all, mut chunk) = (Vec::new(), vec![0; CHUNK_BYTES]);
    // A connection that breaks has ended: clients of this kind do not close in order.
    while let Ok(count) = from.read(&mut chunk) {
        all.extend_from_slice(&chunk[..count]);
        if count == 0 || to.write_all(&chunk[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_gone_ends_the_connection_but_not_the_recording() {
        let gone = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let recorder = Recorder::start(gone).unwrap();
        let mut client = TcpStream::connect(recorder.address).unwrap();
        assert_eq!(client.read(&mut [0]).unwrap_or(0), 0);
        assert!(recorder.finish().unwrap().is_empty());
    }

    #[test]
    fn both_directions_are_forwarded_and_recorded() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let recorder = Recorder::start(server.local_addr().unwrap()).unwrap();
        let pdu = |opcode: u8, tag: u8| [&[opcode, 0x80][..], &[0; 45], &[tag]].concat();
        for tag in [1, 2] {
            let mut client = TcpStream::connect(recorder.address).unwrap();
            let (request, response) = (pdu(0x40, tag), pdu(0x20, 10 * tag));
            client.write_all(&request).unwrap();
            let (mut accepted, _) = server.accept().unwrap();
            let mut got = vec![0; 48];
            accepted.read_exact(&mut got).unwrap();
            assert_eq!(got, request);
            accepted.write_all(&response).unwrap();
            client.read_exact(&mut got).unwrap();
            assert_eq!(got, response);
        }
        let recordings = recorder.finish().unwrap();
        let tags = |pdus: &dyn Fn(&Recording) -> Vec<Vec<u8>>| -> Vec<u8> {
            recordings.iter().flat_map(pdus).map(|pdu| pdu[47]).collect()
        };
        assert_eq!(tags(&|recording| recording.sent.requests()), [1, 2]);
        assert_eq!(tags(&|recording| recording.received.responses()), [10, 20]);
    }
}
