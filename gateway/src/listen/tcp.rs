//! One TCP connection: its records in, its replies out, callbacks both ways.

use super::patience::Patience;
use super::receive::{Allowance, Progress, Received, Receiver};
use super::send::Sender;
use crate::observe::throttle::warn_seldom;
use crate::serve::boundary::{self, answer};
use crate::serve::connections::{CallbackCall, Registration, Slot};
use crate::serve::data_path::{DataDirection, Transport};
use crate::serve::dispatch::Answer;
use crate::serve::host::Host;
use crate::serve::limits::MEMORY_RETRY;
use crate::serve::service::Service;
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::collections::HashMap;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::Instant;
use zgate_nfs::Peer;

/// Requests of one connection that run at the same time; further ones stay in
/// the socket.
const MAX_REQUESTS_IN_FLIGHT: usize = 256;
/// Bytes of requests in flight of one connection.
const MAX_REQUEST_BYTES_IN_FLIGHT: usize = 64 << 20;
/// Reply bytes waiting for the peer to read; more requests are not read until
/// it does.
const MAX_REPLY_BYTES_QUEUED: usize = 16 << 20;
/// Callbacks waiting for an answer.
const MAX_CALLBACKS_PENDING: usize = 64;

type InFlight = FuturesUnordered<LocalBoxFuture<'static, (usize, Answer)>>;

struct Connection {
    stream: TcpStream,
    peer: Rc<Peer>,
    service: Rc<Service>,
    receiver: Receiver,
    sender: Sender,
    running: InFlight,
    running_bytes: usize,
    callbacks: HashMap<u32, oneshot::Sender<Bytes>>,
    draining: bool,
    host: Host,
    patience: Patience,
    /// A large record has to wait for memory.
    awaits_memory: bool,
}

/// Serves a connection until either side closes it.
pub(crate) async fn serve(stream: TcpStream, peer: Peer, slot: Slot, service: Rc<Service>) {
    let registration = service.shared.connections.register(slot.id);
    let mut host = Host::new(&service, peer.address);
    let mut connection = Connection {
        receiver: Receiver::new(service.shared.pool.clone(), host.is_named()),
        sender: Sender::default(),
        running: FuturesUnordered::new(),
        running_bytes: 0,
        callbacks: HashMap::new(),
        draining: false,
        host,
        patience: Patience::default(),
        awaits_memory: false,
        stream,
        peer: Rc::new(peer),
        service,
    };
    let why = boundary::connection(connection.run(registration)).await;
    tracing::debug!(peer = %connection.peer.address, why, "connection closed");
    connection.close();
}

