//! Times in UTC for names and schedules. Local time is not used: an hour that
//! does not exist, or exists twice, would leave a schedule without a snapshot
//! or with two of one name.

use jiff::civil::DateTime;
use jiff::tz::Offset;
use jiff::{Span, Timestamp};
use serde::Serialize;
use std::fmt;
use std::str::FromStr;

const DAY_SECONDS: i64 = 86_400;

/// Format of a moment: `2026-11-21_10:00:00`.
const FORMAT: &str = "%Y-%m-%d_%H:%M:%S";

/// Seconds since 1970-01-01T00:00:00 UTC, leap seconds not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Moment(pub i64);

impl Moment {
    /// Returns the time of a date and time of day in UTC.
    fn of(civil: DateTime) -> Self {
        let nearest = if civil.year() < 1970 { Timestamp::MIN } else { Timestamp::MAX };
        Self(Offset::UTC.to_timestamp(civil).unwrap_or(nearest).as_second())
    }

    /// Returns date and time in UTC; the nearest possible value beyond the years
    /// -9999 to 9999.
    fn civil(self) -> DateTime {
        let (first, last) = (Timestamp::MIN.as_second(), Timestamp::MAX.as_second());
        let known = Timestamp::from_second(self.0.clamp(first, last));
        Offset::UTC.to_datetime(known.unwrap_or_default())
    }

    /// Rounds down to a multiple of `seconds` since 1970.
    #[must_use]
    pub fn floor(self, seconds: i64) -> Self {
        Self(self.0.div_euclid(seconds) * seconds)
    }

    /// Returns 00:00 of the last Monday. 1970-01-01 was a Thursday.
    #[must_use]
    pub fn week_start(self) -> Self {
        let monday = 4 * DAY_SECONDS;
        Self(Self(self.0 - monday).floor(7 * DAY_SECONDS).0 + monday)
    }

    /// Returns 00:00 of the first of the month, `ahead` months later.
    #[must_use]
    pub fn month_start(self, ahead: i64) -> Self {
        let first = self.civil().date().first_of_month();
        Self::of(first.saturating_add(Span::new().months(ahead)).into())
    }

    /// Returns 00:00 of January 1st, `ahead` years later.
    #[must_use]
    pub fn year_start(self, ahead: i64) -> Self {
        let first = self.civil().date().first_of_year();
        Self::of(first.saturating_add(Span::new().years(ahead)).into())
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.civil().strftime(FORMAT).fmt(f)
    }
}

impl FromStr for Moment {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let moment = Self::of(DateTime::strptime(FORMAT, text).map_err(|_| ())?);
        // Accept only canonical text: no one-digit month, no second 60.
        if moment.to_string() == text { Ok(moment) } else { Err(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_days_agree() {
        assert_eq!(Moment(0).to_string(), "1970-01-01_00:00:00");
        assert_eq!(Moment(951_827_696).to_string(), "2000-02-29_12:34:56");
        assert_eq!(Moment(-1).to_string(), "1969-12-31_23:59:59");
        assert_eq!(Moment(4_107_542_400).to_string(), "2100-03-01_00:00:00");
        for days in (-800_000..800_000).step_by(37) {
            let moment = Moment(days * DAY_SECONDS);
            assert_eq!(Moment::of(moment.civil()), moment);
        }
    }

    #[test]
    fn only_real_moments_are_read() {
        let text = "2026-11-21_10:00:07";
        assert_eq!(text.parse::<Moment>().unwrap().to_string(), text);
        for bad in
            ["2026-02-30_00:00:00", "2026-1-1_00:00:00", "2026-11-21_24:00:00", "x_y", "2026-11-21"]
        {
            assert!(bad.parse::<Moment>().is_err(), "{bad}");
        }
    }

    #[test]
    fn beginnings() {
        let saturday: Moment = "2026-11-21_10:17:59".parse().unwrap();
        assert_eq!(saturday.week_start().to_string(), "2026-11-16_00:00:00");
        assert_eq!(saturday.week_start().week_start(), saturday.week_start());
        assert_eq!(saturday.month_start(0).to_string(), "2026-11-01_00:00:00");
        assert_eq!(saturday.month_start(2).to_string(), "2027-01-01_00:00:00");
        assert_eq!(saturday.year_start(1).to_string(), "2027-01-01_00:00:00");
        assert_eq!(saturday.floor(900).to_string(), "2026-11-21_10:15:00");
    }
}
