//! One connection of a recovering initiator: a socket for writing, a reader
//! thread, and the received statuses.

use super::Arrival;
use crate::{MAX_DATA_BYTES, Stream};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc::Sender;
use zgate_iscsi::framing::{Decoder, Encoder};
use zgate_iscsi::initiator::{LoginOutcome, LoginScript};
use zgate_iscsi::names::Cid;
use zgate_iscsi::pdu::{Itt, Outgoing};
use zgate_iscsi::serial::Sn;
use zgate_store::Payload;

/// Size of one receive, in bytes.
const RECEIVE_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Link {
    /// Never reused.
    pub(super) number: usize,
    pub(super) cid: Cid,
    socket: TcpStream,
    encoder: Encoder,
    /// ExpStatSN: all statuses before it are acknowledged.
    pub(super) exp_stat_sn: Sn,
    /// Statuses received and not acknowledged: after a gap, or of tasks whose
    /// data is incomplete (RFC 7143 §4.2.2.2 forbids their acknowledgement).
    statuses: BTreeMap<u32, Option<Itt>>,
    /// The highest StatSN known to be used by the target, plus one.
    pub(super) next_stat_sn: Sn,
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
        let link = Self {
            number,
            cid: script.cid,
            socket,
            encoder,
            exp_stat_sn: outcome.exp_stat_sn,
            statuses: BTreeMap::new(),
            next_stat_sn: outcome.exp_stat_sn,
        };
        Ok((link, outcome))
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

    /// Records a received status: `waits` names a task whose data is
    /// incomplete. Returns false for a repeated status.
    pub(super) fn status(&mut self, stat_sn: Sn, waits: Option<Itt>) -> bool {
        self.given_out(stat_sn.next());
        if stat_sn.before(self.exp_stat_sn) {
            return false;
        }
        let fresh = self.statuses.insert(stat_sn.0, waits).is_none();
        self.acknowledge();
        fresh
    }

    /// Records the StatSN that the target uses next.
    pub(super) fn given_out(&mut self, next: Sn) {
        if next.after(self.next_stat_sn) {
            self.next_stat_sn = next;
        }
    }

    /// Records that the data of a task is complete.
    pub(super) fn complete(&mut self, itt: Itt) {
        for waits in self.statuses.values_mut().filter(|waits| **waits == Some(itt)) {
            *waits = None;
        }
        self.acknowledge();
    }

    fn acknowledge(&mut self) {
        while self.statuses.get(&self.exp_stat_sn.0) == Some(&None) {
            self.statuses.remove(&self.exp_stat_sn.0);
            self.exp_stat_sn = self.exp_stat_sn.next();
        }
    }

    /// The first gap in the statuses: start and length.
    pub(super) fn missing_statuses(&self) -> Option<(u32, u32)> {
        let mut from = self.exp_stat_sn;
        while self.statuses.contains_key(&from.0) {
            from = from.next();
        }
        let mut count = 0;
        while from.plus(count).before(self.next_stat_sn)
            && !self.statuses.contains_key(&from.plus(count).0)
        {
            count += 1;
        }
        (count > 0).then_some((from.0, count))
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
