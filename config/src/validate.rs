//! Rules between values. Each problem names the key, the reason and the next
//! step.

use crate::schema::{ByteSize, Config, ExportConfig};
use std::collections::HashMap;

/// Longest pseudo path in bytes: the limit of MOUNT (RFC 1813 §5.1.2).
const MAX_PSEUDO_BYTES: usize = 1024;
/// Longest component of a pseudo path in bytes.
const MAX_NAME_BYTES: usize = 255;

/// Lists all problems of a configuration.
pub(crate) fn problems(config: &Config) -> Vec<String> {
    let mut found = Vec::new();
    server(config, &mut found);
    crate::rdma::problems(config, &mut found);
    crate::interface::problems(config, &mut found);
    let has_rdma = !config.rdma_listen().is_empty();
    for (index, export) in config.exports.iter().enumerate() {
        let name = if export.pseudo.is_empty() {
            format!("export number {}", index + 1)
        } else {
            format!("export {}", export.pseudo)
        };
        check_export(export, has_rdma, &name, &mut found);
    }
    check_paths_apart(config, &mut found);
    crate::validate_target::problems(config, &mut found);
    crate::snapshot::problems(config, &mut found);
    found
}

/// Most clients whose load may be among the metrics.
const MAX_METRICS_CLIENTS: u64 = 100;

fn server(config: &Config, found: &mut Vec<String>) {
    let server = &config.server;
    let mut range = |key: &str, value: u64, least: u64, most: u64| {
        if !(least..=most).contains(&value) {
            found.push(format!("server.{key} = {value}: must be between {least} and {most}"));
        }
    };
    range("lease_seconds", server.lease_seconds.into(), 5, 600);
    range("grace_seconds", server.grace_seconds.into(), 0, 600);
    if server.grace_max_seconds != 0 {
        range(
            "grace_max_seconds",
            server.grace_max_seconds.into(),
            server.grace_seconds.into(),
            3600,
        );
    }
    range("worker_threads", server.worker_threads as u64, 1, 1024);
    range("poll_microseconds", u64::from(server.poll_microseconds), 0, 1000);
    range("fd_cache_entries", server.fd_cache_entries as u64, 64, 10_000_000);
    range("max_connections", server.max_connections as u64, 1, 1_000_000);
    range("max_connections_per_client", server.max_connections_per_client as u64, 1, 1_000_000);
    range("drain_seconds", server.drain_seconds.into(), 0, 600);
    range("metrics_clients", server.metrics_clients as u64, 0, MAX_METRICS_CLIENTS);
    range("pool_sample_seconds", server.pool_sample_seconds.into(), 0, 3600);
    range("rescan_seconds", server.rescan_seconds.into(), 5, 86_400);
    range("away_seconds", server.away_seconds.into(), 0, 86_400);
    if server.buffers.0 != 0 {
        range("buffers", server.buffers.0, 64 << 20, 1 << 40);
    }
    range("cores", server.cores as u64, 0, 1024);
    if !(-20..=0).contains(&server.core_nice) {
        let nice = server.core_nice;
        found.push(format!("server.core_nice = {nice}: must be between -20 and 0"));
    }
    if server.listen.is_empty() {
        found.push(
            "server.listen is empty: name at least one address, for example \"0.0.0.0:2049\""
                .into(),
        );
    }
    if !server.state_dir.is_absolute() {
        found.push(format!(
            "server.state_dir = \"{}\": must be absolute, so that it is the same after every start",
            server.state_dir.display()
        ));
    }
}

