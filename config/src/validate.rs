//! Rules between values. Each problem names the place, the fault and the next
//! step.

use crate::deserialize::one_of;
use crate::problem::{Findings, Place, Problem};
use crate::schema::{ByteSize, Config, ExportConfig};
use std::collections::HashMap;
use std::path::Path;

/// Longest pseudo path in bytes: the limit of MOUNT (RFC 1813 §5.1.2).
const MAX_PSEUDO_BYTES: usize = 1024;
/// Longest path of a Unix socket in bytes: unix(7) has room for 108, the last one a zero.
const MAX_SOCKET_BYTES: usize = 107;
/// Longest component of a pseudo path in bytes.
const MAX_NAME_BYTES: usize = 255;

/// Lists all problems of a configuration; `complete` tells whether all values
/// of the file could be read.
pub(crate) fn problems(config: &Config, complete: bool) -> Vec<Problem> {
    let mut found = Findings { problems: Vec::new(), complete };
    server(config, &mut found);
    crate::rdma::problems(config, &mut found);
    crate::tls::problems(config, &mut found);
    crate::kerberos::problems(config, &mut found);
    crate::interface::problems(config, &mut found);
    let has_rdma = !config.rdma_listen().is_empty();
    for (index, export) in config.exports.iter().enumerate() {
        check_export(export, has_rdma, &Place::root("export").item(index), &mut found);
    }
    check_paths_apart(config, &mut found);
    crate::validate_target::problems(config, &mut found);
    crate::listeners::problems(config, &mut found);
    crate::snapshot::problems(config, &mut found);
    crate::validate_api::problems(config, &mut found);
    crate::validate_volumes::problems(config, &mut found);
    found.problems
}

/// Lists all problems of a configuration that was put together from others, as by
/// [`crate::after_reload`]: each of them may be right, and both together wrong.
#[must_use]
pub fn contradictions(config: &Config) -> Vec<Problem> {
    problems(config, true)
}

/// Most clients whose load may be among the metrics.
const MAX_METRICS_CLIENTS: u64 = 100;

