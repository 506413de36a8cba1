//! The grace period: clients with state from before a restart reclaim it, and
//! no client gets state that another one may reclaim (RFC 8881 §8.4.2).
//!
//! Its time counts from the first client that asks for something, not from the
//! start: the address of a pair may arrive later than the gateway, and a period
//! that ended before would have taken the state of all clients. Nobody waits for
//! the end of a period that nobody has seen.

use super::recovery::{ClientRecord, KeptRecords};
use crate::assurance::Assurance;
use crate::limits::RECLAIM_PAUSE_SECONDS;
use crate::runtime::Call;
use crate::v4::tables::client::Principal;
use crate::v4::tables::pending_work::PendingWork;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use zgate_nfs_wire::v4::{Status, Verifier};

/// Length of grace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GracePeriod {
    /// Its regular length in seconds; 0: none.
    pub seconds: u32,
    /// Greatest length in seconds: grace is extended while clients reclaim.
    pub max_seconds: u32,
}

/// Clients reclaim.
const RUNNING: u8 = 0;
/// No further client may reclaim, and the records of clients that did not come
/// back are being removed: until that is complete, no conflicting state is
/// granted.
const CLOSING: u8 = 1;
/// Over.
const OVER: u8 = 2;

/// Clients from before the restart that have not finished.
#[derive(Debug, Default)]
struct Unfinished {
    clients: HashSet<Vec<u8>>,
    removals: Vec<PendingWork>,
}

/// The one who registers under the name of a client.
#[derive(Clone, Debug)]
pub struct Registrant {
    /// The principal of the call.
    pub principal: Principal,
    /// The verifier in it.
    pub verifier: Verifier,
    /// The assurance of its connection.
    pub assurance: Assurance,
}

impl Registrant {
    /// The one who registers by this call, with this verifier.
    #[must_use]
    pub fn of(call: &Call, verifier: Verifier) -> Self {
        let principal = Principal::of(&call.credential);
        Self { principal, verifier, assurance: Assurance::of(&call.peer) }
    }
}

/// The grace period.
#[derive(Debug)]
pub struct Grace {
    /// The records of clients from before the restart, by their names.
    eligible: HashMap<Vec<u8>, ClientRecord>,
    /// Some records could not be read: not all clients with state are known, so
    /// the period does not end early.
    damaged: bool,
    unfinished: Mutex<Unfinished>,
    started_seconds: AtomicU64,
    seconds: u64,
    /// Greatest length of the period, even while clients reclaim; also the longest
    /// wait for the first client.
    max_seconds: u64,
    /// The second after the first client asked for something; 0: none has.
    after_first_client: AtomicU64,
    /// The second after the latest reclaim; 0: there was none.
    after_last_reclaim: AtomicU64,
    phase: AtomicU8,
}

impl Grace {
    /// Grace for the clients in `kept`. With no records, and none damaged,
    /// there is no grace.
    #[must_use]
    pub fn new(kept: KeptRecords, started_seconds: u64, period: GracePeriod) -> Self {
        let records = kept.records.into_iter();
        let eligible: HashMap<_, _> = records.map(|r| (r.name.clone(), r)).collect();
        let clients = eligible.keys().cloned().collect();
        let over = eligible.is_empty() && !kept.damaged || period.seconds == 0;
        let longest = period.max_seconds.max(period.seconds);
        Self {
            unfinished: Unfinished { clients, removals: Vec::new() }.into(),
            eligible,
            damaged: kept.damaged,
            started_seconds: AtomicU64::new(started_seconds),
            seconds: period.seconds.into(),
            max_seconds: longest.into(),
            after_first_client: AtomicU64::new(0),
            after_last_reclaim: AtomicU64::new(0),
            phase: AtomicU8::new(if over { OVER } else { RUNNING }),
        }
    }

