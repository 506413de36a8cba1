//! The cargo that runs this program, and what it builds.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
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
    build_with(package, profile, &[], &[])?;
    fs::canonicalize(target_dir().join(profile).join(package))
}

/// Builds it with flags for the compiler, beside those of this machine, and arguments for cargo.
///
/// # Errors
/// If it does not build.
pub(crate) fn build_with(
    package: &str,
    profile: &str,
    flags: &[String],
    more: &[&str],
) -> io::Result<()> {
    let mut command = command();
    command.args(["build", "--profile", profile, "--quiet", "--package", package]).args(more);
    let set = ["CARGO_ENCODED_RUSTFLAGS", "RUSTFLAGS"].map(|name| std::env::var(name).ok());
    add_flags(&mut command, set, flags);
    if !command.status()?.success() {
        return Err(io::Error::other(format!("{package} does not build")));
    }
    Ok(())
}

/// Adds flags of the compiler to those of cargo's configuration, or to those of the variables that
/// take its place.
fn add_flags(command: &mut Command, [encoded, plain]: [Option<String>; 2], flags: &[String]) {
    if flags.is_empty() {
        return;
    }
    let words = |text: String| text.split_whitespace().collect::<Vec<_>>().join(SEPARATOR);
    match encoded.or_else(|| plain.map(words)) {
        Some(set) if !set.is_empty() => {
            let all = [set, flags.join(SEPARATOR)].join(SEPARATOR);
            command.env("CARGO_ENCODED_RUSTFLAGS", all);
        }
        _ => {
            command.arg("--config").arg(format!("target.'cfg(all())'.rustflags={flags:?}"));
        }
    }
}

/// Stands between the flags of `CARGO_ENCODED_RUSTFLAGS`.
const SEPARATOR: &str = "\u{1f}";

/// The compiler that cargo uses.
#[derive(Debug)]
pub(crate) struct Compiler {
    /// Kind of machine that it runs on, such as `x86_64-unknown-linux-gnu`.
    pub(crate) host: String,
    /// Major version of its LLVM.
    pub(crate) llvm: u32,
}

impl Compiler {
    /// Asks it.
    ///
    /// # Errors
    /// If it does not run, or says something else than expected.
    pub(crate) fn ask() -> io::Result<Self> {
        let text = said(&["--version", "--verbose"])?;
        Self::read(&text).ok_or_else(|| io::Error::other(format!("rustc tells no LLVM: {text}")))
    }

    fn read(text: &str) -> Option<Self> {
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        let version = field("LLVM version: ")?.split('.').next()?;
        Some(Self { host: field("host: ")?.trim().to_owned(), llvm: version.parse().ok()? })
    }

    /// Returns the path of a program of its LLVM.
    ///
    /// # Errors
    /// If it is not installed.
    pub(crate) fn tool(&self, name: &str) -> io::Result<PathBuf> {
        let libraries = said(&["--print", "target-libdir"])?;
        let path = Path::new(libraries.trim()).with_file_name("bin").join(name);
        if !path.exists() {
            let next = "rustup component add llvm-tools";
            return Err(io::Error::other(format!("{} is missing: {next}", path.display())));
        }
        Ok(path)
    }
}

/// Returns the answer of the compiler.
fn said(arguments: &[&str]) -> io::Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).args(arguments).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
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

    #[test]
    fn flags_come_to_those_of_the_machine() {
        let flags = ["-Ca".to_owned(), "-Cb=/x y".to_owned()];
        let built = |set: [Option<&str>; 2], flags: &[String]| {
            let mut command = Command::new("cargo");
            add_flags(&mut command, set.map(|one| one.map(str::to_owned)), flags);
            command
        };
        let variable = |command: &Command| {
            let found = command.get_envs().find(|(name, _)| *name == "CARGO_ENCODED_RUSTFLAGS");
            found.and_then(|(_, value)| value).map(|value| value.to_str().unwrap().to_owned())
        };
        let own = built([None, None], &flags);
        let arguments: Vec<_> = own.get_args().collect();
        assert_eq!(arguments, ["--config", r#"target.'cfg(all())'.rustflags=["-Ca", "-Cb=/x y"]"#]);
        assert_eq!(variable(&own), None);
        let added = Some("-Cc\u{1f}-Cd\u{1f}-Ca\u{1f}-Cb=/x y".to_owned());
        assert_eq!(variable(&built([None, Some(" -Cc  -Cd ")], &flags)), added);
        assert_eq!(variable(&built([Some("-Cc\u{1f}-Cd"), Some("-Ce")], &flags)), added);
        assert_eq!(built([Some("-Cc"), None], &[]).get_envs().count(), 0);
    }

    #[test]
    fn the_compiler_tells_its_machine_and_its_llvm() {
        let text = "rustc 1.95.0\nhost: x86_64-unknown-linux-gnu\nLLVM version: 22.1.2\n";
        let read = Compiler::read(text).unwrap();
        assert_eq!((read.host.as_str(), read.llvm), ("x86_64-unknown-linux-gnu", 22));
        assert!(Compiler::read("rustc 1.95.0\nhost: x\n").is_none());
    }
}
