//! Calls to NFSv4.0 clients that are known by Kerberos (RFC 7530 §3.3.3), under
//! contexts that the gateway begins. The wire form is in `zgate_rpc::gss`.

use super::farewell::Farewells;
use super::kerberos::{Kerberos, Offer, count};
use super::limits::{
    ESTABLISH_TIMEOUT, FIRST_TOKEN_PAUSE, MAX_KEPT_CALLBACK_CONTEXTS, MAX_TOKEN_REPETITIONS,
    PROTECTED_CALLBACK_TIMEOUT, TICKET_TIMEOUT, TICKET_WORKERS, TICKETS_PER_HOST,
};
use super::mechanism::BoxedContext;
use super::tickets::{BegunContext, Progress};
use crate::nfs::callback_connections::CallbackConnections;
use crate::nfs::callback_stream::CallbackStream;
use crate::nfs::limits::CALLBACK_TIMEOUT;
use crate::observe::throttle::warn_seldom;
use bytes::Bytes;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use zgate_nfs::callback_security::CallbackSecurity;
use zgate_nfs::runtime::CallbackFailure;
use zgate_rpc::CallHeader;
use zgate_rpc::gss::{Establishing, OutgoingContext, OutgoingFault, SecurityContext};
use zgate_xdr::{Decoder, Message};

/// Reason for which a protected call has no results.
#[derive(Debug, Error)]
enum Fault {
    /// Kerberos is not configured any more.
    #[error("Kerberos is not configured")]
    NotOffered,
    /// Too many calls to this host wait.
    #[error("too many callbacks to the host wait")]
    Overload,
    /// The KDC, or the keytab.
    #[error("no ticket for the client: {0}")]
    NoTicket(String),
    /// The KDC.
    #[error("the KDC has not answered within {} s", TICKET_TIMEOUT.as_secs())]
    KdcSilent,
    /// The client does not answer.
    #[error("the client has not answered in time")]
    Silent,
    /// The client cannot be reached.
    #[error(transparent)]
    Connection(#[from] std::io::Error),
    /// The client, or somebody in between.
    #[error(transparent)]
    Client(#[from] OutgoingFault),
}

impl Fault {
    /// Its place among the reasons of [`CallbackCounts`].
    fn reason(&self) -> usize {
        match self {
            Self::NotOffered | Self::NoTicket(_) => 0,
            Self::KdcSilent => 1,
            Self::Overload => 2,
            Self::Connection(_) | Self::Silent => 3,
            Self::Client(OutgoingFault::BadVerifier | OutgoingFault::BadResults) => 5,
            Self::Client(_) => 4,
        }
    }

    fn failure(&self) -> CallbackFailure {
        match self {
            Self::KdcSilent | Self::Silent => CallbackFailure::TimedOut,
            _ => CallbackFailure::Unreachable,
        }
    }
}

/// Reasons for which protected calls had no results.
const REASONS: [&str; 6] = ["ticket", "kdc_silent", "overload", "unreachable", "refused", "reply"];

/// Contexts for callbacks, and calls without results.
#[derive(Debug, Default)]
pub(super) struct CallbackCounts {
    established: AtomicU64,
    failed: [AtomicU64; REASONS.len()],
}

/// State that the callbacks of all clients share.
#[derive(Debug)]
pub(super) struct Callbacks {
    /// Tickets that are being asked for; each has a worker until the library
    /// returns.
    tickets: CallbackConnections,
    /// Contexts that are kept for further calls.
    kept: Arc<Semaphore>,
    farewells: Farewells,
    pub(super) counts: CallbackCounts,
}

impl Default for Callbacks {
    fn default() -> Self {
        Self {
            tickets: CallbackConnections::new(TICKET_WORKERS, TICKETS_PER_HOST),
            kept: Arc::new(Semaphore::new(MAX_KEPT_CALLBACK_CONTEXTS)),
            farewells: Farewells::default(),
            counts: CallbackCounts::default(),
        }
    }
}

impl CallbackCounts {
    /// Returns the number of contexts established since the start.
    pub(super) fn established(&self) -> u64 {
        self.established.load(Ordering::Relaxed)
    }

    /// Returns the number of calls without results, by reason.
    pub(super) fn failed(&self) -> [(&'static str, u64); REASONS.len()] {
        std::array::from_fn(|at| (REASONS[at], self.failed[at].load(Ordering::Relaxed)))
    }
}

/// A kept context and its share of all.
struct KeptContext {
    context: BoxedContext,
    _share: OwnedSemaphorePermit,
}

impl SecurityContext for KeptContext {
    fn verifies(&self, message: &[u8], mic: &[u8]) -> bool {
        self.context.verifies(message, mic)
    }

    fn mic(&self, message: &[u8]) -> Option<Vec<u8>> {
        self.context.mic(message)
    }

    fn wrap(&self, message: &[u8]) -> Option<Vec<u8>> {
        self.context.wrap(message)
    }

    fn unwrap(&self, token: &[u8]) -> Option<Vec<u8>> {
        self.context.unwrap(token)
    }
}

/// The client's end of a protected call.
#[derive(Clone, Copy)]
pub(crate) struct ProtectedClient<'a> {
    pub address: SocketAddr,
    pub security: &'a CallbackSecurity,
    /// Connections to clients.
    pub connections: &'a CallbackConnections,
    /// Origin of the seconds in which contexts end.
    pub started: Instant,
}

impl ProtectedClient<'_> {
    fn now_seconds(&self) -> u64 {
        self.started.elapsed().as_secs()
    }
}

impl Kerberos {
    /// Sends a call under a context, which is begun first if there is none.
    ///
    /// # Errors
    /// [`CallbackFailure`].
    pub(crate) async fn call_client(
        &self,
        client: ProtectedClient<'_>,
        xid: u32,
        call: &Message,
    ) -> Result<Bytes, CallbackFailure> {
        let called = timeout(PROTECTED_CALLBACK_TIMEOUT, self.called(client, xid, call)).await;
        called.unwrap_or(Err(Fault::Silent)).map_err(|fault| {
            count(&self.callbacks.counts.failed[fault.reason()]);
            warn_seldom!(
                client = %client.address, principal = &*client.security.principal, %fault,
                "a callback under Kerberos failed: over NFSv4.0 the client gets no delegations, or \
                 loses those that are recalled; OPERATIONS.md says what it must run for them"
            );
            fault.failure()
        })
    }

