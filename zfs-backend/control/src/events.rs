//! Events that ZFS reports: `zpool events -f -v -H` (zpool-events(8)).
//!
//! An event is a line `TIME<tab>CLASS`, then one indented line `NAME = VALUE`
//! for each detail, then an empty line. Before the first event behind a gap comes a line
//! `dropped N events`.

use crate::volume::KEPT_PROPERTIES;
use serde::Serialize;

/// Longest class or value kept, in bytes; longer ones are cut.
const MAX_VALUE_BYTES: usize = 4096;

/// One event.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Event {
    /// Class of the event, such as `sysevent.fs.zfs.pool_import`.
    pub class: String,
    /// Pool of the event.
    pub pool: Option<String>,
    /// Operation of a `history_event`: `create`, `rename`, `set`, ...
    pub operation: Option<String>,
    /// Dataset of the operation.
    pub dataset: Option<String>,
    /// Further details, such as the arguments of `destroy` or `rename`.
    pub detail: Option<String>,
    /// Number of the event: 1 for the first since the kernel module was loaded.
    pub number: Option<u64>,
    /// Time of the event, in seconds since 1970 and nanoseconds.
    pub time: Option<(u64, u64)>,
    /// Set if ZFS says that it has dropped events before this one. It counts events that it
    /// never numbered as well, because there were too many of a kind.
    pub follows_gap: bool,
}

/// Number and time that ZFS gave an event; no two events have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// See [`Event::number`].
    pub number: u64,
    /// See [`Event::time`].
    pub time: (u64, u64),
}

/// Operations in the history that change neither the set of datasets nor their
/// properties. All others may have.
const HARMLESS: [&str; 9] = [
    "snapshot",
    "hold",
    "release",
    "bookmark",
    "redact",
    "scan setup",
    "scan done",
    "trim",
    "initialize",
];

/// Properties that limit or reserve space, or are the size of a zvol.
const SIZES: [&str; 5] = ["quota", "refquota", "reservation", "refreservation", "volsize"];

impl Event {
    /// Returns whether datasets may have changed, or properties of them that matter for serving
    /// them.
    #[must_use]
    pub fn concerns_datasets(&self) -> bool {
        match self.class.strip_prefix("sysevent.fs.zfs.") {
            Some("history_event") => {
                let operation = self.operation.as_deref().unwrap_or_default();
                !HARMLESS.contains(&operation)
                    && !self.is_about_snapshot()
                    && !self.is_about_other_property()
            }
            Some(kind) => kind.starts_with("pool_"),
            None => false,
        }
    }

    /// Returns whether a command that is run from now on shows the change. What the history says
    /// of a dataset comes from the transaction that changes it, behind whose lock `zfs list` waits
    /// (`dsl_sync_task_sync`). That of a pool may come earlier, as during an import, and the event
    /// of an export comes before the pool is gone.
    #[must_use]
    pub fn is_in_effect(&self) -> bool {
        self.class == "sysevent.fs.zfs.history_event" && self.dataset.is_some()
    }

    /// Returns whether only a size of a dataset was set, which decides neither what is served
    /// nor to whom.
    #[must_use]
    pub fn is_about_size(&self) -> bool {
        self.set_property().is_some_and(|name| SIZES.contains(&name))
    }

    /// Returns whether a dataset or a snapshot got another name.
    #[must_use]
    pub fn is_rename(&self) -> bool {
        self.operation.as_deref() == Some("rename")
    }

    /// Returns number and time of the event; none if ZFS has not told both.
    #[must_use]
    pub fn stamp(&self) -> Option<Stamp> {
        Some(Stamp { number: self.number?, time: self.time? })
    }

    /// Returns whether the state of a pool or of its devices may have changed.
    #[must_use]
    pub fn concerns_pools(&self) -> bool {
        self.class.ends_with(".statechange")
            || self.class.strip_prefix("sysevent.fs.zfs.").is_some_and(|kind| {
                ["pool_", "vdev_", "resilver_", "scrub_"].iter().any(|k| kind.starts_with(k))
            })
    }