    fn unfinished(&self) -> MutexGuard<'_, Unfinished> {
        self.unfinished.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True during the period.
    #[must_use]
    pub fn active(&self) -> bool {
        self.phase.load(Ordering::Acquire) != OVER
    }

    /// True while clients may reclaim.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.phase.load(Ordering::Acquire) == RUNNING
    }

    /// True if a client must wait, because others may still reclaim what it asks
    /// for.
    #[must_use]
    pub fn delays(&self, now_seconds: u64) -> bool {
        let delays = self.active();
        if delays {
            self.asked(now_seconds);
        }
        delays
    }

    /// Records that a client is there.
    fn asked(&self, now_seconds: u64) {
        let first = &self.after_first_client;
        // Another client may have been the first one.
        let _ = first.compare_exchange(0, now_seconds + 1, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Returns when the period began, or now, if no client has come yet.
    fn began_seconds(&self, now_seconds: u64) -> u64 {
        let after_first = self.after_first_client.load(Ordering::Relaxed);
        let first = after_first.checked_sub(1).unwrap_or(now_seconds);
        first.min(self.started_seconds.load(Ordering::Relaxed) + self.max_seconds)
    }

    /// Has the period last for `held_seconds` more: nothing was served in them,
    /// and no client could come back.
    pub fn excuse(&self, held_seconds: u64, now_seconds: u64) {
        self.started_seconds.fetch_add(held_seconds, Ordering::Relaxed);
        for second_after in [&self.after_first_client, &self.after_last_reclaim] {
            let order = Ordering::Relaxed;
            // Without a client, or a reclaim, there is nothing to move.
            let _ = second_after.fetch_update(order, order, |second| {
                (second > 0).then_some((second + held_seconds).min(now_seconds + 1))
            });
        }
    }

    /// Checks that somebody may register now under this name. While clients reclaim, a
    /// name is kept for whom its record names: another one could reclaim in its place, or
    /// end the period without it.
    ///
    /// # Errors
    /// [`Status::Delay`]: the name is free when the period ends. At
    /// NFS4ERR_CLID_INUSE a Linux client whose principal has changed would give up
    /// what it has mounted.
    pub fn check_owner(
        &self,
        name: &[u8],
        by: &Registrant,
        now_seconds: u64,
    ) -> Result<(), Status> {
        self.asked(now_seconds);
        let kept =
            self.is_running() && self.eligible.get(name).is_some_and(|record| !admits(record, by));
        if kept { Err(Status::Delay) } else { Ok(()) }
    }

    /// True if the client that registers now under this name had state before the restart
    /// and may still reclaim it. One that has lost a delegation before may not, but the
    /// period is for it, too: until it says that it has finished, or the period is over,
    /// nobody gets what it holds besides.
    #[must_use]
    pub fn may_reclaim(&self, name: &[u8], by: &Registrant, now_seconds: u64) -> bool {
        self.asked(now_seconds);
        let may = |record: &ClientRecord| !record.revoked && admits(record, by);
        let eligible = self.is_running() && self.eligible.get(name).is_some_and(may);
        if eligible {
            self.reclaiming(now_seconds);
        }
        eligible
    }

    /// Records that a client is reclaiming.
    pub fn reclaiming(&self, now_seconds: u64) {
        self.after_last_reclaim.fetch_max(now_seconds + 1, Ordering::Relaxed);
    }

    fn due(&self, now_seconds: u64) -> bool {
        let after_last = self.after_last_reclaim.load(Ordering::Relaxed);
        let reclaiming = after_last > 0 && now_seconds < after_last + RECLAIM_PAUSE_SECONDS;
        let lasted_seconds = now_seconds.saturating_sub(self.began_seconds(now_seconds));
        lasted_seconds >= self.max_seconds || lasted_seconds >= self.seconds && !reclaiming
    }

    /// Records that a client has reclaimed everything that it may reclaim; with the last
    /// client grace ends, if all are known.
    pub fn completed(&self, name: &[u8], now_seconds: u64) {
        let mut unfinished = self.unfinished();
        if unfinished.clients.remove(name) {
            self.reclaiming(now_seconds);
        }
        if self.is_running() && unfinished.clients.is_empty() && !self.damaged {
            self.phase.store(OVER, Ordering::Release);
        }
    }

    /// Begins the end of the period when its time has come. Returns the
    /// unfinished clients, once: the records of those that did not come back
    /// must be removed and passed to [`Self::close`].
    pub fn tick(&self, now_seconds: u64) -> Option<Vec<Vec<u8>>> {
        if !self.is_running() || !self.due(now_seconds) {
            return None;
        }
        self.phase.store(CLOSING, Ordering::Release);
        Some(self.unfinished().clients.drain().collect())
    }

    /// Sets the removals that must end before the period: those of the records
    /// of clients that did not come back. After the next restart these must not
    /// reclaim state that is granted to others from now on (RFC 8881 §8.4.3).
    pub fn close(&self, removals: Vec<PendingWork>) {
        self.unfinished().removals = removals;
        self.end_if_settled();
    }

    /// Ends a closing period once its removals are complete.
    pub fn end_if_settled(&self) {
        if self.phase.load(Ordering::Acquire) != CLOSING {
            return;
        }
        let mut unfinished = self.unfinished();
        unfinished.removals.retain(|removal| !removal.is_over());
        if unfinished.removals.is_empty() {
            self.phase.store(OVER, Ordering::Release);
        }
    }

    /// Seconds until the regular end.
    #[must_use]
    pub fn remaining_seconds(&self, now_seconds: u64) -> u64 {
        if !self.active() {
            return 0;
        }
        let lasted_seconds = now_seconds.saturating_sub(self.began_seconds(now_seconds));
        let length = if lasted_seconds < self.seconds { self.seconds } else { self.max_seconds };
        length.saturating_sub(lasted_seconds)
    }
}

/// Returns whether a client record is for who registers. One that names no principal, and
/// nothing that its client has shown over TLS, is for anybody: the client used neither, or
/// an earlier version wrote it. The rule for TLS is that of a client that is there
/// ([`crate::v4::tables::client::Client::is_another_than`]).
fn admits(record: &ClientRecord, by: &Registrant) -> bool {
    let owner = record.principal.as_deref();
    let is_owner = owner.is_none_or(|owner| by.principal.proven() == Some(owner));
    let shows_as_much = record.shown.as_ref().is_none_or(|shown| {
        by.verifier == shown.verifier || !by.assurance.falls_short_of(&shown.assurance)
    });
    is_owner && shows_as_much
}

#[cfg(test)]
mod tests {
    use super::super::recovery::Shown;
    use super::*;
    use crate::runtime::Protection;
    use crate::v4::tables::pending_work::WorkGuard;

    /// Somebody who registers by this principal, in the clear.
    fn by(principal: Principal) -> Registrant {
        Registrant { principal, verifier: [1; 8], assurance: Assurance::default() }
    }

    /// Somebody whom nothing proves.
    fn root() -> Registrant {
        by(Principal::User(0))
    }

    fn kept(names: &[&str], damaged: bool) -> KeptRecords {
        let record = |name: &&str| ClientRecord {
            name: name.as_bytes().to_vec(),
            minor_zero: false,
            principal: None,
            shown: None,
            revoked: false,
        };
        KeptRecords { records: names.iter().map(record).collect(), damaged }
    }

    fn grace(names: &[&str], started: u64, seconds: u32, max_seconds: u32) -> Grace {
        Grace::new(kept(names, false), started, GracePeriod { seconds, max_seconds })
    }

    #[test]
    fn grace_ends_early_when_all_are_back() {
        let grace = grace(&["a", "b"], 0, 90, 270);
        assert!(
            grace.active()
                && grace.may_reclaim(b"a", &root(), 1)
                && !grace.may_reclaim(b"c", &root(), 1)
        );
        grace.completed(b"a", 1);
        assert!(grace.active());
        grace.completed(b"b", 1);
        assert!(!grace.active());
    }

    #[test]
    fn who_has_lost_a_delegation_is_waited_for_and_may_not_reclaim() {
        let mut kept = kept(&["a"], false);
        kept.records[0].revoked = true;
        let grace = Grace::new(kept, 0, GracePeriod { seconds: 90, max_seconds: 270 });
        assert!(grace.active() && !grace.may_reclaim(b"a", &root(), 1));
        grace.completed(b"a", 2);
        assert!(!grace.active());
    }

    #[test]
    fn a_name_is_kept_for_the_principal_of_its_record_until_grace_ends() {
        let mut kept = kept(&["a"], false);
        kept.records[0].principal = Some("a@R".into());
        let grace = Grace::new(kept, 0, GracePeriod { seconds: 90, max_seconds: 270 });
        let [a, b] = ["a@R", "b@R"].map(|name| by(Principal::Named(name.into())));
        for other in [&b, &root(), &by(Principal::Anonymous)] {
            assert_eq!(grace.check_owner(b"a", other, 1), Err(Status::Delay), "{other:?}");
            assert!(!grace.may_reclaim(b"a", other, 1), "{other:?}");
        }
        assert_eq!(grace.check_owner(b"b", &b, 1), Ok(()), "a name without a record");
        assert_eq!(grace.check_owner(b"a", &a, 1), Ok(()));
        assert!(grace.may_reclaim(b"a", &a, 1));
        assert!(grace.tick(91).is_some(), "who was refused has started the time");
        assert_eq!(grace.check_owner(b"a", &b, 91), Ok(()));
    }

    #[test]
    fn a_name_is_kept_for_who_shows_as_much_over_tls_or_knows_the_verifier() {
        let over = |protection, users: &[&str]| {
            Assurance::kept(protection, users.iter().map(|&user| user.into()).collect())
        };
        let alice = over(Protection::MutualTls, &["user:alice@example"]);
        let mut kept = kept(&["a"], false);
        kept.records[0].shown = Shown::of(&alice, [1; 8]);
        let grace = Grace::new(kept, 0, GracePeriod { seconds: 90, max_seconds: 270 });
        let register = |assurance: &Assurance, verifier| {
            let by = Registrant { verifier, assurance: assurance.clone(), ..root() };
            (grace.check_owner(b"a", &by, 1), grace.may_reclaim(b"a", &by, 1))
        };
        let admitted: (Result<(), Status>, bool) = (Ok(()), true);
        let refused = (Err(Status::Delay), false);
        let bob = over(Protection::MutualTls, &["user:bob@example"]);
        for less in [Assurance::default(), over(Protection::Tls, &[]), bob] {
            assert_eq!(register(&less, [2; 8]), refused, "{less:?}");
            assert_eq!(register(&less, [1; 8]), admitted, "{less:?}");
        }
        assert_eq!(register(&alice, [2; 8]), admitted, "it may have restarted");
    }

    #[test]
    fn grace_counts_from_the_first_client_whose_wait_is_bounded() {
        let late = grace(&["a"], 10, 90, 270);
        assert!(late.tick(150).is_none(), "the address may not be here yet");
        assert_eq!(late.remaining_seconds(150), 90);
        assert!(late.may_reclaim(b"a", &root(), 200));
        assert!(!late.may_reclaim(b"b", &root(), 250), "the first one counts");
        assert_eq!(late.remaining_seconds(250), 40);
        assert!(late.tick(289).is_none() && late.tick(290).is_some());
        let waited_for = grace(&["a"], 10, 90, 270);
        assert!(waited_for.delays(100), "also a client that has no state");
        assert!(waited_for.tick(189).is_none() && waited_for.tick(190).is_some());
        let nobody = grace(&["a"], 10, 90, 270);
        assert!(nobody.tick(369).is_none());
        assert_eq!(nobody.tick(370), Some(vec![b"a".to_vec()]));
    }

    #[test]
    fn grace_ends_in_time_and_names_who_stayed_away() {
        let period = grace(&["a"], 10, 90, 270);
        assert!(period.delays(10));
        assert!(period.tick(99).is_none());
        assert_eq!(period.tick(100), Some(vec![b"a".to_vec()]));
        assert!(period.active(), "until their records are gone");
        assert!(!period.may_reclaim(b"a", &root(), 100), "too late");
        period.close(Vec::new());
        assert!(!period.active());
        assert!(!grace(&[], 0, 90, 270).active());
        assert!(!grace(&["a"], 0, 0, 0).active());
    }

    #[test]
    fn time_in_which_nothing_was_served_does_not_count() {
        let period = grace(&["a"], 0, 90, 270);
        assert!(period.delays(0));
        period.excuse(120, 121);
        assert!(period.tick(121).is_none(), "one second has passed");
        assert_eq!(period.remaining_seconds(121), 89);
        assert!(period.tick(209).is_none() && period.tick(210).is_some());
        let reclaims = grace(&["a"], 0, 10, 60);
        assert!(reclaims.delays(0));
        reclaims.reclaiming(9);
        reclaims.excuse(100, 110);
        assert!(reclaims.tick(108 + RECLAIM_PAUSE_SECONDS).is_none());
        assert!(reclaims.tick(110 + RECLAIM_PAUSE_SECONDS).is_some());
        let nobody = grace(&["a"], 10, 90, 270);
        nobody.excuse(300, 320);
        assert!(nobody.tick(669).is_none() && nobody.tick(670).is_some());
        let meanwhile = grace(&["a"], 0, 90, 270);
        assert!(meanwhile.delays(50), "by a request that was still running");
        meanwhile.excuse(100, 120);
        assert!(meanwhile.tick(209).is_none() && meanwhile.tick(210).is_some());
    }

    #[test]
    fn grace_ends_when_the_last_record_of_who_stayed_away_is_gone() {
        let grace = grace(&["a", "b"], 0, 10, 30);
        assert!(grace.delays(0));
        assert!(grace.tick(10).is_some());
        let removal = WorkGuard::default();
        grace.close(vec![removal.pending()]);
        assert!(grace.active() && grace.tick(11).is_none());
        grace.end_if_settled();
        assert!(grace.active());
        drop(removal);
        grace.end_if_settled();
        assert!(!grace.active());
    }

    #[test]
    fn grace_waits_for_clients_in_the_middle_of_their_reclaims_but_not_forever() {
        let period = grace(&["a", "b"], 0, 10, 30);
        assert!(period.delays(0));
        for now in (0..30).step_by(RECLAIM_PAUSE_SECONDS as usize) {
            period.reclaiming(now);
            assert!(period.tick(now).is_none(), "{now}");
        }
        period.reclaiming(30);
        assert_eq!(period.tick(30).map(|left| left.len()), Some(2));
        let period = grace(&["a"], 0, 10, 60);
        assert!(period.delays(0));
        period.reclaiming(10);
        assert!(period.tick(10 + RECLAIM_PAUSE_SECONDS).is_none());
        assert!(period.tick(11 + RECLAIM_PAUSE_SECONDS).is_some());
    }

    #[test]
    fn unreadable_records_mean_the_whole_period() {
        let period = GracePeriod { seconds: 90, max_seconds: 270 };
        let unknown = Grace::new(kept(&[], true), 0, period);
        assert!(unknown.active() && !unknown.may_reclaim(b"a", &root(), 0));
        assert!(unknown.tick(89).is_none());
        assert_eq!(unknown.tick(90), Some(Vec::new()));
        let some = Grace::new(kept(&["a"], true), 0, period);
        assert!(some.may_reclaim(b"a", &root(), 1));
        some.completed(b"a", 1);
        assert!(some.active(), "others may have held what cannot be read");
    }
}
