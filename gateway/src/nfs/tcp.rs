//! One TCP connection: records, replies, and callbacks.

use super::back_channels::{CallbackCall, Registration};
use super::host::Host;
use super::limits::MEMORY_RETRY;
use super::patience::Patience;
use super::record::{Allowance, Progress, Received, Receiver};
use super::requests::{InFlightLoad, Requests, Wait};
use super::service::{CallSource, Protected, Service};
use super::starttls::{self, StartTls};
use crate::net::channel::Channel;
use crate::net::connection_end::{Closed, ConnectionEnd, Misbehaved, Refused};
use crate::net::connections::Slot;
use crate::net::event_loop::{self, Event};
use crate::net::peer::Peer;
use crate::net::silence;
use crate::net::stream::{Ready, ready, received};
use crate::observe::data_path::Transport;
use bytes::Bytes;
use futures_util::FutureExt;
use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::Instant;
use zgate_nfs::dispatch::serves;
use zgate_nfs::limits::{MAX_GRACE_HELD_BYTES, MAX_GRACE_WAITERS};

/// Most running requests of one connection; further ones stay in the socket.
const MAX_REQUESTS_IN_FLIGHT: usize = 256;
/// Most bytes of running requests of one connection.
const MAX_REQUEST_BYTES_IN_FLIGHT: usize = 64 << 20;
/// Most reply bytes that the peer has not read; no more requests are read until
/// it reads.
const MAX_REPLY_BYTES_QUEUED: usize = 16 << 20;
/// Most callbacks waiting for a reply.
const MAX_CALLBACKS_PENDING: usize = 64;
// NFSv3 changes that wait for the end of grace keep no reads of their connection waiting.
const _: () = assert!(MAX_GRACE_WAITERS <= MAX_REQUESTS_IN_FLIGHT / 2);
const _: () = assert!(MAX_GRACE_HELD_BYTES <= MAX_REQUEST_BYTES_IN_FLIGHT / 2);

struct Connection {
    channel: Arc<Channel>,
    source: Arc<CallSource>,
    service: Rc<Service>,
    registration: Registration,
    receiver: Receiver,
    requests: Requests,
    callbacks: HashMap<u32, oneshot::Sender<Bytes>>,
    draining: bool,
    start_tls: StartTls,
    peer: Peer,
    host: Host,
    patience: Patience,
    /// Set while a large record waits for memory.
    awaits_memory: bool,
    /// Complete records are delayed.
    is_held_back: bool,
    /// Set during a handover.
    is_held: bool,
    /// Set once the event loop has seen that a held connection has nothing left to do.
    rests: Cell<bool>,
}

/// Serves a connection until either side closes it.
pub(crate) async fn serve(stream: TcpStream, peer: Peer, slot: Slot, service: Rc<Service>) {
    let registration = service.nfs.back_channels.register(slot.id);
    let channel = Arc::new(Channel::new(stream));
    let source = service.call_source(peer, Protected::default());
    let requests = Requests::new(service.home.clone(), Arc::clone(&source), Arc::clone(&channel));
    let mut host = Host::new(&service, peer.address);
    let mut connection = Connection {
        registration,
        receiver: Receiver::new(service.core.network.pool.clone(), host.is_named()),
        requests,
        callbacks: HashMap::new(),
        draining: false,
        start_tls: StartTls::default(),
        peer,
        host,
        patience: Patience::begun(Instant::now()),
        awaits_memory: false,
        is_held_back: false,
        is_held: false,
        rests: Cell::new(false),
        channel,
        source,
        service,
    };
    let (core, address) = (Rc::clone(&connection.service.core), peer.address);
    event_loop::serve(&mut connection, &core, Transport::Tcp, address, false).await;
    connection.close();
}

impl event_loop::Connection for Connection {
    type Event = Event<(), Ready, CallbackCall>;

    async fn advance(&mut self) -> Result<(), ConnectionEnd> {
        if self.channel.tls().is_some_and(|tls| tls.is_revoked(&self.service.core.network.tls)) {
            return Err(Refused::Certificate.into());
        }
        loop {
            self.take_records()?;
            let load = self.requests.flush()?;
            if self.start_tls.is_under_way() {
                // Apart: a session of TLS has 1.3 KB, which each request would move several times.
                Box::pin(self.advance_handshake(load)).await?;
            }
            self.host.holds(load.held_bytes() + self.receiver.held_bytes());
            // There is no other notification of the end of the transmission.
            if !(self.is_held_back && self.may_read(load)) {
                return Ok(());
            }
        }
    }

