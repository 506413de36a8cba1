//! A TCP proxy that records the bytes that clients send.

use super::stream::Stream;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};

/// Bytes that are forwarded at once.
const CHUNK_BYTES: usize = 64 << 10;

/// A proxy before a server; [`Self::finish`] returns its recording.
#[derive(Debug)]
pub(super) struct Recorder {
    /// Its own address, for the client.
    pub(super) address: SocketAddr,
    listener: TcpListener,
    accepting: JoinHandle<io::Result<Vec<Stream>>>,
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

    /// Returns one stream a connection. The client must have ended: its
    /// connections are read to their ends.
    ///
    /// # Errors
    /// If a connection broke.
    pub(super) fn finish(self) -> io::Result<Vec<Stream>> {
        // `accept` ends when no connection waits. One that waits for the next
        // connection is woken by an empty one.
        self.listener.set_nonblocking(true)?;
        drop(TcpStream::connect(self.address)?);
        self.accepting.join().map_err(|_| io::Error::other("the recording proxy panicked"))?
    }
}

/// Serves connections until the listener no longer blocks and none waits.
fn accept(listener: &TcpListener, to: SocketAddr) -> io::Result<Vec<Stream>> {
    let mut connections = Vec::new();
    loop {
        match listener.accept() {
            Ok((client, from)) => {
                client.set_nonblocking(false)?;
                let server = TcpStream::connect(to)?;
                let (back_from, back_to) = (server.try_clone()?, client.try_clone()?);
                thread::spawn(move || forward(back_from, back_to));
                let forth = thread::spawn(move || forward(client, server));
                connections.push((from, forth));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    let mut streams = Vec::new();
    for (from, forth) in connections {
        let bytes = forth.join().map_err(|_| io::Error::other("a forwarding thread panicked"))?;
        streams.push(Stream::whole(from, to, bytes));
    }
    Ok(streams)
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
    fn both_directions_are_forwarded_and_one_is_recorded() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let recorder = Recorder::start(server.local_addr().unwrap()).unwrap();
        let pdu = [&[0x40, 0x80][..], &[0; 46]].concat();
        for byte in [1, 2] {
            let mut client = TcpStream::connect(recorder.address).unwrap();
            let mut sent = pdu.clone();
            sent[47] = byte;
            client.write_all(&sent).unwrap();
            let (mut accepted, _) = server.accept().unwrap();
            let mut got = vec![0; 48];
            accepted.read_exact(&mut got).unwrap();
            assert_eq!(got, sent);
            accepted.write_all(b"answer").unwrap();
            let mut answer = [0; 6];
            client.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"answer");
        }
        let streams = recorder.finish().unwrap();
        let pdus: Vec<u8> = streams.iter().flat_map(Stream::pdus).map(|pdu| pdu[47]).collect();
        assert_eq!(pdus, [1, 2]);
    }
}
