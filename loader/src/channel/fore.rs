//! The fore channel: links to one server and the session over them. It recovers
//! from losses: a lost connection is established again and its requests are
//! repeated in their slots, so that none runs twice; a session that the server
//! has lost is created again, and open state is reclaimed.

use super::back::BackChannel;
use super::link::{Link, LinkContext};
use crate::compound::{Ops, Results};
use crate::error::ClientError;
use crate::session::{Session, SessionRequest, SlotGuard, decode};
use crate::state::delegation::Delegations;
use crate::state::lease::LeaseMonitor;
use crate::state::open_state::{OpenOwners, OpenState};
use crate::transport::{Connection, ReadBuffer};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;
use tokio::time::Instant;
use zgate_nfs_wire::v4::attr::LEASE_TIME;
use zgate_nfs_wire::v4::op::{exchange_id, open, sequence};
use zgate_nfs_wire::v4::{Bitmap, Fattr, OpNum, Stateid, Status};
use zgate_xdr::Decoder;

/// Pause before a request is repeated after NFS4ERR_DELAY.
const DELAY: Duration = Duration::from_millis(50);
/// Time limit of one of several links before the next one is tried.
const LINK_PATIENCE: Duration = Duration::from_millis(500);
/// Time limit of one attempt to get a connection for callbacks.
const BACK_PATIENCE: Duration = Duration::from_secs(2);

/// Fore channel of a client.
#[derive(Debug)]
pub(crate) struct Channel {
    links: Vec<Arc<Link>>,
    context: Arc<LinkContext>,
    request: SessionRequest,
    session: RwLock<Arc<Session>>,
    /// Connection that the server uses for callbacks.
    back: Mutex<Weak<Connection>>,
    recovery: tokio::sync::Mutex<()>,
    opens: Mutex<Vec<Weak<OpenState>>>,
    open_owners: OpenOwners,
    next: AtomicUsize,
    patience: Duration,
    monitor: Arc<LeaseMonitor>,
    /// Set when the client leaves.
    closed: AtomicBool,
}

impl Channel {
    pub(super) fn new(
        links: Vec<Arc<Link>>,
        context: Arc<LinkContext>,
        request: SessionRequest,
        (session, connection): (Session, &Arc<Connection>),
        patience: Duration,
        monitor: Arc<LeaseMonitor>,
    ) -> Self {
        Self {
            links,
            context,
            request,
            session: RwLock::new(Arc::new(session)),
            back: Mutex::new(Arc::downgrade(connection)),
            recovery: tokio::sync::Mutex::new(()),
            opens: Mutex::new(Vec::new()),
            open_owners: OpenOwners::default(),
            next: AtomicUsize::new(0),
            patience,
            monitor,
            closed: AtomicBool::new(false),
        }
    }

