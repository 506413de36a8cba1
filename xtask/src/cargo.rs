//! The cargo that runs this program, and what it builds.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Command;

/// Returns a command of the cargo that has started this program.
///
/// Build scripts that look at the variables of their package run again when they find
/// others in cargo's environment: what cargo has set for this program would have `ring`,
/// and all that is above it, built anew whenever cargo is started directly and by us in
/// turn.
pub(crate) fn command() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(describes_package) {
            command.env_remove(name);
        }
    }
    command
}

/// Returns whether cargo sets this variable for a program to describe its package.
fn describes_package(name: &str) -> bool {
    name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cargo_that_is_started_knows_nothing_of_this_package() {
        // Cargo sets it for tests.
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        let command = command();
        let removed =
            |name: &str| command.get_envs().any(|(one, value)| one == name && value.is_none());
        assert!(removed("CARGO_MANIFEST_DIR") && removed("CARGO_PKG_VERSION_MAJOR"));
        assert!(!removed("CARGO_HOME") && !removed("CARGO_TARGET_DIR") && !removed("PATH"));
    }
}
