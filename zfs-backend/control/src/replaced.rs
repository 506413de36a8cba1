//! Datasets whose content was replaced as a whole: by a rollback, or by a stream that was
//! received into them.
//!
//! For both, OpenZFS swaps the dataset's data with that of a temporary one below it, and logs
//! that as `clone swap` (`dsl_dataset_clone_swap_sync_impl`). Neither the dataset's guid nor
//! another property that can be asked for tells of it. The event comes while the file system or
//! zvol is still suspended: whoever reads it in time knows before anybody sees the other
//! content.

use crate::events::{Event, Stamp};
use crate::name::DatasetName;

/// Operation of the event, in the history of a pool. The script for OpenZFS's event daemon
/// (`deploy/zed`) looks for the same one.
const SWAP: &str = "clone swap";

/// Datasets whose content may have been replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replacement {
    /// The dataset with this name.
    Of(DatasetName),
    /// Any dataset: events were missed, or one does not name its dataset.
    Any,
}

impl Replacement {
    fn of_event(event: &Event) -> Option<Self> {
        let is_swap = event.class == "sysevent.fs.zfs.history_event"
            && event.operation.as_deref() == Some(SWAP);
        if !is_swap {
            return None;
        }
        // The name is that of the temporary dataset: `pool/a/%rollback`, `pool/a/%recv`.
        let temporary = event.dataset.as_deref().unwrap_or_default();
        let name = match temporary.rsplit_once('/') {
            Some((dataset, part)) if part.starts_with('%') => dataset,
            _ => temporary,
        };
        Some(name.parse::<DatasetName>().map_or(Self::Any, Self::Of))
    }
}

/// Finds replacements among events, also where `zpool events` ended and was started again: it
/// begins with all events that ZFS still keeps. Those that were read are not told again, and
/// if the last one of them is not kept any more, others may be missing, too.
///
/// Before the first event nothing is known to be missing.
#[derive(Debug, Default)]
pub struct ReplacementReader {
    /// The last event that was read.
    last: Option<Stamp>,
    /// While events come that were read before: the start of `zpool events`, in seconds since
    /// 1970.
    repeats_since: Option<u64>,
}

impl ReplacementReader {
    /// Takes note that `zpool events` was started, at this time in seconds since 1970.
    pub fn started(&mut self, now_seconds: u64) {
        self.repeats_since = self.last.map(|_| now_seconds);
    }

    /// Takes the next event; returns what may have been replaced.
    pub fn event(&mut self, event: &Event) -> Option<Replacement> {
        let stamp = event.stamp();
        let misses_some = match (self.last, stamp, self.repeats_since) {
            (Some(last), Some(stamp), Some(_)) if stamp == last => {
                self.repeats_since = None;
                return None;
            }
            // Values that users set are printed as they are, and may look like an event of any
            // number and time. Even so, nothing that came after the start is passed over.
            (Some(last), Some(stamp), Some(since))
                if is_before(stamp, last) && stamp.time.0 < since =>
            {
                return None;
            }
            (Some(_), Some(_), Some(_)) => true,
            (Some(last), Some(stamp), None) => {
                event.follows_gap && stamp.number != last.number.wrapping_add(1)
            }
            (None, ..) | (_, None, _) => false,
        };
        if stamp.is_some() {
            (self.last, self.repeats_since) = (stamp, None);
        }
        if misses_some { Some(Replacement::Any) } else { Replacement::of_event(event) }
    }
}

