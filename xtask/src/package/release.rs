//! Version, moment and names of what is packaged.

use super::program::Machine;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::io;
use std::process::Command;

/// Address that package managers show for questions.
pub(super) const MAINTAINER: &str = "zgate developers <zgate@users.noreply.github.com>";
/// Home of the project.
pub(super) const HOME: &str = env!("CARGO_PKG_REPOSITORY");
/// One line on the program.
pub(super) const SUMMARY: &str = "user-space storage gateway for ZFS: NFS, iSCSI";
/// Some more, in lines of at most 78 characters.
pub(super) const DESCRIPTION: &str =
    "zgate serves ZFS pools, or plain directories, of a machine to other machines:
files over NFSv4.0, 4.1, 4.2 and NFSv3, disks over iSCSI, both over TCP and
RDMA. It follows datasets and zvols, takes snapshots by schedule and loads
models from NFS servers without a mount. The service is not started before it
has been configured.";

/// A version of the program, and the package's number among those of it.
#[derive(Clone, Debug)]
pub(super) struct Release {
    /// Version of the workspace.
    pub(super) version: String,
    /// Number of the package.
    pub(super) revision: u32,
    /// Time of everything in the packages, in seconds since 1970.
    pub(super) epoch: u64,
    /// Commit, if the sources are a checkout.
    pub(super) commit: Option<String>,
}

impl Release {
    /// Returns the release of this tree. Its time is `SOURCE_DATE_EPOCH`, or that of
    /// the commit.
    ///
    /// # Errors
    /// If there is neither.
    pub(super) fn of_tree(revision: u32) -> io::Result<Self> {
        let epoch = match std::env::var("SOURCE_DATE_EPOCH") {
            Ok(text) => text.trim().parse().map_err(|_| {
                io::Error::other(format!("SOURCE_DATE_EPOCH: not a number of seconds: {text}"))
            })?,
            Err(_) => git(&["log", "-1", "--format=%ct"])
                .and_then(|text| text.parse().ok())
                .ok_or_else(|| {
                    io::Error::other(
                        "this tree is no git checkout, whose commit would date the packages: set \
                         SOURCE_DATE_EPOCH to seconds since 1970",
                    )
                })?,
        };
        Ok(Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            revision,
            epoch,
            commit: git(&["rev-parse", "HEAD"]),
        })
    }

    /// Returns the version as package managers compare it.
    pub(super) fn full_version(&self) -> String {
        format!("{}-{}", self.version, self.revision)
    }

    /// Returns the time as RFC 2822 has it.
    ///
    /// # Errors
    /// If there is no such time.
    pub(super) fn mail_date(&self) -> io::Result<String> {
        let zoned = self.timestamp()?.to_zoned(TimeZone::UTC);
        jiff::fmt::rfc2822::to_string(&zoned).map_err(io::Error::other)
    }

    /// Returns the time as RFC 3339 has it.
    ///
    /// # Errors
    /// If there is no such time.
    pub(super) fn internet_date(&self) -> io::Result<String> {
        Ok(self.timestamp()?.to_string())
    }

    fn timestamp(&self) -> io::Result<Timestamp> {
        let seconds = i64::try_from(self.epoch).map_err(io::Error::other)?;
        Timestamp::from_second(seconds).map_err(io::Error::other)
    }

    pub(super) fn deb_name(&self, machine: Machine) -> String {
        format!("zgate_{}_{}.deb", self.full_version(), machine.debian())
    }

    pub(super) fn rpm_name(&self, machine: Machine) -> String {
        format!("zgate-{}.{}.rpm", self.full_version(), machine.rpm())
    }

    pub(super) fn oci_name(&self, machine: Machine) -> String {
        format!("zgate-{}-{}.oci.tar", self.full_version(), machine.debian())
    }
}

fn git(args: &[&str]) -> Option<String> {
    let said = Command::new("git").args(args).output().ok().filter(|said| said.status.success())?;
    let text = String::from_utf8(said.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
impl Release {
    /// Returns a release of tests.
    pub(super) fn example() -> Self {
        Self { version: "1.2.3".to_owned(), revision: 4, epoch: 1_700_000_000, commit: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_dates_are_those_that_package_managers_expect() {
        let release = Release::example();
        assert_eq!(release.deb_name(Machine::X86_64), "zgate_1.2.3-4_amd64.deb");
        assert_eq!(release.rpm_name(Machine::Aarch64), "zgate-1.2.3-4.aarch64.rpm");
        assert_eq!(release.mail_date().unwrap(), "Tue, 14 Nov 2023 22:13:20 +0000");
        assert_eq!(release.internet_date().unwrap(), "2023-11-14T22:13:20Z");
        assert!(DESCRIPTION.lines().all(|line| line.len() <= 78));
        assert!(SUMMARY.len() < 80);
    }
}
