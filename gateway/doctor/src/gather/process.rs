//! The gateway's process: its user, capabilities and limits.

use crate::facts::ProcessFacts;
use std::fs;

/// Reads the facts of the running gateway, or of this process in its place.
pub(super) fn facts(gateway: Option<u32>) -> ProcessFacts {
    let of = gateway.map_or("self".to_owned(), |pid| pid.to_string());
    let read = |name: &str| fs::read_to_string(format!("/proc/{of}/{name}")).unwrap_or_default();
    let (status, limits) = (read("status"), read("limits"));
    let files = limit(&limits, "Max open files");
    ProcessFacts {
        gateway,
        user: field(&status, "Uid:").and_then(|words| words.parse().ok()).unwrap_or(0),
        capabilities: field(&status, "CapEff:")
            .and_then(|hex| u64::from_str_radix(&hex, 16).ok())
            .unwrap_or(0),
        locked_memory_bytes: limit(&limits, "Max locked memory").and_then(|(soft, _)| soft),
        // A gateway raises the soft limit to the hard one.
        open_files: files.and_then(|(soft, hard)| if gateway.is_some() { soft } else { hard }),
    }
}

/// Returns the last word of a line of `status`; of users, that is the file
/// system's.
fn field(status: &str, key: &str) -> Option<String> {
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().last().map(str::to_owned)
}

/// Returns the soft and hard limit; none for unlimited.
fn limit(limits: &str, name: &str) -> Option<(Option<u64>, Option<u64>)> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    let mut words = line.split_whitespace().map(|word| word.parse().ok());
    Some((words.next()?, words.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_capabilities_are_read() {
        let limits = "Max locked memory         8388608              unlimited            bytes\n";
        assert_eq!(limit(limits, "Max locked memory"), Some((Some(8 << 20), None)));
        assert_eq!(field("Uid:\t0\t0\t0\t7\n", "Uid:").as_deref(), Some("7"));
        let own = facts(None);
        let user = rustix::process::geteuid().as_raw();
        assert_eq!(own.user, user);
        assert!(own.open_files.is_none_or(|files| files > 0));
    }
}