    async fn called(
        &self,
        client: ProtectedClient<'_>,
        xid: u32,
        call: &Message,
    ) -> Result<Bytes, Fault> {
        let offer = self.offer().ok_or(Fault::NotOffered)?;
        if let Some(context) = client.security.context(client.now_seconds()) {
            match within_timeout(client.exchange(&context, call)).await {
                // The client has restarted, or has too many contexts.
                Err(Fault::Client(OutgoingFault::ContextLost)) => client.security.forget(&context),
                result => return result,
            }
        }
        let begun = self.begin(&offer, client).await?;
        let exchange = self.exchange_in_new_context(&offer, client, begun, (xid, call));
        timeout(ESTABLISH_TIMEOUT, exchange).await.unwrap_or(Err(Fault::Silent))
    }

    /// Gets a ticket on a worker.
    async fn begin(
        &self,
        offer: &Arc<Offer>,
        client: ProtectedClient<'_>,
    ) -> Result<BegunContext, Fault> {
        let got = timeout(TICKET_TIMEOUT, async {
            let leave = self.callbacks.tickets.leave(client.address.ip()).await;
            let leave = leave.ok_or(Fault::Overload)?;
            let security = client.security;
            let (own, its) = (Arc::clone(&security.acceptor), Arc::clone(&security.principal));
            let mechanism = Arc::clone(&offer.callback_mechanism);
            on_worker(offer, leave, move || mechanism.begin(&own, &its)).await
        });
        got.await.unwrap_or(Err(Fault::KdcSilent))
    }

