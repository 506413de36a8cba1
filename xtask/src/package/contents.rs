//! Files of the packages and their places.

use super::archive::{Entry, Role, gzipped};
use super::program::Program;
use super::release::{MAINTAINER, Release};
use crate::servers::scratch::run;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Place of the program in a package; in the unit it is where an installation by
/// hand puts it.
const PROGRAM: &str = "/usr/bin/zgate";
const PROGRAM_BY_HAND: &str = "/usr/local/bin/zgate";
/// Line of the unit for an installation by hand.
const BY_HAND: &str = " Install as /etc/systemd/system/zgate.service.";
/// Resource agent, where Pacemaker finds it as ocf:zgate:zgate.
const AGENT: &str = "/usr/lib/ocf/resource.d/zgate/zgate";
/// Resource agent of planned switches.
const HANDOVER_AGENT: &str = "/usr/lib/ocf/resource.d/zgate/zgate-handover";
/// Script that OpenZFS's event daemon runs, which looks for it there.
const ZEDLET: &str = "/etc/zfs/zed.d/history_event-zgate.sh";
/// Directory of documents.
pub(super) const DOCUMENTS: &str = "/usr/share/doc/zgate";
/// Documents for users.
const FOR_USERS: [&str; 14] = [
    "README.md",
    "deploy/INSTALL.md",
    "docs/OPERATIONS.md",
    "docs/SECURITY.md",
    "docs/SEMANTICS.md",
    "docs/METRICS.md",
    "docs/DOCTOR.md",
    "docs/LOADER.md",
    "docs/PERFORMANCE.md",
    "docs/CONFORMANCE.md",
    "docs/GLOSSARY.md",
    "docs/HIGH_AVAILABILITY.md",
    "docs/KUBERNETES.md",
    "docs/ISCSI_ENCRYPTION.md",
];
/// Examples, and their names below `examples`.
const EXAMPLES: [(&str, &str); 14] = [
    ("deploy/zgate.example.toml", "zgate.toml"),
    ("deploy/layouts/llm.toml", "layouts/llm.toml"),
    ("deploy/layouts/llm.plan", "layouts/llm.plan"),
    ("deploy/layouts/zfast.toml", "layouts/zfast.toml"),
    ("deploy/layouts/zfast.plan", "layouts/zfast.plan"),
    ("deploy/grafana/zgate.json", "grafana/zgate.json"),
    ("deploy/prometheus/scrape.yml", "prometheus/scrape.yml"),
    ("deploy/prometheus/zgate-alerts.yml", "prometheus/zgate-alerts.yml"),
    ("deploy/pacemaker/pair.sh", "pacemaker/pair.sh"),
    ("deploy/pacemaker/pair.xml", "pacemaker/pair.xml"),
    ("deploy/pacemaker/standby.xml", "pacemaker/standby.xml"),
    ("deploy/pacemaker/pair.crm", "pacemaker/pair.crm"),
    ("deploy/drbd-reactor/zgate.toml", "drbd-reactor/zgate.toml"),
    ("deploy/keepalived/two-ports.conf", "keepalived/two-ports.conf"),
];

/// Formats, which differ in some places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Deb,
    Rpm,
    /// An image has no service manager and no shells.
    Image,
}

/// Everything that packages are made of.
#[derive(Clone, Debug)]
pub(super) struct Sources {
    /// Root of the repository.
    tree: PathBuf,
    pub(super) program: Program,
    /// Manual pages, by file name.
    manual: Vec<(String, Vec<u8>)>,
    bash: Vec<u8>,
    zsh: Vec<u8>,
    fish: Vec<u8>,
}

impl Sources {
    /// Lets `generator` write manual pages and completions.
    ///
    /// # Errors
    /// If it cannot.
    pub(super) fn gather(tree: &Path, program: Program, generator: &Path) -> io::Result<Self> {
        let dir = tempfile::tempdir()?;
        run(Command::new(generator).arg("generate").arg(dir.path())).map_err(|error| {
            io::Error::other(format!(
                "{} cannot write manual pages and completions ({error}): package a zgate of this \
                 tree, or name one that runs here with --generator",
                generator.display()
            ))
        })?;
        let mut manual = Vec::new();
        for page in fs::read_dir(dir.path().join("man1"))? {
            let page = page?;
            manual.push((page.file_name().to_string_lossy().into_owned(), fs::read(page.path())?));
        }
        manual.sort();
        let read = |name: &str| fs::read(dir.path().join(name));
        let tree = tree.to_owned();
        let (bash, zsh, fish) =
            (read("bash/zgate")?, read("zsh/_zgate")?, read("fish/zgate.fish")?);
        Ok(Self { tree, program, manual, bash, zsh, fish })
    }

