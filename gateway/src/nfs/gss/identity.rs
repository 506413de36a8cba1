//! The user and groups of a principal. They are looked up on worker threads,
//! because the system may ask a directory far away; a core never waits for one.

use super::limits::IDENTITY_SECONDS;
use crate::nfs::limits::UNANSWERED_SECONDS;
use crate::nfs::users;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use zgate_io::IoEngine;
use zgate_rpc::auth::{GssIdentity, GssUser};
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

/// A look-up on its way to a worker. One that is dropped because all workers hang
/// has ended, too: the next call begins another.
struct Renewal {
    identity: Arc<ContextIdentity>,
    now_seconds: u64,
}

impl Renewal {
    fn run(self) {
        self.identity.renew(self.now_seconds);
    }
}

impl Drop for Renewal {
    fn drop(&mut self) {
        self.identity.is_looked_up.store(false, Ordering::Relaxed);
    }
}

impl ContextIdentity {
    /// Looks up a new context's client. May block. A user that cannot be looked
    /// up is not known until the next attempt.
    pub(crate) fn new(
        users: &Users,
        (principal, acceptor): (&str, &str),
        by_rules: Option<&str>,
        now_seconds: u64,
    ) -> Arc<Self> {
        let local_user = users.local_user(principal, by_rules);
        let unknown = GssIdentity {
            principal: principal.into(),
            acceptor: acceptor.into(),
            user: GssUser::NotYetKnown,
        };
        let identity = Arc::new(Self {
            local_user,
            look_up: users.look_up,
            current: RwLock::new(Arc::new(unknown)),
            known_until_seconds: AtomicU64::new(0),
            is_looked_up: AtomicBool::new(false),
        });
        identity.renew(now_seconds);
        identity
    }

    /// Returns the identity; has it looked up again if it is old.
    pub(crate) fn current(self: &Arc<Self>, engine: &IoEngine, now: u64) -> Arc<GssIdentity> {
        let is_old = now >= self.known_until_seconds.load(Ordering::Relaxed);
        if is_old && !self.is_looked_up.swap(true, Ordering::Relaxed) {
            let renewal = Renewal { identity: Arc::clone(self), now_seconds: now };
            engine.detach(move || renewal.run());
        }
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Looks the user up. The old one stays if the system cannot tell; where there
    /// is none, calls wait for the next attempt, which comes soon.
    fn renew(&self, now_seconds: u64) {
        let found = self.local_user.as_deref().map_or(Ok(None), self.look_up);
        let seconds = match found {
            Ok(user) => {
                let user = GssUser::from(user);
                let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
                if current.user != user {
                    *current = Arc::new(GssIdentity { user, ..(**current).clone() });
                }
                IDENTITY_SECONDS
            }
            Err(error) => {
                let user = self.local_user.as_deref().unwrap_or_default();
                crate::observe::throttle::warn_seldom!(
                    user, %error, "cannot look up the user of a Kerberos principal: check \
                     nsswitch.conf and the directory service"
                );
                let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
                let is_known = current.user != GssUser::NotYetKnown;
                if is_known { IDENTITY_SECONDS } else { UNANSWERED_SECONDS }
            }
        };
        self.known_until_seconds.store(now_seconds + seconds, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uid(identity: &Arc<ContextIdentity>, engine: &IoEngine, now: u64) -> Option<u32> {
        match &identity.current(engine, now).user {
            GssUser::User(user) => Some(user.uid),
            GssUser::Nobody | GssUser::NotYetKnown => None,
        }
    }

    fn wait_for_look_up(identity: &ContextIdentity) {
        while identity.is_looked_up.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
    }

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
        assert_eq!(uid(&identity, &engine, IDENTITY_SECONDS - 1), Some(0));
        assert_eq!(uid(&identity, &engine, IDENTITY_SECONDS), Some(0));
        wait_for_look_up(&identity);
        let until = identity.known_until_seconds.load(Ordering::Relaxed);
        assert_eq!(until, 2 * IDENTITY_SECONDS);
        // A directory that does not answer takes nobody's identity away, and gives
        // nobody one.
        let users = Users { by_principal: BTreeMap::new(), look_up: unavailable };
        let unknown = ContextIdentity::new(&users, ("x@R", "nfs/s@R"), Some("x"), 0);
        assert_eq!(unknown.current(&engine, 0).user, GssUser::NotYetKnown);
    }

    #[test]
    fn a_directory_that_fails_once_is_asked_again_soon() {
        static HAS_FAILED: AtomicBool = AtomicBool::new(false);
        fn fails_once(_: &str) -> io::Result<Option<Caller>> {
            if HAS_FAILED.swap(true, Ordering::Relaxed) {
                return Ok(Some(Caller { uid: 1001, gid: 1001, groups: Arc::from([1001]) }));
            }
            Err(io::ErrorKind::TimedOut.into())
        }
        let engine = IoEngine::new(zgate_io::EngineChoice::Threads, 1).unwrap();
        let users = Users { by_principal: BTreeMap::new(), look_up: fails_once };
        let identity = ContextIdentity::new(&users, ("x@R", "nfs/s@R"), Some("x"), 0);
        for now in [0, UNANSWERED_SECONDS - 1] {
            assert_eq!(identity.current(&engine, now).user, GssUser::NotYetKnown, "{now}");
        }
        drop(identity.current(&engine, UNANSWERED_SECONDS));
        wait_for_look_up(&identity);
        assert_eq!(uid(&identity, &engine, UNANSWERED_SECONDS), Some(1001));
        let until = identity.known_until_seconds.load(Ordering::Relaxed);
        assert_eq!(until, UNANSWERED_SECONDS + IDENTITY_SECONDS);
        // A machine's principal needs no answer.
        let machine = ContextIdentity::new(&users, ("host/a@R", "nfs/s@R"), None, 0);
        assert_eq!(machine.current(&engine, 0).user, GssUser::Nobody);
    }

    /// All workers hang: nobody will carry it out.
    #[test]
    fn a_look_up_that_is_dropped_can_begin_again() {
        let users = Users { by_principal: BTreeMap::new(), look_up };
        let identity = ContextIdentity::new(&users, ("root@R", "nfs/s@R"), Some("root"), 0);
        identity.is_looked_up.store(true, Ordering::Relaxed);
        drop(Renewal { identity: Arc::clone(&identity), now_seconds: 0 });
        assert!(!identity.is_looked_up.load(Ordering::Relaxed));
    }
}
