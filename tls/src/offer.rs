//! Offer of TLS to clients that ask for it: the certificates in effect, and a
//! bounded number of handshakes.

use crate::certificates::{Certificates, Validity};
use crate::limits::{MAX_HANDSHAKES, MAX_HANDSHAKES_PER_HOST};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use zgate_store::{HostKey, HostPlace, HostPlaces};

/// Interval of log lines about a certificate that expires soon.
const NOTICE_PERIOD: Duration = Duration::from_secs(24 * 60 * 60);

/// TLS of the process.
#[derive(Debug, Default)]
pub struct TlsOffer {
    in_effect: RwLock<Option<Arc<Certificates>>>,
    /// Number of replacements of the certificates.
    replacements: AtomicU64,
    in_progress: Arc<HostPlaces<MAX_HANDSHAKES, MAX_HANDSHAKES_PER_HOST>>,
    completed: AtomicU64,
    failed: AtomicU64,
    /// Completed ones after which the kernel encrypts what is sent.
    by_kernel: AtomicU64,
    /// Time of the last log line about expiry, in seconds since 1970.
    noticed_unix_seconds: AtomicU64,
}

/// Right to one handshake; returned on drop.
#[derive(Debug)]
pub struct HandshakeSlot {
    offer: Arc<TlsOffer>,
    place: HostPlace<MAX_HANDSHAKES, MAX_HANDSHAKES_PER_HOST>,
    is_complete: bool,
}

impl HandshakeSlot {
    /// Returns the host whose handshake it is.
    #[must_use]
    pub fn host(&self) -> HostKey {
        self.place.host()
    }

    /// Notes that the handshake has succeeded, and whether the kernel encrypts from
    /// now on.
    pub(super) fn complete(&mut self, by_kernel: bool) {
        self.is_complete = true;
        self.offer.by_kernel.fetch_add(by_kernel.into(), Ordering::Relaxed);
    }
}

impl Drop for HandshakeSlot {
    fn drop(&mut self) {
        let count = if self.is_complete { &self.offer.completed } else { &self.offer.failed };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Handshakes since the start, and at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandshakeCounts {
    /// Completed ones.
    pub completed: u64,
    /// Those that ended otherwise.
    pub failed: u64,
    /// Completed ones after which the kernel encrypts what is sent.
    pub by_kernel: u64,
    /// Those in progress.
    pub in_progress: usize,
}

impl TlsOffer {
    /// Uses these certificates for handshakes that begin from now on; `None`:
    /// TLS is not offered.
    pub fn replace(&self, certificates: Option<Certificates>) {
        let mut in_effect = self.in_effect.write().unwrap_or_else(PoisonError::into_inner);
        let number = self.replacements.fetch_add(1, Ordering::Relaxed) + 1;
        *in_effect =
            certificates.map(|certificates| Arc::new(Certificates { number, ..certificates }));
        drop(in_effect);
        self.noticed_unix_seconds.store(0, Ordering::Relaxed);
    }

    /// Returns the certificates of new handshakes; `None`: TLS is not offered.
    pub fn certificates(&self) -> Option<Arc<Certificates>> {
        self.in_effect.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the number of replacements so far.
    pub(super) fn replacements(&self) -> u64 {
        self.replacements.load(Ordering::Relaxed)
    }

    /// Admits a handshake; `None` if there are too many.
    pub fn admit(self: &Arc<Self>, address: IpAddr) -> Option<HandshakeSlot> {
        let host = HostKey::from(address.to_canonical());
        let place = self.in_progress.take(host)?;
        Some(HandshakeSlot { offer: Arc::clone(self), place, is_complete: false })
    }

    /// Returns the counts.
    pub fn counts(&self) -> HandshakeCounts {
        HandshakeCounts {
            completed: self.completed.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            by_kernel: self.by_kernel.load(Ordering::Relaxed),
            in_progress: self.in_progress.taken(),
        }
    }

    /// Returns the validity of the certificates in effect.
    pub fn validities(&self) -> Vec<Validity> {
        self.certificates().map_or_else(Vec::new, |certificates| certificates.validities.clone())
    }

    /// Logs certificates that are out of date or expire soon, once after each
    /// change and then once a day.
    pub fn notice_expiry(&self, now_unix_seconds: u64) {
        let last = self.noticed_unix_seconds.load(Ordering::Relaxed);
        if now_unix_seconds < last.saturating_add(NOTICE_PERIOD.as_secs()) {
            return;
        }
        self.noticed_unix_seconds.store(now_unix_seconds, Ordering::Relaxed);
        for validity in self.validities() {
            let file = validity.key;
            if let Some(fault) = validity.fault(now_unix_seconds) {
                let next_step = fault.next_step;
                tracing::error!(file, next_step, "TLS: {}", fault.problem);
                continue;
            }
            let left = validity.until_unix_seconds - now_unix_seconds;
            if left < validity.notice().as_secs() {
                let days = left / NOTICE_PERIOD.as_secs();
                let next_step = "put a new one there, then `zgate reload`";
                tracing::warn!(file, days, next_step, "TLS: the certificate expires soon");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshakes_are_bounded_in_total_and_for_each_host() {
        let offer = Arc::<TlsOffer>::default();
        let one = IpAddr::from([192, 0, 2, 1]);
        let mut held: Vec<_> = std::iter::from_fn(|| offer.admit(one)).collect();
        assert_eq!(held.len(), MAX_HANDSHAKES_PER_HOST);
        let others = (0..=u16::MAX).map(|n| IpAddr::from([10, 0, (n >> 8) as u8, n as u8]));
        held.extend(others.map_while(|host| offer.admit(host)));
        assert_eq!(held.len(), MAX_HANDSHAKES);
        assert_eq!(offer.counts().in_progress, MAX_HANDSHAKES);
        let mut first = held.swap_remove(0);
        first.complete(true);
        drop(first);
        assert!(offer.admit(one).is_some(), "a slot has returned");
        drop(held);
        assert_eq!(offer.in_progress.hosts(), 0);
        let counts = offer.counts();
        assert_eq!((counts.completed, counts.by_kernel, counts.in_progress), (1, 1, 0));
        assert_eq!(counts.failed, MAX_HANDSHAKES as u64);
    }
}
