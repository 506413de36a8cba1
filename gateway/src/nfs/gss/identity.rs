//! The user and groups of a principal. They are looked up on worker threads,
//! because the system may ask a directory far away; a core never waits for one.

use super::limits::IDENTITY_SECONDS;
use crate::nfs::users;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use zgate_io::IoEngine;
use zgate_rpc::auth::GssIdentity;
use zgate_store::Caller;

/// Looks up the ids of a local user: the system's way, or a test's.
pub(crate) type LookUp = fn(&str) -> io::Result<Option<Caller>>;

/// Looks up a local user and its groups with the system (nsswitch). May block.
/// `Ok(None)`: there is none.
///
/// # Errors
/// The system could not tell.
pub(crate) fn look_up(name: &str) -> io::Result<Option<Caller>> {
    Ok(users::find(name)?)
}

/// Maps principals to local users.
#[derive(Clone, Debug)]
pub(crate) struct Users {
    /// Local users by principal; they come before the mechanism's rules.
    pub by_principal: BTreeMap<String, String>,
    pub look_up: LookUp,
}

impl Users {
    /// Returns the local user of a principal.
    pub(crate) fn local_user(&self, principal: &str, by_rules: Option<&str>) -> Option<String> {
        let configured = self.by_principal.get(principal).map(String::as_str);
        configured.or(by_rules).map(str::to_owned)
    }
}

/// Identity of a context's client, as last looked up.
#[derive(Debug)]
pub(crate) struct ContextIdentity {
    local_user: Option<String>,
    look_up: LookUp,
    current: RwLock<Arc<GssIdentity>>,
    known_until_seconds: AtomicU64,
    is_looked_up: AtomicBool,
}

impl ContextIdentity {
    /// Looks up a new context's client. May block. A user that cannot be looked
    /// up is none until the next attempt.
    pub(crate) fn new(
        users: &Users,
        (principal, acceptor): (&str, &str),
        by_rules: Option<&str>,
        now_seconds: u64,
    ) -> Arc<Self> {
        let local_user = users.local_user(principal, by_rules);
        let unknown =
            GssIdentity { principal: principal.into(), acceptor: acceptor.into(), user: None };
        let identity = Arc::new(Self {
            local_user,
            look_up: users.look_up,
            current: RwLock::new(Arc::new(unknown)),
            known_until_seconds: AtomicU64::new(0),
            is_looked_up: AtomicBool::new(true),
        });
        identity.renew(now_seconds);
        identity
    }

    /// Returns the identity; has it looked up again if it is old.
    pub(crate) fn current(self: &Arc<Self>, engine: &IoEngine, now: u64) -> Arc<GssIdentity> {
        let is_old = now >= self.known_until_seconds.load(Ordering::Relaxed);
        if is_old && !self.is_looked_up.swap(true, Ordering::Relaxed) {
            let renewed = Arc::clone(self);
            engine.detach(move || renewed.renew(now));
        }
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Looks the user up. The old one stays if the system cannot tell.
    fn renew(&self, now_seconds: u64) {
        let found = self.local_user.as_deref().map_or(Ok(None), self.look_up);
        match found {
            Ok(user) => {
                let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
                if current.user != user {
                    *current = Arc::new(GssIdentity { user, ..(**current).clone() });
                }
            }
            Err(error) => {
                let user = self.local_user.as_deref().unwrap_or_default();
                crate::observe::throttle::warn_seldom!(
                    user, %error, "cannot look up the user of a Kerberos principal: check \
                     nsswitch.conf and the directory service"
                );
            }
        }
        self.known_until_seconds.store(now_seconds + IDENTITY_SECONDS, Ordering::Relaxed);
        self.is_looked_up.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_of_the_system_are_found_with_their_groups() {
        let root = look_up("root").unwrap().unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert!(root.groups.contains(&0));
        assert_eq!(look_up("no-such-user-here").unwrap(), None);
        assert_eq!(look_up("a\0b").unwrap(), None);
    }

    #[test]
    fn the_static_map_comes_first() {
        let by_principal = BTreeMap::from([("nfs/a@R".to_owned(), "root".to_owned())]);
        let users = Users { by_principal, look_up };
        assert_eq!(users.local_user("nfs/a@R", None).as_deref(), Some("root"));
        assert_eq!(users.local_user("nfs/a@R", Some("b")).as_deref(), Some("root"));
        assert_eq!(users.local_user("nfs/b@R", None), None);
        assert_eq!(users.local_user("c@R", Some("c")).as_deref(), Some("c"));
    }

    #[test]
    fn an_identity_is_looked_up_again_when_it_is_old() {
        fn unavailable(_: &str) -> io::Result<Option<Caller>> {
            Err(io::ErrorKind::TimedOut.into())
        }
        let engine = IoEngine::new(zgate_io::EngineChoice::Threads, 1).unwrap();
        let users = Users { by_principal: BTreeMap::new(), look_up };
        let identity = ContextIdentity::new(&users, ("root@R", "nfs/s@R"), Some("root"), 0);
        let uid = |now| identity.current(&engine, now).user.as_ref().map(|user| user.uid);
        assert_eq!(uid(IDENTITY_SECONDS - 1), Some(0));
        assert_eq!(uid(IDENTITY_SECONDS), Some(0));
        while identity.is_looked_up.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        let until = identity.known_until_seconds.load(Ordering::Relaxed);
        assert_eq!(until, 2 * IDENTITY_SECONDS);
        // A directory that does not answer takes nobody's identity away, and gives
        // nobody one.
        let users = Users { by_principal: BTreeMap::new(), look_up: unavailable };
        let unknown = ContextIdentity::new(&users, ("x@R", "nfs/s@R"), Some("x"), 0);
        assert_eq!(unknown.current(&engine, 0).user, None);
    }
}
