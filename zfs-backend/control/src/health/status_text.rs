//! `zpool status -p` of OpenZFS before 2.3, which has no structured format.

use super::status::one_line;
use super::{Device, PoolState, PoolStatus, Scan, ScanKind, ScanState};
use crate::pools::VdevClass;
use jiff::civil::DateTime;
use jiff::tz::Offset;

/// Parses the output; pools that cannot be parsed are left out.
///
/// Times are printed in the machine's own time zone without naming it; they are
/// read as UTC, so that ages may be off by hours.
#[must_use]
pub fn parse(text: &str) -> Vec<PoolStatus> {
    let mut pools = Vec::new();
    for section in sections(text) {
        pools.extend(pool(&section));
    }
    pools
}

/// Splits the output into the lines of each pool.
fn sections(text: &str) -> Vec<Vec<&str>> {
    let mut all: Vec<Vec<&str>> = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("pool: ") {
            all.push(Vec::new());
        }
        if let Some(section) = all.last_mut() {
            section.push(line);
        }
    }
    all
}

const FIELDS: [&str; 9] =
    ["pool", "state", "status", "action", "see", "scan", "remove", "config", "errors"];

/// Returns the field that a line begins, if it begins one.
fn field(line: &str) -> Option<(&'static str, &str)> {
    // Continued lines and the configuration begin with a tab.
    if line.starts_with('\t') {
        return None;
    }
    let (key, value) = line.trim_start().split_once(':')?;
    let known = FIELDS.iter().find(|known| **known == key)?;
    Some((known, value.trim()))
}

fn pool(lines: &[&str]) -> Option<PoolStatus> {
    let mut texts: Vec<(&str, String)> = Vec::new();
    let mut config = Vec::new();
    for line in lines {
        if let Some((key, value)) = field(line) {
            texts.push((key, value.to_owned()));
        } else if let Some((key, value)) = texts.last_mut() {
            if *key == "config" {
                config.push(*line);
            } else {
                value.push('\n');
                value.push_str(line.trim());
            }
        }
    }
    let text = |wanted: &str| {
        texts.iter().find(|(key, _)| *key == wanted).map_or("", |(_, value)| value.as_str())
    };
    let name = text("pool").to_owned();
    if name.is_empty() {
        return None;
    }
    Some(PoolStatus {
        state: PoolState::from_word(text("state")),
        problem: one_line(text("status")),
        action: one_line(text("action")),
        scan: scan(text("scan")),
        data_errors: data_errors(text("errors")),
        devices: devices(&name, &config),
        name,
    })
}

/// "No known data errors", "3 data errors, use '-v' for a list", or a list.
fn data_errors(text: &str) -> u64 {
    if text.is_empty() || text.starts_with("No known") {
        return 0;
    }
    let first = text.split_whitespace().next().unwrap_or_default();
    first.parse().unwrap_or_else(|_| {
        let listed = text.lines().skip(1).filter(|line| !line.trim().is_empty()).count();
        listed.max(1) as u64
    })
}

fn devices(pool: &str, lines: &[&str]) -> Vec<Device> {
    let mut devices: Vec<Device> = Vec::new();
    let mut class = VdevClass::Data;
    for line in lines {
        let Some(line) = line.strip_prefix('\t') else { continue };
        let depth = (line.len() - line.trim_start().len()) / 2;
        let mut words = line.split_whitespace();
        let Some(name) = words.next() else { continue };
        let Some(state) = words.next() else {
            class = VdevClass::of_heading(name).unwrap_or(class);
            continue;
        };
        if depth == 0 {
            // The heading of a class, or the pool itself.
            class = VdevClass::of_heading(name).unwrap_or(class);
            debug_assert!(name == "NAME" || name == pool || !state.is_empty());
            continue;
        }
        if let Some(above) = devices.last_mut()
            && above.depth < depth
        {
            above.is_group = true;
        }
        let mut count = || words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
        devices.push(Device {
            name: name.to_owned(),
            state: PoolState::from_word(state),
            class,
            depth,
            is_group: false,
            read_errors: count(),
            write_errors: count(),
            checksum_errors: count(),
        });
    }
    devices
}

