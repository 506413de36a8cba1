//! One TCP connection of an initiator: PDUs in, PDUs out.

use super::attached::{Attached, last_words};
use super::cell::Port;
use super::limits::MAX_QUEUED_BYTES;
use super::login::{self, LoginWire};
use super::receive::Receiver;
use crate::listen::send::Sender;
use crate::observe::throttle::warn_seldom;
use crate::serve::boundary;
use crate::serve::connections::Slot;
use crate::serve::data_path::{self, DataDirection};
use crate::serve::service::Service;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::net::TcpStream;
use zgate_iscsi::framing::{Digests, Encoder};
use zgate_iscsi::login::{Operational, Transport};
use zgate_iscsi::pdu::{Frame, Outgoing};
use zgate_iscsi::session::CloseReason;
use zgate_nfs::Peer;
use zgate_store::{BufferPool, Payload};

/// The socket and its framing.
struct Wire {
    stream: TcpStream,
    receiver: Receiver,
    encoder: Encoder,
    sender: Sender,
    pieces: Vec<Payload>,
}

impl Wire {
    fn new(stream: TcpStream, pool: BufferPool) -> Self {
        Self {
            stream,
            receiver: Receiver::new(pool),
            encoder: Encoder::new(),
            sender: Sender::default(),
            pieces: Vec::new(),
        }
    }
}

impl LoginWire for Wire {
    fn transport(&self) -> Transport {
        Transport::Tcp
    }

    fn configure(&mut self, params: &Operational) {
        let digests = Digests { header: params.header_digest, data: params.data_digest };
        self.receiver.configure(digests, params.target_recv_bytes);
        self.encoder.configure(digests);
    }

    fn local(&self) -> Option<SocketAddr> {
        self.stream.local_addr().ok()
    }

    async fn next(&mut self) -> Result<Frame, &'static str> {
        loop {
            match self.receiver.next() {
                Ok(Some(frame)) => return Ok(frame),
                Ok(None) => {}
                Err(_) => return Err("bad framing"),
            }
            self.stream.readable().await.map_err(|_| "the peer is gone")?;
            match self.receiver.fill(&self.stream) {
                Ok(0) => return Err("closed by the peer"),
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return Err("the peer is gone"),
            }
        }
    }

    fn queue(&mut self, pdu: Outgoing) -> Result<(), &'static str> {
        self.encoder.encode(pdu, &mut self.pieces).map_err(|error| {
            tracing::error!(%error, "a PDU cannot be sent");
            "a PDU cannot be sent"
        })?;
        self.pieces.drain(..).for_each(|piece| self.sender.push_payload(piece));
        Ok(())
    }

    async fn flush_all(&mut self) -> Result<(), &'static str> {
        loop {
            self.sender.flush(&self.stream).map_err(|_| "the peer is gone")?;
            if self.sender.is_empty() {
                return Ok(());
            }
            self.stream.writable().await.map_err(|_| "the peer is gone")?;
        }
    }
}

struct Connection {
    wire: Wire,
    attached: Attached,
    service: Rc<Service>,
    draining: bool,
}

/// Serves a connection until either side closes it.
pub(crate) async fn serve(
    stream: TcpStream,
    peer: Peer,
    slot: Slot,
    core: usize,
    service: Rc<Service>,
) {
    let block = Arc::clone(&service.shared.block);
    let port = Arc::new(Port::new(SocketAddr::new(peer.address, peer.port), core));
    let Some(ticket) = login::begin(&block, &port) else {
        tracing::debug!(peer = %port.peer, "iSCSI connection closed: too many logins at once");
        return;
    };
    let mut wire = Wire::new(stream, service.shared.pool.clone());
    let drain = service.shared.drain.wait();
    let admitted = tokio::select! {
        admitted = login::run(&mut wire, &block, &port, ticket) => admitted,
        () = drain => Err("draining"),
    };
    match admitted {
        Ok(admitted) => {
            admitted.count(&slot);
            let attached = Attached::new(port, block, admitted, wire.local());
            let mut connection =
                Connection { wire, attached, service: Rc::clone(&service), draining: false };
            let why = boundary::connection(connection.run()).await;
            tracing::info!(peer = %connection.attached.port.peer, why, "iSCSI connection closed");
        }
        Err(why) => tracing::debug!(peer = %port.peer, why, "iSCSI connection closed"),
    }
}

