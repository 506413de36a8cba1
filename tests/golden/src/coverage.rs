//! The table of what is covered: `captures/COVERAGE.md`.

use crate::{Capture, Kind, round_trip};
use std::collections::BTreeSet;
use std::fmt;

/// State of a row whose operation is in some capture.
const CAPTURED: &str = "captured";
/// Beginning of the state of any other row; the reason follows.
const IMPOSSIBLE: &str = "cannot be captured: ";

/// The table, read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Kind, operation, and what the table says of it.
    rows: Vec<(String, String, String)>,
}

/// Something that is wrong with the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The table says that it is captured, and no capture holds it.
    Capture(String),
    /// A capture holds it, and the table does not say so.
    Mention(String),
    /// Our codec has it, and the table has no row for it.
    Row(String),
    /// The table has a row for something our codec does not have.
    Codec(String),
    /// The row is neither captured nor has a reason why it cannot be.
    Reason(String),
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Capture(what) => write!(f, "{what}: named as captured, and no capture holds it"),
            Self::Mention(what) => write!(f, "{what}: captured, and the table says otherwise"),
            Self::Row(what) => write!(f, "{what}: no row in the table"),
            Self::Codec(what) => write!(f, "{what}: unknown to our codec"),
            Self::Reason(what) => {
                write!(f, "{what}: neither \"{CAPTURED}\" nor \"{IMPOSSIBLE}REASON\"")
            }
        }
    }
}

impl Coverage {
    /// Reads the rows of a Markdown table: kind, operation, state.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let rows = text.lines().filter_map(|line| {
            let mut cells = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ");
            let mut next = || cells.next().map(|cell| cell.trim().to_owned());
            let row = (next()?, next()?, next()?);
            Kind::ALL.iter().any(|kind| kind.name() == row.0).then_some(row)
        });
        Self { rows: rows.collect() }
    }

    /// Compares the table with the captures and with what our codec knows.
    #[must_use]
    pub fn check(&self, captures: &[Capture]) -> Vec<Missing> {
        let mut held = BTreeSet::new();
        for capture in captures {
            let Ok(read) = round_trip(capture.kind, &capture.bytes) else { continue };
            held.extend(read.holds.iter().map(|name| (capture.kind.name(), *name)));
        }
        let mut missing = Vec::new();
        for (kind, name, state) in &self.rows {
            let what = format!("{kind} {name}");
            let is_held = held.contains(&(kind.as_str(), name.as_str()));
            let known = Kind::ALL.iter().find(|known| known.name() == kind);
            if !known.is_some_and(|kind| kind.known().contains(&name.as_str())) {
                missing.push(Missing::Codec(what));
            } else if state == CAPTURED {
                missing.extend((!is_held).then_some(Missing::Capture(what)));
            } else if is_held {
                missing.push(Missing::Mention(what));
            } else if state.strip_prefix(IMPOSSIBLE).is_none_or(str::is_empty) {
                missing.push(Missing::Reason(what));
            }
        }
        for kind in Kind::ALL {
            let has_row = |name: &str| {
                self.rows.iter().any(|(of, named, _)| of == kind.name() && named == name)
            };
            let without = kind.known().into_iter().filter(|name| !has_row(name));
            missing.extend(without.map(|name| Missing::Row(format!("{} {name}", kind.name()))));
        }
        missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NOP-Out, a row for every PDU, and one capture.
    fn table(nop: &str) -> (Coverage, Vec<Capture>) {
        let mut text = String::from("| kind | holds | state |\n| --- | --- | --- |\n");
        for kind in Kind::ALL {
            for name in kind.known() {
                let state =
                    if name == "NOP-Out" { nop } else { "cannot be captured: nobody sends it" };
                text.push_str(&format!("| {} | {name} | {state} |\n", kind.name()));
            }
        }
        let mut bytes = vec![0; 48];
        (bytes[0], bytes[1]) = (0x40, 0x80);
        let capture = Capture {
            sender: String::new(),
            source: String::new(),
            kind: Kind::Iscsi,
            holds: "NOP-Out".into(),
            bytes,
        };
        (Coverage::parse(&text), vec![capture])
    }

    #[test]
    fn the_table_has_to_be_true() {
        let nop = || "iscsi NOP-Out".to_owned();
        let (coverage, captures) = table("captured");
        assert_eq!(coverage.check(&captures), []);
        assert_eq!(coverage.check(&[]), [Missing::Capture(nop())]);
        let (coverage, captures) = table("cannot be captured: nobody sends it");
        assert_eq!(coverage.check(&captures), [Missing::Mention(nop())]);
        assert_eq!(coverage.check(&[]), []);
    }

    #[test]
    fn a_missing_capture_needs_a_reason() {
        for state in ["", "not in a capture yet", "cannot be captured:", "cannot be captured: "] {
            let (coverage, _) = table(state);
            let reason = Missing::Reason("iscsi NOP-Out".to_owned());
            assert_eq!(coverage.check(&[]), [reason], "{state:?}");
        }
    }

    #[test]
    fn the_table_has_to_be_whole() {
        let (mut coverage, captures) = table("captured");
        let row = coverage.rows.pop().unwrap();
        let missing = Missing::Row(format!("{} {}", row.0, row.1));
        assert_eq!(coverage.check(&captures), [missing]);
        coverage.rows.push(row);
        coverage.rows.push(("iscsi".into(), "NOP-Sideways".into(), "captured".into()));
        assert_eq!(coverage.check(&captures), [Missing::Codec("iscsi NOP-Sideways".into())]);
    }
}
