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
struct Credential<I> {
    initiator: Arc<I>,
    /// A new one is got from then on; the old one serves until it ends.
    renewed_from: Instant,
    ends: Instant,
    /// Contexts begun: the tickets for them stay in its cache.
    begun: usize,
}

impl<I> Credential<I> {
    fn new((initiator, lifetime_seconds): (I, u64), now: Instant) -> Self {
        // A lifetime without end would overflow the clock.
        let lifetime = Duration::from_secs(lifetime_seconds.min(7 * 24 * 3600));
        Self {
            initiator: Arc::new(initiator),
            renewed_from: now + lifetime / 2,
            ends: now + lifetime,
            begun: 1,
        }
    }
}

/// Credentials of the gateway's principals: at most [`MAX_CALLBACK_PRINCIPALS`].
#[derive(Debug)]
struct Credentials<I>(HashMap<String, Credential<I>>);

impl<I> Default for Credentials<I> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<I> Credentials<I> {
    /// Returns the credential of a principal, for one more context. `acquire` gets one,
    /// with its lifetime in seconds, if there is none, or the present one is past half
    /// of its life or has got many tickets.
    fn get<E>(
        &mut self,
        principal: &str,
        now: Instant,
        acquire: impl FnOnce() -> Result<(I, u64), E>,
    ) -> Result<Arc<I>, E> {
        if let Some(held) = self.0.get_mut(principal)
            && now < held.renewed_from
            && held.begun < MAX_TICKETS_PER_CREDENTIAL
        {
            held.begun += 1;
            return Ok(Arc::clone(&held.initiator));
        }
        match acquire() {
            Ok(acquired) => {
                let credential = Credential::new(acquired, now);
                let initiator = Arc::clone(&credential.initiator);
                while self.0.len() >= MAX_CALLBACK_PRINCIPALS
                    && !self.0.contains_key(principal)
                    && let Some(first) = self.soonest_to_end()
                {
                    self.0.remove(&first);
                }
                self.0.insert(principal.to_owned(), credential);
                Ok(initiator)
            }
            Err(error) => {
                // A KDC that is away for a while costs nothing while the old one lasts.
                let held = self.0.get_mut(principal).filter(|held| now < held.ends);
                let held = held.ok_or(error)?;
                (held.renewed_from, held.begun) = (now + TICKET_RETRY, 1);
                Ok(Arc::clone(&held.initiator))
            }
        }
    }

    fn soonest_to_end(&self) -> Option<String> {
        let first = self.0.iter().min_by_key(|(_, credential)| credential.ends);
        first.map(|(principal, _)| principal.clone())
    }
}

/// Tickets by MIT Kerberos, with the keys of the keytab.
#[derive(Debug)]
pub(crate) struct MitTickets {
    keytab: PathBuf,
    /// Locked while the KDC is asked: who waits would ask the same.
    credentials: Mutex<Credentials<Initiator>>,
}

impl MitTickets {
    pub(crate) fn new(keytab: PathBuf) -> Self {
        Self { keytab, credentials: Mutex::default() }
    }

    /// Returns the credential of a principal; may get one. Blocks.
    fn initiator(&self, principal: &str) -> Result<Arc<Initiator>, GssError> {
        let mut credentials = self.credentials.lock().unwrap_or_else(PoisonError::into_inner);
        credentials.get(principal, Instant::now(), || {
            let options = InitiatorOptions { keytab: &self.keytab, principal };
            let initiator = Initiator::acquire(options)?;
            let lifetime_seconds = initiator.lifetime_seconds();
            Ok((initiator, lifetime_seconds))
        })
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    /// The KDC of a test numbers the credentials that it has given out.
    struct Kdc {
        given: usize,
        is_away: bool,
        lifetime: Duration,
    }

    impl Kdc {
        fn new(lifetime: Duration) -> Self {
            Self { given: 0, is_away: false, lifetime }
        }

        fn give(&mut self) -> Result<(usize, u64), &'static str> {
            if self.is_away {
                return Err("Cannot contact any KDC");
            }
            self.given += 1;
            Ok((self.given, self.lifetime.as_secs()))
        }
    }

    #[test]
    fn a_credential_with_many_tickets_is_replaced() {
        let (mut credentials, mut kdc) = (Credentials::default(), Kdc::new(10 * HOUR));
        let now = Instant::now();
        for context in 0..2 * MAX_TICKETS_PER_CREDENTIAL {
            let got = credentials.get("nfs/a@R", now, || kdc.give());
            let number = 1 + context / MAX_TICKETS_PER_CREDENTIAL;
            assert_eq!(got.as_deref(), Ok(&number), "context {context}");
        }
        // The KDC is away: the old one goes on, and it is asked again later, not for
        // each context.
        kdc.is_away = true;
        let mut asked = 0;
        for _ in 0..MAX_TICKETS_PER_CREDENTIAL / 2 {
            let got = credentials.get("nfs/a@R", now, || {
                asked += 1;
                kdc.give()
            });
            assert_eq!(got.as_deref(), Ok(&2));
        }
        assert_eq!(asked, 1);
        kdc.is_away = false;
        let got = credentials.get("nfs/a@R", now + TICKET_RETRY, || kdc.give());
        assert_eq!(got.as_deref(), Ok(&3));
    }

    #[test]
    fn a_credential_is_renewed_at_half_of_its_life_and_serves_to_its_end() {
        let (mut credentials, mut kdc) = (Credentials::default(), Kdc::new(10 * HOUR));
        let now = Instant::now();
        let mut get = |kdc: &mut Kdc, hours: u32| {
            credentials.get("nfs/a@R", now + hours * HOUR, || kdc.give()).map(|held| *held)
        };
        assert_eq!(get(&mut kdc, 0), Ok(1));
        assert_eq!(get(&mut kdc, 4), Ok(1));
        assert_eq!(get(&mut kdc, 5), Ok(2));
        kdc.is_away = true;
        assert_eq!(get(&mut kdc, 14), Ok(2), "it still serves");
        assert_eq!(get(&mut kdc, 15), Err("Cannot contact any KDC"), "it has ended");
        kdc.is_away = false;
        assert_eq!(get(&mut kdc, 15), Ok(3));
    }

    #[test]
    fn principals_are_bounded_and_the_one_that_ends_first_goes() {
        let mut credentials = Credentials::default();
        let now = Instant::now();
        let principal = |number: usize| format!("nfs/{number}@R");
        for number in 0..MAX_CALLBACK_PRINCIPALS {
            // The third one ends first.
            let hours = if number == 2 { 1 } else { 10 + number as u32 };
            let mut kdc = Kdc::new(hours * HOUR);
            credentials.get(&principal(number), now, || kdc.give()).unwrap();
        }
        let mut kdc = Kdc::new(20 * HOUR);
        for number in 100..1100 {
            credentials.get(&principal(number), now, || kdc.give()).unwrap();
            assert_eq!(credentials.0.len(), MAX_CALLBACK_PRINCIPALS);
            assert!(!credentials.0.contains_key(&principal(2)));
            assert!(credentials.0.contains_key(&principal(number)));
        }
        // One that is held takes no other's place.
        let held: Vec<String> = credentials.0.keys().cloned().collect();
        let later = now + 11 * HOUR;
        for principal in &held {
            credentials.get(principal, later, || kdc.give()).unwrap();
        }
        assert!(held.iter().all(|principal| credentials.0.contains_key(principal)));
    }
}
