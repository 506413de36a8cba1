//! Times kept by the holder of a delegation and returned to the server (RFC
//! 9754 §5).
//!
//! They are the times of the holder's reads or writes, or times set by a
//! program (`touch -d`): clients do not distinguish the two. So a file's owner,
//! who may set any time by SETATTR, may do so here; times from others are
//! bounded as the RFC requires. Unchanged times are not written: this would
//! change the ctime of a file that was not changed. See
//! docs/spec-exceptions/delegated-times.md.

use crate::v4::tables::delegation::GrantTimes;
use zgate_store::{Attr, Caller, SetAttr, SetTime, Timestamp};

/// Seconds by which a holder's clock may be ahead: such a time counts as the
/// server's current time.
const CLOCK_SKEW_SECONDS: i64 = 5;

/// Reference values for the holder's times.
#[derive(Clone, Copy, Debug)]
pub struct ReferenceTimes<'a> {
    /// The current attributes of the file.
    pub present: &'a Attr,
    /// Times at which the delegation was granted.
    pub given: GrantTimes,
    /// The server's clock.
    pub now: Timestamp,
}

impl ReferenceTimes<'_> {
    /// True if `who` may set any time of the file.
    #[must_use]
    pub fn is_owner(&self, who: &Caller) -> bool {
        who.uid == 0 || who.uid == self.present.uid
    }

    /// Removes from `set` all times that need not be written.
    pub fn reduce(&self, who: &Caller, set: &mut SetAttr) {
        set.mtime = at(set.mtime).and_then(|time| self.mtime(who, time)).map(SetTime::At);
        let modified = set.mtime.is_some();
        let atime = at(set.atime).and_then(|time| self.atime(who, modified, time));
        set.atime = atime.map(SetTime::At);
    }

    fn mtime(&self, who: &Caller, time: Timestamp) -> Option<Timestamp> {
        let time = self.without_skew(who, time);
        // RFC 9754 §5: a time before the file's own is ignored.
        let wrong = !self.is_owner(who) && time < self.given.mtime;
        (time != self.present.mtime && !wrong).then_some(time)
    }

    fn atime(&self, who: &Caller, modified: bool, time: Timestamp) -> Option<Timestamp> {
        let time = self.without_skew(who, time);
        // A time set by reading must not change the ctime (RFC 9754 §5), which
        // no file system allows us to prevent.
        let by_reading = self.given.now <= time && time <= self.now;
        let wrong = !modified && (by_reading || !self.is_owner(who));
        (time != self.present.atime && !wrong).then_some(time)
    }

    fn without_skew(&self, who: &Caller, time: Timestamp) -> Timestamp {
        let ahead = time.seconds.saturating_sub(self.now.seconds);
        if !self.is_owner(who) || ahead <= CLOCK_SKEW_SECONDS { time.min(self.now) } else { time }
    }
}

fn at(time: Option<SetTime>) -> Option<Timestamp> {
    match time {
        Some(SetTime::At(at)) => Some(at),
        // Delegated times always have a value.
        Some(SetTime::Now) | None => None,
    }
}
