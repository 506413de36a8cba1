//! iSCSI over TCP.

use super::connection::{InitiatorConnection, Intake};
use super::full_feature::{self, Wire};
use super::login::{self, LoginWire};
use super::receive::Receiver;
use super::session::ConnectionHandle;
use crate::iscsi::service::IscsiService;
use crate::net::connection_end::{Bug, ConnectionEnd};
use crate::net::connections::Slot;
use crate::net::core::Core;
use crate::net::peer::Peer;
use crate::net::send::Sender;
use crate::net::silence;
use crate::net::stream::{Ready, ready, received};
use crate::observe::data_path;
use crate::observe::data_path::DataDirection;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::Instant;
use zgate_iscsi::framing::{Digests, Encoder, FramingError};
use zgate_iscsi::login::{Operational, Transport};
use zgate_iscsi::pdu::{Frame, Outgoing};
use zgate_store::Payload;

/// The socket and its framing.
struct TcpWire {
    stream: TcpStream,
    receiver: Receiver,
    encoder: Encoder,
    sender: Sender,
    pieces: Vec<Payload>,
    core: Rc<Core>,
    /// Time for which data waits for memory.
    patience: Duration,
    /// Start of that time, until there is memory.
    waits_since: Option<Instant>,
}

/// Serves a connection until either side closes it.
pub(crate) async fn serve(
    stream: TcpStream,
    peer: Peer,
    slot: Slot,
    block: Arc<IscsiService>,
    core: Rc<Core>,
) {
    let peer = SocketAddr::new(peer.address, peer.port);
    let connection = Arc::new(ConnectionHandle::new(peer, core.number));
    let Some(ticket) = login::begin(&block, &connection, &core, Transport::Tcp) else { return };
    let wire = TcpWire {
        stream,
        receiver: Receiver::new(core.network.pool.clone()),
        encoder: Encoder::new(),
        sender: Sender::of_disks(),
        pieces: Vec::new(),
        core: Rc::clone(&core),
        patience: block.timeouts.data,
        waits_since: None,
    };
    full_feature::serve(wire, &connection, (slot, ticket), &block, &core).await;
}

impl LoginWire for TcpWire {
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
            if let Some(frame) = self.receiver.next(true).map_err(ConnectionEnd::framing)? {
                return Ok(frame);
            }
            self.stream.readable().await?;
            received(self.receiver.fill(&self.stream))?;
        }
    }

    fn queue(&mut self, pdu: Outgoing) -> Result<(), ConnectionEnd> {
        let encoded = self.encoder.encode(pdu, &mut self.pieces);
        encoded.map_err(|error| Bug::Encoding(error.to_string().into()))?;
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

impl TcpWire {
    /// Returns the next PDU of the kind that may be taken in, if it is complete. Where data
    /// has waited for memory long enough, its PDU comes without it.
    fn next_pdu(&mut self, intake: Intake) -> Result<Option<Frame>, FramingError> {
        if intake == Intake::All {
            self.waits_since = None;
            return self.receiver.next(true);
        }
        let next = self.receiver.next(false)?;
        let is_over = self.waits_since.is_some_and(|since| since.elapsed() >= self.patience);
        if next.is_none() && is_over && self.receiver.discard_data() {
            return self.receiver.next(false);
        }
        Ok(next)
    }
}

impl Wire for TcpWire {
    /// `None`: data has waited for memory long enough.
    type Event = Option<Ready>;

    async fn event(&mut self, intake: Intake) -> Result<Option<Ready>, ConnectionEnd> {
        let may_read = match intake {
            Intake::Nothing => false,
            Intake::WithoutData => !self.receiver.is_before_data(),
            Intake::All => true,
        };
        let is_ready = ready(&self.stream, !self.sender.is_empty(), may_read);
        if intake != Intake::WithoutData || !self.receiver.is_before_data() {
            return Ok(Some(is_ready.await?));
        }
        let since = *self.waits_since.get_or_insert_with(Instant::now);
        tokio::select! {
            biased;
            event = is_ready => Ok(Some(event?)),
            () = tokio::time::sleep_until(since + self.patience) => Ok(None),
        }
    }

    fn handle(
        &mut self,
        event: Option<Ready>,
        initiator: &mut InitiatorConnection,
    ) -> Result<bool, ConnectionEnd> {
        if event.is_none() {
            initiator.warn_of_discards();
        }
        if event == Some(Ready::Read) {
            let got = received(self.receiver.fill(&self.stream))?;
            if got > 0 {
                initiator.block.stats.bytes_in(got);
                self.core.busy_poll.traffic();
            }
        }
        Ok(true)
    }

    fn take_pdu(
        &mut self,
        initiator: &mut InitiatorConnection,
        intake: Intake,
    ) -> Result<bool, ConnectionEnd> {
        let frame = match self.next_pdu(intake) {
            Ok(Some(frame)) => frame,
            Ok(None) => return Ok(false),
            Err(error) => return Err(initiator.framing_error(error)),
        };
        let copied = self.receiver.take_copied_bytes();
        let data = &initiator.block.stats.data;
        data.carried(data_path::Transport::Iscsi, DataDirection::Write, 0, copied);
        initiator.handle_pdu(frame);
        Ok(true)
    }

    fn send(
        &mut self,
        pdu: Outgoing,
        _initiator: &InitiatorConnection,
    ) -> Result<(), ConnectionEnd> {
        self.queue(pdu)
    }

    fn flush(&mut self, initiator: &InitiatorConnection) -> Result<bool, ConnectionEnd> {
        let sent = self.sender.flush(&self.stream)?;
        initiator.block.stats.bytes_out(sent);
        Ok(self.sender.is_empty())
    }

    fn unsent_bytes(&self) -> usize {
        self.sender.queued_bytes()
    }

    fn has_unsent(&self) -> bool {
        !self.sender.is_empty()
    }

    fn holds_data(&self) -> bool {
        self.receiver.is_before_data()
    }

    fn hold(&mut self, is_held: bool) -> Result<bool, ConnectionEnd> {
        if is_held {
            silence::refuse_data(&self.stream)?
        } else {
            silence::hear(&self.stream)?
        };
        Ok(true)
    }
}