    /// Makes every later call fail: a task that has not ended must not register
    /// with the server again.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    fn must_be_open(&self) -> Result<(), ClientError> {
        if self.closed.load(Ordering::Acquire) { Err(ClientError::Closed) } else { Ok(()) }
    }

    /// Waits until no recovery is in progress, at most until `until`; returns
    /// whether one may still be.
    pub(crate) async fn may_be_recovering(&self, until: Instant) -> bool {
        tokio::time::timeout_at(until, self.recovery.lock()).await.is_err()
    }

    pub(crate) fn links(&self) -> &[Arc<Link>] {
        &self.links
    }

    pub(crate) fn context(&self) -> &LinkContext {
        &self.context
    }

    pub(crate) fn request(&self) -> &SessionRequest {
        &self.request
    }

    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    pub(crate) fn delegations(&self) -> &Arc<Delegations> {
        self.context.back().delegations()
    }

    /// The monitor of the lease.
    pub(crate) fn monitor(&self) -> &Arc<LeaseMonitor> {
        &self.monitor
    }

    pub(crate) fn session(&self) -> Arc<Session> {
        Arc::clone(&self.session.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Remembers an open file, to reclaim it after a restart of the server.
    pub(crate) fn remember(&self, open: &Arc<OpenState>) {
        let mut opens = self.opens.lock().unwrap_or_else(PoisonError::into_inner);
        opens.retain(|known| known.strong_count() > 0);
        opens.push(Arc::downgrade(open));
    }

    /// The owners of this client's opens.
    pub(crate) fn open_owners(&self) -> &OpenOwners {
        &self.open_owners
    }

    /// Returns the open files.
    pub(crate) fn opens(&self) -> Vec<Arc<OpenState>> {
        let opens = self.opens.lock().unwrap_or_else(PoisonError::into_inner);
        opens.iter().filter_map(Weak::upgrade).collect()
    }

    /// Returns the stateid to read with.
    pub(crate) async fn stateid_to_read(&self, open: &OpenState) -> Result<Stateid, ClientError> {
        match open.delegation() {
            Some(stateid) => Ok(stateid),
            None => self.stateid(open).await,
        }
    }

    /// Returns the stateid of the open; opens the file again if necessary.
    pub(crate) async fn stateid(&self, open: &OpenState) -> Result<Stateid, ClientError> {
        if let Some(stateid) = open.known() {
            return Ok(stateid);
        }
        let mut results = self.call(open.open_again(), true).await?;
        results.skip(OpNum::Putfh)?;
        let opened: open::Res = results.next(OpNum::Open)?;
        open.set_open(opened.stateid);
        Ok(opened.stateid)
    }

    /// Sends a COMPOUND, using the connections in turn.
    pub(crate) async fn call(&self, ops: Ops, cache_this: bool) -> Result<Results, ClientError> {
        self.exchange(&ops, cache_this, &mut None).await
    }

    /// Sends a COMPOUND; the data of a READ is placed in `read_buffer`, which is
    /// returned in any case.
    pub(crate) async fn exchange(
        &self,
        ops: &Ops,
        cache_this: bool,
        read_buffer: &mut Option<ReadBuffer>,
    ) -> Result<Results, ClientError> {
        let until = Instant::now() + self.patience;
        loop {
            self.must_be_open()?;
            let session = self.session();
            match self.in_session(&session, ops, cache_this, read_buffer, until).await {
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
        read_buffer: &mut Option<ReadBuffer>,
        until: Instant,
    ) -> Result<Results, ClientError> {
        let mut guard = session.free_slot().await?;
        if guard.is_unanswered() {
            self.settle(&mut guard, until).await?;
        }
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let (mut repeated, mut failed) = (false, 0);
        for attempt in 0.. {
            self.must_be_open()?;
            let link = &self.links[(first + attempt) % self.links.len()];
            let Some(limit) = self.link_limit(link, failed, until) else {
                failed += 1;
                continue;
            };
            let connection = match link.connection(limit).await {
                Ok(connection) => connection,
                Err(error) if Instant::now() >= until => return Err(error),
                Err(_) => {
                    failed += 1;
                    continue;
                }
            };
            failed = 0;
            let xid = connection.next_xid();
            let message = guard.encode(xid, cache_this, ops);
            let sent = Instant::now();
            let arrived = connection.call_into(xid, message, read_buffer.take()).await;
            *read_buffer = arrived.read_buffer;
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
                Ok(said) => {
                    guard.advance();
                    self.monitor.renewed(sent, said.status_flags);
                    // It ran, but its reply is not cached: uncached requests may be
                    // repeated (RFC 8881 §2.10.6.1.3).
                    let ran_before = results.status == Status::RetryUncachedRep && !cache_this;
                    if !ran_before || Instant::now() >= until {
                        return Ok(results);
                    }
                    repeated = false;
                    continue;
                }
                Err(error) => error,
            };
            match error.status() {
                Some(Status::Delay) if Instant::now() < until => tokio::time::sleep(DELAY).await,
                // A server that has SEQUENCE itself say so.
                Some(Status::RetryUncachedRep) if !cache_this => guard.advance(),
                Some(Status::SeqMisordered) if repeated && !cache_this => {
                    guard.advance();
                    repeated = false;
                }
                _ => return Err(error),
            }
        }
        Err(ClientError::Garbled("SEQUENCE"))
    }

    /// Settles a slot whose request was abandoned, for example by a dropped
    /// load. Only a SEQUENCE can determine whether the server has run it:
    /// another request might get the first one's reply (RFC 8881
    /// §2.10.6.1.3.1).
    async fn settle(&self, guard: &mut SlotGuard<'_>, until: Instant) -> Result<(), ClientError> {
        loop {
            self.must_be_open()?;
            let connection = self.any_connection(until).await?;
            let xid = connection.next_xid();
            let arrived = connection.call(xid, guard.encode(xid, false, &Ops::new())).await;
            let raw = match arrived {
                Ok(raw) => raw,
                Err(error) if Instant::now() >= until => return Err(error),
                Err(_) => continue,
            };
            let Err(error) = decode(raw)?.next::<sequence::Res>(OpNum::Sequence) else {
                guard.advance();
                return Ok(());
            };
            match error.status() {
                // It ran before, and this is not a retransmission of it.
                Some(Status::SeqFalseRetry | Status::RetryUncachedRep) => {
                    guard.advance();
                    return Ok(());
                }
                // It is still running.
                Some(Status::Delay) if Instant::now() < until => tokio::time::sleep(DELAY).await,
                _ => return Err(error),
            }
        }
    }

    /// Returns until when to wait for a link's connection, if the `failed` links before
    /// it had none; nothing if it is passed over.
    fn link_limit(&self, link: &Link, failed: usize, until: Instant) -> Option<Instant> {
        if failed + 1 >= self.links.len() {
            return Some(until);
        }
        (!link.is_down()).then(|| until.min(Instant::now() + LINK_PATIENCE))
    }

    /// Recovers from the loss of `old` by the server: creates another session
    /// and reclaims open state.
    async fn recover(&self, old: &Arc<Session>, until: Instant) -> Result<(), ClientError> {
        let _one_at_a_time = self.recovery.lock().await;
        if !Arc::ptr_eq(&self.session(), old) {
            return Ok(());
        }
        tracing::info!("the server has lost the session: creating another one");
        let mut created = None;
        loop {
            match self.renew(old, &mut created, until).await {
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

    /// Creates a session and makes it usable. A session that was `created` before
    /// and could not be made usable yet is taken again: a server has room for a
    /// few per client, and answers NFS4ERR_DELAY beyond them.
    async fn renew(
        &self,
        old: &Session,
        created: &mut Option<Session>,
        until: Instant,
    ) -> Result<Session, ClientError> {
        let connection = self.any_connection(until).await?;
        self.must_be_open()?;
        let session = match created.take() {
            Some(session) => session,
            None => {
                let known = self.request.introduce(&connection).await?;
                self.must_be_open()?;
                create(&connection, &self.request, &known, self.context.back()).await?
            }
        };
        self.set_back(&connection);
        let usable = if session.clientid == old.clientid {
            begin(&session, &connection, &self.monitor).await
        } else {
            self.reclaim(&session, &connection).await
        };
        match usable {
            Err(error) if error.asks_for_patience() => {
                *created = Some(session);
                Err(error)
            }
            result => result.map(|()| session),
        }
    }

    /// Reclaims after a restart of a server that kept the session but not the
    /// open state (RFC 8881 §18.46.3, SEQ4_STATUS_RESTART_RECLAIM_NEEDED).
    pub(crate) async fn reclaim_in_session(&self) -> Result<(), ClientError> {
        let _one_at_a_time = self.recovery.lock().await;
        let connection = self.any_connection(Instant::now() + self.patience).await?;
        self.reclaim(&self.session(), &connection).await
    }

    /// Reclaims open state, and sends RECLAIM_COMPLETE (RFC 8881 §8.4.2.1).
    async fn reclaim(&self, session: &Session, connection: &Connection) -> Result<(), ClientError> {
        for open in self.opens() {
            open.reclaim(session, connection).await?;
        }
        begin(session, connection, &self.monitor).await
    }

    fn set_back(&self, connection: &Arc<Connection>) {
        *self.back.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(connection);
    }

    /// Makes the server use a working connection for callbacks, if the one it
    /// used is lost or, as `told` by the server, unusable.
    pub(crate) async fn mend_back(&self, told: bool) -> Result<(), ClientError> {
        let bound = {
            let _one_at_a_time = self.recovery.lock().await;
            let session = self.session();
            let used = self.back.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
            let is_up = used.is_some_and(|connection| !connection.is_closed());
            if !session.has_back() || is_up && !told {
                return Ok(());
            }
            let connection = self.any_connection(Instant::now() + BACK_PATIENCE).await?;
            let bound = session.bind_back(&connection).await;
            match bound {
                Ok(true) => self.set_back(&connection),
                Ok(false) => self.give_up_back(),
                Err(_) => {}
            }
            bound
        };
        match bound {
            // Another session has its own back channel.
            Err(error) if error.is_session_lost() => self.call(Ops::new(), false).await.map(|_| ()),
            result => result.map(|_| ()),
        }
    }

    /// Goes on without callbacks, and thus without delegations.
    pub(crate) fn give_up_back(&self) {
        tracing::info!("the server cannot call back: files are read without delegations");
        self.session().give_up_back();
        self.delegations().give_back_all_but(0);
    }

    async fn any_connection(&self, until: Instant) -> Result<Arc<Connection>, ClientError> {
        for (failed, link) in self.links.iter().enumerate() {
            let last = failed + 1 == self.links.len();
            let Some(limit) = self.link_limit(link, failed, until) else { continue };
            match link.connection(limit).await {
                Ok(connection) => return Ok(connection),
                Err(error) if last => return Err(error),
                Err(_) => {}
            }
        }
        Err(ClientError::Garbled("no address"))
    }
}

/// Creates a session whose callbacks are answered.
pub(super) async fn create(
    connection: &Connection,
    request: &SessionRequest,
    known: &exchange_id::Res,
    back: &BackChannel,
) -> Result<Session, ClientError> {
    back.expect();
    let created = Session::create(connection, request, known).await;
    back.begin(created.as_ref().ok());
    created
}

/// Sends RECLAIM_COMPLETE, without which nothing can be opened (RFC 8881
/// §18.51), and reads the length of the lease.
pub(super) async fn begin(
    session: &Session,
    connection: &Connection,
    monitor: &LeaseMonitor,
) -> Result<(), ClientError> {
    let ops = Ops::new()
        .op(OpNum::ReclaimComplete, &false)
        .putrootfh()
        .getattr(&Bitmap::of(&[LEASE_TIME]));
    let mut results = session.call(connection, &ops, true).await?;
    match results.skip(OpNum::ReclaimComplete) {
        // The client is known and has sent it before: the lease is known, too.
        Err(error) if error.status() == Some(Status::CompleteAlready) => return Ok(()),
        result => result?,
    }
    let lease = results.skip(OpNum::Putrootfh).and_then(|()| results.next(OpNum::Getattr));
    match lease.and_then(|attrs: Fattr| {
        let seconds = Decoder::new(&attrs.values.0).u32();
        seconds.map_err(|_| ClientError::Garbled("GETATTR"))
    }) {
        Ok(seconds) => monitor.set_lease(Duration::from_secs(seconds.into())),
        Err(error) => tracing::debug!(%error, "the server does not report its lease time"),
    }
    Ok(())
}
