//! One TCP connection: records, replies, and callbacks.

use super::answer::answer;
use super::back_channels::{CallbackCall, Registration};
use super::dispatch::Answer;
use super::host::Host;
use super::limits::MEMORY_RETRY;
use super::patience::Patience;
use super::record::{Allowance, Progress, Received, Receiver, queue_record};
use super::service::{Service, protocol_peer};
use crate::net::connection_end::{Bug, Closed, ConnectionEnd};
use crate::net::connections::Slot;
use crate::net::event_loop::{self, Event};
use crate::net::in_flight::InFlight;
use crate::net::peer::Peer;
use crate::net::send::Sender;
use crate::net::stream::{Ready, ready, received};
use crate::observe::data_path::{DataDirection, Transport};
use bytes::Bytes;
use futures_util::FutureExt;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::oneshot;

/// Most running requests of one connection; further ones stay in the socket.
const MAX_REQUESTS_IN_FLIGHT: usize = 256;
/// Most bytes of running requests of one connection.
const MAX_REQUEST_BYTES_IN_FLIGHT: usize = 64 << 20;
/// Most reply bytes that the peer has not read; no more requests are read until
/// it reads.
const MAX_REPLY_BYTES_QUEUED: usize = 16 << 20;
/// Most callbacks waiting for a reply.
const MAX_CALLBACKS_PENDING: usize = 64;

struct Connection {
    stream: TcpStream,
    peer: Rc<zgate_nfs::Peer>,
    service: Rc<Service>,
    registration: Registration,
    receiver: Receiver,
    sender: Sender,
    running: InFlight<Answer>,
    callbacks: HashMap<u32, oneshot::Sender<Bytes>>,
    draining: bool,
    host: Host,
    patience: Patience,
    /// Set while a large record waits for memory.
    awaits_memory: bool,
    /// Complete records are delayed.
    is_held_back: bool,
}

/// Serves a connection until either side closes it.
pub(crate) async fn serve(stream: TcpStream, peer: Peer, slot: Slot, service: Rc<Service>) {
    let registration = service.nfs.back_channels.register(slot.id);
    let mut host = Host::new(&service, peer.address);
    let mut connection = Connection {
        registration,
        receiver: Receiver::new(service.core.network.pool.clone(), host.is_named()),
        sender: Sender::default(),
        running: InFlight::default(),
        callbacks: HashMap::new(),
        draining: false,
        host,
        patience: Patience::default(),
        awaits_memory: false,
        is_held_back: false,
        stream,
        peer: Rc::new(protocol_peer(peer)),
        service,
    };
    let (core, address) = (Rc::clone(&connection.service.core), peer.address);
    event_loop::serve(&mut connection, &core, Transport::Tcp, address, false).await;
    connection.close();
}

impl event_loop::Connection for Connection {
    type Event = Event<Answer, Ready, CallbackCall>;

    async fn advance(&mut self) -> Result<(), ConnectionEnd> {
        loop {
            self.take_records().await?;
            self.sender.flush(&self.stream)?;
            self.host.holds(
                self.running.bytes() + self.sender.queued_bytes() + self.receiver.held_bytes(),
            );
            // There is no other notification of the end of the transmission.
            if !(self.is_held_back && self.may_read()) {
                return Ok(());
            }
        }
    }

    async fn event(&mut self) -> Result<Self::Event, ConnectionEnd> {
        let may_read = !self.awaits_memory && self.may_read();
        tokio::select! {
            biased;
            Some(answer) = self.running.next(), if !self.running.is_empty() => {
                Ok(Event::Finished(answer))
            }
            state = ready(&self.stream, !self.sender.is_empty(), may_read) => {
                Ok(Event::Transport(state?))
            }
            Some(call) = self.registration.calls.recv() => Ok(Event::Outside(call)),
        }
    }

    async fn handle(&mut self, event: Self::Event) -> Result<bool, ConnectionEnd> {
        match event {
            Event::Finished(answer) => self.reply(answer)?,
            Event::Transport(Ready::Read) => {
                let got = received(self.receiver.fill(&self.stream))?;
                if got > 0 {
                    self.service.nfs.metrics.bytes_in(got);
                    self.service.core.busy_poll.traffic();
                }
            }
            Event::Transport(Ready::Write) => {}
            Event::Outside(call) => self.send_callback(call),
        }
        Ok(true)
    }

    fn begin_drain(&mut self) {
        self.draining = true;
    }

