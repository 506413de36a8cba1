//! Times that the holder of a delegation kept and now hands in (RFC 9754 §5).
//!
//! They say when the holder read or wrote, or what a program of it set
//! (`touch -d`): clients keep both alike. So a file's owner, who may set any
//! time by SETATTR, may do so here; from others they are bounded as the RFC
//! has it. What changes nothing is not written: it would move the time of
//! change of a file that nobody changed.
//! See docs/spec-exceptions/delegated-times.md.

use zgate_store::{Attr, Caller, SetAttr, SetTime, Timestamp};

/// Seconds by which a holder's clock may be ahead without anybody having set
/// such a time: its "now" is the server's.
const CLOCK_SKEW_SECONDS: i64 = 5;

/// Where times stood when a delegation was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimesGiven {
    /// The server's clock.
    pub now: Timestamp,
    /// The file's time of modification.
    pub mtime: Timestamp,
}

/// What a holder's times are measured by.
#[derive(Clone, Copy, Debug)]
pub struct Measure<'a> {
    /// The file as it is.
    pub present: &'a Attr,
    /// When the delegation was given.
    pub given: TimesGiven,
    /// The server's clock.
    pub now: Timestamp,
}

impl Measure<'_> {
    /// Whether `who` may set any time of the file.
    #[must_use]
    pub fn is_owner(&self, who: &Caller) -> bool {
        who.uid == 0 || who.uid == self.present.uid
    }

    /// Leaves of the times in `set` those that are to be written.
    pub fn reduce(&self, who: &Caller, set: &mut SetAttr) {
        set.mtime = at(set.mtime).and_then(|time| self.mtime(who, time)).map(SetTime::At);
        let modified = set.mtime.is_some();
        let atime = at(set.atime).and_then(|time| self.atime(who, modified, time));
        set.atime = atime.map(SetTime::At);
    }

    fn mtime(&self, who: &Caller, time: Timestamp) -> Option<Timestamp> {
        let time = self.without_skew(who, time);
        // RFC 9754 §5: one before the file's own is ignored.
        let wrong = !self.is_owner(who) && time < self.given.mtime;
        (time != self.present.mtime && !wrong).then_some(time)
    }

    fn atime(&self, who: &Caller, modified: bool, time: Timestamp) -> Option<Timestamp> {
        let time = self.without_skew(who, time);
        // One that reading gave must not move the time of change
        // (RFC 9754 §5), which no file system lets us prevent.
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
        // Delegated times are always given.
        Some(SetTime::Now) | None => None,
    }
}
