//! The socket of one connection of a recovering initiator, and its reader
//! thread.

use super::Arrival;
use crate::{MAX_DATA_BYTES, Stream};
use bytes::Bytes;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc::Sender;
use zgate_iscsi::framing::{Decoder, Encoder};
use zgate_iscsi::initiator::{LoginOutcome, LoginScript};
use zgate_iscsi::pdu::Outgoing;
use zgate_store::Payload;

/// Size of one receive, in bytes.
const RECEIVE_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Link {
    /// Never reused.
    pub(super) number: usize,
    socket: TcpStream,
    encoder: Encoder,
}

impl Link {
    /// Logs in; received PDUs are sent to `arrivals`.
    pub(super) fn login(
        address: SocketAddr,
        script: &LoginScript,
        number: usize,
        arrivals: &Sender<Arrival>,
    ) -> io::Result<(Self, LoginOutcome)> {
        let (stream, outcome) = Stream::login(address, script)?;
        let Stream { socket, encoder, decoder, .. } = stream;
        socket.set_read_timeout(None)?;
        let (reader, arrivals) = (socket.try_clone()?, arrivals.clone());
        std::thread::spawn(move || {
            read_all(reader, decoder, number, &arrivals);
            let _ = arrivals.send(Arrival::Lost(number));
        });
        Ok((Self { number, socket, encoder }, outcome))
    }

    pub(super) fn send(&mut self, pdu: Outgoing) {
        let (mut pieces, mut raw) = (Vec::new(), Vec::new());
        if self.encoder.encode(pdu, &mut pieces).is_err() {
            return;
        }
        for piece in pieces {
            if let Payload::Bytes(bytes) = piece {
                raw.extend_from_slice(&bytes);
            }
        }
        // The reader thread detects a closed connection.
        let _ = self.socket.write_all(&raw);
    }

    pub(super) fn close(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

fn read_all(mut socket: TcpStream, mut decoder: Decoder, link: usize, arrivals: &Sender<Arrival>) {
    let mut buffer = vec![0; RECEIVE_BYTES];
    loop {
        loop {
            match decoder.poll() {
                Ok(Some(frame)) => {
                    if arrivals.send(Arrival::Pdu(link, Box::new(frame))).is_err() {
                        return;
                    }
                }
                Ok(None) => break,
                // RFC 7143 §7.7: without a valid header the next PDU cannot be
                // found.
                Err(_) => return drop(socket.shutdown(Shutdown::Both)),
            }
        }
        match socket.read(&mut buffer) {
            Ok(count) if count > 0 => decoder.feed(Bytes::copy_from_slice(&buffer[..count])),
            _ => return,
        }
    }
}

const _: () = assert!(RECEIVE_BYTES < MAX_DATA_BYTES as usize);
