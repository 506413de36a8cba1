//! Names of scheduled snapshots: `zgate_2026-11-21_10:00:00_hourly`, the time
//! in UTC. No schedule ever destroys a snapshot with another name.

use super::moment::Moment;
use serde::Serialize;
use std::fmt;

/// Prefix of the names.
pub const PREFIX: &str = "zgate_";

/// Kind of a scheduled snapshot, in the terms of sanoid. Longest period last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Several each hour.
    Frequently,
    /// One each hour.
    Hourly,
    /// One each day.
    Daily,
    /// One each week; a week begins on Monday.
    Weekly,
    /// One each month.
    Monthly,
    /// One each year.
    Yearly,
}

impl Kind {
    /// All kinds, shortest period first.
    pub const ALL: [Self; 6] =
        [Self::Frequently, Self::Hourly, Self::Daily, Self::Weekly, Self::Monthly, Self::Yearly];

    /// Returns the word in names and in the configuration.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Frequently => "frequently",
            Self::Hourly => "hourly",
            Self::Daily => "daily",
            Self::Weekly => "weekly",
            Self::Monthly => "monthly",
            Self::Yearly => "yearly",
        }
    }

    /// Returns the start of the period that contains `now`, and the start of
    /// the next one. `frequent_minutes` is the length of the shortest period.
    #[must_use]
    pub fn period(self, now: Moment, frequent_minutes: u32) -> (Moment, Moment) {
        let fixed = |seconds: i64| {
            let start = now.floor(seconds);
            (start, Moment(start.0 + seconds))
        };
        match self {
            Self::Frequently => fixed(60 * i64::from(frequent_minutes.max(1))),
            Self::Hourly => fixed(3600),
            Self::Daily => fixed(86_400),
            Self::Weekly => {
                let start = now.week_start();
                (start, Moment(start.0 + 7 * 86_400))
            }
            Self::Monthly => (now.month_start(0), now.month_start(1)),
            Self::Yearly => (now.year_start(0), now.year_start(1)),
        }
    }
}

/// Name of a scheduled snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OurName {
    /// Time at which it was taken.
    pub taken: Moment,
    /// Kind of the snapshot.
    pub kind: Kind,
}

impl OurName {
    /// Parses a name; none if it is not that of a scheduled snapshot.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let rest = name.strip_prefix(PREFIX)?;
        let (moment, word) = rest.rsplit_once('_')?;
        let kind = Kind::ALL.into_iter().find(|kind| kind.word() == word)?;
        Some(Self { taken: moment.parse().ok()?, kind })
    }
}

impl fmt::Display for OurName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}_{}", self.taken, self.kind.word())
    }
}

/// Returns the name of a snapshot requested without a name. No schedule
/// destroys it.
#[must_use]
pub fn manual_name(now: Moment) -> String {
    format!("{PREFIX}{now}_manual")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_ours_or_not() {
        let text = "zgate_2026-11-21_10:00:00_hourly";
        let name = OurName::parse(text).unwrap();
        assert_eq!((name.kind, name.to_string().as_str()), (Kind::Hourly, text));
        let others = [
            "autosnap_2026-11-21_10:00:00_hourly",
            "zgate_2026-11-21_10:00:00_manual",
            "zgate_2026-11-21_hourly",
            "zgate_hourly",
            "zgate_2026-11-21_10:00:00_hourly2",
            "before-zgate_2026-11-21_10:00:00_hourly",
        ];
        for other in others {
            assert_eq!(OurName::parse(other), None, "{other}");
        }
        assert_eq!(OurName::parse(&manual_name(name.taken)), None);
    }

    #[test]
    fn periods_touch() {
        let now: Moment = "2026-11-21_10:17:59".parse().unwrap();
        for kind in Kind::ALL {
            let (start, end) = kind.period(now, 15);
            assert!(start <= now && now < end, "{kind:?}");
            assert_eq!(kind.period(end, 15).0, end, "{kind:?}");
            assert_eq!(kind.period(Moment(end.0 - 1), 15), (start, end), "{kind:?}");
        }
    }
}
