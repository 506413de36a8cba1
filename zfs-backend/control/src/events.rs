//! Events that ZFS reports: `zpool events -f -v -H` (zpool-events(8)).
//!
//! An event is a line `TIME<tab>CLASS`, then one indented line `NAME = VALUE`
//! for each detail, then an empty line.

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

impl Event {
    /// Returns whether datasets or their properties may have changed.
    #[must_use]
    pub fn concerns_datasets(&self) -> bool {
        match self.class.strip_prefix("sysevent.fs.zfs.") {
            Some("history_event") => {
                let operation = self.operation.as_deref().unwrap_or_default();
                !HARMLESS.contains(&operation) && !self.is_about_snapshot()
            }
            Some(kind) => kind.starts_with("pool_"),
            None => false,
        }
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
}

/// Parses the lines of `zpool events`.
#[derive(Debug, Default)]
pub struct EventReader {
    current: Option<Event>,
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
        let class = line.rsplit_once('\t').map_or(line, |(_, class)| class).trim();
        let finished = self.current.take();
        self.current = Some(Event { class: cut(class), ..Event::default() });
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
            _ => {}
        }
    }
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
        assert!(rename.concerns_datasets() && !rename.concerns_pools());
        assert!(export.concerns_datasets() && export.concerns_pools());
        assert_eq!(export.pool.as_deref(), Some("lab"));
        assert!(!snapshot.concerns_datasets());
        assert!(!checksum.concerns_datasets());
    }

    #[test]
    fn a_missing_empty_line_or_nonsense_loses_nothing_else() {
        let mut reader = EventReader::default();
        assert_eq!(reader.line("        pool = \"x\""), None);
        assert_eq!(reader.line("dropped 7 events"), None);
        let next = reader.line("t\tsysevent.fs.zfs.pool_import").unwrap();
        assert!(!next.concerns_datasets());
        assert!(reader.line("").unwrap().concerns_datasets());
    }
}
