//! One TCP connection of an initiator.

use super::connection::{InitiatorConnection, last_words};
use super::login;
use super::login::LoginWire;
use super::receive::Receiver;
use super::session::ConnectionHandle;
use crate::iscsi::service::IscsiService;
use crate::net::boundary;
use crate::net::connection_end::{Bug, Closed, ConnectionEnd};
use crate::net::connections::Slot;
use crate::net::core::Core;
use crate::net::peer::Peer;
use crate::net::send::Sender;
use crate::observe::data_path;
use crate::observe::data_path::DataDirection;
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

    async fn next(&mut self) -> Result<Frame, ConnectionEnd> {
        loop {
            match self.receiver.next() {
                Ok(Some(frame)) => return Ok(frame),
                Ok(None) => {}
                Err(error) => return Err(ConnectionEnd::framing(error)),
            }
            self.stream.readable().await?;
            match self.receiver.fill(&self.stream) {
                Ok(0) => return Err(Closed::ByPeer.into()),
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn queue(&mut self, pdu: Outgoing) -> Result<(), ConnectionEnd> {
        self.encoder
            .encode(pdu, &mut self.pieces)
            .map_err(|error| Bug::Encoding(error.to_string().into()))?;
        self.pieces.drain(..).for_each(|piece| self.sender.push_payload(piece));
        Ok(())
    }

    async fn flush_all(&mut self) -> Result<(), ConnectionEnd> {
        loop {
            self.sender.flush(&self.stream)?;
            if self.sender.is_empty() {
                return Ok(());
            }
            self.stream.writable().await?;
        }
    }
}

struct Connection {
    wire: Wire,
    initiator: InitiatorConnection,
    core: Rc<Core>,
    draining: bool,
}

/// Serves a connection until either side closes it.
pub(crate) async fn serve(
    stream: TcpStream,
    peer: Peer,
    slot: Slot,
    block: Arc<IscsiService>,
    core: Rc<Core>,
) {
    let connection =
        Arc::new(ConnectionHandle::new(SocketAddr::new(peer.address, peer.port), core.number));
    let Some(ticket) = login::begin(&block, &connection) else {
        let end = ConnectionEnd::Overloaded;
        core.network.ends.record(&end, data_path::Transport::Iscsi, connection.peer, false);
        return;
    };
    let mut wire = Wire::new(stream, core.network.pool.clone());
    let memory = core.network.reservation(peer.address);
    let drain = core.network.drain.wait();
    let admitted = tokio::select! {
        admitted = login::run(&mut wire, &block, &connection, &memory, ticket) => admitted,
        () = drain => Err(ConnectionEnd::Stopping),
    };
    match admitted {
        Ok(admitted) => {
            admitted.count(&slot);
            let local = wire.local();
            let initiator = InitiatorConnection::new(connection, block, admitted, local, memory);
            let mut connection =
                Connection { wire, initiator, core: Rc::clone(&core), draining: false };
            let why = boundary::connection(connection.run()).await;
            let peer = connection.initiator.connection.peer;
            core.network.ends.record(&why, data_path::Transport::Iscsi, peer, true);
        }
        Err(why) => {
            core.network.ends.record(&why, data_path::Transport::Iscsi, connection.peer, false);
        }
    }
}

impl Connection {
    async fn run(&mut self) -> ConnectionEnd {
        let (core, connection) = (Rc::clone(&self.core), Arc::clone(&self.initiator.connection));
        let mut drain = pin!(core.network.drain.wait());
        let mut wake = pin!(connection.wake.notified());
        self.initiator.catch_up();
        loop {
            if let Err(why) = self.advance().await {
                return why;
            }
            if let Some(reason) = connection.closing() {
                return self.last_words(reason).await;
            }
            if self.draining && self.initiator.is_idle() && self.wire.sender.is_empty() {
                return self.say_goodbye().await;
            }
            tokio::select! {
                biased;
                finished = self.initiator.finished() => self.initiator.finish(finished),
                ready = self.wire.stream.writable(), if !self.wire.sender.is_empty() => {
                    if let Err(error) = ready {
                        return error.into();
                    }
                }
                ready = self.wire.stream.readable(), if self.may_read() => {
                    if let Err(error) = ready {
                        return error.into();
                    }
                    match self.wire.receiver.fill(&self.wire.stream) {
                        Ok(0) => return Closed::ByPeer.into(),
                        Ok(got) => {
                            self.initiator.block.stats.received_bytes.fetch_add(got as u64, Ordering::Relaxed);
                            core.busy_poll.traffic();
                        }
                        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                        Err(error) => return error.into(),
                    }
                }
                () = wake.as_mut() => {
                    wake.set(connection.wake.notified());
                    self.initiator.catch_up();
                }
                () = drain.as_mut(), if !self.draining => self.draining = true,
            }
        }
    }

    /// Makes all progress that is possible without waiting.
    async fn advance(&mut self) -> Result<(), ConnectionEnd> {
        self.initiator.work().await;
        loop {
            let is_held_back = self.take_pdus().await?;
            self.transmit()?;
            // There is no other notification of the end of the transmission.
            if !(is_held_back && self.may_read()) {
                return Ok(());
            }
        }
    }

    /// Takes in the PDUs that have come. True: there may be others, which have to wait.
    async fn take_pdus(&mut self) -> Result<bool, ConnectionEnd> {
        while self.may_read() {
            let frame = match self.wire.receiver.next() {
                Ok(Some(frame)) => frame,
                Ok(None) => return Ok(false),
                Err(error) => {
                    let (handle, now) =
                        (self.initiator.admitted.handle, self.initiator.block.now());
                    self.initiator.drive(|session| session.handle_framing_error(handle, now));
                    return Err(ConnectionEnd::framing(error));
                }
            };
            let copied = self.wire.receiver.take_copied_bytes();
            let stats = &self.initiator.block.stats;
            stats.data.carried(data_path::Transport::Iscsi, DataDirection::Write, 0, copied);
            let (handle, now) = (self.initiator.admitted.handle, self.initiator.block.now());
            self.initiator.drive(|session| session.handle_pdu(handle, frame, now));
            self.initiator.work().await;
        }
        Ok(true)
    }

    fn may_read(&self) -> bool {
        !self.draining && self.initiator.may_begin(self.wire.sender.queued_bytes())
    }

    /// Sends the session's PDUs for this connection, as far as the socket
    /// accepts them.
    fn transmit(&mut self) -> Result<(), ConnectionEnd> {
        loop {
            let queued = self.wire.sender.queued_bytes();
            let (taken, took_all) = self.initiator.take_outgoing(queued);
            for pdu in taken {
                self.wire.queue(pdu)?;
            }
            let sent = self.wire.sender.flush(&self.wire.stream)?;
            self.initiator.block.stats.sent_bytes.fetch_add(sent as u64, Ordering::Relaxed);
            if took_all || !self.wire.sender.is_empty() {
                self.initiator.count_memory(self.wire.sender.queued_bytes());
                return Ok(());
            }
        }
    }

    /// Closes this connection on request of the session.
    async fn last_words(&mut self, reason: CloseReason) -> ConnectionEnd {
        let send_all = async {
            while self.transmit().is_ok() && !self.wire.sender.is_empty() {
                if self.wire.stream.writable().await.is_err() {
                    return;
                }
            }
        };
        last_words(reason, send_all).await
    }

    /// Answers all running commands because the gateway stops.
    async fn say_goodbye(&mut self) -> ConnectionEnd {
        let handle = self.initiator.admitted.handle;
        self.initiator.drive(|session| session.drop_connection(handle));
        self.last_words(CloseReason::Dropped).await;
        ConnectionEnd::Stopping
    }
}
