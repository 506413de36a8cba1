//! A control group with a limit of memory, which counts the page cache of its
//! processes too; version 1 or 2 of the interface.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Places of the hierarchy with the memory controller: version 1, then 2.
const PLACES: [&str; 2] = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"];

/// Names of the files of one version.
struct Names {
    limit: &'static str,
    peak: &'static str,
}

const VERSION_1: Names =
    Names { limit: "memory.limit_in_bytes", peak: "memory.max_usage_in_bytes" };
const VERSION_2: Names = Names { limit: "memory.max", peak: "memory.peak" };

/// A group, removed when dropped; its processes have ended by then.
pub(super) struct MemoryGroup {
    dir: PathBuf,
    names: Names,
}

impl MemoryGroup {
    /// Makes a group.
    ///
    /// # Errors
    /// A message that says what is missing.
    pub(super) fn new(name: &str, limit_bytes: u64) -> io::Result<Self> {
        let dir = format!("zgate-bench-{name}-{}", std::process::id());
        let made = PLACES.iter().find_map(|place| {
            let dir = Path::new(place).join(&dir);
            fs::create_dir(&dir).ok()?;
            let names = [VERSION_1, VERSION_2].into_iter().find(|n| dir.join(n.limit).exists());
            if names.is_none() {
                // Removed again: it has no memory controller.
                let _ = fs::remove_dir(&dir);
            }
            Some(Self { names: names?, dir })
        });
        let need = "no control group with a limit of memory can be made: run as root, \
                    with the memory controller in /sys/fs/cgroup";
        let group = made.ok_or_else(|| io::Error::other(need))?;
        fs::write(group.dir.join(group.names.limit), limit_bytes.to_string())?;
        Ok(group)
    }

    /// Returns a command that runs in the group from its start.
    pub(super) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("sh");
        let join = "echo $$ > \"$0\" && exec \"$@\"";
        command.args(["-c", join]).arg(self.dir.join("cgroup.procs")).arg(program);
        command
    }

    /// Returns the most memory that it has used, in bytes.
    ///
    /// # Errors
    /// If the kernel does not tell.
    pub(super) fn peak_bytes(&self) -> io::Result<u64> {
        let text = fs::read_to_string(self.dir.join(self.names.peak))?;
        text.trim().parse().map_err(io::Error::other)
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // A process that has just ended may still be listed for a moment.
        for _ in 0..100 {
            if fs::remove_dir(&self.dir).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}