/// Beginnings of the first line of a scan, and their meaning.
const SCANS: [(&str, ScanKind, ScanState); 8] = [
    ("scrub in progress since ", ScanKind::Scrub, ScanState::Running),
    ("scrub paused since ", ScanKind::Scrub, ScanState::Paused),
    ("scrub canceled on ", ScanKind::Scrub, ScanState::Canceled),
    ("scrub repaired ", ScanKind::Scrub, ScanState::Finished),
    ("resilver in progress since ", ScanKind::Resilver, ScanState::Running),
    ("resilver paused since ", ScanKind::Resilver, ScanState::Paused),
    ("resilver canceled on ", ScanKind::Resilver, ScanState::Canceled),
    ("resilvered ", ScanKind::Resilver, ScanState::Finished),
];

fn scan(text: &str) -> Option<Scan> {
    let first = text.lines().next()?;
    let (begin, kind, state) = SCANS.iter().find(|(begin, ..)| first.starts_with(begin))?;
    let rest = first.get(begin.len()..)?;
    let mut scan = Scan::new(*kind, *state);
    match state {
        ScanState::Running => scan.started_unix_seconds = time(rest),
        ScanState::Paused => {}
        ScanState::Canceled => scan.ended_unix_seconds = time(rest),
        ScanState::Finished => {
            let (before, when) = rest.rsplit_once(" on ")?;
            scan.ended_unix_seconds = time(when);
            scan.done_ratio = Some(1.0);
            scan.repaired_bytes = before.split(' ').next().and_then(size).unwrap_or(0);
            let errors = before.split(" with ").nth(1).and_then(|rest| rest.split(' ').next());
            scan.errors = errors.and_then(|count| count.parse().ok()).unwrap_or(0);
        }
    }
    for line in text.lines().skip(1) {
        let started = line.split_once("started on ").and_then(|(_, when)| time(when));
        scan.started_unix_seconds = scan.started_unix_seconds.or(started);
        let percent = line.split(", ").find_map(|part| part.strip_suffix("% done"));
        let percent = percent.and_then(|number| number.trim().parse::<f64>().ok());
        scan.done_ratio = percent.map(|percent| percent / 100.0).or(scan.done_ratio);
    }
    Some(scan)
}

/// "1.5M", "0B", "512".
fn size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text.get(digits.len()..)? {
        "" | "B" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        "P" => 50,
        _ => return None,
    };
    Some((digits.parse::<f64>().ok()? * (1u64 << unit) as f64) as u64)
}

/// "Sun Nov 10 00:24:02 2024" in seconds since 1970.
fn time(text: &str) -> Option<u64> {
    let civil = DateTime::strptime("%a %b %e %H:%M:%S %Y", text.trim()).ok()?;
    u64::try_from(Offset::UTC.to_timestamp(civil).ok()?.as_second()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(time("Thu Jan  1 00:00:00 1970"), Some(0));
        assert_eq!(time("Sun Nov 10 00:24:02 2024"), Some(1_731_198_242));
        assert_eq!(time("Thu Feb 29 12:00:00 2024"), Some(1_709_208_000));
        assert_eq!(time("soon"), None);
    }

    #[test]
    fn scans_in_words() {
        assert_eq!(scan("none requested"), None);
        let done = scan(
            "scrub repaired 1.50M in 0 days 00:12:01 with 2 errors on Sun Nov 10 00:24:02 2024",
        )
        .unwrap();
        assert_eq!((done.errors, done.repaired_bytes), (2, 3 << 19));
        assert_eq!(done.age_days(1_731_198_242 + 40 * 86_400), Some(40));
        let runs = scan(
            "resilver in progress since Sun Nov 10 00:24:02 2024\n\
             1.2G / 3G scanned at 10M/s, 1G / 3G issued at 8M/s\n\
             0B resilvered, 25.00% done, 00:01:00 to go",
        )
        .unwrap();
        assert_eq!(runs.code(), 5);
        assert_eq!(runs.done_ratio, Some(0.25));
        let paused = scan(
            "scrub paused since Sun Nov 10 00:24:02 2024\n\
             scrub started on Sun Nov 10 00:00:00 2024\n0B repaired, 5.00% done",
        )
        .unwrap();
        assert_eq!(paused.code(), 4);
        assert!(paused.started_unix_seconds.is_some());
    }
}
