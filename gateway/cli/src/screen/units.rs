//! Numbers as people read them.

use indicatif::BinaryBytes;

/// Formats an amount of bytes.
pub(crate) fn bytes(count: u64) -> String {
    BinaryBytes(count).to_string()
}

/// Formats a rate of bytes.
pub(crate) fn byte_rate(per_second: f64) -> String {
    for (unit, name) in [(1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s")] {
        if per_second >= unit {
            return format!("{:.2} {name}", per_second / unit);
        }
    }
    format!("{per_second:.0} B/s")
}

/// Formats a number of requests per second.
pub(crate) fn rate(per_second: f64) -> String {
    match per_second {
        rate if rate >= 1e6 => format!("{:.2}M", rate / 1e6),
        rate if rate >= 1e4 => format!("{:.1}k", rate / 1e3),
        rate if rate >= 10.0 || rate == 0.0 => format!("{rate:.0}"),
        rate => format!("{rate:.1}"),
    }
}

/// Formats the duration of a request.
pub(crate) fn latency(seconds: Option<f64>) -> String {
    match seconds {
        None => "-".to_owned(),
        Some(seconds) if seconds >= 1.0 => format!("{seconds:.2} s"),
        Some(seconds) if seconds >= 1e-3 => format!("{:.2} ms", seconds * 1e3),
        Some(seconds) => format!("{:.0} us", seconds * 1e6),
    }
}

/// Formats a long duration by its two largest units.
pub(crate) fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, ..) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

/// Formats a number of things.
pub(crate) fn count(number: usize, thing: &str) -> String {
    match number {
        0 => format!("no {thing}s"),
        1 => format!("1 {thing}"),
        _ => format!("{number} {thing}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_have_units() {
        assert_eq!(byte_rate(3.456e9), "3.46 GB/s");
        assert_eq!([byte_rate(0.0), byte_rate(5.1e3)], ["0 B/s", "5.10 kB/s"]);
        assert_eq!([rate(0.0), rate(0.5), rate(123.0)], ["0", "0.5", "123"]);
        assert_eq!([rate(45_600.0), rate(2.5e6)], ["45.6k", "2.50M"]);
        let latencies = [None, Some(4.2e-5), Some(0.0012), Some(2.5)].map(latency);
        assert_eq!(latencies, ["-", "42 us", "1.20 ms", "2.50 s"]);
        let durations = [5, 125, 7500, 200_000].map(duration);
        assert_eq!(durations, ["5 s", "2 min 5 s", "2 h 5 min", "2 d 7 h"]);
        assert_eq!([count(0, "client"), count(1, "client")], ["no clients", "1 client"]);
    }
}
