//! The thread that retries what is absent and puts it into service when it has
//! appeared. The attempts run on threads of their own (`exports/attempts.rs`).

use super::absent::Source;
use super::reconcile::Reconciler;
use super::run::Gateway;
use crate::exports::limits::{FIRST_RETRY, PLACE_INTERVAL};
use crate::exports::open::Opening;
use crate::observe::panics::caught_blocking;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Instant;

/// Running threads; they end when it is dropped, a moment later.
pub(crate) struct Retrier {
    stop: Arc<AtomicBool>,
    gateway: Arc<Gateway>,
}

impl Retrier {
    /// Starts the thread.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn start(reconciler: &Arc<Reconciler>, gateway: &Arc<Gateway>) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (reconciler, shown) = (Arc::clone(reconciler), Arc::clone(gateway));
        let stopped = Arc::clone(&stop);
        let run = move || {
            let mut trouble = None;
            while !stopped.load(Ordering::Acquire) {
                let once = || retry(&reconciler, &shown, &mut trouble);
                let tried = caught_blocking("another attempt at what is absent", once);
                let due = tried.unwrap_or_else(|| Some(Instant::now() + FIRST_RETRY));
                let left = due.map(|due| due.saturating_duration_since(Instant::now()));
                shown.wake.wait(left);
            }
        };
        std::thread::Builder::new().name("zgate-absent".to_owned()).spawn(run)?;
        let (shown, stopped) = (Arc::clone(gateway), Arc::clone(&stop));
        let watch = move || {
            while !stopped.load(Ordering::Acquire) {
                std::thread::sleep(PLACE_INTERVAL);
                // While the storage of one hangs, the others are not looked at.
                let mut is_any_lost = false;
                // Not the stores, which would stay open meanwhile.
                let places = shown.stores().places();
                for place in places {
                    is_any_lost |= place.look();
                }
                if is_any_lost {
                    shown.wake.wake();
                }
            }
        };
        std::thread::Builder::new().name("zgate-places".to_owned()).spawn(watch)?;
        Ok(Self { stop, gateway: Arc::clone(gateway) })
    }
}

impl Drop for Retrier {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // Not waited for: it may wait for a query of ZFS that hangs.
        self.gateway.wake.wake();
    }
}

/// Begins the attempts that are due and uses those that have ended. Returns the
/// time of the next step; none while nothing is absent.
fn retry(
    reconciler: &Reconciler,
    gateway: &Gateway,
    trouble: &mut Option<String>,
) -> Option<Instant> {
    let exports = || gateway.exports.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let files = {
        let _one = gateway.replacing();
        gateway.opener.retry(&exports(), &gateway.stores())
    };
    let disks = gateway.shared.iscsi.retry_absent();
    if files.news || disks.news {
        let _one = reconciler.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if files.news {
            // Not those from above: a reload may have replaced them.
            let result = gateway.replace_exports(&exports(), Opening::Retry);
            let error = result.err().map(|error| error.to_string());
            if let Some(error) = error.as_ref().filter(|_| error != *trouble) {
                tracing::error!(error, "an export has appeared, but cannot be served");
            }
            *trouble = error;
        }
        if disks.news {
            gateway.shared.iscsi.serve_returned();
        }
    }
    let shared = &gateway.shared;
    shared.absent.update(Source::Luns, shared.iscsi.absent());
    shared.iscsi.follow_addresses();
    let addresses = gateway.awaited.absent();
    let follows = !addresses.is_empty() || shared.iscsi.home.groups.is_asymmetric();
    let address_due = follows.then(|| Instant::now() + FIRST_RETRY);
    shared.absent.update(Source::Addresses, addresses);
    // What was used is no longer due; what failed has a later time.
    let due = files.and(disks).due;
    let due = due.map(|due| due.max(Instant::now() + FIRST_RETRY / 10));
    due.into_iter().chain(address_due).min()
}
