//! Snapshot schedules in the file, in the terms of sanoid: the number to keep
//! of each kind decides which kinds are taken.

use crate::problem::{Findings, Place};
use crate::schema::Config;
use serde::{Deserialize, Serialize};

/// Largest number of snapshots of one kind.
const MAX_KEPT: u32 = 10_000;
/// Longest name of a dataset in bytes (`ZFS_MAX_DATASET_NAME_LEN`).
const MAX_NAME_BYTES: usize = 255;

const fn yes() -> bool {
    true
}

const fn quarter_hour() -> u32 {
    15
}

/// One schedule: `[[snapshot]]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotConfig {
    /// A file system or zvol.
    pub dataset: String,
    /// Includes all datasets below it, whose snapshots are taken atomically
    /// with its own.
    #[serde(default)]
    pub recursive: bool,
    /// Number to keep of the snapshots taken every `frequent_period_minutes`.
    #[serde(default)]
    pub frequently: u32,
    /// Minutes between two frequent snapshots; divides 60.
    #[serde(default = "quarter_hour")]
    pub frequent_period_minutes: u32,
    /// Number to keep of the hourly snapshots.
    #[serde(default)]
    pub hourly: u32,
    /// Number to keep of the daily snapshots.
    #[serde(default)]
    pub daily: u32,
    /// Number to keep of the weekly snapshots; a week begins on Monday.
    #[serde(default)]
    pub weekly: u32,
    /// Number to keep of the monthly snapshots.
    #[serde(default)]
    pub monthly: u32,
    /// Number to keep of the yearly snapshots.
    #[serde(default)]
    pub yearly: u32,
    /// Takes snapshots.
    #[serde(default = "yes")]
    pub autosnap: bool,
    /// Removes snapshots above the numbers to keep.
    #[serde(default = "yes")]
    pub autoprune: bool,
}

impl SnapshotConfig {
    fn kept(&self) -> [(&'static str, u32); 6] {
        [
            ("frequently", self.frequently),
            ("hourly", self.hourly),
            ("daily", self.daily),
            ("weekly", self.weekly),
            ("monthly", self.monthly),
            ("yearly", self.yearly),
        ]
    }

    fn covers(&self, dataset: &str) -> bool {
        let rest = dataset.strip_prefix(self.dataset.as_str());
        rest.is_some_and(|rest| rest.is_empty() || self.recursive && rest.starts_with('/'))
    }
}

/// Adds the problems of all schedules.
pub(crate) fn problems(config: &Config, found: &mut Findings) {
    for (index, schedule) in config.snapshots.iter().enumerate() {
        let place = Place::root("snapshot").item(index);
        check(schedule, &place, found);
        let (name, mut before) = (&schedule.dataset, config.snapshots[..index].iter());
        let covered = before.find(|other| other.covers(name) || schedule.covers(&other.dataset));
        if let Some(other) = covered {
            let problem = format!("the schedule of {} covers the same datasets", other.dataset);
            found.add(place.key("dataset"), problem, "give each dataset one schedule");
        }
    }
}

fn check(schedule: &SnapshotConfig, place: &Place, found: &mut Findings) {
    let name = &schedule.dataset;
    let legal = |c: char| c.is_ascii_alphanumeric() || "_-:. ".contains(c);
    let part = |part: &str| !matches!(part, "" | "." | "..") && part.chars().all(legal);
    if name.len() > MAX_NAME_BYTES
        || !name.starts_with(|c: char| c.is_ascii_alphabetic())
        || !name.split('/').all(part)
    {
        let next = "name a ZFS dataset, for example \"llm/vm\"";
        found.add(place.key("dataset"), "not a dataset's name", next);
    }
    if schedule.kept().iter().all(|(_, count)| *count == 0) {
        let next = "set at least one of frequently, hourly, daily, weekly, monthly, yearly";
        found.absent(place.clone(), "it keeps nothing", next);
    }
    for (key, count) in schedule.kept() {
        found.range(place.key(key), count, 0, MAX_KEPT);
    }
    let minutes = schedule.frequent_period_minutes;
    if !(1..=30).contains(&minutes) || 60 % minutes != 0 {
        let problem = format!("{minutes} minutes do not divide an hour");
        let next = "write 1, 2, 3, 4, 5, 6, 10, 12, 15, 20 or 30";
        found.add(place.key("frequent_period_minutes"), problem, next);
    }
}

#[cfg(test)]
mod tests {
    use crate::parse;
    use std::path::Path;

    fn error(text: &str) -> String {
        parse(text, Path::new("x")).unwrap_err().to_string()
    }

    #[test]
    fn a_schedule_has_sanoids_words() {
        let text = "[[snapshot]]\ndataset = \"llm/vm\"\nrecursive = true\nhourly = 24\ndaily = 7\n";
        let config = parse(text, Path::new("x")).unwrap();
        let schedule = &config.snapshots[0];
        assert_eq!((schedule.hourly, schedule.daily, schedule.weekly), (24, 7, 0));
        assert!(schedule.autosnap && schedule.autoprune && schedule.recursive);
        assert_eq!(schedule.frequent_period_minutes, 15);
    }

    #[test]
    fn nonsense_is_named() {
        let said = error("[[snapshot]]\ndataset = \"-o\"\nfrequent_period_minutes = 7\n");
        for word in ["dataset", "keeps nothing", "frequent_period_minutes"] {
            assert!(said.contains(word), "{word} missing in {said}");
        }
        assert!(error("[[snapshot]]\ndataset = \"a@b\"\ndaily = 1\n").contains("dataset"));
        assert!(error("[[snapshot]]\ndataset = \"a\"\nhourley = 1\n").contains("hourly"));
        assert!(
            error("[[snapshot]]\ndataset = \"a\"\ndaily = 99999\n").contains("between 0 and 10000")
        );
    }

    #[test]
    fn a_dataset_has_one_schedule() {
        let two = |a: &str, deep: bool, b: &str| {
            let text = format!(
                "[[snapshot]]\ndataset = \"{a}\"\nrecursive = {deep}\ndaily = 1\n[[snapshot]]\ndataset = \"{b}\"\ndaily = 1\n"
            );
            parse(&text, Path::new("x")).is_ok()
        };
        assert!(!two("a", false, "a"));
        assert!(!two("a", true, "a/b"));
        assert!(two("a", false, "a/b"));
        assert!(two("a", true, "ab"));
    }
}
