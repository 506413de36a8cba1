//! Bounds of whole numbers, for the errors of values that are none. The rules check
//! them: a type admits more than its key.

use crate::problem::Place;

/// Keys without their positions in lists, the least and the most.
const BOUNDS: [(&str, i64, i64); 36] = [
    ("server.cores", 0, 1024),
    ("server.core_nice", -20, 0),
    ("server.worker_threads", 1, 1024),
    ("server.poll_microseconds", 0, 1000),
    ("server.lease_seconds", 5, 600),
    ("server.grace_seconds", 0, 600),
    ("server.grace_max_seconds", 0, 3600),
    ("server.fd_cache_entries", 64, 10_000_000),
    ("server.max_connections", 1, 1_000_000),
    ("server.max_connections_per_client", 1, 1_000_000),
    ("server.drain_seconds", 0, 600),
    ("server.metrics_clients", 0, 100),
    ("server.pool_sample_seconds", 0, 3600),
    ("server.rescan_seconds", 5, 86_400),
    ("server.away_seconds", 0, 86_400),
    ("rdma.stall_seconds", 3, 3600),
    ("interface.nconnect", 1, 16),
    ("interface.weight", 1, 1000),
    ("export.fsid", 16, 0x7fff_ffff),
    ("export.iops_max", 10, 100_000_000),
    ("iscsi.portal_group", 1, 65_535),
    ("iscsi.group.tag", 1, 65_535),
    ("iscsi.max_sessions", 1, 65_000),
    ("iscsi.thin_warning_percent", 0, 90),
    ("target.max_connections", 1, 32),
    ("target.error_recovery_level", 0, 2),
    ("target.lun.number", 0, 16_383),
    ("target.lun.iops_max", 10, 100_000_000),
    ("target.volumes.first_number", 0, 16_383),
    ("target.volumes.iops_max", 10, 100_000_000),
    ("snapshot.frequently", 0, 10_000),
    ("snapshot.hourly", 0, 10_000),
    ("snapshot.daily", 0, 10_000),
    ("snapshot.weekly", 0, 10_000),
    ("snapshot.monthly", 0, 10_000),
    ("snapshot.yearly", 0, 10_000),
];

/// Returns the least and the most value of a key, if it has bounds of its own.
pub(crate) fn of(place: &Place) -> Option<(i64, i64)> {
    let name = place.to_string();
    let found = BOUNDS.iter().find(|(key, ..)| *key == name);
    found.map(|(_, least, most)| (*least, *most))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Returns a file with one value, and what else its table needs.
    fn text(key: &str, value: &str) -> String {
        let (table, name) = key.rsplit_once('.').unwrap();
        let target = "[[target]]\nname = \"iqn.2026-11.test:a\"\n";
        let table = match table {
            "export" => "[[export]]\npath = \"/a\"\npseudo = \"/a\"\n".to_owned(),
            "interface" => "[[interface]]\naddress = \"10.0.0.1\"\nrole = \"tcp\"\n\
                clients = [\"10.0.0.0/24\"]\n"
                .to_owned(),
            "iscsi.group" => "[[iscsi.group]]\nlisten = [\"127.0.0.1:3261\"]\n".to_owned(),
            "target" => target.to_owned(),
            "target.lun" if name == "number" => format!("{target}[[target.lun]]\npath = \"/a\"\n"),
            "target.lun" => format!("{target}[[target.lun]]\nnumber = 1\npath = \"/a\"\n"),
            "target.volumes" => format!("{target}[[target.volumes]]\ndataset = \"tank/vm/*\"\n"),
            "snapshot" => "[[snapshot]]\ndataset = \"tank\"\n".to_owned(),
            table => format!("[{table}]\n"),
        };
        format!("{table}{name} = {value}\n")
    }

    fn said(key: &str, value: &str) -> String {
        let read = crate::parse(&text(key, value), Path::new("x"));
        read.map_or_else(|error| error.to_string(), |_| String::new())
    }

    #[test]
    fn the_rules_have_the_bounds_that_the_errors_of_types_name() {
        for (key, least, most) in BOUNDS {
            let named = format!("from {least} to {most}");
            let wrong = said(key, "\"four\"");
            assert!(wrong.contains(&format!("write a whole number {named}")), "{key}: {wrong}");
            if key == "server.grace_max_seconds" {
                // 0 has a meaning of its own, and the grace is the least otherwise.
                continue;
            }
            let rule = format!("choose a value between {least} and {most}");
            // A value that its type does not have is told as such.
            let told = |value: i64| {
                let said = said(key, &value.to_string());
                assert!(said.contains(&rule) || said.contains(&named), "{key} = {value}: {said}");
                said.contains(&rule)
            };
            let (below, above) = (told(least - 1), told(most + 1));
            assert!(below || above, "{key}: no rule");
            for legal in [least, most] {
                let said = said(key, &legal.to_string());
                assert!(!said.contains(&rule), "{key} = {legal}: {said}");
            }
        }
    }
}
