//! Checks of the configuration, and of the gateway's process.

use crate::Verdict;
use crate::facts::{ServerFacts, ZEDLET, ZedFacts};
use std::path::Path;
use zgate_config::IoEngineChoice;

/// Checks that the file can be read and is valid.
pub(super) fn config(facts: &ServerFacts) -> Vec<Verdict> {
    let path = facts.config_path.display();
    vec![match &facts.config_problem {
        Some(problem) => Verdict::error(
            format!("{path} cannot be used: {problem}"),
            "the gateway does not start with it, and a reload changes nothing",
            format!("correct it, then `zgate config check --config {path}`"),
        ),
        None => Verdict::ok(format!(
            "{path}: {} exports, {} targets",
            facts.config.exports.len(),
            facts.config.targets.len()
        )),
    }]
}

/// Free space below which records of new clients may soon not be written any more.
const LITTLE_SPACE_BYTES: u64 = 16 << 20;

/// Checks that only its owner can write the state directory, and that there is space.
pub(super) fn state_dir(facts: &ServerFacts) -> Vec<Verdict> {
    let (state, path) = (&facts.state_dir, facts.config.server.state_dir.display());
    let config = facts.config_path.display();
    if let Some(problem) = &state.write_problem {
        return vec![Verdict::error(
            format!("{path} cannot be written to: {problem}"),
            "the gateway does not start without it: it holds the secret of file handles and the \
             records clients reclaim with",
            format!("`install -d -m 700 {path}` on a local disk that is not full or read-only"),
        )];
    }
    if !state.exists {
        // The unit makes those below the usual one.
        let usual = zgate_config::Config::default().server.state_dir;
        return vec![if facts.config.server.state_dir.starts_with(usual) {
            Verdict::ok(format!("{path} will be created at the first start"))
        } else {
            Verdict::warning(
                format!("{path} does not exist"),
                "if a dataset is to be mounted there, its state is missing: the gateway does not \
                 start, or clients find another server and cannot reclaim",
                format!("mount its dataset; for a new gateway `install -d -m 700 {path}`"),
            )
        }];
    }
    let exposed = |export: &String| {
        Verdict::error(
            format!("{path} is a part of export {export}"),
            "a client that reads the secret in it can forge file handles of all exports: the \
             gateway refuses the export",
            format!("export directories beside it, or move it and set state_dir in {config}"),
        )
    };
    let mut verdicts: Vec<Verdict> = state.exported_by.iter().map(exposed).collect();
    if let Some(free) = state.free_bytes.filter(|free| *free < LITTLE_SPACE_BYTES) {
        verdicts.push(Verdict::warning(
            format!("{path} has {} KiB of free space", free >> 10),
            "on a full disk no new client gets state, and zvols get no numbers",
            "free space there, or raise the quota; `zfs set refreservation=64M` on its dataset \
             keeps some",
        ));
    }
    verdicts.extend(lost_by_power(facts));
    if state.mode & 0o077 != 0 {
        verdicts.push(Verdict::warning(
            format!("{path} is open to others (mode {:o})", state.mode),
            "a user who reads the secret in it can forge file handles of all exports",
            format!("`chmod 700 {path}`"),
        ));
    }
    if state.owner != facts.process.user {
        verdicts.push(Verdict::warning(
            format!("{path} belongs to user {}, not to {}", state.owner, facts.process.user),
            "its owner can change state that survives a restart",
            format!("`chown -R {} {path}`", facts.process.user),
        ));
    }
    if verdicts.is_empty() {
        verdicts.push(Verdict::ok(format!("{path} is writable and private")));
    }
    verdicts
}

/// Finds state that counts as stored and is not: with `sync=disabled`, which a dataset has from
/// those above it, too.
fn lost_by_power(facts: &ServerFacts) -> Option<Verdict> {
    let mount = facts.state_dir.mount.as_ref().filter(|mount| mount.kind == "zfs")?;
    let dataset = facts.zfs.dataset(&mount.source).filter(|found| found.loses_sync_writes())?;
    let (path, name) = (facts.config.server.state_dir.display(), &dataset.name);
    Some(Verdict::warning(
        format!("{path} lies on dataset {name}, which has sync=disabled"),
        "a power failure, or the end of a pair's machine, loses its last seconds: clients cannot \
         reclaim, and hosts that a persistent reservation keeps out can write",
        format!("`zfs set sync=standard {name}`"),
    ))
}

