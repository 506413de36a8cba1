//! Connections of clients with TLS: two streams of bytes, which arrive in pieces. The
//! server's end is in `gateway/tls.rs`.

use super::secure::{Direction, PROBE_XID, Readiness, Secure, framed, probe};
use super::tap::Tap;
use super::{Inside, Lost, Network, USUAL_NANOS, is_reply, xid_of};
use crate::client::Delegations;
use crate::dice::Dice;
use crate::executor::{Domain, MILLISECOND, SECOND, lock};
use crate::invariant::{ANSWER_SECONDS, Invariant};
use crate::mutant::Mutant;
use crate::tls::TlsSetup;
use bytes::{Buf, Bytes};
use rustls::ClientConfig;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use tokio::sync::oneshot;
use zgate_nfs::runtime::CallbackFailure;
use zgate_tls::ByteStream;

/// A client asks for other keys before one call of so many.
const OTHER_KEYS_ONCE_IN: u64 = 12;

/// TLS of the network of a run.
pub(super) struct TlsNetwork {
    pub(super) setup: Arc<TlsSetup>,
    pub(super) dice: Dice,
    pub(super) intruder: Dice,
    /// The latest bytes of each direction, with their connection.
    pub(super) seen: BTreeMap<bool, (u64, Bytes)>,
    /// The intruder opens no connections any more.
    pub(super) is_over: bool,
}

impl TlsNetwork {
    pub(super) fn new(setup: &Arc<TlsSetup>, seed: u64) -> Self {
        Self {
            setup: Arc::clone(setup),
            dice: Dice::new(seed, "tls network"),
            intruder: Dice::new(seed, "tls intruder"),
            seen: BTreeMap::new(),
            is_over: false,
        }
    }
}

/// The server's end of a connection's bytes.
pub struct Pipe<'a> {
    network: &'a Arc<Network>,
    number: u64,
}

impl ByteStream for Pipe<'_> {
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut inside = lock(&self.network.inside);
        let secure = inside.links.get_mut(&self.number).and_then(|link| link.secure.as_mut());
        let way = &mut secure.ok_or(io::ErrorKind::ConnectionReset)?.up;
        if way.arrived.is_empty() {
            return if way.is_closed { Ok(0) } else { Err(io::ErrorKind::WouldBlock.into()) };
        }
        let most = buffer.len().min(way.arrived.len());
        way.arrived.copy_to_slice(&mut buffer[..most]);
        Ok(most)
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let most = {
            let mut inside = lock(&self.network.inside);
            match &mut inside.tls {
                Some(tls) => match tls.dice.once_in(4) {
                    true => 1 + tls.dice.below(bytes.len() as u64) as usize,
                    false => bytes.len(),
                },
                None => bytes.len(),
            }
        };
        let most = most.min(bytes.len());
        self.send(Bytes::copy_from_slice(&bytes[..most]));
        Ok(most)
    }
}

impl Pipe<'_> {
    /// Sends bytes of the server.
    pub fn send(&self, bytes: Bytes) {
        self.network.launch(self.number, Direction::Down, bytes);
    }

    /// Notes a record that the server sends under TLS.
    pub fn promise(&self, record: Bytes) {
        self.network.promise(self.number, Direction::Down, record);
    }

    /// Returns whether this is the next record that the client has sent under TLS.
    #[must_use]
    pub fn keeps(&self, record: &Bytes) -> bool {
        self.network.keeps(self.number, Direction::Up, record)
    }
}

impl Network {
    /// Clients of this run have TLS.
    pub fn use_tls(&self, setup: &Arc<TlsSetup>, seed: u64) {
        lock(&self.inside).tls = Some(Box::new(TlsNetwork::new(setup, seed)));
    }

