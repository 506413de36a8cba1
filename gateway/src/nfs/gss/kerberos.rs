//! Kerberos of the process: the server's keys, the contexts, and counts.

use super::callbacks::Callbacks;
use super::identity::{ContextIdentity, Users, look_up};
use super::limits::{EXPIRY_INTERVAL_SECONDS, TICKET_WORKERS, WORKERS};
use super::mechanism::{BoxedContext, Mechanism, MitKerberos};
use super::tickets::{CallbackMechanism, MitTickets};
use super::token_slots::TokenSlots;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use zgate_io::{EngineChoice, IoEngine};
use zgate_rpc::gss::{Contexts, SecurityContext};

/// Settings of Kerberos.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KerberosSettings {
    /// File with the server's keys.
    pub keytab: PathBuf,
    /// Principal of the server; `None`: any of service `nfs` in the keytab.
    pub principal: Option<String>,
    /// Local users by principal.
    pub users: BTreeMap<String, String>,
    /// File of the replay cache.
    pub replay_cache: PathBuf,
}

/// Kerberos as in effect.
pub(crate) struct Offer {
    pub(super) mechanism: Box<dyn Mechanism>,
    pub(super) users: Users,
    /// Workers for calls that block, and for long bodies.
    pub(super) engine: IoEngine,
    pub(super) callback_mechanism: Arc<dyn CallbackMechanism>,
    /// Workers for it.
    pub(super) ticket_engine: IoEngine,
    /// Settings that all of it is made of; `None`: those of a test.
    settings: Option<KerberosSettings>,
}

/// Next step where the server's keys are not found.
pub(crate) const KEYTAB_NEXT_STEP: &str =
    "put the keys of nfs/HOST there, as by `kadmin ktadd`, readable for zgate";

impl KerberosSettings {
    /// Finds the server's keys. Reads files.
    ///
    /// # Errors
    /// The reason, with the file.
    pub(crate) fn mechanism(&self) -> Result<MitKerberos, String> {
        let Self { keytab, principal, replay_cache, .. } = self;
        let found = MitKerberos::new(keytab, principal.as_deref(), Some(replay_cache));
        found.map_err(|error| format!("{}: {error}", keytab.display()))
    }

    /// Makes the directory of the replay cache if it is missing.
    ///
    /// # Errors
    /// The directory, the reason and the next step.
    pub(crate) fn make_cache_dir(&self) -> io::Result<()> {
        let Some(dir) = self.replay_cache.parent() else { return Ok(()) };
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|error| {
            let reason = format!(
                "kerberos: cannot make {} for the replay cache: {error}; run as root, or set \
                 server.admin_socket to a path of your own",
                dir.display()
            );
            io::Error::new(error.kind(), reason)
        })
    }
}

impl Offer {
    /// Finds the server's keys, and starts the workers.
    ///
    /// # Errors
    /// The setting, the reason and the next step.
    pub(crate) fn new(settings: &KerberosSettings) -> io::Result<Self> {
        let mechanism = settings.mechanism().map_err(|reason| {
            let problem = format!("kerberos.keytab: {reason}; {KEYTAB_NEXT_STEP}");
            io::Error::new(io::ErrorKind::InvalidInput, problem)
        })?;
        let users = Users { by_principal: settings.users.clone(), look_up };
        let tickets = MitTickets::new(settings.keytab.clone());
        let offer = Self::with(Box::new(mechanism), Arc::new(tickets), users)?;
        Ok(Self { settings: Some(settings.clone()), ..offer })
    }

    pub(super) fn with(
        mechanism: Box<dyn Mechanism>,
        callback_mechanism: Arc<dyn CallbackMechanism>,
        users: Users,
    ) -> io::Result<Self> {
        // Callers may wait for a directory as long as they like, but not hold up
        // others: the engine refuses calls once all of its workers hang.
        let engine = IoEngine::new(EngineChoice::Threads, WORKERS)?;
        // Its calls are as many as its workers: none waits, and none is refused.
        let ticket_engine = IoEngine::new(EngineChoice::Threads, TICKET_WORKERS)?.patient();
        let settings = None;
        Ok(Self { mechanism, users, engine, callback_mechanism, ticket_engine, settings })
    }
}

