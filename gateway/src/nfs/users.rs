//! Users of this machine by name, as its name service knows them (nsswitch).

use super::limits::{LATE_LOOK_UPS, MAX_GROUPS, UNANSWERED_SECONDS, USER_LOOKUP_PATIENCE};
use nix::unistd::{User, getgrouplist};
use std::ffi::CString;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinHandle, spawn_blocking};
use tokio::time::{sleep, timeout};
use zgate_nfs::runtime::PeerCertificate;
use zgate_store::Caller;

/// Asks the name service; may block.
pub(crate) type Find = fn(&str) -> nix::Result<Option<Caller>>;

/// A question under way.
type Question = JoinHandle<nix::Result<Option<Caller>>>;

/// Bounds the threads that ask once more.
static LATE: Semaphore = Semaphore::const_new(LATE_LOOK_UPS);

/// Looks up the user that a certificate names, and waits for the answer for the time that
/// a handshake has. A name service that fails or is late goes on being asked while the
/// connection exists; the user is not known meanwhile, and the calls of the connection
/// wait. `held` is dropped when the first question has ended, which may be later: it
/// bounds the threads that wait for a silent name service.
pub(crate) async fn look_up(
    certificate: &Arc<PeerCertificate>,
    name: Box<str>,
    find: Find,
    held: impl Send + 'static,
) {
    let mut question = ask(&name, find, held);
    let answer = timeout(USER_LOOKUP_PATIENCE, &mut question).await;
    let late = match answer {
        Ok(answer) => {
            if take(certificate, &name, answer) {
                return;
            }
            None
        }
        Err(_) => {
            let seconds = USER_LOOKUP_PATIENCE.as_secs();
            tracing::warn!(user = &*name, seconds, "the name service does not answer");
            Some(question)
        }
    };
    tokio::spawn(ask_again(Arc::downgrade(certificate), name, find, late));
}

/// Begins a question.
fn ask(name: &str, find: Find, held: impl Send + 'static) -> Question {
    let name: Box<str> = name.into();
    spawn_blocking(move || {
        let found = find(&name);
        drop(held);
        found
    })
}

/// Takes an answer; false: the name service could not tell.
fn take(
    certificate: &PeerCertificate,
    name: &str,
    answer: Result<nix::Result<Option<Caller>>, JoinError>,
) -> bool {
    match answer {
        Ok(Ok(found)) => {
            if found.is_none() {
                tracing::warn!(user = name, "no user of this machine has this name");
            }
            // One task asks at a time: it is not set yet.
            let _ = certificate.user.set(found.map(Arc::new));
            true
        }
        Ok(Err(error)) => {
            crate::observe::throttle::warn_seldom!(
                user = name, %error, "the name service failed: check nsswitch.conf and the \
                 directory service"
            );
            false
        }
        Err(error) => {
            tracing::error!(user = name, %error, "the look-up of a user ended");
            false
        }
    }
}

/// Asks until the name service has told, or the connection has ended; a late answer counts.
async fn ask_again(
    certificate: Weak<PeerCertificate>,
    name: Box<str>,
    find: Find,
    mut late: Option<Question>,
) {
    loop {
        if let Some(question) = late.take() {
            let answer = question.await;
            let Some(certificate) = certificate.upgrade() else { return };
            if take(&certificate, &name, answer) {
                return;
            }
        }
        sleep(Duration::from_secs(UNANSWERED_SECONDS)).await;
        if certificate.strong_count() == 0 {
            return;
        }
        // While all hang, one question more would only be one thread more.
        late = LATE.try_acquire().ok().map(|permit| ask(&name, find, permit));
    }
}

/// Looks up a user and its groups. May block.
///
/// # Errors
/// The name service could not tell.
pub(crate) fn find(name: &str) -> nix::Result<Option<Caller>> {
    let Some(user) = User::from_name(name)? else { return Ok(None) };
    // A name with NUL has no user.
    let Ok(name) = CString::new(name) else { return Ok(None) };
    let groups = getgrouplist(&name, user.gid)?;
    let groups = groups.into_iter().take(MAX_GROUPS).map(nix::unistd::Gid::as_raw).collect();
    Ok(Some(Caller { uid: user.uid.as_raw(), gid: user.gid.as_raw(), groups }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::errno::Errno;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn somebody(_: &str) -> nix::Result<Option<Caller>> {
        Ok(Some(Caller { uid: 1001, gid: 1001, groups: Arc::from([1001]) }))
    }

    fn uid(certificate: &PeerCertificate) -> Option<u32> {
        certificate.user.get()?.as_ref().map(|user| user.uid)
    }

    #[tokio::test]
    async fn a_user_comes_with_its_groups() {
        let held = Arc::new(());
        let told = async |name: &str| {
            let certificate = Arc::<PeerCertificate>::default();
            look_up(&certificate, name.into(), find, Arc::clone(&held)).await;
            certificate.user.get().cloned()
        };
        let root = told("root").await.flatten().unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert!(root.groups.contains(&0));
        assert_eq!(told("no such user").await, Some(None));
        assert_eq!(told("ro\0ot").await, Some(None));
        assert_eq!(Arc::strong_count(&held), 1, "given back");
    }

    /// Time is virtual.
    #[tokio::test(start_paused = true)]
    async fn a_service_that_fails_once_is_asked_again() {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        fn fails_once(name: &str) -> nix::Result<Option<Caller>> {
            let is_first = ASKED.fetch_add(1, Ordering::Relaxed) == 0;
            if is_first { Err(Errno::EAGAIN) } else { somebody(name) }
        }
        let certificate = Arc::<PeerCertificate>::default();
        look_up(&certificate, "x".into(), fails_once, ()).await;
        assert_eq!(certificate.user.get(), None, "neither a user nor nobody");
        sleep(Duration::from_secs(UNANSWERED_SECONDS)).await;
        while uid(&certificate) != Some(1001) {
            tokio::task::yield_now().await;
        }
        assert_eq!(ASKED.load(Ordering::Relaxed), 2);
    }

    /// Time is virtual.
    #[tokio::test(start_paused = true)]
    async fn a_late_answer_counts_and_nobody_asks_for_a_connection_that_has_ended() {
        fn never(_: &str) -> nix::Result<Option<Caller>> {
            panic!("asked once more")
        }
        let certificate = Arc::<PeerCertificate>::default();
        let late = Some(ask("x", somebody, ()));
        ask_again(Arc::downgrade(&certificate), "x".into(), never, late).await;
        assert_eq!(uid(&certificate), Some(1001));
        ask_again(Weak::new(), "x".into(), never, None).await;
    }
}
