//! A connection to one address of the server that is re-established
//! automatically, over RDMA if possible and over TCP otherwise.

use super::back::BackChannel;
use crate::error::ClientError;
use crate::transport::rdma::RdmaConnection;
use crate::transport::tcp::RpcConnection;
use crate::transport::{Callbacks, Connection, Counters, TransportChoice};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex as SyncMutex, PoisonError};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;
use zgate_store::BufferPool;

/// First and longest pause between two attempts to connect.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_secs(2);
/// Time limit of one attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Least time limit of one attempt over RDMA, and over TCP.
const MIN_RDMA_TIMEOUT: Duration = Duration::from_secs(2);
const MIN_TCP_TIMEOUT: Duration = Duration::from_millis(500);
/// Time for which a link that could not connect is passed over while there are others.
const DOWN_PAUSE: Duration = Duration::from_secs(2);
/// Time for which RDMA is not tried after a failure.
const RDMA_PAUSE: Duration = Duration::from_secs(5);

/// State shared by all links of a client.
#[derive(Debug)]
pub(crate) struct LinkContext {
    choice: TransportChoice,
    pool: BufferPool,
    counters: Arc<Counters>,
    back: Arc<BackChannel>,
    /// Reason for which RDMA was not used the last time.
    refused: SyncMutex<Option<String>>,
}

impl LinkContext {
    pub(crate) fn new(choice: TransportChoice, pool: BufferPool, back: Arc<BackChannel>) -> Self {
        Self { choice, pool, counters: Arc::default(), back, refused: SyncMutex::default() }
    }

    /// Returns the back channel.
    pub(crate) fn back(&self) -> &Arc<BackChannel> {
        &self.back
    }

    fn callbacks(&self) -> Arc<dyn Callbacks> {
        Arc::clone(&self.back) as Arc<dyn Callbacks>
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the RDMA fabric, if RDMA may be used.
    pub(crate) fn fabric(&self) -> Option<Arc<dyn zgate_fabric::Fabric>> {
        self.choice.fabric()
    }

    /// Returns the reason for the present transport.
    pub(crate) fn reason(&self) -> String {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        match &*refused {
            Some(why) => format!("{}: {why}", self.choice.reason()),
            None => self.choice.reason().to_owned(),
        }
    }

    fn note(&self, why: Option<String>) {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }
}

#[derive(Debug)]
struct Current {
    connection: Option<Arc<Connection>>,
    /// Time before which RDMA is not tried.
    rdma_after: Instant,
}

/// A link to one address.
#[derive(Debug)]
pub(crate) struct Link {
    address: SocketAddr,
    context: Arc<LinkContext>,
    current: Mutex<Current>,
    /// Time until which it is down; none if the last attempt to connect succeeded.
    down_until: SyncMutex<Option<Instant>>,
}

impl Link {
    pub(crate) fn new(address: SocketAddr, context: &Arc<LinkContext>) -> Arc<Self> {
        let current = Mutex::new(Current { connection: None, rdma_after: Instant::now() });
        let (context, down_until) = (Arc::clone(context), SyncMutex::default());
        Arc::new(Self { address, context, current, down_until })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns whether the connection uses RDMA, if there is one.
    pub(crate) async fn is_rdma(&self) -> Option<bool> {
        let current = self.current.lock().await;
        current.connection.as_ref().filter(|made| !made.is_closed()).map(|made| made.is_rdma())
    }

    /// Returns the connection, if there is one; none while another task makes
    /// one.
    pub(crate) fn existing(&self) -> Option<Arc<Connection>> {
        let current = self.current.try_lock().ok()?;
        current.connection.clone().filter(|made| !made.is_closed())
    }

    /// Returns whether it could not connect a moment ago.
    pub(crate) fn is_down(&self) -> bool {
        let until = *self.down_until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() < until)
    }