    fn is_about_snapshot(&self) -> bool {
        self.dataset.as_deref().is_some_and(|name| name.contains(['@', '#', '%']))
    }

    /// Returns whether a dataset got or lost a user property of another program, or one of
    /// [`KEPT_PROPERTIES`].
    fn is_about_other_property(&self) -> bool {
        self.set_property().is_some_and(|name| {
            let is_other = name.contains(':') && !name.starts_with("zgate:");
            is_other || KEPT_PROPERTIES.contains(&name)
        })
    }

    /// Returns the property that a dataset got or lost; none if it is another event. The detail
    /// is `NAME=VALUE` (`dsl_prop_set_sync_impl`).
    fn set_property(&self) -> Option<&str> {
        let is_set = matches!(self.operation.as_deref(), Some("set" | "inherit"));
        let (name, _) = self.detail.as_deref()?.split_once('=')?;
        (is_set && self.dataset.is_some()).then_some(name)
    }
}

/// Parses the lines of `zpool events`.
#[derive(Debug, Default)]
pub struct EventReader {
    current: Option<Event>,
    /// Set if events were dropped before the next one.
    has_gap: bool,
}

impl EventReader {
    /// Takes a line without its terminator; returns the event that it
    /// completes.
    pub fn line(&mut self, line: &str) -> Option<Event> {
        if line.trim().is_empty() {
            return self.current.take();
        }
        if line.starts_with(' ') || line.starts_with('\t') {
            if let Some(event) = &mut self.current
                && let Some((name, value)) = line.trim().split_once(" = ")
            {
                event.take(name, value);
            }
            return None;
        }
        let finished = self.current.take();
        if line.starts_with("dropped ") && !line.contains('\t') {
            self.has_gap = true;
            return finished;
        }
        let class = line.rsplit_once('\t').map_or(line, |(_, class)| class).trim();
        let follows_gap = std::mem::take(&mut self.has_gap);
        self.current = Some(Event { class: cut(class), follows_gap, ..Event::default() });
        finished
    }
}

impl Event {
    fn take(&mut self, name: &str, value: &str) {
        let text = || Some(cut(value.trim_matches('"')));
        match name {
            "pool" | "pool_name" => self.pool = text(),
            "history_internal_name" => self.operation = text(),
            "history_dsname" => self.dataset = text(),
            "history_internal_str" => self.detail = text(),
            "eid" => self.number = numbers(value).next(),
            "time" => {
                let mut parts = numbers(value);
                let seconds = parts.next();
                self.time = seconds.zip(parts.next());
            }
            _ => {}
        }
    }
}

/// Returns the numbers of a value, which `zpool` writes as `0x…`, with blanks between them.
fn numbers(value: &str) -> impl Iterator<Item = u64> {
    let number = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    value.split_whitespace().map_while(number)
}

