//! OpenZFS's event daemon, and the script that it runs for zgate.

use crate::facts::{ZEDLET, ZedFacts};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Name of the daemon's process.
const DAEMON: &str = "zed";

/// Reads the facts about the daemon.
pub(super) fn facts() -> ZedFacts {
    ZedFacts { runs: runs(Path::new("/proc")), has_zedlet: is_run(Path::new(ZEDLET)) }
}

/// Returns whether a process of root has the daemon's name.
fn runs(processes: &Path) -> bool {
    let all = fs::read_dir(processes).into_iter().flatten().flatten();
    let mut of_root = all.filter(|one| one.metadata().is_ok_and(|metadata| metadata.uid() == 0));
    of_root.any(|one| {
        fs::read_to_string(one.path().join("comm")).is_ok_and(|name| name.trim_end() == DAEMON)
    })
}

/// Returns whether the daemon runs a script (zed(8)): it belongs to root, who may execute it, and
/// nobody else may write it.
fn is_run(script: &Path) -> bool {
    fs::metadata(script).is_ok_and(|metadata| {
        let mode = metadata.mode();
        metadata.is_file() && metadata.uid() == 0 && mode & 0o100 != 0 && mode & 0o022 == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_daemon_runs_scripts_of_root_that_nobody_else_writes() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("script");
        assert!(!is_run(&script));
        fs::write(&script, "").unwrap();
        let is_root = rustix::process::geteuid().is_root();
        for (mode, is_fine) in [(0o755, true), (0o700, true), (0o644, false), (0o775, false)] {
            fs::set_permissions(&script, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(is_run(&script), is_root && is_fine, "{mode:o}");
        }
        assert!(!is_run(dir.path()));
    }

    #[test]
    fn the_daemon_is_known_by_its_process() {
        let dir = tempfile::tempdir().unwrap();
        let processes = dir.path();
        let is_root = rustix::process::geteuid().is_root();
        for (process, name) in [("7", "zgate\n"), ("8", "zed-other\n")] {
            fs::create_dir(processes.join(process)).unwrap();
            fs::write(processes.join(process).join("comm"), name).unwrap();
        }
        fs::write(processes.join("uptime"), "zed\n").unwrap();
        assert!(!runs(processes));
        fs::create_dir(processes.join("9")).unwrap();
        fs::write(processes.join("9/comm"), "zed\n").unwrap();
        assert_eq!(runs(processes), is_root);
    }
}