    fn is_idle(&self) -> bool {
        self.running.is_empty() && self.sender.is_empty()
    }

    fn check_period(&mut self) -> Option<Duration> {
        Some(self.patience.period(self.host.is_named()))
    }

    fn check(&mut self) -> Result<(), ConnectionEnd> {
        let is_named = self.host.is_named();
        if self.awaits_memory && self.is_abandoned() {
            return Err(Closed::ByPeer.into());
        }
        if is_named && (self.awaits_memory || !self.may_read()) {
            self.patience.excuse();
        }
        Ok(self.patience.check(self.receiver.mark(), is_named)?)
    }

    fn retry_after(&self) -> Option<Duration> {
        self.awaits_memory.then_some(MEMORY_RETRY)
    }
}

impl Connection {
    /// Returns whether the peer has closed a connection that is not being read.
    fn is_abandoned(&self) -> bool {
        let ready = self.stream.ready(Interest::READABLE).now_or_never();
        ready.is_some_and(|ready| ready.is_ok_and(|ready| ready.is_read_closed()))
    }

    /// Returns whether another request may be read. If buffers run short, a
    /// connection with running requests waits for one of them to end; one whose
    /// request has its memory already continues. A host that no export names
    /// has one request at a time.
    fn may_read(&mut self) -> bool {
        let waiting_helps = !self.running.is_empty() || !self.sender.is_empty();
        if waiting_helps && !self.host.is_named() {
            return false;
        }
        let must_wait =
            waiting_helps && self.receiver.held_bytes() == 0 && !self.host.may_take_request();
        !(self.draining || must_wait)
            && self.running.len() < MAX_REQUESTS_IN_FLIGHT
            && self.running.bytes() < MAX_REQUEST_BYTES_IN_FLIGHT
            && self.sender.queued_bytes() < MAX_REPLY_BYTES_QUEUED
    }

    /// Starts all complete requests.
    async fn take_records(&mut self) -> Result<(), ConnectionEnd> {
        (self.awaits_memory, self.is_held_back) = (false, false);
        while self.may_read() {
            let received = match self.receiver.next(&mut self.host) {
                Ok(Progress::Record(received)) => received,
                Ok(Progress::Wait) => return Ok(()),
                Ok(Progress::NoMemory) => {
                    self.awaits_memory = true;
                    return Ok(());
                }
                Err(error) => return Err(ConnectionEnd::framing(error)),
            };
            if self.is_callback_reply(&received) {
                continue;
            }
            let bytes = received.len();
            let (service, peer) = (Rc::clone(&self.service), Rc::clone(&self.peer));
            let request = Box::pin(async move { answer(&service, &peer, received).await });
            if let Some(answer) = self.running.start(bytes, request).await {
                self.reply(answer)?;
            }
        }
        self.is_held_back = true;
        Ok(())
    }

    fn reply(&mut self, answer: Answer) -> Result<(), ConnectionEnd> {
        match answer {
            Answer::Reply(message) => {
                let metrics = &self.service.nfs.metrics;
                metrics.bytes_out(message.len());
                let data = message.payload_bytes();
                metrics.data.carried(Transport::Tcp, DataDirection::Read, data, 0);
                if queue_record(&mut self.sender, message) {
                    Ok(())
                } else {
                    Err(Bug::ReplyTooLong.into())
                }
            }
            Answer::Nothing => Ok(()),
            Answer::Close(why) => Err(why),
        }
    }

    /// Handles a record that is a reply to one of our callbacks.
    fn is_callback_reply(&mut self, received: &Received) -> bool {
        let Some((xid, rest)) = received.head.split_first_chunk::<4>() else { return false };
        if rest.first_chunk::<4>() != Some(&[0, 0, 0, 1]) {
            return false;
        }
        if let Some(waiting) = self.callbacks.remove(&u32::from_be_bytes(*xid)) {
            // If the callback timed out, nothing receives the reply.
            let _ = waiting.send(received.head.clone());
        }
        true
    }

    fn send_callback(&mut self, call: CallbackCall) {
        self.callbacks.retain(|_, waiting| !waiting.is_closed());
        if self.callbacks.len() < MAX_CALLBACKS_PENDING {
            queue_record(&mut self.sender, call.message);
            self.callbacks.insert(call.xid, call.reply);
        }
    }

    fn close(self) {
        self.service.connection_closed(self.peer.connection);
        self.running.finish_alone();
    }
}

#[cfg(test)]
#[path = "tcp_tests.rs"]
mod tests;
