//! Security of the callbacks to a client that is known by Kerberos: they go from
//! the principal that the client has called to the client's own, in the service of
//! its SETCLIENTID (RFC 7530 §3.3.3).

use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zgate_rpc::auth::GssCaller;
use zgate_rpc::gss::{OutgoingContext, Service};

/// Security of the callbacks to one client, and its security context while there
/// is one. It ends with the record of the client.
#[derive(Debug)]
pub struct CallbackSecurity {
    /// The client's principal, with its realm.
    pub principal: Arc<str>,
    /// The server's principal, with its realm.
    pub acceptor: Arc<str>,
    /// Protection of the calls.
    pub service: Service,
    kept: Mutex<Option<Arc<OutgoingContext>>>,
}

impl CallbackSecurity {
    /// Security of callbacks to whoever has sent a call; `None`: it is not known as
    /// which principal the server was called.
    #[must_use]
    pub fn of(caller: &GssCaller) -> Option<Self> {
        let identity = &caller.identity;
        (!identity.acceptor.is_empty()).then(|| Self {
            principal: Arc::clone(&identity.principal),
            acceptor: Arc::clone(&identity.acceptor),
            service: caller.service,
            kept: Mutex::default(),
        })
    }

    fn kept(&self) -> MutexGuard<'_, Option<Arc<OutgoingContext>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the context if there is one that may still be used.
    #[must_use]
    pub fn context(&self, now_seconds: u64) -> Option<Arc<OutgoingContext>> {
        let mut kept = self.kept();
        if kept.as_ref().is_some_and(|context| !context.is_usable(now_seconds)) {
            *kept = None;
        }
        kept.clone()
    }

    /// Keeps a context for further calls, instead of the present one.
    pub fn keep(&self, context: Arc<OutgoingContext>) {
        *self.kept() = Some(context);
    }

    /// Drops a context that the client no longer has.
    pub fn forget(&self, lost: &Arc<OutgoingContext>) {
        let mut kept = self.kept();
        if kept.as_ref().is_some_and(|context| Arc::ptr_eq(context, lost)) {
            *kept = None;
        }
    }
}

impl PartialEq for CallbackSecurity {
    fn eq(&self, other: &Self) -> bool {
        let names = |one: &Self| (Arc::clone(&one.principal), Arc::clone(&one.acceptor));
        names(self) == names(other) && self.service == other.service
    }
}

impl Eq for CallbackSecurity {}

impl Hash for CallbackSecurity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.principal.hash(state);
        self.acceptor.hash(state);
        self.service.hash(state);
    }
}
