//! One connection in full feature phase, over any transport.

use super::connection::{InitiatorConnection, Intake, carrier};
use super::limits::LAST_WORDS_TIMEOUT;
use super::login::{self, LoginWire};
use super::logins::Ticket;
use super::running::Finished;
use super::service::IscsiService;
use super::session::ConnectionHandle;
use crate::net::connection_end::{Closed, ConnectionEnd, Misbehaved, Slow};
use crate::net::connections::Slot;
use crate::net::core::Core;
use crate::net::event_loop::{self, Event};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::futures::OwnedNotified;
use zgate_iscsi::pdu::Outgoing;
use zgate_iscsi::session::CloseReason;

/// Transport of PDUs in full feature phase.
pub(crate) trait Wire: LoginWire {
    /// Event of the transport.
    type Event;

    /// Waits for the next event. If the transport can hold back data, it
    /// receives only what may be taken in. Cancel safe.
    async fn event(&mut self, intake: Intake) -> Result<Self::Event, ConnectionEnd>;

    /// Handles an event; returns whether it may allow progress.
    fn handle(
        &mut self,
        event: Self::Event,
        initiator: &mut InitiatorConnection,
    ) -> Result<bool, ConnectionEnd>;

    /// Gives the next PDU that has come to the session; returns false if there
    /// is none, or it may not be taken in. Not called for [`Intake::Nothing`].
    fn take_pdu(
        &mut self,
        initiator: &mut InitiatorConnection,
        intake: Intake,
    ) -> Result<bool, ConnectionEnd>;

    /// Queues a PDU of the session.
    fn send(&mut self, pdu: Outgoing, initiator: &InitiatorConnection)
    -> Result<(), ConnectionEnd>;

    /// Sends queued PDUs without waiting; returns whether all of them were
    /// accepted.
    fn flush(&mut self, initiator: &InitiatorConnection) -> Result<bool, ConnectionEnd>;

    /// Returns the bytes that may not have left.
    fn unsent_bytes(&self) -> usize;

    /// Returns whether PDUs are queued.
    fn has_unsent(&self) -> bool;

    /// Returns whether data that has come needs memory, and is not taken in without.
    fn holds_data(&self) -> bool;

    /// Returns whether nothing is in progress.
    fn is_idle(&self) -> bool {
        !self.has_unsent()
    }

    /// Has the peer keep its PDUs, or takes them again. `Ok(false)`: the
    /// transport cannot do that.
    fn hold(&mut self, _is_held: bool) -> Result<bool, ConnectionEnd> {
        Ok(false)
    }

    /// Returns the time to the next [`Self::check`]; `None` if there are none.
    fn check_period(&self) -> Option<Duration> {
        None
    }

    /// Checks whether the peer exceeds a time limit of the transport.
    fn check(&self) -> Result<(), ConnectionEnd> {
        Ok(())
    }
}

struct Connection<W> {
    // Dropped first: afterwards no device accesses buffers of commands.
    wire: W,
    initiator: InitiatorConnection,
    /// Notification of work from outside; in a box, because it must not move.
    wake: Pin<Box<OwnedNotified>>,
}

/// Logs a connection in, and serves it until either side closes it.
pub(crate) async fn serve(
    mut wire: impl Wire,
    connection: &Arc<ConnectionHandle>,
    (slot, ticket): (Slot, Ticket),
    block: &Arc<IscsiService>,
    core: &Core,
) {
    let (network, peer) = (&core.network, connection.peer);
    let carrier = carrier(wire.transport());
    let memory = network.reservation(peer.ip());
    let logged_in = tokio::select! {
        logged_in = login::run(&mut wire, block, connection, memory, (&slot, ticket)) => logged_in,
        () = network.drain.wait() => Err(ConnectionEnd::Stopping),
    };
    let mut initiator = match logged_in {
        Ok(initiator) => initiator,
        Err(end) => return network.ends.record(&end, carrier, peer, false),
    };
    let wake = Box::pin(Arc::clone(&connection.wake).notified_owned());
    initiator.catch_up();
    let mut connection = Connection { wire, initiator, wake };
    event_loop::serve(&mut connection, core, carrier, peer, true).await;
}

impl<W: Wire> event_loop::Connection for Connection<W> {
    type Event = Event<Finished, W::Event, ()>;

