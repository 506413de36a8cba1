//! Root file system of the image: Debian, by mmdebstrap, with what RDMA, ZFS and
//! Kerberos need.

use super::program::Machine;
use super::release::Release;
use crate::apt::AptSource;
use crate::packages::{self, Tool};
use crate::servers::scratch::run;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Release of Debian.
const SUITE: &str = "trixie";
/// `zfsutils-linux` is in `contrib`.
const COMPONENTS: &str = "main,contrib";
/// Packages besides the essential ones.
const PACKAGES: &str = "ibverbs-providers,libgssapi-krb5-2,librdmacm1t64,rdma-core,zfsutils-linux";
/// Programs that make it.
const TOOLS: &[Tool] = &[
    Tool { program: "mmdebstrap", package: "mmdebstrap" },
    Tool { program: "apt-get", package: "debian-archive-keyring" },
];
/// Files that nobody reads in a container.
const LEFT_OUT: [&str; 3] = ["/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*"];

/// A tar archive of a root file system.
#[derive(Debug)]
pub(super) enum Base {
    /// One that the caller has.
    Given(PathBuf),
    /// One that was made here, and is removed at the end.
    Made(tempfile::TempPath),
}

impl Base {
    /// Returns its path.
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Given(path) => path,
            Self::Made(path) => path,
        }
    }
}

/// Returns the given archive, or makes one in `dir`.
///
/// # Errors
/// If it cannot be made here, with the next step.
pub(super) fn prepare(
    given: Option<&Path>,
    machine: Machine,
    release: &Release,
    dir: &Path,
) -> io::Result<Base> {
    if let Some(path) = given {
        return Ok(Base::Given(path.to_owned()));
    }
    packages::ensure(TOOLS).map_err(|error| {
        io::Error::new(error.kind(), format!("{error}; or name a root file system with --base"))
    })?;
    let source = AptSource::of_this_machine()?;
    let file = tempfile::Builder::new().suffix(".tar").tempfile_in(dir)?.into_temp_path();
    eprintln!("   {SUITE} with {PACKAGES}");
    run(mmdebstrap(&source, machine)
        .arg(SUITE)
        .arg(&file)
        .arg(&source.mirror)
        .env("SOURCE_DATE_EPOCH", release.epoch.to_string()))?;
    Ok(Base::Made(file))
}

fn mmdebstrap(source: &AptSource, machine: Machine) -> Command {
    let mut command = Command::new("mmdebstrap");
    command.args(["--variant=minbase", "--quiet"]);
    command.arg(format!("--architectures={}", machine.debian()));
    command.arg(format!("--components={COMPONENTS}")).arg(format!("--include={PACKAGES}"));
    command.arg(format!("--keyring={}", source.keyring.display()));
    command.args(source.options.lines().map(|option| format!("--aptopt={option}")));
    command.args(LEFT_OUT.iter().map(|path| format!("--dpkgopt=path-exclude={path}")));
    // All gateways would have one name by it.
    command.arg("--customize-hook=rm -f \"$1/etc/machine-id\" \"$1/var/lib/dbus/machine-id\"");
    // How this machine reaches archives, and its name, are no business of the image's.
    command.arg("--customize-hook=rm -f \"$1/etc/resolv.conf\" \"$1/etc/hostname\"");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_containerfile_installs_the_same_packages() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/container/Containerfile");
        let text = std::fs::read_to_string(file).unwrap();
        let install = text.split_once("--no-install-recommends").unwrap().1;
        let words = install.split("&&").next().unwrap().split_whitespace();
        let installed: Vec<_> = words.filter(|word| *word != "\\").collect();
        assert_eq!(installed, PACKAGES.split(',').collect::<Vec<_>>());
    }
}