    async fn event(&mut self) -> Result<Self::Event, ConnectionEnd> {
        if let Some(has_unsent) = self.start_tls.has_unsent() {
            return Ok(Event::Transport(ready(&self.channel.socket, has_unsent, true).await?));
        }
        let requests = &self.requests;
        let mut may_read = false;
        let awaits_memory = self.awaits_memory || self.start_tls.is_under_way();
        let (draining, is_held) = (self.draining, self.is_held);
        let (host, receiver) = (&mut self.host, &self.receiver);
        let wait = requests.wait(|load| {
            // What has ended since the connection looked is told to nobody.
            host.holds(load.held_bytes() + receiver.held_bytes());
            may_read = !awaits_memory && !draining && may_read_more(host, receiver, load);
            // A held connection has no other event that would tell it that it rests.
            !may_read || is_held
        });
        let Some(Wait { load, has_unsent }) = wait else { return Ok(Event::Finished(())) };
        if may_read && self.channel.has_more() {
            // Nothing else here waits while the peer sends: other connections of the
            // core, and the checks of this one, have their turn.
            tokio::task::yield_now().await;
            requests.wake();
            return Ok(Event::Transport(Ready::Read));
        }
        let is_awaited = draining || self.start_tls.is_asked() || is_held && !self.rests.get();
        let is_over = is_awaited && load.is_idle();
        if is_over || (self.is_held_back && may_read) {
            // The last requests ended after the connection had looked.
            requests.wake();
            return Ok(Event::Finished(()));
        }
        let event = tokio::select! {
            biased;
            () = requests.changed() => Ok(Event::Finished(())),
            state = ready(&self.channel.socket, has_unsent, may_read) => {
                state.map(Event::Transport).map_err(ConnectionEnd::from)
            }
            Some(call) = self.registration.calls.recv() => Ok(Event::Outside(call)),
        };
        requests.wake();
        event
    }

