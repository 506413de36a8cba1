//! Moments in UTC, as far as names and schedules need them. Local time is not
//! used anywhere: an hour that does not exist, or exists twice, would leave a
//! schedule without a snapshot or with two of one name.

use serde::Serialize;
use std::fmt;
use std::str::FromStr;

const DAY_SECONDS: i64 = 86_400;

/// Seconds since 1970-01-01T00:00:00 UTC, leap seconds not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Moment(pub i64);

/// Days since 1970-01-01 of a date of the Gregorian calendar: 400 years are
/// 146097 days, and a year that begins in March has its leap day last.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let from_march = (month + 9) % 12;
    let of_year = (153 * from_march + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Year, month and day of days since 1970-01-01.
fn date_of(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let (era, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let of_era = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * of_era + of_era / 4 - of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = of_era + era * 400 + i64::from(month <= 2);
    (year, month, of_year - (153 * from_march + 2) / 5 + 1)
}

impl Moment {
    /// The moment of a date and time in UTC.
    #[must_use]
    pub fn of(date: (i64, i64, i64), time: (i64, i64, i64)) -> Self {
        let days = days_of(date.0, date.1, date.2);
        Self(days * DAY_SECONDS + time.0 * 3600 + time.1 * 60 + time.2)
    }

    /// Year, month and day.
    #[must_use]
    pub fn date(self) -> (i64, i64, i64) {
        date_of(self.0.div_euclid(DAY_SECONDS))
    }

    /// Hour, minute and second.
    #[must_use]
    pub fn time(self) -> (i64, i64, i64) {
        let second = self.0.rem_euclid(DAY_SECONDS);
        (second / 3600, second / 60 % 60, second % 60)
    }

    /// The last multiple of `seconds` since 1970.
    #[must_use]
    pub fn floor(self, seconds: i64) -> Self {
        Self(self.0.div_euclid(seconds) * seconds)
    }

    /// 00:00 of the last Monday. 1970-01-01 was a Thursday.
    #[must_use]
    pub fn week_start(self) -> Self {
        let monday = 4 * DAY_SECONDS;
        Self(Self(self.0 - monday).floor(7 * DAY_SECONDS).0 + monday)
    }

    /// 00:00 of the first of the month, `ahead` months later.
    #[must_use]
    pub fn month_start(self, ahead: i64) -> Self {
        let (year, month, _) = self.date();
        let months = year * 12 + month - 1 + ahead;
        Self::of((months.div_euclid(12), months.rem_euclid(12) + 1, 1), (0, 0, 0))
    }

    /// 00:00 of January 1st, `ahead` years later.
    #[must_use]
    pub fn year_start(self, ahead: i64) -> Self {
        Self::of((self.date().0 + ahead, 1, 1), (0, 0, 0))
    }
}

/// `2026-11-21_10:00:00`.
impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ((year, month, day), (hour, minute, second)) = (self.date(), self.time());
        write!(f, "{year:04}-{month:02}-{day:02}_{hour:02}:{minute:02}:{second:02}")
    }
}

impl FromStr for Moment {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let digits = |part: &str| -> Result<i64, ()> {
            let all = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            if all { part.parse().map_err(|_| ()) } else { Err(()) }
        };
        let three = |text: &str, separator: char| -> Result<(i64, i64, i64), ()> {
            let parts = text.split(separator).map(digits).collect::<Result<Vec<_>, ()>>()?;
            match parts[..] {
                [a, b, c] => Ok((a, b, c)),
                _ => Err(()),
            }
        };
        let (date, time) = text.split_once('_').ok_or(())?;
        let moment = Self::of(three(date, '-')?, three(time, ':')?);
        // Only what it would be written as: no February 30th, no hour 25.
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
            let (year, month, day) = date_of(days);
            assert_eq!(days_of(year, month, day), days);
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
