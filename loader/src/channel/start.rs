//! Start of a client: the first connections, EXCHANGE_ID and CREATE_SESSION.

use super::back::BackChannel;
use super::fore::{Channel, begin, create};
use super::link::{Link, LinkContext};
use crate::error::ClientError;
use crate::session::{Session, SessionRequest};
use crate::state::lease::LeaseMonitor;
use crate::transport::{Connection, TransportChoice};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use zgate_nfs_wire::v4::op::exchange_id;
use zgate_store::BufferPool;

/// Pause before a start is repeated.
const DELAY: Duration = Duration::from_millis(50);
/// Least time for which an attempt waits for a server, however short the wait
/// is: it tells a server that refuses from one that is silent.
const MIN_ATTEMPT: Duration = Duration::from_secs(1);
/// Memory for replies that are not placed elsewhere, in bytes.
const REPLIES_BYTES: usize = 128 << 20;

/// A client that has no session yet.
#[derive(Debug)]
pub(crate) struct Start {
    links: Vec<Arc<Link>>,
    /// Number of addresses; the first links are one of each.
    addresses: usize,
    context: Arc<LinkContext>,
    request: SessionRequest,
    monitor: Arc<LeaseMonitor>,
    /// Links over which a server has been told of the client.
    introduced: Mutex<Vec<Arc<Link>>>,
    /// Set when a server has answered.
    answered: AtomicBool,
}

impl Start {
    pub(crate) fn new(
        addresses: &[SocketAddr],
        connections: usize,
        choice: TransportChoice,
        request: SessionRequest,
    ) -> Arc<Self> {
        let monitor = Arc::new(LeaseMonitor::new());
        let back = Arc::new(BackChannel::new(Arc::clone(&monitor)));
        let context = Arc::new(LinkContext::new(choice, BufferPool::new(REPLIES_BYTES), back));
        // Connections are used in turn: addresses first, so that all are used.
        let links = (0..connections.max(1))
            .flat_map(|_| addresses.iter().map(|address| Link::new(*address, &context)))
            .collect();
        let (addresses, introduced) = (addresses.len(), Mutex::default());
        let answered = AtomicBool::new(false);
        Arc::new(Self { links, addresses, context, request, monitor, introduced, answered })
    }

    pub(crate) fn request(&self) -> &SessionRequest {
        &self.request
    }

    /// Returns the links over which a server may know the client.
    pub(crate) fn introduced(&self) -> Vec<Arc<Link>> {
        self.introduced.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note_introduced(&self, link: &Arc<Link>) {
        let mut links = self.introduced.lock().unwrap_or_else(PoisonError::into_inner);
        if !links.iter().any(|known| Arc::ptr_eq(known, link)) {
            links.push(Arc::clone(link));
        }
    }

    /// Connects and creates a session. Retries until the time limit of `wait`
    /// while the server cannot be reached or answers nothing; until that of
    /// `patience` once it has answered, because it may be restarting.
    pub(crate) async fn open(
        &self,
        wait: Duration,
        patience: Duration,
    ) -> Result<Channel, ClientError> {
        let begun = Instant::now();
        let mut created = None;
        let (session, connection) = loop {
            let until = (begun + self.limit(wait, patience)).max(Instant::now() + MIN_ATTEMPT);
            let error = match tokio::time::timeout_at(until, self.greet(&mut created, until)).await
            {
                Ok(Err(error)) if error.is_passing() => Some(error),
                Ok(result) => break result?,
                Err(_) => None,
            };
            if Instant::now() + DELAY >= begun + self.limit(wait, patience) {
                return Err(self.unanswered(error, begun.elapsed()));
            }
            tracing::debug!(?error, "trying again");
            tokio::time::sleep(DELAY).await;
        };
        tracing::debug!(clientid = ?session.clientid, slots = session.fore.slots, "session created");
        let (links, context) = (self.links.clone(), Arc::clone(&self.context));
        let (request, monitor) = (self.request.clone(), Arc::clone(&self.monitor));
        Ok(Channel::new(links, context, request, (session, &connection), patience, monitor))
    }

    fn has_answered(&self) -> bool {
        self.answered.load(Ordering::Relaxed)
    }

    fn limit(&self, wait: Duration, patience: Duration) -> Duration {
        if self.has_answered() { wait.max(patience) } else { wait }
    }

    /// Returns the error of a start that has reached its time limit.
    fn unanswered(&self, last: Option<ClientError>, waited: Duration) -> ClientError {
        match last {
            Some(ClientError::Transport { address, source }) if !self.has_answered() => {
                ClientError::Unreachable { address, waited, source }
            }
            Some(error) => error,
            None => {
                let connected = self.links.iter().find(|link| link.existing().is_some());
                let address = |link: &Arc<Link>| link.address().to_string();
                match connected.or(self.links.first()).map(address) {
                    Some(address) if connected.is_some() => ClientError::Silent { address, waited },
                    address => ClientError::Unreachable {
                        address: address.unwrap_or_default(),
                        waited,
                        source: io::ErrorKind::TimedOut.into(),
                    },
                }
            }
        }
    }

    /// Sends EXCHANGE_ID over a link. Until its answer there is nothing to remove
    /// from the server: a client without a session ends with its lease.
    async fn introduce(
        &self,
        link: &Arc<Link>,
        connection: &Connection,
    ) -> Result<exchange_id::Res, ClientError> {
        let known = self.request.introduce(connection).await;
        if known.is_ok() {
            self.note_introduced(link);
        }
        if !matches!(known, Err(ClientError::Transport { .. })) {
            self.answered.store(true, Ordering::Relaxed);
        }
        known
    }

    /// Creates the session over the first link; the first link of every other
    /// address must lead to the same server.
    ///
    /// A session that was `created` before and could not be made usable yet is
    /// taken again: a server has room for a few per client.
    async fn greet(
        &self,
        created: &mut Option<Session>,
        until: Instant,
    ) -> Result<(Session, Arc<Connection>), ClientError> {
        let mut first: Option<(Session, Arc<Connection>, exchange_id::Res, SocketAddr)> = None;
        for link in self.links.iter().take(self.addresses) {
            let connection = link.connection(until).await?;
            let known = self.introduce(link, &connection).await?;
            match &first {
                None => {
                    let before = created.take().filter(|made| made.clientid == known.clientid);
                    let session = match before {
                        Some(session) => session,
                        None => {
                            create(&connection, &self.request, &known, self.context.back()).await?
                        }
                    };
                    first = Some((session, connection, known, link.address()));
                }
                Some((_, _, same, at)) => {
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
        let (session, connection, ..) = first.ok_or(ClientError::Garbled("no address"))?;
        match begin(&session, &connection, &self.monitor).await {
            Err(error) if error.asks_for_patience() => {
                *created = Some(session);
                Err(error)
            }
            result => result.map(|()| (session, connection)),
        }
    }
}
