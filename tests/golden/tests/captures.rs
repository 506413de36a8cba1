//! Every capture is understood, and encoded again as the same bytes; the table of
//! what is covered is true.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use zgate_golden::{Capture, Coverage, all, round_trip};

/// The bound of what lies in `captures/`.
const MAX_TOTAL_BYTES: usize = 300 << 10;

#[test]
fn what_others_sent_is_read_and_written_as_it_was() {
    let mut wrong = Vec::new();
    let captures = all().unwrap();
    for (path, capture) in &captures {
        match round_trip(capture.kind, &capture.bytes) {
            Err(error) => wrong.push(format!("{}: {error}", path.display())),
            Ok(read) if read.bytes != capture.bytes => {
                let same = read.bytes.iter().zip(&capture.bytes).take_while(|(a, b)| a == b);
                wrong.push(format!("{}: differs at byte {}", path.display(), same.count()));
            }
            Ok(read) if Capture::contents(&read) != capture.holds => {
                wrong.push(format!("{}: holds {}", path.display(), Capture::contents(&read)));
            }
            Ok(_) => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_capture_that_is_cut_is_refused() {
    for (path, capture) in all().unwrap() {
        let cut = &capture.bytes[..capture.bytes.len() - 1];
        assert!(round_trip(capture.kind, cut).is_err(), "{}", path.display());
    }
}

#[test]
fn the_table_of_what_is_covered_is_true() {
    let captures: Vec<Capture> = all().unwrap().into_iter().map(|(_, capture)| capture).collect();
    let missing = Coverage::parse(include_str!("../captures/COVERAGE.md")).check(&captures);
    let lines: Vec<String> = missing.iter().map(ToString::to_string).collect();
    assert!(lines.is_empty(), "{}", lines.join("\n"));
}

#[test]
fn the_captures_stay_small() {
    let size = |path: &std::path::Path| std::fs::metadata(path).unwrap().len() as usize;
    let total: usize = all().unwrap().iter().map(|(path, _)| size(path)).sum();
    assert!(total <= MAX_TOTAL_BYTES, "{total} bytes in tests/golden/captures");
}