    /// Establishes the context over the connection of the call, and sends the call.
    async fn exchange_in_new_context(
        &self,
        offer: &Arc<Offer>,
        client: ProtectedClient<'_>,
        mut begun: BegunContext,
        (xid, call): (u32, &Message),
    ) -> Result<Bytes, Fault> {
        let plain = call.flatten().unwrap_or_default();
        let header = CallHeader::decode(&mut Decoder::new(&plain));
        let header = header.map_err(|_| OutgoingFault::NotAReply)?;
        let mut establishing = Establishing::new(header.program, header.version);
        let leave = client.connections.leave(client.address.ip()).await;
        let _leave = leave.ok_or(Fault::Overload)?;
        let mut stream = CallbackStream::connect(client.address).await?;
        let (proof, security, lifetime_seconds) = loop {
            let token = std::mem::take(&mut begun.token);
            let init = establishing.call(xid, token)?.flatten().unwrap_or_default();
            let raw = exchange_token(&mut stream, client.address, &init).await?;
            let answer = establishing.reply(xid, &raw)?;
            let rest = begun.rest;
            let proceeded = on_worker(offer, (), move || rest.proceed(&answer.token)).await?;
            match (proceeded, answer.proof) {
                (Progress::Established { context, lifetime_seconds }, Some(proof)) => {
                    break (proof, context, lifetime_seconds);
                }
                (Progress::Continue(next), None) => begun = next,
                // One side is done, the other is not.
                _ => return Err(OutgoingFault::BadResults.into()),
            }
        };
        let permit = Arc::clone(&self.callbacks.kept).try_acquire_owned().ok();
        let is_kept = permit.is_some();
        let security: BoxedContext = match permit {
            Some(share) => Box::new(KeptContext { context: security, _share: share }),
            None => security,
        };
        let ends_seconds = client.now_seconds().saturating_add(lifetime_seconds);
        let service = client.security.service;
        let context = establishing.finish(security, &proof, service, ends_seconds)?;
        let farewell = self.callbacks.farewells.to(client.address);
        let context = Arc::new(context.told_when_dropped(farewell));
        count(&self.callbacks.counts.established);
        if is_kept {
            client.security.keep(Arc::clone(&context));
        }
        exchange_protected(&mut stream, &context, call).await
    }
}

impl ProtectedClient<'_> {
    /// Sends a call under a context over a connection of its own.
    async fn exchange(&self, context: &OutgoingContext, call: &Message) -> Result<Bytes, Fault> {
        let leave = self.connections.leave(self.address.ip()).await;
        let _leave = leave.ok_or(Fault::Overload)?;
        let mut stream = CallbackStream::connect(self.address).await?;
        exchange_protected(&mut stream, context, call).await
    }
}

/// Sends a call under an established context.
async fn exchange_protected(
    stream: &mut CallbackStream,
    context: &OutgoingContext,
    call: &Message,
) -> Result<Bytes, Fault> {
    let protected = context.protect(call)?;
    let raw = stream.exchange(&protected.record).await?;
    Ok(context.open(&protected, &raw)?)
}

/// Sends a token, again over another connection if the client closes this one: Linux
/// does so while its daemon works on the token, and answers the same one later.
async fn exchange_token(
    stream: &mut CallbackStream,
    address: SocketAddr,
    call: &[u8],
) -> std::io::Result<Bytes> {
    let mut pause = FIRST_TOKEN_PAUSE;
    for _ in 0..MAX_TOKEN_REPETITIONS {
        match stream.exchange(call).await {
            Err(error) if is_closed(&error) => {
                tokio::time::sleep(pause).await;
                pause *= 2;
                *stream = CallbackStream::connect(address).await?;
            }
            result => return result,
        }
    }
    stream.exchange(call).await
}

fn is_closed(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

async fn within_timeout(
    exchange: impl Future<Output = Result<Bytes, Fault>>,
) -> Result<Bytes, Fault> {
    timeout(CALLBACK_TIMEOUT, exchange).await.unwrap_or(Err(Fault::Silent))
}

/// Runs a step of the mechanism, which may wait for the KDC. `leave` is held until
/// it returns, also if nobody waits for the result any more.
async fn on_worker<T: Send + 'static>(
    offer: &Offer,
    leave: impl Send + 'static,
    step: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, Fault> {
    let work = move || {
        let result = step();
        drop(leave);
        result
    };
    offer.ticket_engine.run(work).await?.map_err(Fault::NoTicket)
}
