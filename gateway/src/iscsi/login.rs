//! One connection from its first byte to full feature phase.

use super::connection::{InitiatorConnection, carrier};
use super::limits::{LOGIN_TIMEOUT, SHOWN_CHARACTERS};
use super::logins::Ticket;
use super::service::IscsiService;
use super::session::{ConnectionHandle, LiveSession};
use super::stats::reason;
use crate::net::connection_end::{Closed, ConnectionEnd, Refused, Slow};
use crate::net::connections::Slot;
use crate::net::core::Core;
use crate::net::memory_quota::MemoryReservation;
use crate::observe::audit;
use crate::observe::printable::printable;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use zgate_iscsi::login::{
    LoggedIn, Login, LoginContext, LoginState, Offer, Operational, Transport,
};
use zgate_iscsi::names::IscsiName;
use zgate_iscsi::pdu::{FLAG_CONTINUE, Frame, Outgoing};
use zgate_iscsi::session::ConnHandle;
use zgate_iscsi::text::parse_text;

/// Transport of PDUs during login.
pub(crate) trait LoginWire {
    /// Returns the kind of transport.
    fn transport(&self) -> Transport;

    /// Prepares for full feature phase shortly before the login succeeds.
    fn open(&mut self) {}

    /// Applies the negotiated parameters.
    fn configure(&mut self, params: &Operational);

    /// Returns the local address.
    fn local(&self) -> Option<SocketAddr>;

    /// Waits for the next PDU.
    async fn next(&mut self) -> Result<Frame, ConnectionEnd>;

    /// Queues a PDU.
    fn queue(&mut self, pdu: Outgoing) -> Result<(), ConnectionEnd>;

    /// Sends all queued PDUs.
    async fn flush_all(&mut self) -> Result<(), ConnectionEnd>;
}

/// A connection that has logged in.
pub(crate) struct Admitted {
    pub login: Box<LoggedIn>,
    pub live: Arc<LiveSession>,
    pub handle: ConnHandle,
}

/// Reserves a login for a new connection; `None` if there are too many, which
/// is counted and logged. No memory is kept for a connection without one.
pub(crate) fn begin(
    block: &IscsiService,
    connection: &ConnectionHandle,
    core: &Core,
    transport: Transport,
) -> Option<Ticket> {
    let ticket = block.logins.begin(connection.peer.ip());
    if ticket.is_none() {
        block.stats.login_refused("too_many_logins");
        let end = ConnectionEnd::Overloaded;
        core.network.ends.record(&end, carrier(transport), connection.peer, false);
    }
    ticket
}

/// Logs a connection in, whose memory is reserved beside `memory`.
pub(crate) async fn run(
    wire: &mut impl LoginWire,
    block: &Arc<IscsiService>,
    connection: &Arc<ConnectionHandle>,
    memory: MemoryReservation,
    (slot, mut ticket): (&Slot, Ticket),
) -> Result<InitiatorConnection, ConnectionEnd> {
    let negotiated = ticket.within(LOGIN_TIMEOUT, negotiate(wire, block, connection, slot)).await;
    let (done, login) = negotiated.inspect_err(|end| {
        let is_displaced = matches!(end, ConnectionEnd::Overloaded);
        block.stats.login_refused(if is_displaced { "displaced" } else { "timeout" });
    })??;
    finish(wire, block, (connection, memory), done, login).await
}

async fn negotiate(
    wire: &mut impl LoginWire,
    block: &IscsiService,
    connection: &Arc<ConnectionHandle>,
    slot: &Slot,
) -> Result<(Box<LoggedIn>, Login), ConnectionEnd> {
    let transport = wire.transport();
    let group = block.group_at(wire.local(), transport);
    let mut login: Option<Login> = None;
    let mut claimed = Claimed::default();
    loop {
        let frame = wire.next().await?;
        claimed.read(&frame);
        let address = connection.peer.ip().to_canonical();
        let login = login
            .get_or_insert_with(|| Login::new(offer(block, None, transport), Some(address), group));
        if let Some(target) = claimed.name.take() {
            login.set_offer(offer(block, Some(&target), transport));
        }
        step(block, login, &frame, slot);
        match login.state() {
            LoginState::InProgress => send(wire, login).await?,
            LoginState::Failed(status) => {
                let why = reason(*status);
                block.stats.login_refused(why);
                claimed.refused(connection.peer, why, login.detail());
                send(wire, login).await?;
                return Err(Refused::Login.into());
            }
            LoginState::Done(done) => {
                let done = done.clone();
                let unused = Login::new(Offer::default(), None, group);
                return Ok((done, std::mem::replace(login, unused)));
            }
        }
    }
}

/// Names that an initiator states, escaped: nothing has been checked.
#[derive(Debug, Default)]
struct Claimed {
    /// Text that goes on in the next request (C bit). The login ends if it gets too long.
    text: Vec<u8>,
    initiator: Option<String>,
    target: Option<String>,
    /// The target's name itself, when it has just been read.
    name: Option<IscsiName>,
}

