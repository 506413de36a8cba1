//! A client of one server: its connections, the session, names. What is lost on
//! the way comes back by itself: a connection is made again and its requests
//! are repeated in their slots, so that none runs twice; a session that the
//! server has forgotten is created again and what was open is reclaimed.

use crate::compound::{Ops, Results};
use crate::error::ClientError;
use crate::leave::leave;
use crate::link::{Link, Ways};
use crate::open_state::OpenState;
use crate::session::{Session, SessionRequest, Turn, decode};
use crate::transport::{Connection, Counters, Landing, TransportChoice};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;
use tokio::time::Instant;
use zgate_nfs::namespace::Fh;
use zgate_nfs::v4::op::{exchange_id, rename, sequence};
use zgate_nfs::v4::wire::{Bitmap, Fattr, OpNum, Status};
use zgate_rpc::{AuthSys, Credential};
use zgate_store::BufferPool;
use zgate_xdr::Decoder;

/// fattr4 numbers used here.
const TYPE: u32 = 1;
const CHANGE: u32 = 3;
const SIZE: u32 = 4;

/// How long a server that asks for patience is left alone.
const DELAY: Duration = Duration::from_millis(50);
/// How long one of several links may take before the next one is tried.
const LINK_PATIENCE: Duration = Duration::from_millis(500);

/// How to reach a server.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Connections to each address, all of one session.
    pub connections: usize,
    /// Requests in flight.
    pub slots: u32,
    /// Largest transfer in bytes.
    pub max_transfer_bytes: u32,
    /// As whom.
    pub credential: Credential,
    /// The client's own name.
    pub owner: Vec<u8>,
    /// Changes when the client restarts.
    pub verifier: [u8; 8],
    /// How long a request may take while the server cannot be reached, starts
    /// again or asks for patience.
    pub patience: Duration,
    /// Over TCP, RDMA, or whatever is there.
    pub transport: TransportChoice,
}

/// A name no other client has, on this host or another: two with one name would
/// be one client to the server, and lose each other's sessions.
fn own_name() -> Vec<u8> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("zgate {host} {} {} {count}", std::process::id(), nanoseconds()).into_bytes()
}

fn nanoseconds() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            connections: 1,
            slots: 64,
            max_transfer_bytes: 1 << 20,
            credential: Credential::Sys(AuthSys::default()),
            owner: own_name(),
            verifier: nanoseconds().to_be_bytes(),
            patience: Duration::from_secs(150),
            transport: TransportChoice::default(),
        }
    }
}

/// A client.
#[derive(Debug)]
pub struct Client {
    links: Vec<Arc<Link>>,
    ways: Arc<Ways>,
    request: SessionRequest,
    session: RwLock<Arc<Session>>,
    recovery: tokio::sync::Mutex<()>,
    opens: Mutex<Vec<Weak<OpenState>>>,
    next: AtomicUsize,
    max_transfer_bytes: u32,
    patience: Duration,
    left: AtomicBool,
}

/// One that goes without a word says it from the runtime it is dropped on, if
/// it is.
impl Drop for Client {
    fn drop(&mut self) {
        if let Some(parting) = self.parting()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(parting);
        }
    }
}

/// What a name leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its handle.
    pub fh: Fh,
    /// nfs_ftype4: 1 regular, 2 directory.
    pub kind: u32,
    /// Changes whenever the object does.
    pub change: u64,
    /// Its length in bytes.
    pub size: u64,
}

impl Client {
    /// Connects and creates a session. A server that is not there yet is waited
    /// for as long as patience lasts.
    ///
    /// # Errors
    /// What the server or the connection says.
    pub async fn connect(
        address: SocketAddr,
        options: &ClientOptions,
    ) -> Result<Self, ClientError> {
        Self::connect_all(&[address], options).await
    }

    /// The same over several addresses of one server (session trunking, RFC
    /// 8881 §2.10.5).
    ///
    /// # Errors
    /// [`ClientError::OtherServer`] if two addresses lead to two servers; what
    /// the server or the connection says.
    pub async fn connect_all(
        addresses: &[SocketAddr],
        options: &ClientOptions,
    ) -> Result<Self, ClientError> {
        let ways = Arc::new(Ways::new(options.transport.clone(), BufferPool::new(128 << 20)));
        let request = SessionRequest {
            owner: options.owner.clone(),
            verifier: options.verifier,
            minor: 1,
            credential: options.credential.clone(),
            slots: options.slots,
            max_message_bytes: options.max_transfer_bytes + (16 << 10),
        };
        // Connections take turns: addresses first, so that all are used.
        let links: Vec<Arc<Link>> = (0..options.connections.max(1))
            .flat_map(|_| addresses.iter().map(|address| Link::new(*address, &ways)))
            .collect();
        let until = Instant::now() + options.patience;
        let (session, known) = loop {
            match greet(&links, addresses.len(), &request, until).await {
                Err(error) if error.is_passing() && Instant::now() + DELAY < until => {
                    tracing::debug!(%error, "trying again");
                    tokio::time::sleep(DELAY).await;
                }
                result => break result?,
            }
        };
        let room = session.fore.max_response_bytes.min(session.fore.max_request_bytes);
        let max_transfer_bytes = options.max_transfer_bytes.min(room.saturating_sub(4 << 10));
        tracing::debug!(clientid = ?known.clientid, slots = session.fore.slots, "session created");
        Ok(Self {
            links,
            ways,
            request,
            session: RwLock::new(Arc::new(session)),
            recovery: tokio::sync::Mutex::new(()),
            opens: Mutex::new(Vec::new()),
            next: AtomicUsize::new(0),
            max_transfer_bytes,
            patience: options.patience,
            left: AtomicBool::new(false),
        })
    }

