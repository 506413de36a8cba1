//! One connection from its first byte to full feature phase.

use super::attached::abandon;
use super::cell::{Cell, Port};
use super::figures::reason;
use super::limits::LOGIN_TIMEOUT;
use super::logins::Ticket;
use super::service::BlockService;
use crate::observe::throttle::warn_seldom;
use crate::serve::connections::{Slot, Standing};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use zgate_iscsi::login::{
    LoggedIn, Login, LoginContext, LoginState, Offer, Operational, Transport,
};
use zgate_iscsi::names::IscsiName;
use zgate_iscsi::pdu::{Frame, Outgoing};
use zgate_iscsi::session::ConnHandle;
use zgate_iscsi::text::parse_text;

/// What carries PDUs while a connection logs in.
pub(crate) trait LoginWire {
    /// What it is.
    fn transport(&self) -> Transport;

    /// The login is about to succeed: makes ready for what may follow it.
    fn open(&mut self) {}

    /// What login agreed.
    fn configure(&mut self, params: &Operational);

    /// The address the peer connected to.
    fn local(&self) -> Option<SocketAddr>;

    /// The next PDU, however long it takes.
    async fn next(&mut self) -> Result<Frame, &'static str>;

    /// Queues a PDU.
    fn queue(&mut self, pdu: Outgoing) -> Result<(), &'static str>;

    /// Sends everything that is queued.
    async fn flush_all(&mut self) -> Result<(), &'static str>;
}

/// A connection that is in.
pub(crate) struct Admitted {
    pub login: Box<LoggedIn>,
    pub cell: Arc<Cell>,
    pub handle: ConnHandle,
}

impl Admitted {
    /// Takes the connection from among those of outsiders. One that only asks
    /// for names stays: anybody may be asked nothing for it.
    pub(crate) fn count(&self, slot: &Slot) {
        if self.login.key.target.is_some() {
            slot.set_standing(Standing::LoggedIn);
        }
    }
}

/// A place for a connection that is about to log in; `None` when there are too
/// many. Before it has one, nothing is kept for it.
pub(crate) fn begin(block: &BlockService, port: &Port) -> Option<Ticket> {
    let ticket = block.logins.begin(port.peer.ip());
    if ticket.is_none() {
        block.figures.login_refused("too_many_logins");
    }
    ticket
}

/// Logs a connection in.
pub(crate) async fn run(
    wire: &mut impl LoginWire,
    block: &BlockService,
    port: &Arc<Port>,
    mut ticket: Ticket,
) -> Result<Admitted, &'static str> {
    let negotiated = ticket.within(LOGIN_TIMEOUT, negotiate(wire, block, port)).await;
    let (done, login) = negotiated.map_err(|why| {
        block.figures.login_refused(why);
        "login took too long"
    })??;
    finish(wire, block, port, done, login).await
}

async fn negotiate(
    wire: &mut impl LoginWire,
    block: &BlockService,
    port: &Arc<Port>,
) -> Result<(Box<LoggedIn>, Login), &'static str> {
    let (group, transport) = (block.group_at(wire.local()), wire.transport());
    let mut login: Option<Login> = None;
    loop {
        let frame = wire.next().await?;
        let address = port.peer.ip().to_canonical();
        let login = login.get_or_insert_with(|| {
            Login::new(offer(block, &frame, transport), Some(address), group)
        });
        step(block, login, &frame);
        match login.state() {
            LoginState::InProgress => send(wire, login).await?,
            LoginState::Failed(status) => {
                let why = reason(*status);
                block.figures.login_refused(why);
                warn_seldom!(peer = %port.peer, reason = why, "iSCSI login refused");
                send(wire, login).await?;
                return Err("login refused");
            }
            LoginState::Done(done) => {
                let done = done.clone();
                let unused = Login::new(Offer::default(), None, group);
                return Ok((done, std::mem::replace(login, unused)));
            }
        }
    }
}

/// What is offered depends on the target, which the first request names.
fn offer(block: &BlockService, frame: &Frame, transport: Transport) -> Offer {
    let text = frame.contiguous_data();
    let pairs = parse_text(&text).unwrap_or_default();
    let name = pairs.iter().find(|(key, _)| *key == "TargetName");
    let name = name.and_then(|(_, value)| IscsiName::parse(value));
    let rules = block.rules();
    let target = name.and_then(|name| rules.catalog.targets.get(&name).cloned());
    block.offer(target.as_ref().map(|target| &target.settings), transport)
}

fn step(block: &BlockService, login: &mut Login, frame: &Frame) {
    let rules = block.rules();
    let access = rules.access();
    let mut entropy = block.entropy();
    let window_of = |tsih| block.session(tsih).map(|cell| cell.with(|session| session.window()));
    let mut directory = block.directory();
    let mut cx = LoginContext {
        policy: &access,
        directory: &mut directory,
        entropy: &mut entropy,
        window_of: &window_of,
    };
    login.handle_pdu(frame, &mut cx);
}

async fn send(wire: &mut impl LoginWire, login: &mut Login) -> Result<(), &'static str> {
    while let Some(pdu) = login.poll_transmit() {
        wire.queue(pdu)?;
    }
    wire.flush_all().await
}

/// Makes or joins the session, then sends the last response.
async fn finish(
    wire: &mut impl LoginWire,
    block: &BlockService,
    port: &Arc<Port>,
    done: Box<LoggedIn>,
    mut login: Login,
) -> Result<Admitted, &'static str> {
    let Some((cell, handle)) = block.establish(&done, port).await else {
        block.directory().remove_connection(crate::block::service::tsih_of(&done), done.cid);
        return Err("its session has ended");
    };
    block.figures.logins.fetch_add(1, Ordering::Relaxed);
    let admitted = Admitted { login: done, cell, handle };
    // The first commands may come as soon as the response is there.
    wire.open();
    let sent = tokio::time::timeout(LOGIN_TIMEOUT, send(wire, &mut login)).await;
    if let Err(why) = sent.unwrap_or(Err("the peer does not take the last response")) {
        abandon(block, &admitted);
        return Err(why);
    }
    wire.configure(&admitted.login.params);
    tracing::info!(
        peer = %port.peer,
        transport = ?admitted.login.transport,
        initiator = %admitted.login.key.initiator,
        target = admitted.login.key.target.as_ref().map(tracing::field::display),
        claim = ?admitted.login.claim,
        "iSCSI login"
    );
    Ok(admitted)
}
