//! Figures for people.

use crate::server::limits::MAX_PAGE_TEXT_CHARS;

const BINARY: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const DECIMAL: [&str; 7] = ["B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s", "EB/s"];

/// Returns a number with three digits that count and its unit.
fn scaled(mut value: f64, step: f64, units: &[&str]) -> String {
    let mut index = 0;
    // What would be shown as 1000 or 1024 is 1 of the next unit.
    while value >= step - 0.5 && index + 1 < units.len() {
        value /= step;
        index += 1;
    }
    let decimals = match value {
        _ if index == 0 => 0,
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {}", units[index])
}

/// Returns an amount of bytes.
pub(super) fn bytes(amount: u64) -> String {
    scaled(amount as f64, 1024.0, &BINARY)
}

/// Returns bytes per second.
pub(super) fn rate(bytes_per_second: f64) -> String {
    scaled(bytes_per_second, 1000.0, &DECIMAL)
}

/// Returns a number of events per second.
pub(super) fn per_second(value: f64) -> String {
    scaled(value, 1000.0, &["", "k", "M", "G"]).trim_end().to_owned()
}

/// Returns a latency.
pub(super) fn latency(seconds: f64) -> String {
    let (value, unit) = match seconds {
        seconds if seconds < 999.5e-6 => (seconds * 1e6, "µs"),
        seconds if seconds < 0.9995 => (seconds * 1e3, "ms"),
        seconds => (seconds, "s"),
    };
    let decimals = usize::from(value < 9.95);
    format!("{value:.decimals$} {unit}")
}

/// Returns a time span.
pub(super) fn span(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, minutes) => format!("{hours} h {} min", minutes % 60),
        (days, hours, _) => format!("{days} d {} h", hours % 24),
    }
}

/// Returns a number of things, whose plural ends with an s.
pub(super) fn count(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// Returns a text, cut if it is long.
pub(super) fn short(text: &str) -> String {
    match text.char_indices().nth(MAX_PAGE_TEXT_CHARS) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_and_a_unit() {
        let sizes = [0, 1023, 1024, 1536, 10 << 20, 1023 << 20, 1 << 30, u64::MAX].map(bytes);
        assert_eq!(
            sizes,
            [
                "0 B", "1023 B", "1.00 KiB", "1.50 KiB", "10.0 MiB", "1023 MiB", "1.00 GiB",
                "16.0 EiB"
            ]
        );
        let rates = [0.0, 12.0, 999.7, 1e9, 12_345_678.0].map(rate);
        assert_eq!(rates, ["0 B/s", "12 B/s", "1.00 kB/s", "1.00 GB/s", "12.3 MB/s"]);
        assert_eq!([0.0, 999.0, 125_000.0].map(per_second), ["0", "999", "125 k"]);
        let times = [0.0, 5.2e-6, 0.000_999_6, 0.0123, 0.9996, 75.0].map(latency);
        assert_eq!(times, ["0.0 µs", "5.2 µs", "1.0 ms", "12 ms", "1.0 s", "75 s"]);
        let spans = [0, 59, 60, 3600, 90_000].map(span);
        assert_eq!(spans, ["0 s", "59 s", "1 min", "1 h 0 min", "1 d 1 h"]);
        assert_eq!([0, 1, 2].map(|number| count(number, "LUN")), ["0 LUNs", "1 LUN", "2 LUNs"]);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let long = "größe".repeat(MAX_PAGE_TEXT_CHARS);
        let cut = short(&long);
        assert_eq!(cut.chars().count(), MAX_PAGE_TEXT_CHARS + 1);
        assert!(cut.ends_with('…') && long.starts_with(cut.trim_end_matches('…')));
        assert_eq!(short("größe"), "größe");
    }
}