    async fn handle(&mut self, event: Self::Event) -> Result<bool, ConnectionEnd> {
        match event {
            Event::Finished(()) => {}
            Event::Transport(_) if self.start_tls.is_under_way() => {}
            Event::Transport(Ready::Read) => {
                let got = received(self.receiver.fill(&self.channel))?;
                if self.channel.must_answer() {
                    if self.channel.kernel_encrypts() {
                        // The client wants other keys, which the socket does not take.
                        return Err(Closed::Rekeyed.into());
                    }
                    self.requests.answer_tls();
                }
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

    fn hold(&mut self, is_held: bool) -> Result<bool, ConnectionEnd> {
        let socket = &self.channel.socket;
        if is_held {
            silence::refuse_data(socket)?
        } else {
            silence::hear(socket)?
        };
        self.is_held = is_held;
        self.rests.set(false);
        Ok(true)
    }

    fn is_idle(&self) -> bool {
        let is_idle = self.requests.load().is_idle();
        self.rests.set(is_idle);
        is_idle
    }

    fn check_period(&mut self) -> Option<Duration> {
        Some(self.patience.period(self.host.is_named()))
    }

    fn check(&mut self) -> Result<(), ConnectionEnd> {
        self.start_tls.check()?;
        let is_named = self.host.is_named();
        if self.awaits_memory && self.is_abandoned() {
            return Err(Closed::ByPeer.into());
        }
        if !self.patience.is_due(Instant::now()) {
            return Ok(());
        }
        if is_named && (self.awaits_memory || !self.may_read(self.requests.load())) {
            self.patience.excuse();
        }
        let is_scarce = self.host.memory_was_refused();
        let (taken, waiting) = (self.requests.taken_by_peer(), self.requests.load().reply_bytes);
        self.patience.check_replies(taken, waiting, is_scarce)?;
        let is_wanted = is_scarce && self.receiver.held_bytes() > 0;
        Ok(self.patience.check(self.receiver.mark(), is_named, is_wanted)?)
    }

    fn retry_after(&self) -> Option<Duration> {
        self.awaits_memory.then_some(MEMORY_RETRY).or_else(|| self.start_tls.left())
    }
}

impl Connection {
    /// Returns whether the peer has closed a connection that is not being read.
    fn is_abandoned(&self) -> bool {
        let ready = self.channel.socket.ready(Interest::READABLE).now_or_never();
        ready.is_some_and(|ready| ready.is_ok_and(|ready| ready.is_read_closed()))
    }

    fn may_read(&mut self, load: InFlightLoad) -> bool {
        !self.draining
            && !self.start_tls.is_under_way()
            && may_read_more(&mut self.host, &self.receiver, load)
    }

    /// Grants a request for TLS: nothing more is received in the clear. Returns
    /// false for any other record, and if TLS is not offered to this client.
    fn takes_tls_request(&mut self, received: &Received) -> Result<bool, ConnectionEnd> {
        let Some(xid) = zgate_tls::request(&received.head, serves) else { return Ok(false) };
        if self.channel.is_tls() || !self.host.is_named() {
            return Ok(false);
        }
        let network = &self.service.core.network;
        let Some(granted) = StartTls::grant(&network.tls, self.peer.address)? else {
            return Ok(false);
        };
        if self.receiver.has_pending() {
            // The client has not waited, or somebody else has added it.
            return Err(Misbehaved::Unexpected("message behind a request for TLS").into());
        }
        self.requests.queue(zgate_tls::reply(xid));
        self.start_tls = granted;
        Ok(true)
    }

    /// Continues the handshake that is under way.
    async fn advance_handshake(&mut self, load: InFlightLoad) -> Result<(), ConnectionEnd> {
        let advanced = self.start_tls.advance(&self.channel.socket, load.is_idle())?;
        let Some((session, slot)) = advanced else { return Ok(()) };
        let protected = starttls::protected(&session, slot).await;
        self.source = self.service.call_source(self.peer, protected);
        self.channel.begin_tls(session);
        let (home, source) = (self.service.home.clone(), Arc::clone(&self.source));
        let requests = Requests::new(home, source, Arc::clone(&self.channel));
        std::mem::replace(&mut self.requests, requests).close();
        Ok(())
    }

    /// Starts all complete requests.
    fn take_records(&mut self) -> Result<(), ConnectionEnd> {
        (self.awaits_memory, self.is_held_back) = (false, false);
        loop {
            let load = self.requests.load();
            if !self.may_read(load) {
                self.is_held_back = true;
                return Ok(());
            }
            if load.is_idle() && self.receiver.has_pending() && !self.may_begin() {
                self.awaits_memory = true;
                return Ok(());
            }
            let received = match self.receiver.next(&mut self.host) {
                Ok(Progress::Record(received)) => received,
                Ok(Progress::Wait) => return Ok(()),
                Ok(Progress::NoMemory) => {
                    self.awaits_memory = true;
                    return Ok(());
                }
                Err(error) => return Err(ConnectionEnd::framing(error)),
            };
            if self.takes_tls_request(&received)? {
                return Ok(());
            }
            if self.is_callback_reply(&received) {
                continue;
            }
            self.requests.begin(received, self.host.is_named());
        }
    }

    /// Returns whether a first request may be taken in. One that has its memory
    /// already may, and hosts that no export names hold nothing.
    fn may_begin(&mut self) -> bool {
        self.host.may_begin() || self.receiver.held_bytes() > 0 || !self.host.is_named()
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
            self.requests.queue(call.message);
            self.callbacks.insert(call.xid, call.reply);
        }
    }

    fn close(self) {
        self.service.connection_closed(self.source.peer.connection);
        if self.requests.load().is_idle() {
            self.channel.say_goodbye();
        }
        self.requests.close();
    }
}

/// Returns whether another request may be read. If buffers run short, a
/// connection with running requests waits for one of them to end; one whose
/// request has its memory already continues. A host that no export names has
/// one request at a time.
fn may_read_more(host: &mut Host, receiver: &Receiver, load: InFlightLoad) -> bool {
    let waiting_helps = !load.is_idle();
    if waiting_helps && !host.is_named() {
        return false;
    }
    let must_wait = waiting_helps && receiver.held_bytes() == 0 && !host.may_take_request();
    !must_wait
        && load.requests < MAX_REQUESTS_IN_FLIGHT
        && load.request_bytes < MAX_REQUEST_BYTES_IN_FLIGHT
        && load.reply_bytes < MAX_REPLY_BYTES_QUEUED
}

#[cfg(test)]
#[path = "tcp_tests.rs"]
pub(crate) mod tests;

#[cfg(test)]
#[path = "tcp_tls_tests.rs"]
mod tls_tests;

#[cfg(test)]
#[path = "tcp_certificate_tests.rs"]
mod certificate_tests;