fn cut(text: &str) -> String {
    text.chars().take(MAX_VALUE_BYTES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = "\
Nov 21 2026 10:20:30.123456789\tsysevent.fs.zfs.history_event
        version = 0x0
        class = \"sysevent.fs.zfs.history_event\"
        pool = \"lab\"
        pool_guid = 0x1234
        history_hostname = \"zgate-lab\"
        history_dsname = \"lab/new\"
        history_internal_str = \" (lab/old)\"
        history_internal_name = \"rename\"
        history_txg = 0x20
        time = 0x6560 0x1
        eid = 0x9

Nov 21 2026 10:20:31.1\tsysevent.fs.zfs.pool_export
        pool = \"lab\"

Nov 21 2026 10:20:31.1\tsysevent.fs.zfs.history_event
        history_internal_name = \"snapshot\"
        history_dsname = \"lab/new@hourly\"

Nov 21 2026 10:20:31.1\tereport.fs.zfs.checksum
        pool = \"lab\"

";

    #[test]
    fn events_are_read_and_judged() {
        let mut reader = EventReader::default();
        let events: Vec<_> = STREAM.lines().filter_map(|line| reader.line(line)).collect();
        let [rename, export, snapshot, checksum] = &events[..] else { panic!("{events:?}") };
        assert_eq!(rename.operation.as_deref(), Some("rename"));
        assert_eq!(rename.dataset.as_deref(), Some("lab/new"));
        assert_eq!(rename.stamp(), Some(Stamp { number: 9, time: (0x6560, 1) }));
        assert!(rename.concerns_datasets() && !rename.concerns_pools());
        assert!(export.concerns_datasets() && export.concerns_pools());
        assert_eq!((export.pool.as_deref(), export.stamp()), (Some("lab"), None));
        assert!(rename.is_in_effect() && !export.is_in_effect());
        assert!(rename.is_rename() && !snapshot.is_rename());
        assert!(!snapshot.concerns_datasets());
        assert!(!checksum.concerns_datasets());
    }

    #[test]
    fn properties_that_decide_nothing_do_not_concern_datasets() {
        let event = |operation: &str, dataset: Option<&str>, detail: Option<&str>| Event {
            class: "sysevent.fs.zfs.history_event".to_owned(),
            operation: Some(operation.to_owned()),
            dataset: dataset.map(str::to_owned),
            detail: detail.map(str::to_owned),
            ..Event::default()
        };
        let property = |detail| event("set", Some("lab/a"), Some(detail)).concerns_datasets();
        for other in ["org.example:a=b", "com.sun:auto-snapshot=zgate:owner=a", "zgate:source=a"] {
            assert!(!property(other), "{other}");
        }
        for ours in ["zgate:access:n1=x", "zgate:owner=a:b", "readonly=1", "quota=5", "org.a:b"] {
            assert!(property(ours), "{ours}");
        }
        let confirmed = event("inherit", Some("lab/a"), Some("zgate:unconfirmed="));
        assert!(!confirmed.concerns_datasets() && confirmed.is_in_effect());
        // Of a pool, of a dataset that is renamed, and without detail.
        let of_pool = event("set", None, Some("org.example:a=b"));
        assert!(of_pool.concerns_datasets() && !of_pool.is_in_effect());
        assert!(event("rename", Some("lab/a"), Some("org.example:a=b")).concerns_datasets());
        assert!(event("inherit", Some("lab/a"), None).concerns_datasets());
        let is_size = |operation, detail| event(operation, Some("lab/a"), detail).is_about_size();
        assert!(is_size("set", Some("refquota=5")) && is_size("inherit", Some("quota=")));
        assert!(!is_size("set", Some("readonly=1")) && !is_size("set", Some("zgate:a=quota=1")));
        assert!(!is_size("create", Some("quota=5")) && !is_size("set", None));
        assert!(!event("set", None, Some("quota=5")).is_about_size());
    }

    #[test]
    fn a_missing_empty_line_or_nonsense_loses_nothing_else() {
        let mut reader = EventReader::default();
        assert_eq!(reader.line("        pool = \"x\""), None);
        assert_eq!(reader.line("no event of ours"), None);
        let next = reader.line("t\tsysevent.fs.zfs.pool_import").unwrap();
        assert!(!next.concerns_datasets());
        assert!(reader.line("").unwrap().concerns_datasets());
        for (line, name) in [("time = 0x5", "half a time"), ("eid = 9", "no number of zpool's")] {
            assert_eq!(reader.line("t\tsysevent.fs.zfs.pool_import"), None);
            assert_eq!(reader.line(&format!("        {line}")), None);
            let event = reader.line("").unwrap();
            assert_eq!((event.number, event.time), (None, None), "{name}");
        }
    }

    #[test]
    fn a_gap_is_told_with_the_event_behind_it() {
        let mut reader = EventReader::default();
        assert_eq!(reader.line("t\tsysevent.fs.zfs.pool_import"), None);
        let before = reader.line("dropped 7 events").unwrap();
        assert_eq!(reader.line("t\tsysevent.fs.zfs.pool_export"), None);
        let behind = reader.line("t\tsysevent.fs.zfs.pool_import").unwrap();
        let next = reader.line("").unwrap();
        let gaps = [before, behind, next].map(|event| event.follows_gap);
        assert_eq!(gaps, [false, true, false]);
    }
}