/// A capability's bit (linux/capability.h), and the consequence of its absence.
struct Capability {
    bit: u32,
    name: &'static str,
    without: &'static str,
    /// Set if the gateway works incorrectly without it, rather than with
    /// restrictions.
    vital: bool,
}

const CAPABILITIES: [Capability; 7] = [
    Capability {
        bit: 7,
        name: "CAP_SETUID",
        without: "the gateway cannot take on callers' identities",
        vital: true,
    },
    Capability {
        bit: 6,
        name: "CAP_SETGID",
        without: "the gateway cannot take on callers' groups",
        vital: true,
    },
    Capability {
        bit: 2,
        name: "CAP_DAC_READ_SEARCH",
        without: "file handles become stale at every restart and reload",
        vital: true,
    },
    Capability {
        bit: 1,
        name: "CAP_DAC_OVERRIDE",
        without: "files of other users cannot be opened for writing",
        vital: true,
    },
    Capability { bit: 0, name: "CAP_CHOWN", without: "chown by clients fails", vital: false },
    Capability {
        bit: 3,
        name: "CAP_FOWNER",
        without: "chmod and utimes by clients' root fail",
        vital: false,
    },
    Capability {
        bit: 4,
        name: "CAP_FSETID",
        without: "set-id bits set by clients' root are lost",
        vital: false,
    },
];
/// CAP_NET_BIND_SERVICE.
const NET_BIND_SERVICE: u32 = 10;
/// CAP_IPC_LOCK: exempt from the limit of locked memory.
const IPC_LOCK: u32 = 14;
/// CAP_SYS_ADMIN: ZFS reports its events to the process.
const SYS_ADMIN: u32 = 21;

fn has(facts: &ServerFacts, bit: u32) -> bool {
    facts.process.capabilities & (1 << bit) != 0
}

/// Checks that the process has the capabilities it needs.
pub(super) fn capabilities(facts: &ServerFacts) -> Vec<Verdict> {
    let whose = facts.process.whose();
    let low_port = facts.ports.iter().find(|port| (1..1024).contains(&port.address.port()));
    let mut missing: Vec<(&str, String, bool)> = CAPABILITIES
        .iter()
        .filter(|capability| !has(facts, capability.bit))
        .map(|capability| (capability.name, capability.without.to_owned(), capability.vital))
        .collect();
    if let Some(port) = low_port.filter(|_| !has(facts, NET_BIND_SERVICE)) {
        let without = format!("the gateway cannot listen on port {}", port.address.port());
        missing.push(("CAP_NET_BIND_SERVICE", without, true));
    }
    if missing.is_empty() {
        return vec![Verdict::ok(format!("{whose} has all capabilities it needs"))];
    }
    let names: Vec<&str> = missing.iter().map(|(name, ..)| *name).collect();
    let reasons: Vec<String> =
        missing.iter().map(|(name, without, _)| format!("{name}: {without}")).collect();
    let what = format!("{whose} lacks {}", names.join(", "));
    let fix = format!(
        "run it as root with `CapabilityBoundingSet=` and, for another user, \
         `AmbientCapabilities=` of its unit holding {} (deploy/systemd/zgate.service has the \
         list), then restart it",
        names.join(" ")
    );
    vec![if missing.iter().any(|(.., vital)| *vital) {
        Verdict::error(what, reasons.join("; "), fix)
    } else {
        Verdict::warning(what, reasons.join("; "), fix)
    }]
}

