//! One connection from its first byte to full feature phase.

use super::attached::abandon;
use super::cell::{Cell, Port};
use super::figures::reason;
use super::limits::LOGIN_TIMEOUT;
use super::service::BlockService;
use std::net::{IpAddr, SocketAddr};
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

/// Counts a login that is under way.
struct UnderWay<'a> {
    block: &'a BlockService,
    from: IpAddr,
}

impl<'a> UnderWay<'a> {
    fn begin(block: &'a BlockService, from: IpAddr) -> Option<Self> {
        if !block.figures.begin_login(from) {
            return None;
        }
        // Its end counts back.
        Some(Self { block, from })
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.block.figures.end_login(self.from);
    }
}

/// Logs a connection in.
pub(crate) async fn run(
    wire: &mut impl LoginWire,
    block: &BlockService,
    port: &Arc<Port>,
) -> Result<Admitted, &'static str> {
    let Some(_counted) = UnderWay::begin(block, port.peer.ip().to_canonical()) else {
        block.figures.login_refused("too_many_logins");
        return Err("too many logins at once");
    };
    let negotiated = tokio::time::timeout(LOGIN_TIMEOUT, negotiate(wire, block, port)).await;
    let (done, login) = negotiated.map_err(|_| {
        block.figures.login_refused("timeout");
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
                tracing::warn!(peer = %port.peer, reason = why, "iSCSI login refused");
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
    if let Err(why) = send(wire, &mut login).await {
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