fn check_export(export: &ExportConfig, has_rdma: bool, name: &str, found: &mut Vec<String>) {
    let mut wrong = |text: String| found.push(format!("{name}: {text}"));
    match (&export.path, &export.dataset) {
        (None, None) => wrong("path or dataset is missing: name what to export".into()),
        (Some(_), Some(_)) => wrong("path and dataset are both set: keep one".into()),
        (Some(path), None) if !path.is_absolute() => {
            wrong(format!("path = \"{}\": must be absolute", path.display()));
        }
        (None, Some(dataset)) => {
            if let Some(problem) = pattern_problem(dataset) {
                wrong(format!("dataset = \"{dataset}\": {problem}"));
            }
            if dataset.contains('*') && export.fsid.is_some() {
                wrong("fsid: each export of a pattern has its own number; remove fsid".into());
            }
        }
        _ => {}
    }
    let pseudo = &export.pseudo;
    let normal = pseudo == "/"
        || pseudo.starts_with('/')
            && pseudo[1..].split('/').all(|part| !matches!(part, "" | "." | ".."));
    if !normal {
        wrong(format!("pseudo = \"{pseudo}\": must begin with / and have no empty, . or .. parts"));
    }
    if pseudo.len() > MAX_PSEUDO_BYTES || pseudo.split('/').any(|part| part.len() > MAX_NAME_BYTES)
    {
        wrong(format!(
            "pseudo is too long: at most {MAX_PSEUDO_BYTES} bytes, {MAX_NAME_BYTES} between two /"
        ));
    }
    if pseudo.chars().any(char::is_control) {
        wrong("pseudo holds a control character".into());
    }
    if export.fsid.is_some_and(|fsid| !(16..=0x7fff_ffff).contains(&fsid)) {
        wrong("fsid: must be between 16 and 2147483647".into());
    }
    if export.delegated_times && !export.delegations {
        wrong("delegated_times needs delegations: turn the latter on, or leave it out".into());
    }
    let ByteSize(transfer) = export.max_transfer;
    if !transfer.is_power_of_two() || !(64 << 10..=4 << 20).contains(&transfer) {
        wrong(format!(
            "max_transfer = {}: must be 64KiB, 128KiB, 256KiB, 512KiB, 1MiB, 2MiB or 4MiB",
            export.max_transfer
        ));
    }
    if has_rdma && export.require_reserved_port && export.transports.iter().any(|t| t == "rdma") {
        wrong(
            "require_reserved_port: NFS over RDMA has no source ports that root alone may use; \
             set transports = [\"tcp\"], or leave the ports free"
                .into(),
        );
    }
    let mut choice = |key: &str, values: &[String], legal: &[&str]| {
        for value in values {
            if !legal.contains(&value.as_str()) {
                wrong(format!("{key}: \"{value}\" is none of {}", legal.join(", ")));
            }
        }
        if values.is_empty() {
            wrong(format!("{key} is empty: name at least one of {}", legal.join(", ")));
        }
    };
    choice("versions", &export.versions, &["3", "4.0", "4.1", "4.2"]);
    choice("transports", &export.transports, &["tcp", "rdma"]);
    for client in &export.clients {
        let key = format!("clients entry \"{}\": security", client.matches);
        choice(&key, &client.security, &["sys", "none"]);
    }
    for client in &export.clients {
        // The value that means "leave it as it is" to setfsuid(2).
        for (key, id) in [("anon_uid", client.anon_uid), ("anon_gid", client.anon_gid)] {
            if id == u32::MAX {
                wrong(format!(
                    "clients entry \"{}\": {key} = {id} cannot be used: setfsuid takes it for \
                     \"no change\"",
                    client.matches
                ));
            }
        }
    }
}

/// Returns the fault in a dataset's name or a pattern of names.
pub(crate) fn pattern_problem(text: &str) -> Option<String> {
    let mut parts = text.split('/').peekable();
    if parts.peek().is_some_and(|pool| pool.contains('*') || pool.is_empty()) {
        return Some("must begin with the name of a pool".into());
    }
    while let Some(part) = parts.next() {
        if matches!(part, "" | "." | "..") {
            return Some("no part may be empty, . or ..".into());
        }
        if part.contains("**") && (part != "**" || parts.peek().is_some()) {
            return Some("** stands for any depth and only at the end; * for one level".into());
        }
        let legal = |c: char| c.is_ascii_alphanumeric() || "_-:. *".contains(c);
        if let Some(wrong) = part.chars().find(|c| !legal(*c)) {
            return Some(format!("{wrong:?} is not allowed in a dataset's name"));
        }
    }
    None
}

fn check_paths_apart(config: &Config, found: &mut Vec<String>) {
    let mut fsids: HashMap<u32, &str> = HashMap::new();
    for (index, export) in config.exports.iter().enumerate() {
        if let Some(fsid) = export.fsid
            && let Some(other) = fsids.insert(fsid, &export.pseudo)
        {
            found.push(format!("export {}: fsid {fsid} is used by {other} already", export.pseudo));
        }
        for other in &config.exports[..index] {
            let inside = |a: &str, b: &str| {
                a == b || b == "/" || a.strip_prefix(b).is_some_and(|rest| rest.starts_with('/'))
            };
            let (one, two) = (&export.pseudo, &other.pseudo);
            if one == two {
                found.push(format!(
                    "export {one}: pseudo = \"{one}\" is used twice; give each export its own \
                     pseudo path"
                ));
            } else if inside(one, two) || inside(two, one) {
                found.push(format!(
                    "export {one}: pseudo path and that of export {two} are nested; give each \
                     its own pseudo path"
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn delegated_times_need_delegations_and_are_off_otherwise() {
        let parse = |keys: &str| {
            let text = format!("[[export]]\npath = \"/a\"\npseudo = \"/a\"\n{keys}");
            crate::parse(&text, Path::new("x"))
        };
        assert!(!parse("").unwrap().exports[0].delegated_times);
        assert!(parse("delegated_times = true").unwrap().exports[0].delegated_times);
        let both = parse("delegations = false\ndelegated_times = true").unwrap_err().to_string();
        assert!(both.contains("export /a: delegated_times needs delegations"), "{both}");
    }
}