/// Tells what becomes of a rollback by hand, and the next step if the gateway does not notice it.
/// No fault either way: the shipped unit leaves the capability out, and who rolls back may tell
/// the gateway.
pub(super) fn rollbacks(facts: &ServerFacts) -> Vec<Verdict> {
    if facts.zfs.datasets.is_empty() {
        return Vec::new();
    }
    let whose = facts.process.whose();
    let by_hand = "`zfs rollback` and `zfs receive` by hand";
    let missing = missing_for_zed(facts.zed);
    vec![Verdict::ok(if has(facts, SYS_ADMIN) {
        format!("{whose} notices {by_hand}")
    } else if missing.is_empty() {
        let condition = condition_for_zed(&facts.config.server.admin_socket);
        format!("{whose} is told of {by_hand} by OpenZFS's zed, with {ZEDLET}{condition}")
    } else {
        format!(
            "{whose} does not notice {by_hand}, without CAP_SYS_ADMIN: for OpenZFS's zed to tell \
             it, {}; until then run `zgate replaced DATASET` after them",
            missing.join(", and ")
        )
    })]
}

/// Returns the steps that are missing for zed to tell the gateway of rollbacks.
fn missing_for_zed(zed: ZedFacts) -> Vec<String> {
    let script = format!(
        "install `deploy/zed/history_event-zgate.sh` as {ZEDLET} (owner root, mode 755) and run \
         `systemctl restart zfs-zed`"
    );
    let daemon = "start zed: `systemctl enable --now zfs-zed`, of Debian's package zfs-zed";
    let steps = [(zed.has_zedlet, script), (zed.runs, daemon.to_owned())];
    steps.into_iter().filter_map(|(is_there, step)| (!is_there).then_some(step)).collect()
}

/// Returns the condition under which the script finds this admin socket; empty if it does.
fn condition_for_zed(socket: &Path) -> String {
    let is_found = socket.parent() == Some(Path::new("/run/zgate"))
        && socket.extension().is_some_and(|ending| ending == "sock");
    if is_found {
        return String::new();
    }
    // Only root may read that file.
    format!(", if ZED_ZGATE_SOCKETS in /etc/zfs/zed.d/zed.rc names {}", socket.display())
}

/// Locked memory for rings and fixed buffers without RDMA, in bytes: the
/// kernel's own default limit.
const LOCKED_MEMORY_BYTES: u64 = 8 << 20;

/// Checks that enough memory may be pinned.
pub(super) fn locked_memory(facts: &ServerFacts) -> Vec<Verdict> {
    let whose = facts.process.whose();
    let limit = match facts.process.locked_memory_bytes {
        _ if has(facts, IPC_LOCK) => {
            return vec![Verdict::ok(format!("{whose} has CAP_IPC_LOCK: no limit applies"))];
        }
        None => return vec![Verdict::ok(format!("{whose} may pin any amount of memory"))],
        Some(limit) => limit,
    };
    let rdma = facts.rdma_devices > 0;
    // With RDMA all buffers are registered: a quarter of the memory.
    let wanted = if rdma { facts.memory_bytes / 4 } else { LOCKED_MEMORY_BYTES };
    if limit >= wanted {
        return vec![Verdict::ok(format!("{whose} may pin {} KiB", limit >> 10))];
    }
    let why = if rdma {
        "the buffers RDMA reads and writes are pinned; registering them fails above the limit"
    } else {
        "kernels before 5.12 count io_uring's rings: without room the gateway falls back to \
         threads. Buffers for RDMA are always counted"
    };
    let what = format!("{whose} may pin only {} KiB", limit >> 10);
    let fix = "`LimitMEMLOCK=infinity` in the unit (`systemctl edit zgate`), or `ulimit -l \
               unlimited` before `zgate serve`; then restart it";
    vec![Verdict::warning(what, why, fix)]
}

/// Least number of descriptors per cached object.
const DESCRIPTORS_PER_OBJECT: u64 = 3;

/// Checks that enough files may be open.
pub(super) fn open_files(facts: &ServerFacts) -> Vec<Verdict> {
    let whose = facts.process.whose();
    let Some(limit) = facts.process.open_files else {
        return vec![Verdict::ok(format!("{whose} may open any number of files"))];
    };
    let server = &facts.config.server;
    let exports = facts.config.exports.len().max(1) as u64;
    let wanted = DESCRIPTORS_PER_OBJECT * server.fd_cache_entries as u64 * exports;
    if limit >= wanted {
        return vec![Verdict::ok(format!("{whose} may open {limit} files"))];
    }
    vec![Verdict::warning(
        format!("{whose} may open {limit} files; the caches need {wanted}"),
        "fewer objects are cached, and clients with many open files get NFS4ERR_DELAY",
        format!(
            "`LimitNOFILE={}` in the unit (`systemctl edit zgate`), or fd_cache_entries = {} in \
             {}; then restart it",
            wanted.next_power_of_two(),
            (limit / DESCRIPTORS_PER_OBJECT / exports).max(64),
            facts.config_path.display()
        ),
    )]
}

