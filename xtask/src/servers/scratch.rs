//! Scratch file systems: a loop-mounted ext4 if mounting is allowed, because
//! stable file handles, holes and extended attributes need a real file system;
//! a directory otherwise.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A scratch directory with a directory to export; removed on drop.
#[derive(Debug)]
pub(crate) struct Scratch {
    dir: tempfile::TempDir,
    mounted: bool,
}

impl Scratch {
    /// Creates one; `image_bytes` is the size of the file system.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn new(image_bytes: u64) -> io::Result<Self> {
        let dir = tempfile::Builder::new().prefix("zgate-xtask-").tempdir()?;
        fs::create_dir(dir.path().join("export"))?;
        let mut scratch = Self { dir, mounted: false };
        if rustix::process::geteuid().is_root() {
            scratch.mounted = scratch.mount(image_bytes).is_ok();
        }
        fs::set_permissions(scratch.export(), fs::Permissions::from_mode(0o777))?;
        Ok(scratch)
    }

    fn mount(&self, image_bytes: u64) -> io::Result<()> {
        let image = self.dir.path().join("disk.img");
        fs::File::create(&image)?.set_len(image_bytes)?;
        run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image))?;
        run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(self.export()))?;
        fs::remove_dir(self.export().join("lost+found"))
    }

    /// Returns the directory to export.
    pub(crate) fn export(&self) -> PathBuf {
        self.dir.path().join("export")
    }

    /// Returns whether it is a separate file system.
    pub(crate) fn is_mounted(&self) -> bool {
        self.mounted
    }

    /// Returns the directory for state, logs and configuration.
    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.mounted {
            // A server that still uses it releases it when it ends.
            let _ = run(Command::new("umount").arg("-l").arg(self.export()));
        }
    }
}

/// Runs a command that must succeed.
///
/// # Errors
/// The command and its output.
pub(crate) fn run(command: &mut Command) -> io::Result<String> {
    let output = command
        .output()
        .map_err(|error| io::Error::new(error.kind(), format!("{command:?}: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(io::Error::other(format!("{command:?} failed: {said}{text}")))
}