    /// Leaves the server, which forgets the session and the client at once, if
    /// nothing is open any more; it takes 2 s at most. Of no use afterwards.
    pub async fn close(&self) {
        if let Some(parting) = self.parting() {
            parting.await;
        }
    }

    /// Leaving, once.
    fn parting(&self) -> Option<impl Future<Output = ()> + Send + 'static> {
        if self.left.swap(true, Ordering::Relaxed) {
            return None;
        }
        let (links, session, request) = (self.links.clone(), self.session(), self.request.clone());
        Some(async move { leave(&links, &session, &request).await })
    }

    /// Largest READ and WRITE in bytes.
    #[must_use]
    pub fn max_transfer_bytes(&self) -> u32 {
        self.max_transfer_bytes
    }

    /// Where the data of READs went.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        self.ways.counters()
    }

    /// What RDMA goes over, if it may be used.
    pub(crate) fn fabric(&self) -> Option<Arc<dyn zgate_fabric::Fabric>> {
        self.ways.fabric()
    }

    /// Whether there is a connection of RDMA now.
    pub(crate) async fn is_rdma(&self) -> bool {
        for link in &self.links {
            if link.is_rdma().await == Some(true) {
                return true;
            }
        }
        false
    }

    /// What carries the calls now, and why, for people. Connections are made
    /// when they are first used.
    pub async fn transport(&self) -> String {
        let (mut rdma, mut tcp) = (0, 0);
        for link in &self.links {
            match link.is_rdma().await {
                Some(true) => rdma += 1,
                Some(false) => tcp += 1,
                None => {}
            }
        }
        let unused = self.links.len() - rdma - tcp;
        let parts = [(rdma, "over RDMA"), (tcp, "over TCP"), (unused, "when needed")];
        let text: Vec<String> = parts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, over)| format!("{count} {over}"))
            .collect();
        let s = if self.links.len() == 1 { "" } else { "s" };
        format!("connection{s}: {} ({})", text.join(", "), self.ways.reason())
    }

    /// Requests that can be under way at the same time.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.session().fore.slots
    }

    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    fn session(&self) -> Arc<Session> {
        Arc::clone(&self.session.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Remembers an open file, to reclaim it after a restart of the server.
    pub(crate) fn remember(&self, open: &Arc<OpenState>) {
        let mut opens = self.opens.lock().unwrap_or_else(PoisonError::into_inner);
        opens.retain(|known| known.strong_count() > 0);
        opens.push(Arc::downgrade(open));
    }

    /// Sends a COMPOUND, on the connections in turn.
    ///
    /// # Errors
    /// What the server or the connection says.
    pub async fn call(&self, ops: Ops, cache_this: bool) -> Result<Results, ClientError> {
        self.exchange(&ops, cache_this, &mut None).await
    }

    /// The same; the data of a READ is placed in `landing`, which is there
    /// again afterwards whatever happens.
    pub(crate) async fn exchange(
        &self,
        ops: &Ops,
        cache_this: bool,
        landing: &mut Option<Landing>,
    ) -> Result<Results, ClientError> {
        let until = Instant::now() + self.patience;
        loop {
            let session = self.session();
            match self.in_session(&session, ops, cache_this, landing, until).await {
                Err(error) if error.is_session_lost() && Instant::now() < until => {
                    self.recover(&session, until).await?;
                }
                result => return result,
            }
        }
    }

    async fn in_session(
        &self,
        session: &Session,
        ops: &Ops,
        cache_this: bool,
        landing: &mut Option<Landing>,
        until: Instant,
    ) -> Result<Results, ClientError> {
        let mut turn = session.turn().await?;
        if turn.is_unanswered() {
            self.settle(&mut turn, until).await?;
        }
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let mut repeated = false;
        for attempt in 0.. {
            let link = &self.links[(first + attempt) % self.links.len()];
            let limit = self.link_limit(attempt, until);
            let connection = match link.connection(limit).await {
                Ok(connection) => connection,
                Err(error) if Instant::now() >= until => return Err(error),
                Err(_) => continue,
            };
            let xid = connection.next_xid();
            let message = turn.encode(xid, cache_this, ops);
            let arrived = connection.call_into(xid, message, landing.take()).await;
            *landing = arrived.landing;
            let raw = match arrived.reply {
                Ok(raw) => raw,
                Err(error) if Instant::now() >= until => return Err(error),
                Err(_) => {
                    repeated = true;
                    continue;
                }
            };
            let mut results = decode(raw)?;
            results.set_placed(arrived.placed);
            let error = match results.next::<sequence::Res>(OpNum::Sequence) {
                Ok(_) => {
                    turn.advance();
                    return Ok(results);
                }
                Err(error) => error,
            };
            match error.status() {
                Some(Status::Delay) if Instant::now() < until => tokio::time::sleep(DELAY).await,
                // It ran, and the answer is not kept: what is not kept may run
                // again (RFC 8881 §2.10.6.1.3).
                Some(Status::RetryUncachedRep) if !cache_this => turn.advance(),
                Some(Status::SeqMisordered) if repeated && !cache_this => {
                    turn.advance();
                    repeated = false;
                }
                _ => return Err(error),
            }
        }
        Err(ClientError::Garbled("SEQUENCE"))
    }

    /// A request of this slot was given up: a load that was left, for instance.
    /// A SEQUENCE alone finds out whether the server has run it. It must not be
    /// another request: to that the server might give the first one's answer
    /// (RFC 8881 §2.10.6.1.3.1).
    async fn settle(&self, turn: &mut Turn<'_>, until: Instant) -> Result<(), ClientError> {
        loop {
            let connection = self.any_connection(until).await?;
            let xid = connection.next_xid();
            let arrived = connection.call(xid, turn.encode(xid, false, &Ops::new())).await;
            let raw = match arrived {
                Ok(raw) => raw,
                Err(error) if Instant::now() >= until => return Err(error),
                Err(_) => continue,
            };
            let Err(error) = decode(raw)?.next::<sequence::Res>(OpNum::Sequence) else {
                turn.advance();
                return Ok(());
            };
            match error.status() {
                // It ran before, and this is no repetition of it.
                Some(Status::SeqFalseRetry | Status::RetryUncachedRep) => {
                    turn.advance();
                    return Ok(());
                }
                // It is running.
                Some(Status::Delay) if Instant::now() < until => tokio::time::sleep(DELAY).await,
                _ => return Err(error),
            }
        }
    }

    fn link_limit(&self, attempt: usize, until: Instant) -> Instant {
        if self.links.len() > 1 && attempt + 1 < self.links.len() {
            until.min(Instant::now() + LINK_PATIENCE)
        } else {
            until
        }
    }

    /// The server has forgotten `old`: another session, and what was open.
    async fn recover(&self, old: &Arc<Session>, until: Instant) -> Result<(), ClientError> {
        let _one_at_a_time = self.recovery.lock().await;
        if !Arc::ptr_eq(&self.session(), old) {
            return Ok(());
        }
        tracing::info!("the server has forgotten the session: creating another one");
        loop {
            match self.renew(old, until).await {
                Ok(session) => {
                    let session = Arc::new(session);
                    *self.session.write().unwrap_or_else(PoisonError::into_inner) = session;
                    return Ok(());
                }
                Err(error) if error.is_passing() && Instant::now() < until => {
                    tracing::debug!(%error, "trying again");
                    tokio::time::sleep(DELAY).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn renew(&self, old: &Session, until: Instant) -> Result<Session, ClientError> {
        let connection = self.any_connection(until).await?;
        let known = self.request.introduce(&connection).await?;
        let session = Session::create(&connection, &self.request, &known).await?;
        if known.clientid != old.clientid {
            let opens: Vec<Arc<OpenState>> = {
                let opens = self.opens.lock().unwrap_or_else(PoisonError::into_inner);
                opens.iter().filter_map(Weak::upgrade).collect()
            };
            for open in opens {
                open.reclaim(&session, &connection).await?;
            }
        }
        reclaim_complete(&session, &connection).await?;
        Ok(session)
    }

    async fn any_connection(&self, until: Instant) -> Result<Arc<Connection>, ClientError> {
        for (attempt, link) in self.links.iter().enumerate() {
            let last = attempt + 1 == self.links.len();
            match link.connection(self.link_limit(attempt, until)).await {
                Ok(connection) => return Ok(connection),
                Err(error) if last => return Err(error),
                Err(_) => {}
            }
        }
        Err(ClientError::Garbled("no address"))
    }

    /// Walks a path from the server's root.
    ///
    /// # Errors
    /// What the server or the connection says.
    pub async fn find(&self, path: &str) -> Result<Found, ClientError> {
        let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
        // As many steps at a time as fit beside SEQUENCE, PUTFH, GETFH, GETATTR.
        let most = (self.session().fore.max_ops as usize).saturating_sub(4).max(1);
        let mut found = None;
        for steps in names.chunks(most) {
            found = Some(self.walk(found.as_ref(), steps).await?);
        }
        match found {
            Some(found) => Ok(found),
            None => self.walk(None, &[]).await,
        }
    }

    async fn walk(&self, from: Option<&Found>, names: &[&str]) -> Result<Found, ClientError> {
        let mut ops = match from {
            None => Ops::new().putrootfh(),
            Some(found) => Ops::new().putfh(&found.fh),
        };
        for name in names {
            ops = ops.lookup(name.as_bytes());
        }
        let ops = ops.getfh().getattr(&Bitmap::of(&[TYPE, CHANGE, SIZE]));
        let mut results = self.call(ops, false).await?;
        results.skip(if from.is_some() { OpNum::Putfh } else { OpNum::Putrootfh })?;
        for _ in names {
            results.skip(OpNum::Lookup)?;
        }
        let fh = results.next(OpNum::Getfh)?;
        let attrs: Fattr = results.next(OpNum::Getattr)?;
        let mut d = Decoder::new(&attrs.values.0);
        let garbled = |_| ClientError::Garbled("GETATTR");
        let kind = d.u32().map_err(garbled)?;
        let (change, size) = (d.u64().map_err(garbled)?, d.u64().map_err(garbled)?);
        Ok(Found { fh, kind, change, size })
    }

    /// Renames within a directory; replaces what is there.
    ///
    /// # Errors
    /// What the server or the connection says.
    pub async fn rename(&self, dir: &Fh, from: &str, to: &str) -> Result<(), ClientError> {
        let name = |text: &str| zgate_xdr::Opaque(text.as_bytes().to_vec());
        let args = rename::Args { old: name(from), new: name(to) };
        let ops = Ops::new().putfh(dir).op(OpNum::Savefh, &()).op(OpNum::Rename, &args);
        let mut results = self.call(ops, true).await?;
        results.skip(OpNum::Putfh)?;
        results.skip(OpNum::Savefh)?;
        results.next::<rename::Res>(OpNum::Rename).map(|_| ())
    }

    /// Removes a name.
    ///
    /// # Errors
    /// What the server or the connection says.
    pub async fn remove(&self, dir: &Fh, name: &str) -> Result<(), ClientError> {
        let ops = Ops::new().putfh(dir).remove(name.as_bytes());
        let mut results = self.call(ops, true).await?;
        results.skip(OpNum::Putfh)?;
        results.next::<zgate_nfs::v4::wire::ChangeInfo>(OpNum::Remove).map(|_| ())
    }
}

/// Creates the session over the first link; the first link of every other
/// address has to lead to the same server.
async fn greet(
    links: &[Arc<Link>],
    addresses: usize,
    request: &SessionRequest,
    until: Instant,
) -> Result<(Session, exchange_id::Res), ClientError> {
    let mut first: Option<(Session, exchange_id::Res, SocketAddr)> = None;
    for link in links.iter().take(addresses) {
        let connection = link.connection(until).await?;
        let known = request.introduce(&connection).await?;
        match &first {
            None => {
                let session = Session::create(&connection, request, &known).await?;
                reclaim_complete(&session, &connection).await?;
                first = Some((session, known, link.address()));
            }
            Some((_, same, at)) => {
                let owner = |res: &exchange_id::Res| {
                    (res.clientid, res.owner_minor, res.owner_major.clone(), res.scope.clone())
                };
                if owner(same) != owner(&known) {
                    let (first, second) = (at.to_string(), link.address().to_string());
                    return Err(ClientError::OtherServer { first, second });
                }
            }
        }
    }
    first.map(|(session, known, _)| (session, known)).ok_or(ClientError::Garbled("no address"))
}

async fn reclaim_complete(session: &Session, connection: &Connection) -> Result<(), ClientError> {
    let ops = Ops::new().op(OpNum::ReclaimComplete, &false);
    match session.call(connection, &ops, true).await?.skip(OpNum::ReclaimComplete) {
        Err(error) if error.status() != Some(Status::CompleteAlready) => Err(error),
        _ => Ok(()),
    }
}

/// The answer to a GETATTR of type and size.
pub(crate) fn kind_and_size(attrs: &Fattr) -> Result<(u32, u64), ClientError> {
    let mut d = Decoder::new(&attrs.values.0);
    let garbled = |_| ClientError::Garbled("GETATTR");
    Ok((d.u32().map_err(garbled)?, d.u64().map_err(garbled)?))
}