    fn has_failed(&self) -> bool {
        self.down_until.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn set_down(&self, is_down: bool) {
        let until = is_down.then(|| Instant::now() + DOWN_PAUSE);
        *self.down_until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }

    /// Makes one attempt at a connection of its own, over TCP if that is
    /// allowed, because TCP does not depend on a device.
    pub(crate) async fn fresh(&self) -> Result<Connection, ClientError> {
        if !self.context.choice.allows_tcp()
            && let Some(attempt) = self.over_rdma()
        {
            return in_time(self.address, attempt).await.map(Connection::Rdma);
        }
        self.over_tcp(CONNECT_TIMEOUT).await
    }

    /// Returns the connection; a new one if there was none or it is lost.
    ///
    /// # Errors
    /// [`ClientError::Transport`] if none could be made by `until`.
    pub(crate) async fn connection(
        self: &Arc<Self>,
        until: Instant,
    ) -> Result<Arc<Connection>, ClientError> {
        // Another request may be trying to connect, for longer.
        let turn = tokio::time::timeout_at(until, self.current.lock()).await;
        let mut current = turn.map_err(|_| timed_out(self.address))?;
        if let Some(connection) = current.connection.clone().filter(|made| !made.is_closed()) {
            self.may_go_back(&mut current, &connection);
            return Ok(connection);
        }
        if current.connection.take().is_some_and(|lost| lost.is_rdma()) {
            tracing::info!(address = %self.address, "the RDMA connection is lost");
            self.context.note(Some("the RDMA connection was lost".to_owned()));
            if self.context.choice.allows_tcp() {
                current.rdma_after = Instant::now() + RDMA_PAUSE;
            }
        }
        if self.has_failed() {
            // Nobody else need wait for this attempt.
            self.set_down(true);
        }
        let (mut pause, mut told) = (FIRST_PAUSE, false);
        loop {
            let attempt = self.attempt(&mut current, until).await;
            self.set_down(attempt.is_err());
            let error = match attempt {
                Ok(connection) => {
                    let connection = Arc::new(connection);
                    current.connection = Some(Arc::clone(&connection));
                    return Ok(connection);
                }
                Err(error) => error,
            };
            let left = until.saturating_duration_since(Instant::now());
            if left <= 2 * FIRST_PAUSE {
                return Err(error);
            }
            if !told {
                tracing::warn!(%error, "the server cannot be reached: trying again");
                told = true;
            }
            // The last attempt ends in time if it is refused.
            tokio::time::sleep(pause.min(left - FIRST_PAUSE)).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    /// Makes one attempt over the available transports; TCP gets half of the
    /// time left if RDMA does not answer.
    async fn attempt(
        &self,
        current: &mut Current,
        until: Instant,
    ) -> Result<Connection, ClientError> {
        if Instant::now() >= current.rdma_after
            && let Some(attempt) = self.over_rdma()
        {
            let half = until.saturating_duration_since(Instant::now()) / 2;
            let limit = match self.context.choice.allows_tcp() {
                true => half.clamp(MIN_RDMA_TIMEOUT, CONNECT_TIMEOUT),
                false => CONNECT_TIMEOUT,
            };
            match within(limit, self.address, attempt).await {
                Ok(connection) => {
                    self.context.note(None);
                    return Ok(Connection::Rdma(connection));
                }
                Err(error) => {
                    if !self.context.choice.allows_tcp() {
                        return Err(error);
                    }
                    tracing::info!(%error, "RDMA is not available: using TCP");
                    self.context.note(Some(error.to_string()));
                    current.rdma_after = Instant::now() + RDMA_PAUSE;
                }
            }
        }
        let left = until.saturating_duration_since(Instant::now());
        self.over_tcp(left.clamp(MIN_TCP_TIMEOUT, CONNECT_TIMEOUT)).await
    }

    async fn over_tcp(&self, limit: Duration) -> Result<Connection, ClientError> {
        let (pool, counters) = (self.context.pool.clone(), Arc::clone(&self.context.counters));
        let (address, callbacks) = (self.address, self.context.callbacks());
        let attempt = async {
            match self.context.choice.dial() {
                Some(dial) => {
                    RpcConnection::dialed(&*dial, address, pool, counters, callbacks).await
                }
                None => RpcConnection::connect(address, pool, counters, callbacks).await,
            }
        };
        within(limit, address, attempt).await.map(Connection::Tcp)
    }

    fn over_rdma(
        &self,
    ) -> Option<impl Future<Output = Result<RdmaConnection, ClientError>> + Send + 'static> {
        let (fabric, to) = self.context.choice.rdma(self.address)?;
        let pool = self.context.choice.pool().clone();
        let (counters, callbacks) = (Arc::clone(&self.context.counters), self.context.callbacks());
        Some(RdmaConnection::connect(to, fabric, pool, counters, callbacks))
    }

    /// Tries RDMA in the background after a fall-back to TCP, and switches to
    /// it if it works. Requests in flight on the old connection complete there.
    fn may_go_back(self: &Arc<Self>, current: &mut Current, connection: &Connection) {
        if connection.is_rdma() || Instant::now() < current.rdma_after {
            return;
        }
        let Some(attempt) = self.over_rdma() else { return };
        current.rdma_after = Instant::now() + RDMA_PAUSE + CONNECT_TIMEOUT;
        let link = Arc::clone(self);
        tokio::spawn(async move {
            let made = in_time(link.address, attempt).await;
            let mut current = link.current.lock().await;
            match made {
                Ok(connection) => {
                    tracing::info!(address = %link.address, "using RDMA again");
                    link.context.note(None);
                    current.connection = Some(Arc::new(Connection::Rdma(connection)));
                }
                Err(error) => {
                    link.context.note(Some(error.to_string()));
                    current.rdma_after = Instant::now() + RDMA_PAUSE;
                }
            }
        });
    }
}

async fn in_time<T>(
    address: SocketAddr,
    attempt: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, ClientError> {
    within(CONNECT_TIMEOUT, address, attempt).await
}

async fn within<T>(
    limit: Duration,
    address: SocketAddr,
    attempt: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, ClientError> {
    tokio::time::timeout(limit, attempt).await.unwrap_or_else(|_| Err(timed_out(address)))
}

fn timed_out(address: SocketAddr) -> ClientError {
    ClientError::Transport {
        address: address.to_string(),
        source: std::io::Error::from(std::io::ErrorKind::TimedOut),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::lease::LeaseMonitor;
    use crate::transport::{Dial, Dialing};
    use futures_util::future::join_all;

    /// A network that drops everything.
    #[derive(Debug)]
    struct Silence;

    impl Dial for Silence {
        fn dial(&self, _: SocketAddr) -> Dialing {
            Box::pin(std::future::pending())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_address_delays_requests_for_their_time_limit_only() {
        let back = Arc::new(BackChannel::new(Arc::new(LeaseMonitor::new())));
        let choice = TransportChoice::dialed(Arc::new(Silence));
        let context = Arc::new(LinkContext::new(choice, BufferPool::new(0), back));
        let link = Link::new(SocketAddr::from(([192, 0, 2, 1], 2049)), &context);
        assert!(!link.is_down());
        let (begun, limit) = (Instant::now(), Duration::from_millis(500));
        let attempts = (0..8).map(|_| link.connection(begun + limit));
        for attempt in join_all(attempts).await {
            assert!(matches!(attempt, Err(ClientError::Transport { .. })));
        }
        let took = begun.elapsed();
        assert!(took < limit + 2 * MIN_TCP_TIMEOUT, "{took:?}");
        assert!(link.is_down());
        tokio::time::sleep(DOWN_PAUSE).await;
        assert!(!link.is_down());
    }
}
