//! Package sources: the apt configuration of this machine.

use crate::servers::scratch::run;
use std::io;
use std::path::PathBuf;
use std::process::Command;

/// Sources for a bootstrap of another Debian release.
#[derive(Clone, Debug)]
pub(crate) struct AptSource {
    /// Base URI of the archive.
    pub(crate) mirror: String,
    /// Keyring that signs the archive.
    pub(crate) keyring: PathBuf,
    /// Options of the transport (proxies, certificates), one per line.
    pub(crate) options: String,
}

/// Options of apt that describe how to reach archives, not which.
const TRANSPORT_OPTIONS: &[&str] = &["Proxy", "CaInfo", "CaPath", "Verify-Peer", "Retries"];

impl AptSource {
    /// Reads the machine's sources.
    ///
    /// # Errors
    /// If apt has no archive that looks like Debian's.
    pub(crate) fn of_this_machine() -> io::Result<Self> {
        let targets = run(Command::new("apt-get").args([
            "indextargets",
            "--format",
            "$(REPO_URI)|$(RELEASE)|$(COMPONENT)",
            "Created-By: Packages",
        ]))?;
        let mirror = archive_among(&targets)
            .ok_or_else(|| io::Error::other("apt's sources name no Debian archive"))?;
        let keyring = PathBuf::from("/usr/share/keyrings/debian-archive-keyring.gpg");
        let dump = run(Command::new("apt-config").arg("dump"))?;
        Ok(Self { mirror, keyring, options: transport_options(&dump) })
    }
}

/// Returns the main archive, not its updates or third-party archives.
fn archive_among(targets: &str) -> Option<String> {
    targets.lines().find_map(|line| {
        let mut fields = line.split('|');
        let (uri, release, component) = (fields.next()?, fields.next()?, fields.next()?);
        let plain = !release.contains('-') && component == "main";
        (plain && uri.trim_end_matches('/').ends_with("/debian"))
            .then(|| uri.trim_end_matches('/').to_owned())
    })
}

fn transport_options(dump: &str) -> String {
    let wanted = |line: &&str| {
        let Some((name, value)) = line.split_once(' ') else { return false };
        let last = name.rsplit("::").find(|part| !part.is_empty()).unwrap_or_default();
        name.starts_with("Acquire::")
            && value != "\"\";"
            && TRANSPORT_OPTIONS.iter().any(|option| option.eq_ignore_ascii_case(last))
    };
    dump.lines().filter(wanted).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_archive_is_neither_security_nor_a_vendor() {
        let targets = "http://a.example/debian-security/|bookworm-security|main\n\
                       https://vendor.example/apt/|stable|main\n\
                       http://a.example/debian/|bookworm-updates|main\n\
                       http://b.example/x/debian/|bookworm|main\n";
        assert_eq!(archive_among(targets).as_deref(), Some("http://b.example/x/debian"));
        assert_eq!(archive_among("https://vendor.example/apt/|stable|main"), None);
    }

    #[test]
    fn only_the_way_to_archives_is_carried_over() {
        let dump = "APT::Architecture \"amd64\";\nAcquire::http::Proxy \"http://p.example:1\";\n\
                    Acquire::https::CaInfo \"/etc/ca.pem\";\nAcquire::Languages:: \"none\";\n\
                    Acquire::cdrom::mount \"/media\";";
        assert_eq!(
            transport_options(dump),
            "Acquire::http::Proxy \"http://p.example:1\";\nAcquire::https::CaInfo \"/etc/ca.pem\";"
        );
    }
}
