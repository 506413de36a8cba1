//! Output of `zpool`, `zfs` and the kernel's statistics: any text, real output
//! with changes in it, and texts of the words that the parsers look for. No
//! panic, and what is parsed stays within what was read.
#![allow(clippy::unwrap_used, reason = "tests")]

use zgate_control::events::EventReader;
use zgate_control::health::{kstat::Kstat, latency, scan, status, status_text};
use zgate_control::replaced::{Replacement, ReplacementReader};
use zgate_control::snapshot::OurName;
use zgate_control::{DatasetName, OutputForm, datasets, pools};
use zgate_fuzz::{Dice, target};

target!(tool_output_any_text, 400, any_text);
target!(tool_output_changed, 64, changed);
target!(tool_output_of_its_words, 300, words);

/// Output of OpenZFS 2.3 and 2.1, and events as `zpool events` prints them.
const REAL: [&str; 10] = [
    include_str!("../../../zfs-backend/control/fixtures/events.txt"),
    include_str!("../../../zfs-backend/control/fixtures/iostat.txt"),
    include_str!("../../../zfs-backend/control/fixtures/status-degraded.txt"),
    include_str!("../../../zfs-backend/control/fixtures/status-errors.txt"),
    include_str!("../../../zfs-backend/control/fixtures/status-exact.txt"),
    include_str!("../../../zfs-backend/control/fixtures/status-paused.txt"),
    include_str!("../../../zfs-backend/control/fixtures/status-degraded.json"),
    include_str!("../../../zfs-backend/control/fixtures/status-errors.json"),
    include_str!("../../../zfs-backend/control/fixtures/status-exact.json"),
    include_str!("../../../zfs-backend/control/fixtures/status-paused.json"),
];

/// Words that the parsers look for, and numbers at their limits.
const WORDS: [&str; 54] = [
    "pool:",
    "state:",
    "scan:",
    "config:",
    "errors:",
    "status:",
    "action:",
    "NAME",
    "STATE",
    "READ",
    "WRITE",
    "CKSUM",
    "ONLINE",
    "DEGRADED",
    "FAULTED",
    "tank",
    "tank/a@b",
    "mirror-0",
    "raidz2-0",
    "\nT\tsysevent.fs.zfs.history_event\n",
    "\n history_internal_name = \"clone swap\"\n",
    "\n history_dsname = \"tank/a/%recv\"\n",
    "\n eid = 0x7\n",
    "\n time = 0x7 0x1 \n",
    "\ndropped 1 events\n",
    "logs",
    "cache",
    "spares",
    "scrub",
    "resilvered",
    "in progress since",
    "paused",
    "with",
    "errors on",
    "0",
    "1",
    "-",
    "none",
    "18446744073709551615",
    "18446744073709551616",
    "9.9E",
    "1.5K",
    "100.00%",
    "Sun Nov  8 10:00:00 2026",
    "{\"pools\":{\"tank\":{",
    "\"vdevs\":",
    "{}",
    "}",
    "\"properties\":{\"size\":{\"value\":\"1\"}}",
    "\"",
    "\t",
    "\n",
    "\n\t",
    "  ",
];

fn parse_all(text: &str) {
    for form in [OutputForm::Json, OutputForm::Columns] {
        let _ = datasets::parse(form, text);
        if let Ok(found) = pools::parse(form, text) {
            assert!(found.len() <= text.lines().count().max(text.matches('{').count()));
        }
    }
    let _ = pools::parse_columns(text, text);
    let _ = status::parse(text);
    let found = status_text::parse(text);
    assert!(found.len() <= text.matches("pool").count(), "a pool without a word of it");
    let pools = ["tank", "mirror-0"];
    assert!(latency::parse(text, &pools).len() <= text.lines().count());
    let _ = Kstat::parse(text);
    read_events(text);
    for line in text.lines() {
        let _ = OurName::parse(line);
        if let Ok(name) = line.parse::<DatasetName>() {
            // A name is what it was read from.
            assert_eq!(name.to_string(), line);
        }
    }
    let _ = scan::Scan::new(scan::ScanKind::Scrub, scan::ScanState::Running).age_days(0);
}

/// Reads events twice, as after a restart.
fn read_events(text: &str) {
    let mut replaced = ReplacementReader::default();
    for now_seconds in [1, u64::MAX] {
        replaced.started(now_seconds);
        let (mut reader, mut events) = (EventReader::default(), 0);
        for line in text.lines() {
            let Some(event) = reader.line(line) else { continue };
            events += 1;
            if let Some(Replacement::Of(name)) = replaced.event(&event) {
                assert!(text.contains(name.as_str()), "a name that was not there");
            }
        }
        assert!(events <= text.lines().count());
    }
}

fn any_text(dice: &mut Dice<'_>) {
    parse_all(&String::from_utf8_lossy(dice.rest()));
}

/// Real output, with bytes changed, lines left out and lines twice.
fn changed(dice: &mut Dice<'_>) {
    let mut lines: Vec<Vec<u8>> =
        dice.pick(&REAL).lines().map(|line| line.as_bytes().to_vec()).collect();
    for _ in 0..1 + dice.below(6) {
        let at = dice.below(lines.len());
        match dice.below(5) {
            0 => drop(lines.remove(at)),
            1 => {
                let line = lines[at].clone();
                lines.insert(dice.below(lines.len()), line);
            }
            2 => {
                let length = lines[at].len();
                lines[at].truncate(dice.below(length + 1));
            }
            3 => {
                let word = dice.pick(&WORDS).bytes();
                lines[at].extend(word);
            }
            _ if lines[at].is_empty() => {}
            _ => {
                let byte = dice.below(lines[at].len());
                lines[at][byte] = dice.byte();
            }
        }
        if lines.is_empty() {
            break;
        }
    }
    parse_all(&String::from_utf8_lossy(&lines.join(&b'\n')));
}

fn words(dice: &mut Dice<'_>) {
    let mut text = String::new();
    for _ in 0..dice.below(80) {
        text.push_str(dice.pick::<&str>(&WORDS));
        text.push_str(dice.pick::<&str>(&["", " ", "\t", "\n"]));
    }
    parse_all(&text);
}