/// The mechanism's context and who is at its other end.
pub(crate) struct ClientContext {
    pub(super) security: BoxedContext,
    pub(super) identity: Arc<ContextIdentity>,
}

impl SecurityContext for ClientContext {
    fn verifies(&self, message: &[u8], mic: &[u8]) -> bool {
        self.security.verifies(message, mic)
    }

    fn mic(&self, message: &[u8]) -> Option<Vec<u8>> {
        self.security.mic(message)
    }

    fn wrap(&self, message: &[u8]) -> Option<Vec<u8>> {
        self.security.wrap(message)
    }

    fn unwrap(&self, token: &[u8]) -> Option<Vec<u8>> {
        self.security.unwrap(token)
    }
}

/// Calls and tokens that were refused, by reason; and contexts.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(super) established: AtomicU64,
    pub(super) token_refused: AtomicU64,
    pub(super) overloaded: AtomicU64,
    pub(super) unknown_context: AtomicU64,
    pub(super) bad_verifier: AtomicU64,
    pub(super) bad_sequence: AtomicU64,
    pub(super) bad_arguments: AtomicU64,
}

/// Kerberos of the process.
#[derive(Default)]
pub(crate) struct Kerberos {
    in_effect: RwLock<Option<Arc<Offer>>>,
    pub(super) contexts: Contexts<ClientContext>,
    pub(super) token_slots: Arc<TokenSlots>,
    pub(super) counts: Counts,
    pub(super) callbacks: Callbacks,
    expired_at_seconds: AtomicU64,
}

impl fmt::Debug for Kerberos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kerberos")
    }
}

impl Kerberos {
    /// Uses these keys and users; `None`: Kerberos is not offered. If they
    /// differ from the present ones, all contexts end, and clients make new ones:
    /// a user that was taken out of the settings is not served until its ticket
    /// ends.
    pub(crate) fn replace(&self, offer: Option<Offer>) {
        let settings = offer.as_ref().and_then(|offer| offer.settings.clone());
        let mut in_effect = self.in_effect.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *in_effect, offer.map(Arc::new));
        drop(in_effect);
        if before.and_then(|before| before.settings.clone()) != settings || settings.is_none() {
            self.contexts.clear();
        }
    }

    /// Returns Kerberos as in effect.
    pub(super) fn offer(&self) -> Option<Arc<Offer>> {
        self.in_effect.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns whether contexts of `offer` may go on: it is in effect, or another of
    /// the same settings.
    pub(super) fn is_in_effect(&self, offer: &Arc<Offer>) -> bool {
        self.offer().is_some_and(|now| {
            Arc::ptr_eq(&now, offer) || offer.settings.is_some() && now.settings == offer.settings
        })
    }

    /// Removes contexts that are over.
    pub(crate) fn tick(&self, now_seconds: u64) {
        let last = self.expired_at_seconds.load(Ordering::Relaxed);
        if now_seconds >= last + EXPIRY_INTERVAL_SECONDS {
            self.expired_at_seconds.store(now_seconds, Ordering::Relaxed);
            self.contexts.expire(now_seconds);
        }
    }

    /// Returns the number of contexts.
    pub(crate) fn context_count(&self) -> usize {
        self.contexts.len()
    }

    /// Returns the number of contexts established since the start.
    pub(crate) fn established(&self) -> u64 {
        self.counts.established.load(Ordering::Relaxed)
    }

    /// Returns the number of contexts for callbacks established since the start.
    pub(crate) fn callback_contexts(&self) -> u64 {
        self.callbacks.counts.established()
    }

    /// Returns the number of callbacks without results, by reason.
    pub(crate) fn failed_callbacks(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.callbacks.counts.failed().into_iter()
    }

    /// Returns what was refused, by reason.
    pub(crate) fn refused(&self) -> [(&'static str, u64); 6] {
        let Counts {
            established: _,
            token_refused,
            overloaded,
            unknown_context,
            bad_verifier,
            bad_sequence,
            bad_arguments,
        } = &self.counts;
        [
            ("token", token_refused),
            ("overload", overloaded),
            ("context", unknown_context),
            ("verifier", bad_verifier),
            ("sequence", bad_sequence),
            ("arguments", bad_arguments),
        ]
        .map(|(reason, count)| (reason, count.load(Ordering::Relaxed)))
    }
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
