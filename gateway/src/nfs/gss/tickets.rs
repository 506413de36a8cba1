//! Tickets with which the gateway calls its clients: as which principal, and until
//! when. All of it may wait for the KDC, and runs on workers of its own.

use super::limits::{MAX_CALLBACK_PRINCIPALS, MAX_TICKETS_PER_CREDENTIAL, TICKET_RETRY};
use super::mechanism::{BoxedContext, MitContext};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use zgate_gss::{Context, GssError, Initiated, Initiator, InitiatorOptions};

/// A context that the gateway has begun.
pub(crate) struct BegunContext {
    /// Token for the client.
    pub token: Vec<u8>,
    pub rest: Box<dyn UnfinishedContext>,
}

/// Continuation of a context with the client's token.
pub(crate) enum Progress {
    /// The context is established on this side.
    Established {
        context: BoxedContext,
        /// Time for which it is valid, in seconds.
        lifetime_seconds: u64,
    },
    /// The client must have another token first.
    Continue(BegunContext),
}

/// A context that waits for the client's token.
pub(crate) trait UnfinishedContext: Send {
    /// Takes the token. May block.
    ///
    /// # Errors
    /// The reason; the context is gone.
    fn proceed(self: Box<Self>, token: &[u8]) -> Result<Progress, String>;
}

/// Begins contexts with clients: MIT Kerberos, or a mechanism of the tests.
pub(crate) trait CallbackMechanism: Send + Sync {
    /// Begins a context from a principal of the gateway to one of a client. May
    /// block for as long as the KDC takes.
    ///
    /// # Errors
    /// The reason.
    fn begin(&self, own: &str, client: &str) -> Result<BegunContext, String>;
}

/// Credential of one of the gateway's principals.
#[derive(Debug)]
struct Credential {
    initiator: Arc<Initiator>,
    /// A new one is got from then on; the old one serves until it ends.
    renewed_from: Instant,
    ends: Instant,
    /// Contexts begun: the tickets for them stay in its cache.
    begun: usize,
}

/// Tickets by MIT Kerberos, with the keys of the keytab.
#[derive(Debug)]
pub(crate) struct MitTickets {
    keytab: PathBuf,
    /// By principal. Locked while the KDC is asked: who waits would ask the same.
    credentials: Mutex<HashMap<String, Credential>>,
}

impl MitTickets {
    pub(crate) fn new(keytab: PathBuf) -> Self {
        Self { keytab, credentials: Mutex::default() }
    }

    /// Returns the credential of a principal; gets one if there is none, or the
    /// present one is past half of its life or has got many tickets. Blocks.
    fn initiator(&self, principal: &str) -> Result<Arc<Initiator>, GssError> {
        let mut credentials = self.credentials.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if let Some(held) = credentials.get_mut(principal)
            && now < held.renewed_from
            && held.begun < MAX_TICKETS_PER_CREDENTIAL
        {
            held.begun += 1;
            return Ok(Arc::clone(&held.initiator));
        }
        match Initiator::acquire(InitiatorOptions { keytab: &self.keytab, principal }) {
            Ok(initiator) => {
                let credential = Credential::new(initiator);
                let initiator = Arc::clone(&credential.initiator);
                while credentials.len() >= MAX_CALLBACK_PRINCIPALS
                    && !credentials.contains_key(principal)
                    && let Some(first) = soonest_to_end(&credentials)
                {
                    credentials.remove(&first);
                }
                credentials.insert(principal.to_owned(), credential);
                Ok(initiator)
            }
            Err(error) => {
                // A KDC that is away for a while costs nothing while the old one lasts.
                let held = credentials.get_mut(principal).filter(|held| now < held.ends);
                let held = held.ok_or(error)?;
                (held.renewed_from, held.begun) = (now + TICKET_RETRY, 1);
                Ok(Arc::clone(&held.initiator))
            }
        }
    }
}

impl Credential {
    fn new(initiator: Initiator) -> Self {
        // A lifetime without end would overflow the clock.
        let lifetime = Duration::from_secs(initiator.lifetime_seconds().min(7 * 24 * 3600));
        let now = Instant::now();
        Self {
            initiator: Arc::new(initiator),
            renewed_from: now + lifetime / 2,
            ends: now + lifetime,
            begun: 1,
        }
    }
}

fn soonest_to_end(credentials: &HashMap<String, Credential>) -> Option<String> {
    let first = credentials.iter().min_by_key(|(_, credential)| credential.ends);
    first.map(|(principal, _)| principal.clone())
}

impl CallbackMechanism for MitTickets {
    fn begin(&self, own: &str, client: &str) -> Result<BegunContext, String> {
        let initiator = self.initiator(own).map_err(|error| error.to_string())?;
        let begun = initiator.begin(client).map_err(|error| error.to_string())?;
        let Initiated { context, token, lifetime_seconds } = begun;
        if lifetime_seconds.is_some() {
            // Nothing would prove the client.
            return Err(GssError::OneSided.to_string());
        }
        let rest = Box::new(MitUnfinished { initiator, context, client: client.to_owned() });
        Ok(BegunContext { token, rest })
    }
}

/// A context of MIT Kerberos that waits for the client's token.
struct MitUnfinished {
    initiator: Arc<Initiator>,
    context: Context,
    client: String,
}

impl UnfinishedContext for MitUnfinished {
    fn proceed(self: Box<Self>, token: &[u8]) -> Result<Progress, String> {
        let Self { initiator, context, client } = *self;
        let step = initiator.proceed(context, &client, token);
        let Initiated { context, token, lifetime_seconds } =
            step.map_err(|error| error.to_string())?;
        Ok(match lifetime_seconds {
            Some(lifetime_seconds) => {
                Progress::Established { context: Box::new(MitContext(context)), lifetime_seconds }
            }
            None => {
                let rest = Box::new(Self { initiator, context, client });
                Progress::Continue(BegunContext { token, rest })
            }
        })
    }
}