impl Claimed {
    /// Reads the names that a request states, if they are still missing.
    fn read(&mut self, frame: &Frame) {
        if self.initiator.is_some() && self.target.is_some() {
            return;
        }
        self.text.extend_from_slice(&frame.contiguous_data());
        if frame.bhs.flags() & FLAG_CONTINUE != 0 {
            return;
        }
        let text = std::mem::take(&mut self.text);
        for (key, value) in parse_text(&text).unwrap_or_default() {
            let name = match key {
                "InitiatorName" => &mut self.initiator,
                "TargetName" => {
                    self.name = IscsiName::parse(value);
                    &mut self.target
                }
                _ => continue,
            };
            let shown: String = value.chars().take(SHOWN_CHARACTERS).collect();
            name.get_or_insert_with(|| printable(&shown));
        }
    }

    fn refused(&self, peer: SocketAddr, reason: &'static str, detail: Option<&str>) {
        let (initiator, target) = (self.initiator.as_deref(), self.target.as_deref());
        audit::refused!(
            Iscsi,
            peer.ip(),
            %peer,
            initiator,
            target,
            reason,
            detail,
            "iSCSI login refused"
        );
    }
}

/// Returns the offer, which depends on the target that the initiator names.
fn offer(block: &IscsiService, target: Option<&IscsiName>, transport: Transport) -> Offer {
    let rules = block.rules();
    let target = target.and_then(|name| rules.catalog.targets.get(name));
    block.offer(target.map(|target| &target.settings), transport)
}

fn step(block: &IscsiService, login: &mut Login, frame: &Frame, slot: &Slot) {
    // First: when a target comes, it is no longer awaited afterwards.
    let awaited = block.awaited_targets();
    let rules = block.rules();
    let access = rules.access(&awaited);
    let mut entropy = block.entropy();
    let window_of = |tsih| block.session(tsih).map(|live| live.with(|session| session.window()));
    // A discovery session still counts as an outsider's, because it may need no authentication.
    let admit = |replaces: bool| slot.log_in(replaces);
    let mut directory = block.directory();
    let mut cx = LoginContext {
        policy: &access,
        directory: &mut directory,
        entropy: &mut entropy,
        window_of: &window_of,
        admit: &admit,
    };
    login.handle_pdu(frame, &mut cx);
}

async fn send(wire: &mut impl LoginWire, login: &mut Login) -> Result<(), ConnectionEnd> {
    while let Some(pdu) = login.poll_transmit() {
        wire.queue(pdu)?;
    }
    wire.flush_all().await
}

/// Creates or joins the session, then sends the last response.
async fn finish(
    wire: &mut impl LoginWire,
    block: &Arc<IscsiService>,
    (connection, memory): (&Arc<ConnectionHandle>, MemoryReservation),
    done: Box<LoggedIn>,
    mut login: Login,
) -> Result<InitiatorConnection, ConnectionEnd> {
    let Some((live, handle)) = block.establish(&done, connection, &memory).await else {
        match block.session(done.claim.tsih()) {
            // It may have another one of this number.
            Some(live) => block.connection_ended(&live, &done),
            None => block.directory().remove_connection(done.claim.tsih(), done.cid),
        }
        return Err(Closed::SessionEnded.into());
    };
    // From here on, its drop tells the session that the connection has ended.
    let initiator = InitiatorConnection::new(
        Arc::clone(connection),
        Arc::clone(block),
        Admitted { login: done, live, handle },
        wire.local(),
        memory,
    );
    if !block.settle_leftovers(&initiator.admitted.live).await {
        return Err(Refused::Login.into());
    }
    block.stats.logins.fetch_add(1, Ordering::Relaxed);
    // The first commands may arrive as soon as the response is sent.
    wire.open();
    let sent = tokio::time::timeout(LOGIN_TIMEOUT, send(wire, &mut login)).await;
    sent.unwrap_or(Err(Slow::LastResponse.into()))?;
    let admitted = &initiator.admitted;
    wire.configure(&admitted.login.params);
    tracing::info!(
        peer = %connection.peer,
        transport = ?admitted.login.transport,
        initiator = %admitted.login.key.initiator,
        target = admitted.login.key.target.as_ref().map(tracing::field::display),
        claim = ?admitted.login.claim,
        "iSCSI login"
    );
    Ok(initiator)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use zgate_iscsi::names::{Cid, Isid, Tsih};
    use zgate_iscsi::pdu::{Itt, LoginRequest, Stage};
    use zgate_iscsi::serial::Sn;

    fn part(text: &'static [u8], continues: bool) -> Frame {
        let request = LoginRequest {
            continues,
            current: Stage::Operational,
            transit: None,
            version_max: 0,
            version_min: 0,
            isid: Isid([0; 6]),
            tsih: Tsih(0),
            itt: Itt(1),
            cid: Cid(0),
            cmd_sn: Sn(1),
            exp_stat_sn: Sn(0),
        };
        let text = Bytes::from_static(text);
        Frame::new(request.encode(text.clone()).bhs, Bytes::new(), vec![text])
    }

    #[test]
    fn names_that_go_on_in_the_next_request_are_read_whole() {
        let (initiator, target) = ("iqn.2026-11.test:i", "iqn.2026-11.test:t");
        let text = b"InitiatorName=iqn.2026-11.test:i\0TargetName=iqn.2026-11.test:t\0";
        let (begin, end) = text.split_at(50);
        let mut claimed = Claimed::default();
        claimed.read(&part(begin, true));
        assert_eq!((&claimed.target, &claimed.name), (&None, &None));
        claimed.read(&part(end, false));
        assert_eq!(claimed.initiator.as_deref(), Some(initiator));
        assert_eq!(claimed.target.as_deref(), Some(target));
        assert_eq!(claimed.name, IscsiName::parse(target));
    }
}
