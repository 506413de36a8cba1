//! The cargo that runs this program, and what it builds.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Command;

/// Returns a command of the cargo that has started this program.
pub(crate) fn command() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Returns the folder of everything that is built, as cargo was told it.
pub(crate) fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from)
}

/// Builds the program of a package that has the package's name; returns its path.
///
/// # Errors
/// If it does not build.
pub(crate) fn build(package: &str, profile: &str) -> io::Result<PathBuf> {
    let arguments = ["build", "--profile", profile, "--quiet", "--package", package];
    if !command().args(arguments).status()?.success() {
        return Err(io::Error::other(format!("{package} does not build")));
    }
    fs::canonicalize(target_dir().join(profile).join(package))
}