    /// The server's end of a connection's bytes.
    #[must_use]
    pub fn server_pipe(self: &Arc<Self>, number: u64) -> Pipe<'_> {
        Pipe { network: self, number }
    }

    /// Something happened that nobody but an intruder wants.
    pub fn fail_authentic(&self, text: &str) {
        self.history.fail(Invariant::OnlyAuthentic, text.to_owned());
    }

    /// A planted fault: the reply is lost.
    #[must_use]
    pub fn loses_reply(&self) -> bool {
        self.mutant == Some(Mutant::ReplyLost) && lock(&self.inside).dice.once_in(40)
    }

    fn promise(&self, number: u64, direction: Direction, record: Bytes) {
        let mut inside = lock(&self.inside);
        if let Some(secure) = inside.links.get_mut(&number).and_then(|link| link.secure.as_mut()) {
            secure.way(direction).promised.push_back(record);
        }
    }

    fn keeps(&self, number: u64, direction: Direction, record: &Bytes) -> bool {
        let mut inside = lock(&self.inside);
        let secure = inside.links.get_mut(&number).and_then(|link| link.secure.as_mut());
        let promised = secure.and_then(|secure| secure.way(direction).promised.pop_front());
        promised.as_ref() == Some(record)
    }

    /// Prepares a connection for TLS.
    pub(super) fn secured(&self, number: u64, config: Arc<ClientConfig>, tap: Option<Tap>) {
        if let Some(link) = lock(&self.inside).links.get_mut(&number) {
            link.secure = Some(Box::new(Secure::new(config, tap)));
        }
    }

    /// Goes into TLS, as a client. `None`: the connection has ended, or nothing has
    /// answered in time.
    pub(super) async fn handshake(self: &Arc<Self>, number: u64) -> Option<Readiness> {
        let (tell, told) = oneshot::channel();
        let began = self.executor.nanos();
        {
            let mut inside = lock(&self.inside);
            let link = inside.links.get_mut(&number)?;
            link.secure.as_mut()?.ready = Some(tell);
        }
        self.begin_handshake(number);
        match self.executor.within(ANSWER_SECONDS * SECOND, told).await {
            Some(end) => end.ok(),
            None => {
                self.unanswered(number, PROBE_XID, began);
                None
            }
        }
    }

    /// Asks for TLS; what follows comes by itself.
    pub(super) fn begin_handshake(self: &Arc<Self>, number: u64) {
        self.launch(number, Direction::Up, framed(&probe()).into());
    }

    /// Connects a client with TLS; `false`: it must try again.
    pub(super) async fn goes_into_tls(self: &Arc<Self>, client: usize, number: u64) -> bool {
        let (config, tap) = {
            let mut inside = lock(&self.inside);
            let is_safe = inside.faults_end.is_some();
            let Some(tls) = &mut inside.tls else { return true };
            let tap = if is_safe { None } else { Tap::drawn(&mut tls.intruder) };
            (tls.setup.of_client(client), tap)
        };
        self.secured(number, config, tap);
        match self.handshake(number).await {
            Some(Readiness::Secure) => return true,
            Some(Readiness::Downgraded) => self.try_in_the_clear(number).await,
            None => {}
        }
        self.trace.note("network", format_args!("#{number} is not secure"));
        self.cut(number);
        let pause = {
            let mut inside = lock(&self.inside);
            inside.tls.as_mut().map_or(0, |tls| tls.dice.spread(10 * MILLISECOND, SECOND))
        };
        self.executor.sleep(pause).await;
        false
    }

    /// Bytes begin their way, past the intruder.
    pub(super) fn launch(self: &Arc<Self>, number: u64, direction: Direction, bytes: Bytes) {
        let now = self.executor.nanos();
        let mut inside = lock(&self.inside);
        let inside = &mut *inside;
        let (Some(link), Some(tls)) = (inside.links.get_mut(&number), &mut inside.tls) else {
            return;
        };
        let (client, Some(secure)) = (link.client, &mut link.secure) else { return };
        for (direction, piece) in self.tapped(tls, (number, direction), secure, bytes) {
            let way = secure.way(direction);
            let arrival = now + tls.dice.spread(10_000, USUAL_NANOS);
            way.last_arrival = arrival.max(way.last_arrival + 1);
            way.pieces.push_back(piece);
            let (me, arrival) = (Arc::clone(self), way.last_arrival);
            self.executor.spawn(Domain::Outside, async move {
                me.executor.sleep_until(arrival).await;
                me.passage(client).await;
                me.landed(number, direction);
            });
        }
    }

    /// The next piece of a connection arrives.
    fn landed(self: &Arc<Self>, number: u64, direction: Direction) {
        let (client, server) = {
            let mut inside = lock(&self.inside);
            let Some(link) = inside.links.get_mut(&number) else { return };
            let Some(secure) = link.secure.as_mut() else { return };
            let way = secure.way(direction);
            match way.pieces.pop_front() {
                Some(Some(bytes)) => way.arrived.extend_from_slice(&bytes),
                Some(None) => way.is_closed = true,
                None => return,
            }
            if direction == Direction::Down && !link.alive {
                return;
            }
            (link.client, link.server)
        };
        match direction {
            Direction::Up => {
                let Some(gateway) = self.gateway() else { return };
                gateway.bytes_arrived(server, number, &super::peer_of(client, number, false));
            }
            Direction::Down => self.arrived_at_client(number),
        }
    }

    /// The client reads.
    fn arrived_at_client(self: &Arc<Self>, number: u64) {
        let (taken, unsent, is_secure, closed) = {
            let mut inside = lock(&self.inside);
            let Some(link) = inside.links.get_mut(&number) else { return };
            let Some(secure) = link.secure.as_mut() else { return };
            let was_secure = secure.tls.is_some();
            (secure.take(), secure.unsent(), was_secure, secure.down.is_closed)
        };
        if !unsent.is_empty() {
            self.launch(number, Direction::Up, unsent);
        }
        let Ok(records) = taken else {
            self.trace.note("network", format_args!("#{number}: not from the server"));
            return self.cut(number);
        };
        for record in records {
            if is_secure && !self.keeps(number, Direction::Down, &record) {
                self.fail_authentic("a client takes a record that the server has not sent now");
            }
            self.read_by_client(number, record);
        }
        if closed {
            self.cut(number);
        }
    }

    /// A record has arrived at the client.
    fn read_by_client(self: &Arc<Self>, number: u64, record: Bytes) {
        let Some(xid) = xid_of(&record) else { return };
        let (waiting, answer) = {
            let mut inside = lock(&self.inside);
            let inside = &mut *inside;
            let Some(link) = inside.links.get_mut(&number) else { return };
            match is_reply(&record) {
                true => (link.waiting.remove(&xid), None),
                false => (None, inside.callbacks.get(&link.client).cloned()),
            }
        };
        if let Some(waiting) = waiting {
            // The client may have given up.
            let _ = waiting.send(record);
            return;
        }
        let answered = answer.and_then(|answer| match self.mutant {
            // Understood, and without effect.
            Some(Mutant::RecallLost) => Delegations::default().answer(&record),
            _ => answer(&record),
        });
        if let Some(reply) = answered {
            self.write_as_client(number, &reply);
        }
    }

    /// The client sends a record, under TLS if it has begun.
    pub(super) fn write_as_client(self: &Arc<Self>, number: u64, record: &Bytes) {
        let bytes = {
            let mut inside = lock(&self.inside);
            let inside = &mut *inside;
            let (Some(link), Some(network)) = (inside.links.get_mut(&number), &mut inside.tls)
            else {
                return;
            };
            let Some(secure) = link.secure.as_mut() else { return };
            let mut plain = framed(record);
            let counts_twice = self.misread(secure, &mut plain);
            match &mut secure.tls {
                None => plain.into(),
                Some(tls) => {
                    secure.up.promised.push_back(record.clone());
                    if network.dice.once_in(OTHER_KEYS_ONCE_IN) {
                        // It fails after a violation, which the read has told.
                        let _ = tls.refresh_traffic_keys();
                    }
                    for _ in 0..1 + usize::from(counts_twice) {
                        // The same.
                        let _ = tls.writer().write_all(&plain);
                    }
                    secure.unsent()
                }
            }
        };
        self.launch(number, Direction::Up, bytes);
    }

    /// Sends a call under TLS and waits for its reply or the end of the connection.
    pub(super) async fn call_by_tls(
        self: &Arc<Self>,
        number: u64,
        xid: u32,
        record: Bytes,
    ) -> Result<Bytes, Lost> {
        let sent = self.executor.nanos();
        let (tell, told) = oneshot::channel();
        {
            let mut inside = lock(&self.inside);
            let link = inside.links.get_mut(&number).filter(|link| link.alive).ok_or(Lost)?;
            link.waiting.insert(xid, tell);
        }
        self.write_as_client(number, &record);
        self.answer_within_limit(number, (xid, sent), told).await
    }

    /// The server of a connection whose client has TLS.
    pub(super) fn server_by_tls(&self, number: u64) -> Option<u32> {
        let inside = lock(&self.inside);
        let link = inside.links.get(&number)?;
        link.secure.as_ref().map(|_| link.server)
    }

    /// The server calls a client over its connection; pending if the connection ends
    /// first.
    pub(super) async fn called_by_tls(
        self: &Arc<Self>,
        server: u32,
        number: u64,
        call: &[u8],
    ) -> Result<Bytes, CallbackFailure> {
        let gateway = self.gateway().ok_or(CallbackFailure::Unreachable)?;
        let told = gateway.call_over(server, number, &Bytes::copy_from_slice(call))?;
        self.trace.note("server", format_args!("calls over #{number}"));
        match told.await {
            Ok(reply) => Ok(reply),
            // The server does not know yet that the connection is gone.
            Err(_) => std::future::pending().await,
        }
    }

    /// The server has ended a connection; the client learns it later.
    pub fn closed_by_server(self: &Arc<Self>, number: u64) {
        let (link, delay) = {
            let mut inside = lock(&self.inside);
            let Some(link) = inside.links.remove(&number) else { return };
            let Some(tls) = &mut inside.tls else { return };
            (link, tls.dice.spread(10_000, USUAL_NANOS))
        };
        let me = Arc::clone(self);
        self.executor.spawn(Domain::Outside, async move {
            me.executor.sleep(delay).await;
            me.passage(link.client).await;
            drop(link);
        });
    }

    /// The intruder leaves the clients' connections alone. Returns those that it has
    /// damaged: they must end, because one side may wait for the rest of a record whose
    /// length was changed, or for bytes that were held back.
    pub(super) fn release(inside: &mut Inside) -> Vec<u64> {
        let mut damaged = Vec::new();
        for (number, link) in &mut inside.links {
            let Some(secure) = &mut link.secure else { continue };
            if link.client != crate::tls::STRANGER
                && let Some(tap) = secure.tap.take()
                && tap.has_acted()
            {
                damaged.push(*number);
            }
        }
        damaged
    }
}