/// Checks that io_uring can be used.
pub(super) fn io_uring(facts: &ServerFacts) -> Vec<Verdict> {
    let choice = facts.config.server.io_engine;
    let Some(problem) = &facts.uring_problem else {
        return vec![Verdict::ok("io_uring is available")];
    };
    if choice == IoEngineChoice::Threads {
        return vec![Verdict::ok("not used: io_engine = \"threads\"")];
    }
    let what = format!("io_uring is not available: {problem}");
    let fix = "`sysctl kernel.io_uring_disabled=0`, or allow it in the container's seccomp \
               profile; or set io_engine = \"threads\"";
    vec![if choice == IoEngineChoice::Uring {
        Verdict::error(what, "io_engine = \"uring\": the gateway does not start", fix)
    } else {
        Verdict::warning(what, "threads do the work instead: more CPU for each request", fix)
    }]
}

/// Checks that the clock is synchronized.
pub(super) fn time_sync(facts: &ServerFacts) -> Vec<Verdict> {
    vec![match facts.clock_synchronized {
        Some(true) => Verdict::ok("the clock is synchronized"),
        None => Verdict::ok("cannot determine whether the clock is synchronized"),
        Some(false) => Verdict::warning(
            "the clock is not synchronized",
            "clients compare the server's times with their own: make, rsync and caches behave \
             incorrectly",
            "`timedatectl set-ntp true`, or `systemctl enable --now chrony`",
        ),
    }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;
    use crate::server::sound::{server, worst};
    use zgate_control::properties::SyncMode;

    #[test]
    fn a_missing_capability_is_named() {
        let mut facts = server();
        facts.process.capabilities = !(1 << 2);
        let (level, fix) = worst(&capabilities(&facts));
        assert_eq!(level, Level::Error);
        assert!(fix.contains("CAP_DAC_READ_SEARCH") && !fix.contains("CAP_SETUID"), "{fix}");
        facts.process.capabilities = !(1 << 0);
        assert_eq!(worst(&capabilities(&facts)).0, Level::Warning);
        facts.process.capabilities = !(1 << NET_BIND_SERVICE);
        assert_eq!(worst(&capabilities(&facts)).0, Level::Ok, "2049 needs none");
        facts.ports[0].address.set_port(80);
        assert_eq!(worst(&capabilities(&facts)).0, Level::Error);
    }

    #[test]
    fn who_rolls_back_by_hand_learns_what_is_to_be_done() {
        let mut facts = server();
        let said = |facts: &ServerFacts| rollbacks(facts).remove(0).what;
        assert!(said(&facts).contains("notices `zfs rollback`"));
        facts.process.capabilities &= !(1 << SYS_ADMIN);
        assert!(said(&facts).contains("is told of `zfs rollback`"));
        assert!(said(&facts).ends_with(ZEDLET), "its socket is where the script looks");
        for elsewhere in ["/srv/zgate/admin.sock", "/run/zgate/admin"] {
            facts.config.server.admin_socket = elsewhere.into();
            assert!(said(&facts).ends_with(&format!("zed.rc names {elsewhere}")));
        }
        for (runs, has_zedlet) in [(true, false), (false, true), (false, false)] {
            facts.zed = ZedFacts { runs, has_zedlet };
            let said = said(&facts);
            assert_eq!(said.contains("systemctl enable --now zfs-zed"), !runs, "{said}");
            assert_eq!(said.contains(ZEDLET), !has_zedlet, "{said}");
            assert!(said.contains("run `zgate replaced DATASET`"), "{said}");
            assert_eq!(worst(&rollbacks(&facts)).0, Level::Ok);
        }
        facts.zfs.datasets.clear();
        assert!(rollbacks(&facts).is_empty());
    }

    #[test]
    fn locked_memory_counts_without_the_capability_only() {
        let mut facts = server();
        facts.process.locked_memory_bytes = Some(64 << 10);
        assert_eq!(worst(&locked_memory(&facts)).0, Level::Ok);
        facts.process.capabilities &= !(1 << IPC_LOCK);
        let (level, fix) = worst(&locked_memory(&facts));
        assert_eq!(level, Level::Warning);
        assert!(fix.contains("LimitMEMLOCK"), "{fix}");
        facts.process.locked_memory_bytes = Some(8 << 20);
        assert_eq!(worst(&locked_memory(&facts)).0, Level::Ok);
        facts.rdma_devices = 1;
        assert_eq!(worst(&locked_memory(&facts)).0, Level::Warning);
    }

    #[test]
    fn limits_of_open_files_follow_the_configuration() {
        let mut facts = server();
        facts.process.open_files = Some(1024);
        let (level, fix) = worst(&open_files(&facts));
        assert_eq!(level, Level::Warning);
        assert!(fix.contains("LimitNOFILE=65536") && fix.contains("= 341"), "{fix}");
    }

    #[test]
    fn a_state_directory_others_can_read_or_nobody_can_write() {
        let mut facts = server();
        facts.state_dir.mode = 0o755;
        assert_eq!(
            worst(&state_dir(&facts)),
            (Level::Warning, "`chmod 700 /var/lib/zgate`".into())
        );
        facts.state_dir.write_problem = Some("Read-only file system".into());
        assert_eq!(worst(&state_dir(&facts)).0, Level::Error);
        let mut facts = server();
        facts.state_dir.exists = false;
        assert_eq!(worst(&state_dir(&facts)).0, Level::Ok);
        facts.config.server.state_dir = "/tank/zgate/state".into();
        let (level, fix) = worst(&state_dir(&facts));
        assert_eq!(level, Level::Warning);
        assert!(fix.contains("install -d -m 700 /tank/zgate/state"), "{fix}");
    }

    #[test]
    fn a_state_directory_belongs_to_no_export() {
        let mut facts = server();
        facts.state_dir.exported_by = vec!["/all".into()];
        let (level, fix) = worst(&state_dir(&facts));
        assert!(level == Level::Error && fix.contains("beside it"), "{fix}");
    }

    #[test]
    fn what_a_state_directory_has_stored_outlives_a_power_failure() {
        let mut facts = server();
        facts.state_dir.mount = facts.exports[0].mount.clone();
        assert_eq!(worst(&state_dir(&facts)).0, Level::Ok);
        facts.zfs.datasets[1].sync = SyncMode::Disabled;
        let warning = (Level::Warning, "`zfs set sync=standard tank/data`".to_owned());
        assert_eq!(worst(&state_dir(&facts)), warning);
        // Another file system than that of the directory.
        facts.state_dir.mount = None;
        assert_eq!(worst(&state_dir(&facts)).0, Level::Ok);
    }

    #[test]
    fn a_state_directory_needs_some_space() {
        let mut facts = server();
        facts.state_dir.free_bytes = Some(LITTLE_SPACE_BYTES);
        assert_eq!(worst(&state_dir(&facts)).0, Level::Ok);
        facts.state_dir.free_bytes = Some(LITTLE_SPACE_BYTES - 1);
        let (level, fix) = worst(&state_dir(&facts));
        assert_eq!(level, Level::Warning);
        assert!(fix.contains("refreservation"), "{fix}");
    }

    #[test]
    fn io_uring_matters_as_much_as_the_configuration_says() {
        let mut facts = server();
        facts.uring_problem = Some("Operation not permitted".into());
        assert_eq!(worst(&io_uring(&facts)).0, Level::Warning);
        facts.config.server.io_engine = IoEngineChoice::Uring;
        assert_eq!(worst(&io_uring(&facts)).0, Level::Error);
        facts.config.server.io_engine = IoEngineChoice::Threads;
        assert_eq!(worst(&io_uring(&facts)).0, Level::Ok);
        facts.clock_synchronized = Some(false);
        assert_eq!(worst(&time_sync(&facts)).0, Level::Warning);
        facts.config_problem = Some("no".into());
        assert_eq!(worst(&config(&facts)).0, Level::Error);
    }
}