impl Connection {
    async fn run(&mut self, mut registration: Registration) -> &'static str {
        let service = Rc::clone(&self.service);
        let mut drain = pin!(service.shared.drain.wait());
        let mut check = pin!(tokio::time::sleep(self.patience.period(self.host.is_named())));
        loop {
            if let Err(why) = self.take_records().await {
                return why;
            }
            if self.sender.flush(&self.stream).is_err() {
                return "the peer is gone";
            }
            self.host.holds(
                self.running_bytes + self.sender.queued_bytes() + self.receiver.held_bytes(),
            );
            if self.awaits_memory {
                let soon = check.deadline().min(Instant::now() + MEMORY_RETRY);
                check.as_mut().reset(soon);
            }
            if self.draining && self.running.is_empty() && self.sender.is_empty() {
                return "draining";
            }
            tokio::select! {
                biased;
                Some((bytes, answer)) = self.running.next(), if !self.running.is_empty() => {
                    self.running_bytes -= bytes;
                    if let Err(why) = self.reply(answer) {
                        return why;
                    }
                }
                ready = self.stream.writable(), if !self.sender.is_empty() => {
                    if ready.is_err() {
                        return "the peer is gone";
                    }
                }
                ready = self.stream.readable(), if !self.awaits_memory && self.may_read() => {
                    if ready.is_err() {
                        return "the peer is gone";
                    }
                    match self.receiver.fill(&self.stream) {
                        Ok(0) => return "closed by the peer",
                        Ok(got) => {
                            service.shared.metrics.bytes_in(got);
                            service.attention.traffic();
                        }
                        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                        Err(_) => return "the peer is gone",
                    }
                }
                Some(call) = registration.calls.recv() => self.send_callback(call),
                () = drain.as_mut(), if !self.draining => self.draining = true,
                () = check.as_mut() => match self.check() {
                    Ok(next) => check.as_mut().reset(Instant::now() + next),
                    Err(why) => return why,
                },
            }
        }
    }

    /// Judges whether the peer takes too long; returns when to look next.
    fn check(&mut self) -> Result<Duration, &'static str> {
        let is_named = self.host.is_named();
        if self.awaits_memory && self.is_abandoned() {
            return Err("closed by the peer");
        }
        if is_named && (self.awaits_memory || !self.may_read()) {
            self.patience.excuse();
        }
        self.patience.check(self.receiver.mark(), is_named)?;
        Ok(self.patience.period(is_named))
    }

    /// Whether the peer has closed a connection that is not read from now.
    fn is_abandoned(&self) -> bool {
        let ready = self.stream.ready(Interest::READABLE).now_or_never();
        ready.is_some_and(|ready| ready.is_ok_and(|ready| ready.is_read_closed()))
    }

    /// Whether another request may be taken in. When buffers run short,
    /// a connection with requests under way waits for one of them to end; one
    /// whose request has its memory already goes on. A host that no export
    /// names has one request at a time.
    fn may_read(&mut self) -> bool {
        let waiting_helps = !self.running.is_empty() || !self.sender.is_empty();
        if waiting_helps && !self.host.is_named() {
            return false;
        }
        let must_wait =
            waiting_helps && self.receiver.held_bytes() == 0 && !self.host.may_take_request();
        !(self.draining || must_wait)
            && self.running.len() < MAX_REQUESTS_IN_FLIGHT
            && self.running_bytes < MAX_REQUEST_BYTES_IN_FLIGHT
            && self.sender.queued_bytes() < MAX_REPLY_BYTES_QUEUED
    }

    /// Starts every request that is complete. One that needs no waiting is
    /// answered on the spot, so that a burst leaves in one send.
    async fn take_records(&mut self) -> Result<(), &'static str> {
        self.awaits_memory = false;
        while self.may_read() {
            let received = match self.receiver.next(&mut self.host) {
                Ok(Progress::Record(received)) => received,
                Ok(Progress::Wait) => break,
                Ok(Progress::NoMemory) => {
                    self.awaits_memory = true;
                    break;
                }
                Err(error) => {
                    warn_seldom!(peer = %self.peer.address, %error, "closing the connection");
                    return Err("bad record marking");
                }
            };
            if self.is_callback_reply(&received) {
                continue;
            }
            let bytes = received.len();
            let (service, peer) = (Rc::clone(&self.service), Rc::clone(&self.peer));
            let mut request: LocalBoxFuture<'static, (usize, Answer)> =
                Box::pin(async move { (bytes, answer(&service, &peer, received).await) });
            let first = std::future::poll_fn(|task: &mut Context<'_>| {
                Poll::Ready(request.as_mut().poll(task))
            });
            match first.await {
                Poll::Ready((_, answer)) => self.reply(answer)?,
                Poll::Pending => {
                    self.running_bytes += bytes;
                    self.running.push(request);
                }
            }
        }
        Ok(())
    }

    fn reply(&mut self, answer: Answer) -> Result<(), &'static str> {
        match answer {
            Answer::Reply(message) => {
                let metrics = &self.service.shared.metrics;
                metrics.bytes_out(message.len());
                let data = message.payload_bytes();
                metrics.data.carried(Transport::Tcp, DataDirection::Read, data, 0);
                if self.sender.push(message) { Ok(()) } else { Err("reply too long") }
            }
            Answer::Nothing => Ok(()),
            Answer::Close(why) => {
                warn_seldom!(peer = %self.peer.address, why, "closing the connection");
                Err(why)
            }
        }
    }

    /// A record that is a reply belongs to a callback of ours.
    fn is_callback_reply(&mut self, received: &Received) -> bool {
        let Some((xid, rest)) = received.head.split_first_chunk::<4>() else { return false };
        if rest.first_chunk::<4>() != Some(&[0, 0, 0, 1]) {
            return false;
        }
        if let Some(waiting) = self.callbacks.remove(&u32::from_be_bytes(*xid)) {
            // Nobody waits any more when the callback timed out.
            let _ = waiting.send(received.head.clone());
        }
        true
    }

    fn send_callback(&mut self, call: CallbackCall) {
        self.callbacks.retain(|_, waiting| !waiting.is_closed());
        if self.callbacks.len() < MAX_CALLBACKS_PENDING {
            self.sender.push(call.message);
            self.callbacks.insert(call.xid, call.reply);
        }
    }

    /// Requests that run when the peer goes are finished all the same: what
    /// they change is changed, and their replies are kept for a retry.
    fn close(mut self) {
        self.service.connection_closed(self.peer.connection);
        if self.running.is_empty() {
            return;
        }
        tokio::task::spawn_local(async move { while self.running.next().await.is_some() {} });
    }
}

#[cfg(test)]
#[path = "tcp_tests.rs"]
mod tests;