    /// Returns a text of the repository.
    ///
    /// # Errors
    /// Its name, if it cannot be read.
    pub(super) fn text(&self, name: &str) -> io::Result<String> {
        fs::read_to_string(self.tree.join(name))
            .map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))
    }

    /// Returns the files and directories of a package.
    ///
    /// # Errors
    /// If a file of the repository cannot be read.
    pub(super) fn entries(&self, format: Format, release: &Release) -> io::Result<Vec<Entry>> {
        let mut all = vec![
            Entry::file(PROGRAM, 0o755, self.program.content.as_slice()),
            Entry::directory("/etc/zgate", 0o755),
            Entry::directory("/etc/zgate/conf.d", 0o755),
        ];
        all.extend(self.documents(format, release)?);
        if format == Format::Image {
            all.push(Entry::directory("/var/lib/zgate", 0o700));
            return Ok(all);
        }
        all.extend(self.service()?);
        all.extend(self.for_shells(format)?);
        Ok(all)
    }

    /// Configuration, unit, the program that restarts it after an upgrade, the resource
    /// agents, and the script for OpenZFS's event daemon.
    fn service(&self) -> io::Result<[Entry; 8]> {
        let unit = self.text("deploy/systemd/zgate.service")?;
        let unit = unit.replace(PROGRAM_BY_HAND, PROGRAM).replace(BY_HAND, "");
        let template = self.text("deploy/systemd/zgate@.service")?;
        let template = template.replace(PROGRAM_BY_HAND, PROGRAM);
        let temporary = self.text("deploy/systemd/zgate.tmpfiles.conf")?;
        let example = self.text("deploy/zgate.example.toml")?;
        Ok([
            Entry::file("/etc/zgate/zgate.toml", 0o644, example).with_role(Role::Configuration),
            Entry::file("/usr/lib/systemd/system/zgate.service", 0o644, unit),
            Entry::file("/usr/lib/systemd/system/zgate@.service", 0o644, template),
            Entry::file("/usr/lib/tmpfiles.d/zgate.conf", 0o644, temporary),
            Entry::file(
                "/usr/lib/zgate/after-upgrade",
                0o755,
                self.text("deploy/packages/after-upgrade")?,
            ),
            Entry::file(AGENT, 0o755, self.text("deploy/ocf/zgate")?),
            Entry::file(HANDOVER_AGENT, 0o755, self.text("deploy/ocf/zgate-handover")?),
            // An upgrade does not undo an edit that switches it off.
            Entry::file(ZEDLET, 0o755, self.text("deploy/zed/history_event-zgate.sh")?)
                .with_role(Role::Configuration),
        ])
    }

    /// Manual pages and completions.
    fn for_shells(&self, format: Format) -> io::Result<Vec<Entry>> {
        let mut all = Vec::new();
        for (name, page) in &self.manual {
            let path = format!("/usr/share/man/man1/{name}.gz");
            all.push(Entry::file(path, 0o644, gzipped(page)?).with_role(Role::Document));
        }
        let zsh = match format {
            Format::Deb => "/usr/share/zsh/vendor-completions/_zgate",
            Format::Rpm | Format::Image => "/usr/share/zsh/site-functions/_zgate",
        };
        let bash = "/usr/share/bash-completion/completions/zgate";
        all.push(Entry::file(bash, 0o644, self.bash.as_slice()));
        all.push(Entry::file(zsh, 0o644, self.zsh.as_slice()));
        let fish = "/usr/share/fish/vendor_completions.d/zgate.fish";
        all.push(Entry::file(fish, 0o644, self.fish.as_slice()));
        Ok(all)
    }

    fn documents(&self, format: Format, release: &Release) -> io::Result<Vec<Entry>> {
        let mut all = Vec::new();
        let mut add = |path: String, content: Vec<u8>, role: Role| {
            all.push(Entry::file(path, 0o644, content).with_role(role));
        };
        for (source, name) in EXAMPLES {
            let path = format!("{DOCUMENTS}/examples/{name}");
            add(path, self.text(source)?.into(), Role::Document);
        }
        match format {
            Format::Rpm => {
                let licence = "/usr/share/licenses/zgate/LICENSE";
                add(licence.to_owned(), self.text("LICENSE")?.into(), Role::Licence);
                let changes = self.text("CHANGELOG.md")?.into();
                add(format!("{DOCUMENTS}/CHANGELOG.md"), changes, Role::Document);
            }
            Format::Deb | Format::Image => {
                let licence = self.text("deploy/packages/deb/copyright")?;
                add(format!("{DOCUMENTS}/copyright"), licence.into(), Role::Licence);
                let changes = gzipped(self.text("CHANGELOG.md")?.as_bytes())?;
                add(format!("{DOCUMENTS}/changelog.gz"), changes, Role::Document);
            }
        }
        if format == Format::Deb {
            let changes = gzipped(debian_changes(release)?.as_bytes())?;
            add(format!("{DOCUMENTS}/changelog.Debian.gz"), changes, Role::Document);
            let overrides = self.text("deploy/packages/deb/lintian-overrides")?;
            add("/usr/share/lintian/overrides/zgate".to_owned(), overrides.into(), Role::File);
        }
        if format != Format::Image {
            for source in FOR_USERS {
                let name = source.rsplit('/').next().unwrap_or(source);
                add(format!("{DOCUMENTS}/{name}"), self.text(source)?.into(), Role::Document);
            }
        }
        Ok(all)
    }
}