fn server(config: &Config, found: &mut Findings) {
    let server = &config.server;
    let place = |key| Place::root("server").key(key);
    let mut range = |key, value: u64, least, most| found.range(place(key), value, least, most);
    range("lease_seconds", server.lease_seconds.into(), 5, 600);
    range("grace_seconds", server.grace_seconds.into(), 0, 600);
    if server.grace_max_seconds != 0 {
        let least = server.grace_seconds.into();
        range("grace_max_seconds", server.grace_max_seconds.into(), least, 3600);
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
    range("cores", server.cores as u64, 0, 1024);
    if server.buffers.0 != 0 {
        found.range(place("buffers"), server.buffers, ByteSize(64 << 20), ByteSize(1 << 40));
    }
    check_memory(config, found);
    found.range(place("core_nice"), server.core_nice, -20, 0);
    if server.listen.is_empty() {
        let next = "name at least one address, for example \"0.0.0.0:2049\"";
        found.absent(place("listen"), "no address", next);
    }
    if !server.state_dir.is_absolute() {
        let next = "begin it with /, so that it is the same after every start";
        found.add(place("state_dir"), "not an absolute path", next);
    }
    if server.status_token_file.as_ref().is_some_and(|file| !file.is_absolute()) {
        found.add(place("status_token_file"), "not an absolute path", "begin it with /");
    }
    let strange = |c: char| c == '@' || !c.is_ascii_graphic();
    if server.id_domain.as_ref().is_some_and(|name| name.is_empty() || name.contains(strange)) {
        let next = "write the part behind the @ of user@domain";
        found.add(place("id_domain"), "not a domain", next);
    }
    check_sockets(config, found);
    if server.conf_dir.as_ref().is_some_and(|dir| !dir.is_absolute()) {
        found.add(place("conf_dir"), "not an absolute path", "begin it with /");
    }
}

/// Refuses paths of sockets that no program could connect to.
fn check_sockets(config: &Config, found: &mut Findings) {
    let length = |path: &Path| path.as_os_str().len();
    let mut check = |place: Place, what: &str, bytes: usize, next: &str| {
        if bytes > MAX_SOCKET_BYTES {
            let problem = format!(
                "{what} has {bytes} bytes; the path of a socket has {MAX_SOCKET_BYTES} at most"
            );
            found.add(place, problem, next);
        }
    };
    let admin = &config.server.admin_socket;
    let place = Place::root("server").key("admin_socket");
    let (own, of_api) = (length(admin), length(&config.api.socket_path(admin)));
    if config.api.socket.is_some() {
        let place = Place::root("api").key("socket");
        check(place, "it", of_api, "choose a shorter path");
    } else if own <= MAX_SOCKET_BYTES {
        let what = "that of the API beside it";
        check(place.clone(), what, of_api, "choose a shorter path, or set api.socket");
    }
    check(place, "it", own, "choose a shorter path");
}

/// Least memory of a gateway without its arena.
const LEAST_MEMORY: ByteSize = ByteSize(128 << 20);

fn check_memory(config: &Config, found: &mut Findings) {
    let (server, place) = (&config.server, Place::root("server").key("memory_max"));
    let most = server.memory_max;
    if most.0 == 0 {
        return;
    }
    found.range(place.clone(), most, LEAST_MEMORY, ByteSize(16 << 40));
    let uses_rdma = !config.rdma_listen().is_empty() || config.iscsi.iser_listen().next().is_some();
    let arena = if uses_rdma { config.rdma.arena.0 } else { 0 };
    let left = most.0.saturating_sub(arena);
    if arena > 0 && left < LEAST_MEMORY.0 {
        let least = ByteSize(arena + LEAST_MEMORY.0);
        let reason = format!("too little for rdma.arena of {}", config.rdma.arena);
        found.add(place, reason, format!("set at least {least}, or lower rdma.arena"));
    } else if server.buffers.0 > left / 4 * 3 {
        let reason = format!("too little for buffers of {}", server.buffers);
        let next = "leave a quarter of it for other uses: raise it, or lower buffers";
        found.add(place, reason, next);
    }
}

/// Security flavours of client entries.
const SECURITY: [&str; 5] = ["sys", "krb5", "krb5i", "krb5p", "none"];

fn check_export(export: &ExportConfig, has_rdma: bool, place: &Place, found: &mut Findings) {
    let key = |key| place.key(key);
    match (&export.path, &export.dataset) {
        (None, None) => {
            found.absent(place.clone(), "no path and no dataset", "name what to export");
        }
        (Some(_), Some(_)) => found.add(key("dataset"), "path is set as well", "keep one of them"),
        (Some(path), None) if !path.is_absolute() => {
            found.add(key("path"), "not an absolute path", "begin it with /");
        }
        (None, Some(dataset)) => {
            check_pattern(dataset, key("dataset"), found);
            if dataset.contains('*') && export.fsid.is_some() {
                let problem = "each export of a pattern has its own number";
                found.add(key("fsid"), problem, "remove fsid");
            }
        }
        _ => {}
    }
    check_pseudo(&export.pseudo, key("pseudo"), found);
    if let Some(fsid) = export.fsid {
        found.range(key("fsid"), fsid, 16, 0x7fff_ffff);
    }
    if export.delegated_times && !export.delegations {
        let next = "turn delegations on, or leave delegated_times out";
        found.add(key("delegated_times"), "it needs delegations, which are off", next);
    }
    let ByteSize(transfer) = export.max_transfer;
    if !transfer.is_power_of_two() || !(64 << 10..=4 << 20).contains(&transfer) {
        let problem = format!("{} is not a power of two from 64KiB to 4MiB", export.max_transfer);
        let next = one_of(&["64KiB", "128KiB", "256KiB", "512KiB", "1MiB", "2MiB", "4MiB"]);
        found.add(key("max_transfer"), problem, format!("write {next}"));
    }
    if has_rdma && export.require_reserved_port && export.transports.iter().any(|t| t == "rdma") {
        let problem = "NFS over RDMA has no source ports that root alone may use";
        let next = "set transports = [\"tcp\"], or leave the ports free";
        found.add(key("require_reserved_port"), problem, next);
    }
    export.rates().check(place, found);
    choice(key("versions"), &export.versions, &["3", "4.0", "4.1", "4.2"], found);
    choice(key("transports"), &export.transports, &["tcp", "rdma"], found);
    for (index, client) in export.clients.iter().enumerate() {
        let place = key("clients").item(index);
        choice(place.key("security"), &client.security, &SECURITY, found);
        crate::id_range::problems(client, &place, found);
        for (key, id) in [("anon_uid", client.anon_uid), ("anon_gid", client.anon_gid)] {
            if id == u32::MAX {
                let problem = format!("{id} means \"no change\" to setfsuid");
                found.add(place.key(key), problem, "choose another number");
            }
        }
    }
}

pub(crate) fn check_pseudo(pseudo: &str, place: Place, found: &mut Findings) {
    let parts = || pseudo[1..].split('/');
    let normal = pseudo == "/"
        || pseudo.starts_with('/') && parts().all(|part| !matches!(part, "" | "." | ".."));
    if !normal {
        let next = "begin it with /, without empty, . or .. parts";
        found.add(place.clone(), "not a normal path", next);
    }
    if pseudo.len() > MAX_PSEUDO_BYTES || pseudo.split('/').any(|part| part.len() > MAX_NAME_BYTES)
    {
        let next = format!("at most {MAX_PSEUDO_BYTES} bytes, {MAX_NAME_BYTES} between two /");
        found.add(place.clone(), "too long", next);
    }
    if pseudo.chars().any(char::is_control) {
        found.add(place, "it holds a control character", "remove it");
    }
}

fn choice(place: Place, values: &[String], legal: &[&str], found: &mut Findings) {
    for (index, value) in values.iter().enumerate() {
        if !legal.contains(&value.as_str()) {
            let problem = format!("\"{value}\" is unknown");
            found.add(place.item(index), problem, format!("write {}", one_of(legal)));
        }
    }
    if values.is_empty() {
        found.absent(place, "nothing is named", &format!("name at least {}", one_of(legal)));
    }
}

/// Checks a dataset's name or a pattern of names.
pub(crate) fn check_pattern(text: &str, place: Place, found: &mut Findings) {
    if let Some(next) = pattern_problem(text) {
        found.add(place, format!("\"{text}\" is not a dataset or pattern"), next);
    }
}

/// Returns the rule that a dataset's name or a pattern of names breaks.
fn pattern_problem(text: &str) -> Option<String> {
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

fn check_paths_apart(config: &Config, found: &mut Findings) {
    let mut fsids: HashMap<u32, &str> = HashMap::new();
    for (index, export) in config.exports.iter().enumerate() {
        let place = |key| Place::root("export").item(index).key(key);
        if let Some(fsid) = export.fsid
            && let Some(other) = fsids.insert(fsid, &export.pseudo)
        {
            found.add(place("fsid"), format!("export {other} has it already"), "choose another");
        }
        for other in &config.exports[..index] {
            let inside = |a: &str, b: &str| {
                a == b || b == "/" || a.strip_prefix(b).is_some_and(|rest| rest.starts_with('/'))
            };
            let (one, two) = (&export.pseudo, &other.pseudo);
            let problem = if one == two {
                "an export before has it already".to_owned()
            } else if inside(one, two) || inside(two, one) {
                format!("this path and that of export {two} are nested")
            } else {
                continue;
            };
            found.add(place("pseudo"), problem, "give each export its own pseudo path");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn no_socket_has_a_path_that_nobody_could_connect_to() {
        let path = |bytes: usize| format!("/run/{}", "x".repeat(bytes - 5));
        let parse = |text: String| crate::parse(&text, Path::new("x"));
        let both = |admin: usize, api: usize| {
            let (admin, api) = (path(admin), path(api));
            parse(format!("[server]\nadmin_socket = {admin:?}\n[api]\nsocket = {api:?}\n"))
        };
        assert!(both(107, 107).is_ok());
        let said = both(108, 109).unwrap_err().to_string();
        for part in ["server.admin_socket: it has 108 bytes", "api.socket: it has 109 bytes", "107"]
        {
            assert!(said.contains(part), "{said}");
        }
        // The name of the API's socket is derived from that of the admin socket.
        let alone = |bytes: usize| parse(format!("[server]\nadmin_socket = {:?}\n", path(bytes)));
        assert!(alone(107 - "-api.sock".len()).is_ok());
        let said = alone(107).unwrap_err().to_string();
        assert!(said.contains("that of the API beside it has 116 bytes"), "{said}");
        assert!(said.contains("or set api.socket"), "{said}");
    }

    #[test]
    fn delegated_times_need_delegations_and_are_off_otherwise() {
        let parse = |keys: &str| {
            let text = format!("[[export]]\npath = \"/a\"\npseudo = \"/a\"\n{keys}");
            crate::parse(&text, Path::new("x"))
        };
        assert!(!parse("").unwrap().exports[0].delegated_times);
        assert!(parse("delegated_times = true").unwrap().exports[0].delegated_times);
        let both = parse("delegations = false\ndelegated_times = true").unwrap_err().to_string();
        assert!(both.contains("export /a.delegated_times: it needs delegations"), "{both}");
    }
}