    async fn advance(&mut self) -> Result<(), ConnectionEnd> {
        loop {
            self.initiator.work(self.wire.unsent_bytes()).await;
            let taken_in = self.take_pdus().await?;
            self.transmit()?;
            // There is no other notification of the end of the transmission.
            let may_go_on = self.initiator.may_go_on(self.wire.unsent_bytes());
            if !(may_go_on || self.intake() > taken_in) {
                break;
            }
        }
        match self.initiator.connection.closing() {
            Some(reason) => Err(self.close(reason).await),
            None => Ok(()),
        }
    }

    async fn event(&mut self) -> Result<Self::Event, ConnectionEnd> {
        let intake = self.intake();
        tokio::select! {
            biased;
            finished = self.initiator.finished() => Ok(Event::Finished(finished)),
            event = self.wire.event(intake) => event.map(Event::Transport),
            () = self.wake.as_mut() => Ok(Event::Outside(())),
        }
    }

    async fn handle(&mut self, event: Self::Event) -> Result<bool, ConnectionEnd> {
        match event {
            Event::Finished(finished) => self.initiator.finish(finished),
            Event::Transport(event) => return self.wire.handle(event, &mut self.initiator),
            Event::Outside(()) => {
                let again = Arc::clone(&self.initiator.connection.wake).notified_owned();
                self.wake.set(again);
                self.initiator.catch_up();
            }
        }
        Ok(true)
    }

    fn begin_drain(&mut self) {
        self.initiator.is_draining = true;
    }

    fn hold(&mut self, is_held: bool) -> Result<bool, ConnectionEnd> {
        self.wire.hold(is_held)
    }

    fn is_idle(&self) -> bool {
        self.initiator.is_idle() && self.wire.is_idle()
    }

    /// Tells the initiator that its connection is dropped.
    async fn say_goodbye(&mut self) {
        let handle = self.initiator.admitted.handle;
        self.initiator.drive(|session| session.drop_connection(handle));
        self.close(CloseReason::Dropped).await;
    }

    fn check_period(&mut self) -> Option<Duration> {
        self.wire.check_period()
    }

    fn check(&mut self) -> Result<(), ConnectionEnd> {
        self.wire.check()
    }

    fn retry_after(&self) -> Option<Duration> {
        self.initiator.retry_after(self.wire.unsent_bytes(), self.wire.holds_data())
    }
}

impl<W: Wire> Connection<W> {
    fn intake(&self) -> Intake {
        self.initiator.intake(self.wire.unsent_bytes())
    }

    /// Takes in the PDUs that have come. There are no others of the kind that it
    /// returns.
    async fn take_pdus(&mut self) -> Result<Intake, ConnectionEnd> {
        loop {
            let intake = self.intake();
            if intake == Intake::Nothing || !self.wire.take_pdu(&mut self.initiator, intake)? {
                return Ok(intake);
            }
            self.initiator.work(self.wire.unsent_bytes()).await;
        }
    }

    /// Sends the session's PDUs for this connection, as far as the transport
    /// accepts them.
    fn transmit(&mut self) -> Result<(), ConnectionEnd> {
        loop {
            let (taken, took_all) = self.initiator.take_outgoing(self.wire.unsent_bytes());
            for pdu in taken {
                self.wire.send(pdu, &self.initiator)?;
            }
            let is_accepted = self.wire.flush(&self.initiator)?;
            if took_all || !is_accepted {
                self.initiator.count_memory(self.wire.unsent_bytes());
                return Ok(());
            }
        }
    }

    /// Closes the connection on request of the session: its queue may take a
    /// moment to leave, if the peer still reads.
    async fn close(&mut self, reason: CloseReason) -> ConnectionEnd {
        let send_all = async {
            while self.transmit().is_ok() && self.wire.has_unsent() {
                if self.wire.event(Intake::Nothing).await.is_err() {
                    return;
                }
            }
        };
        if matches!(reason, CloseReason::Logout | CloseReason::Dropped) {
            // If the peer does not read the last PDUs, they are dropped.
            let _ = tokio::time::timeout(LAST_WORDS_TIMEOUT, send_all).await;
        }
        match reason {
            CloseReason::Logout => Closed::LoggedOut.into(),
            CloseReason::Dropped => Closed::Dropped.into(),
            CloseReason::Protocol => Misbehaved::Session.into(),
            CloseReason::Silent => Slow::Silent.into(),
            CloseReason::Overrun => Slow::Unread.into(),
            CloseReason::Reinstated => Closed::Replaced.into(),
        }
    }
}