impl Connection {
    async fn run(&mut self) -> &'static str {
        let (service, port) = (Rc::clone(&self.service), Arc::clone(&self.attached.port));
        let mut drain = pin!(service.shared.drain.wait());
        let mut wake = pin!(port.wake.notified());
        self.attached.catch_up();
        loop {
            if let Err(why) = self.advance().await {
                return why;
            }
            if let Some(reason) = port.closing() {
                return self.last_words(reason).await;
            }
            if self.draining && self.attached.is_idle() && self.wire.sender.is_empty() {
                return self.say_goodbye().await;
            }
            tokio::select! {
                biased;
                finished = self.attached.finished() => self.attached.finish(finished),
                ready = self.wire.stream.writable(), if !self.wire.sender.is_empty() => {
                    if ready.is_err() {
                        return "the peer is gone";
                    }
                }
                ready = self.wire.stream.readable(), if self.may_read() => {
                    if ready.is_err() {
                        return "the peer is gone";
                    }
                    match self.wire.receiver.fill(&self.wire.stream) {
                        Ok(0) => return "closed by the peer",
                        Ok(got) => {
                            self.attached.block.figures.received_bytes.fetch_add(got as u64, Ordering::Relaxed);
                            service.attention.traffic();
                        }
                        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                        Err(_) => return "the peer is gone",
                    }
                }
                () = wake.as_mut() => {
                    wake.set(port.wake.notified());
                    self.attached.catch_up();
                }
                () = drain.as_mut(), if !self.draining => self.draining = true,
            }
        }
    }

    /// Everything that can be done without waiting.
    async fn advance(&mut self) -> Result<(), &'static str> {
        self.attached.work().await;
        while self.may_read() {
            let frame = match self.wire.receiver.next() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(error) => {
                    warn_seldom!(peer = %self.attached.port.peer, %error, "closing the iSCSI connection");
                    let (handle, now) = (self.attached.admitted.handle, self.attached.block.now());
                    self.attached.drive(|session| session.handle_framing_error(handle, now));
                    return Err("bad framing");
                }
            };
            let copied = self.wire.receiver.take_copied_bytes();
            let figures = &self.attached.block.figures;
            figures.data.carried(data_path::Transport::Iscsi, DataDirection::Write, 0, copied);
            let (handle, now) = (self.attached.admitted.handle, self.attached.block.now());
            self.attached.drive(|session| session.handle_pdu(handle, frame, now));
            self.attached.work().await;
        }
        self.transmit()
    }

    fn may_read(&self) -> bool {
        !self.draining
            && self.attached.may_begin()
            && self.wire.sender.queued_bytes() < MAX_QUEUED_BYTES
    }

    /// Takes what the session has for this connection and sends as much as the
    /// socket takes.
    fn transmit(&mut self) -> Result<(), &'static str> {
        loop {
            let room = MAX_QUEUED_BYTES.saturating_sub(self.wire.sender.queued_bytes());
            let (taken, took_all) = self.attached.take_outgoing(room);
            for pdu in taken {
                self.wire.queue(pdu)?;
            }
            let sent = self.wire.sender.flush(&self.wire.stream).map_err(|_| "the peer is gone")?;
            self.attached.block.figures.sent_bytes.fetch_add(sent as u64, Ordering::Relaxed);
            if took_all || !self.wire.sender.is_empty() {
                return Ok(());
            }
        }
    }

    /// The session wants this connection closed.
    async fn last_words(&mut self, reason: CloseReason) -> &'static str {
        let send_all = async {
            while self.transmit().is_ok() && !self.wire.sender.is_empty() {
                if self.wire.stream.writable().await.is_err() {
                    return;
                }
            }
        };
        last_words(reason, send_all).await
    }

    /// The gateway stops: everything that ran is answered.
    async fn say_goodbye(&mut self) -> &'static str {
        let handle = self.attached.admitted.handle;
        self.attached.drive(|session| session.drop_connection(handle));
        self.last_words(CloseReason::Dropped).await;
        "draining"
    }
}
