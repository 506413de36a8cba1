//! Users of this machine by name, as its name service knows them (nsswitch).

use super::limits::{LATE_LOOK_UPS, MAX_GROUPS, UNANSWERED_SECONDS, USER_LOOKUP_PATIENCE};
use super::look_up_places::LookUpPlaces;
use nix::unistd::{User, getgrouplist};
use std::ffi::CString;
use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinHandle, spawn_blocking};
use tokio::time::{sleep, timeout};
use zgate_nfs::runtime::PeerCertificate;
use zgate_store::{Caller, HostKey};

/// Asks the name service; may block.
pub(crate) type Find = fn(&str) -> nix::Result<Option<Caller>>;

/// A question under way.
type Question = JoinHandle<nix::Result<Option<Caller>>>;

/// Bounds the threads that ask for the first time.
static FIRST: LazyLock<Arc<LookUpPlaces>> = LazyLock::new(Arc::default);

/// Bounds the threads that ask once more.
static LATE: Semaphore = Semaphore::const_new(LATE_LOOK_UPS);

/// Looks up the user that a certificate names, and waits for the answer for the time that
/// a handshake has. A name service that fails or is late goes on being asked while the
/// connection exists; the user is not known meanwhile, and the calls of the connection
/// wait. `held` is dropped with the wait, not with the question: a name service that
/// hangs holds up none of those who need no answer of it. Where it hangs for too many,
/// of all hosts or of this one, nothing is asked yet.
pub(crate) async fn look_up(
    certificate: &Arc<PeerCertificate>,
    name: Box<str>,
    find: Find,
    host: HostKey,
    held: impl Send + 'static,
) {
    let late = match FIRST.take(host) {
        Some(place) => {
            let mut question = ask(&name, find, place);
            match timeout(USER_LOOKUP_PATIENCE, &mut question).await {
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
            }
        }
        None => {
            crate::observe::throttle::warn_seldom!(
                user = &*name,
                "too many questions wait for the name service: check nsswitch.conf and the \
                 directory service"
            );
            None
        }
    };
    drop(held);
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
    use crate::nfs::limits::FIRST_LOOK_UPS_PER_HOST;
    use nix::errno::Errno;
    use std::net::IpAddr;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use zgate_tls::TlsOffer;

    /// The address of a host; tests run at the same time, each with its own.
    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

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
            let host = address(1).into();
            look_up(&certificate, name.into(), find, host, Arc::clone(&held)).await;
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
        look_up(&certificate, "x".into(), fails_once, address(2).into(), ()).await;
        assert_eq!(certificate.user.get(), None, "neither a user nor nobody");
        sleep(Duration::from_secs(UNANSWERED_SECONDS)).await;
        while uid(&certificate) != Some(1001) {
            tokio::task::yield_now().await;
        }
        assert_eq!(ASKED.load(Ordering::Relaxed), 2);
    }

    /// Time is virtual.
    #[tokio::test(start_paused = true)]
    async fn a_name_service_that_hangs_keeps_no_handshake() {
        static ANSWERS: Barrier = Barrier::new(2);
        fn hangs(name: &str) -> nix::Result<Option<Caller>> {
            ANSWERS.wait();
            somebody(name)
        }
        let offer = Arc::<TlsOffer>::default();
        let slot = offer.admit(address(3)).unwrap();
        let certificate = Arc::<PeerCertificate>::default();
        {
            let look_up = look_up(&certificate, "x".into(), hangs, address(3).into(), slot);
            let mut look_up = std::pin::pin!(look_up);
            tokio::select! {
                biased;
                () = &mut look_up => {}
                () = std::future::ready(()) => {}
            }
            // By hand: it does not pass while a thread blocks.
            tokio::time::advance(USER_LOOKUP_PATIENCE + Duration::from_millis(1)).await;
            look_up.await;
        }
        let in_progress = offer.counts().in_progress;
        let known = certificate.user.get().cloned();
        // Before anything can fail: the thread would never end.
        ANSWERS.wait();
        assert_eq!((in_progress, known), (0, None));
        assert!(offer.admit(address(3)).is_some());
        while uid(&certificate) != Some(1001) {
            tokio::task::yield_now().await;
        }
    }

    /// Time is virtual.
    #[tokio::test(start_paused = true)]
    async fn where_too_many_questions_wait_nobody_waits_with_them() {
        let places: Vec<_> = std::iter::from_fn(|| FIRST.take(address(4).into())).collect();
        assert_eq!(places.len(), FIRST_LOOK_UPS_PER_HOST);
        let certificate = Arc::<PeerCertificate>::default();
        let begun = tokio::time::Instant::now();
        look_up(&certificate, "x".into(), somebody, address(4).into(), ()).await;
        assert_eq!((certificate.user.get(), begun.elapsed()), (None, Duration::ZERO));
        // It is asked for later.
        sleep(Duration::from_secs(UNANSWERED_SECONDS)).await;
        while uid(&certificate) != Some(1001) {
            tokio::task::yield_now().await;
        }
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