/// Changes of the package, as Debian has them beside those of the program.
fn debian_changes(release: &Release) -> io::Result<String> {
    Ok(format!(
        "zgate ({}) unstable; urgency=medium\n\n  * zgate {}: see changelog.gz.\n\n -- {MAINTAINER}  {}\n",
        release.full_version(),
        release.version,
        release.mail_date()?
    ))
}

#[cfg(test)]
impl Sources {
    /// Returns the files of this tree, with a program and generated files of tests.
    pub(super) fn example() -> Self {
        Self {
            tree: Path::new(env!("CARGO_MANIFEST_DIR")).join(".."),
            program: Program::example(),
            manual: vec![
                ("zgate-serve.1".to_owned(), b".TH zgate-serve 1".to_vec()),
                ("zgate.1".to_owned(), b".TH zgate 1".to_vec()),
            ],
            bash: b"complete zgate".to_vec(),
            zsh: b"#compdef zgate".to_vec(),
            fish: b"complete -c zgate".to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(format: Format) -> Vec<Entry> {
        Sources::example().entries(format, &Release::example()).unwrap()
    }

    fn found(all: &[Entry], path: &str) -> (u32, Role) {
        let entry = all.iter().find(|entry| entry.path == path);
        entry.map(|entry| (entry.mode, entry.role)).unwrap_or_else(|| panic!("no {path}"))
    }

    #[test]
    fn each_file_has_its_place_and_its_mode() {
        let (deb, rpm) = (entries(Format::Deb), entries(Format::Rpm));
        for (path, mode, role) in [
            ("/usr/bin/zgate", 0o755, Role::File),
            ("/usr/lib/systemd/system/zgate.service", 0o644, Role::File),
            ("/usr/lib/systemd/system/zgate@.service", 0o644, Role::File),
            ("/usr/lib/tmpfiles.d/zgate.conf", 0o644, Role::File),
            ("/usr/lib/zgate/after-upgrade", 0o755, Role::File),
            ("/usr/lib/ocf/resource.d/zgate/zgate", 0o755, Role::File),
            ("/usr/lib/ocf/resource.d/zgate/zgate-handover", 0o755, Role::File),
            ("/etc/zgate", 0o755, Role::Directory),
            ("/etc/zgate/conf.d", 0o755, Role::Directory),
            ("/etc/zgate/zgate.toml", 0o644, Role::Configuration),
            ("/etc/zfs/zed.d/history_event-zgate.sh", 0o755, Role::Configuration),
            ("/usr/share/man/man1/zgate.1.gz", 0o644, Role::Document),
            ("/usr/share/man/man1/zgate-serve.1.gz", 0o644, Role::Document),
            ("/usr/share/bash-completion/completions/zgate", 0o644, Role::File),
            ("/usr/share/fish/vendor_completions.d/zgate.fish", 0o644, Role::File),
            ("/usr/share/doc/zgate/OPERATIONS.md", 0o644, Role::Document),
            ("/usr/share/doc/zgate/KUBERNETES.md", 0o644, Role::Document),
            ("/usr/share/doc/zgate/ISCSI_ENCRYPTION.md", 0o644, Role::Document),
            ("/usr/share/doc/zgate/examples/zgate.toml", 0o644, Role::Document),
        ] {
            assert_eq!(found(&deb, path), (mode, role), "{path}");
            assert_eq!(found(&rpm, path), (mode, role), "{path}");
        }
        let (text, licence) = ((0o644, Role::File), (0o644, Role::Licence));
        assert_eq!(found(&deb, "/usr/share/zsh/vendor-completions/_zgate"), text);
        assert_eq!(found(&rpm, "/usr/share/zsh/site-functions/_zgate"), text);
        assert_eq!(found(&deb, "/usr/share/doc/zgate/copyright"), licence);
        assert_eq!(found(&rpm, "/usr/share/licenses/zgate/LICENSE"), licence);
        found(&deb, "/usr/share/doc/zgate/changelog.Debian.gz");
    }

    #[test]
    fn an_image_has_no_service_and_keeps_its_state_to_itself() {
        let image = entries(Format::Image);
        assert_eq!(found(&image, "/var/lib/zgate"), (0o700, Role::Directory));
        let parts = ["systemd", "tmpfiles", "/man/", "completion", "zed.d"];
        assert!(!image.iter().any(|entry| parts.iter().any(|part| entry.path.contains(part))));
        // There the configuration is mounted.
        assert!(!image.iter().any(|entry| entry.path == "/etc/zgate/zgate.toml"));
    }

    #[test]
    fn the_unit_starts_the_program_of_the_package_and_names_a_document_of_it() {
        let all = entries(Format::Deb);
        let unit = all.iter().find(|entry| entry.path.ends_with("/zgate.service")).unwrap();
        let unit = String::from_utf8(unit.content.clone()).unwrap();
        assert_eq!(unit.lines().next(), Some("# zgate as a service."));
        assert!(!unit.contains("/usr/local"), "{unit}");
        for key in ["ExecStart", "ExecStartPre", "ExecReload"] {
            assert!(unit.contains(&format!("\n{key}={PROGRAM} ")), "{key}");
        }
        let document = unit.lines().find_map(|line| line.strip_prefix("Documentation=file:"));
        found(&all, document.unwrap());
    }

    #[test]
    fn one_of_several_gateways_runs_as_a_single_one_does() {
        let all = entries(Format::Deb);
        let text = |path: &str| {
            let entry = all.iter().find(|entry| entry.path.ends_with(path)).unwrap();
            String::from_utf8(entry.content.clone()).unwrap()
        };
        let directives = |text: &str| -> Vec<String> {
            let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
            lines.map(str::to_owned).collect()
        };
        let single = text("/zgate.service")
            .replace("gateway (NFS", "gateway %i (NFS")
            .replace("/etc/zgate/zgate.toml", "/etc/zgate/%i.toml")
            .replace("/run/zgate/admin.sock", "/run/zgate/%i.sock")
            .replace("StateDirectory=zgate", "StateDirectory=zgate/%i")
            .replace("zgate/conf.d", "zgate/%i.d");
        assert_eq!(directives(&text("/zgate@.service")), directives(&single));
        // The stop of one takes no socket away from the others.
        assert!(directives(&single).contains(&"RuntimeDirectoryPreserve=yes".to_owned()));
    }

    #[test]
    fn a_gateway_that_ends_often_is_started_again() {
        let all = entries(Format::Rpm);
        for unit in ["/zgate.service", "/zgate@.service"] {
            let entry = all.iter().find(|entry| entry.path.ends_with(unit)).unwrap();
            let text = String::from_utf8(entry.content.clone()).unwrap();
            // systemd reads the key there, and ignores it elsewhere.
            let (head, _) = text.split_once("\n[Service]\n").unwrap();
            assert!(head.contains("\nStartLimitIntervalSec=0\n"), "{unit}: {head}");
        }
    }

    #[test]
    fn what_users_of_the_repository_get_is_in_the_packages() {
        let all = entries(Format::Rpm);
        for folder in
            ["layouts", "grafana", "prometheus", "pacemaker", "drbd-reactor", "keepalived"]
        {
            let tree = Sources::example().tree.join("deploy").join(folder);
            for file in fs::read_dir(tree).unwrap() {
                let name = file.unwrap().file_name().into_string().unwrap();
                found(&all, &format!("{DOCUMENTS}/examples/{folder}/{name}"));
            }
        }
    }
}