/// Returns whether an event came before another one. Numbers begin anew when the kernel module
/// is loaded again: then the time is later.
fn is_before(one: Stamp, other: Stamp) -> bool {
    one.number < other.number && one.time <= other.time
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::EventReader;

    fn event(number: u64, seconds: u64, operation: &str, dataset: &str) -> String {
        format!(
            "Nov 21 2026 10:20:30.1\tsysevent.fs.zfs.history_event\n        \
             history_dsname = \"{dataset}\"\n        history_internal_str = \"parent=a\"\n        \
             history_internal_name = \"{operation}\"\n        time = {seconds:#x} 0x1 \n        \
             eid = {number:#x}\n\n"
        )
    }

    fn rollback(number: u64, seconds: u64) -> String {
        event(number, seconds, "clone swap", "lab/a/%rollback")
    }

    fn snapshot(number: u64, seconds: u64) -> String {
        event(number, seconds, "snapshot", "lab/a@s")
    }

    /// Returns what is found in the output of one run.
    fn read(found: &mut ReplacementReader, text: &str) -> Vec<Replacement> {
        let mut reader = EventReader::default();
        let events = text.lines().filter_map(|line| reader.line(line));
        events.filter_map(|event| found.event(&event)).collect()
    }

    fn of(name: &str) -> Replacement {
        Replacement::Of(name.parse().unwrap())
    }

    #[test]
    fn rollbacks_and_received_streams_name_their_dataset() {
        for (operation, dataset, wanted) in [
            ("clone swap", "lab/a/%rollback", Some(of("lab/a"))),
            ("clone swap", "lab/a b/c/%recv", Some(of("lab/a b/c"))),
            ("clone swap", "lab/%rollback", Some(of("lab"))),
            ("clone swap", "lab/a", Some(of("lab/a"))),
            // It is known that something was replaced, but not what.
            ("clone swap", "", Some(Replacement::Any)),
            ("clone swap", "-r/%recv", Some(Replacement::Any)),
            ("clone swap", "%rollback", Some(Replacement::Any)),
            ("destroy", "lab/a/%rollback", None),
            ("receive", "lab/a/%recv", None),
            ("rename", "lab/a", None),
            ("set", "lab/clone swap", None),
        ] {
            let text = event(1, 100, operation, dataset);
            let found = read(&mut ReplacementReader::default(), &text);
            assert_eq!(found, Vec::from_iter(wanted), "{operation} {dataset}");
        }
        let other = rollback(1, 100).replace("history_event", "config_sync");
        assert!(read(&mut ReplacementReader::default(), &other).is_empty());
    }

    #[test]
    fn the_script_of_the_event_daemon_looks_for_the_same_operation() {
        let script = include_str!("../../../deploy/zed/history_event-zgate.sh");
        let filter = format!("[ \"$ZEVENT_HISTORY_INTERNAL_NAME\" = \"{SWAP}\" ] || exit 0");
        assert!(script.lines().any(|line| line == filter), "{script}");
    }

    #[test]
    fn events_as_zpool_prints_them_are_read() {
        let text = include_str!("../fixtures/events.txt");
        let mut found = ReplacementReader::default();
        assert_eq!(read(&mut found, text), [of("tank/a")]);
        assert_eq!(found.last, Some(Stamp { number: 0x43, time: (0x6920_405f, 9000) }));
    }

    #[test]
    fn what_was_read_before_a_restart_is_not_told_again() {
        let mut found = ReplacementReader::default();
        found.started(90);
        let kept = rollback(6, 100) + &snapshot(7, 101);
        assert_eq!(read(&mut found, &kept), [of("lab/a")]);
        found.started(110);
        assert!(read(&mut found, &kept).is_empty());
        // It happened while nothing was read, or happens now.
        found.started(120);
        let more = kept.clone() + &rollback(8, 111) + &rollback(9, 121);
        assert_eq!(read(&mut found, &more), [of("lab/a"), of("lab/a")]);
        found.started(130);
        assert!(read(&mut found, &more).is_empty());
    }

    #[test]
    fn a_restart_behind_events_that_zfs_does_not_keep_any_more_misses_some() {
        let mut found = ReplacementReader::default();
        read(&mut found, &snapshot(7, 101));
        found.started(110);
        let later = snapshot(8, 105) + &snapshot(9, 106);
        assert_eq!(read(&mut found, &later), [Replacement::Any], "told once");
        // The kernel module was loaded again.
        found.started(120);
        let again = snapshot(1, 115) + &rollback(2, 116);
        assert_eq!(read(&mut found, &again), [Replacement::Any, of("lab/a")]);
    }

    #[test]
    fn a_gap_misses_some_only_if_numbers_are_missing() {
        let mut found = ReplacementReader::default();
        let gap = "dropped 3 events\n";
        // Nothing was read before it.
        assert!(read(&mut found, &(gap.to_owned() + &snapshot(7, 101))).is_empty());
        // ZFS counts what it has not numbered, such as the hundredth error of a disk.
        assert!(read(&mut found, &(gap.to_owned() + &snapshot(8, 102))).is_empty());
        let text = gap.to_owned() + &rollback(12, 103) + &snapshot(14, 104);
        assert_eq!(read(&mut found, &text), [Replacement::Any]);
    }

    #[test]
    fn a_made_up_event_hides_none_that_comes_after_a_restart() {
        let mut found = ReplacementReader::default();
        read(&mut found, &snapshot(u64::MAX, u64::MAX));
        found.started(110);
        // The made-up one is not kept any more.
        let text = snapshot(7, 101) + &rollback(8, 110);
        assert_eq!(read(&mut found, &text), [Replacement::Any]);
        assert_eq!(read(&mut found, &rollback(9, 111)), [of("lab/a")]);
    }
}
