//! RPM packages, by the `rpm` crate.

use super::archive::{Entry, Role, with_parents};
use super::contents::{DOCUMENTS, Format, Sources};
use super::program::Needs;
use super::release::{DESCRIPTION, HOME, MAINTAINER, Release, SUMMARY};
use rpm::{
    BuildConfig, CompressionType, Dependency, FileOptions, FileOptionsBuilder, PackageBuilder,
};
use std::io;

/// Licence, by the name that SPDX gives it.
const LICENCE: &str = "Apache-2.0";
/// Directory of the scripts.
const SCRIPTS: &str = "deploy/packages/rpm";
/// Host that is named as the builder: a real one would make packages differ.
const BUILD_HOST: &str = "localhost";
/// Libraries for RDMA are opened at the start, if they are there.
const RECOMMENDS: [&str; 3] = ["libibverbs", "librdmacm", "rdma-core"];
const SUGGESTS: &str = "zfs";
/// Ending of the names of libraries of 64 bits.
const BITS: &str = "()(64bit)";

/// Returns the package.
///
/// # Errors
/// If a script cannot be read.
pub(super) fn build(sources: &Sources, release: &Release) -> io::Result<Vec<u8>> {
    let time = u32::try_from(release.epoch).map_err(io::Error::other)?;
    let machine = sources.program.machine.rpm();
    let (first, rest) = SUMMARY.split_at(1);
    let summary = first.to_uppercase() + rest;
    let mut builder = PackageBuilder::new("zgate", &release.version, LICENCE, machine, &summary);
    builder
        .using_config(BuildConfig::v4().source_date(time).compression(CompressionType::Gzip))
        .release(release.revision.to_string())
        .description(DESCRIPTION)
        .url(HOME)
        .packager(MAINTAINER)
        .group("System Environment/Daemons")
        .build_host(BUILD_HOST)
        .add_changelog_entry(
            format!("{MAINTAINER} - {}-{}", release.version, release.revision),
            format!("- zgate {}: see {DOCUMENTS}/CHANGELOG.md", release.version),
            time,
        );
    for entry in owned(&sources.entries(Format::Rpm, release)?) {
        add(&mut builder, entry).map_err(io::Error::other)?;
    }
    for need in requires(&sources.program.needs) {
        builder.requires(Dependency::any(need));
    }
    for name in RECOMMENDS {
        builder.recommends(Dependency::any(name));
    }
    builder.suggests(Dependency::any(SUGGESTS));
    let script = |name: &str| sources.text(&format!("{SCRIPTS}/{name}"));
    builder
        .post_install_script(script("post")?)
        .pre_uninstall_script(script("preun")?)
        .post_uninstall_script(script("postun")?);
    let mut out = Vec::new();
    builder.build().and_then(|package| package.write(&mut out)).map_err(io::Error::other)?;
    Ok(out)
}

/// Returns the entries and the directories that no other package has: RPM removes
/// only directories of a package.
fn owned(entries: &[Entry]) -> Vec<Entry> {
    let mut all = with_parents(entries);
    all.retain(|entry| entry.role != Role::Directory || entry.path.contains("/zgate"));
    all
}

fn add(builder: &mut PackageBuilder, entry: Entry) -> Result<(), rpm::Error> {
    let mode = u16::try_from(entry.mode).unwrap_or_default();
    let of_root =
        |options: FileOptionsBuilder| options.permissions(mode).user("root").group("root");
    if entry.role == Role::Directory {
        builder.with_dir_entry(of_root(FileOptions::dir(entry.path)))?;
        return Ok(());
    }
    let options = of_root(FileOptions::new(entry.path));
    let options = match entry.role {
        Role::Configuration => options.config().noreplace(),
        Role::Document => options.doc(),
        Role::Licence => options.license(),
        Role::Directory | Role::File => options,
    };
    builder.with_file_contents(entry.content, options)?;
    Ok(())
}

/// Returns the libraries as RPM names them. Dynamic linkers are part of the C
/// library's package.
fn requires(needs: &Needs) -> Vec<String> {
    let libraries = needs.libraries.iter().filter(|name| !name.starts_with("ld-linux"));
    let mut all: Vec<_> = libraries.map(|name| format!("{name}{BITS}")).collect();
    if let Some((major, minor)) = needs.glibc {
        all.push(format!("libc.so.6(GLIBC_{major}.{minor})(64bit)"));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpm::{FileFlags, Package};

    fn package() -> Vec<u8> {
        build(&Sources::example(), &Release::example()).unwrap()
    }

    #[test]
    fn two_builds_are_the_same_bytes() {
        assert!(package() == package());
    }

    #[test]
    fn it_has_the_files_of_the_layout_with_their_modes() {
        let read = Package::parse(&mut package().as_slice()).unwrap();
        let files = read.metadata.get_file_entries().unwrap();
        let wanted = owned(&Sources::example().entries(Format::Rpm, &Release::example()).unwrap());
        assert!(wanted.iter().any(|entry| entry.path == "/usr/share/doc/zgate/examples"));
        assert_eq!(files.len(), wanted.len());
        for entry in wanted {
            let found = files.iter().find(|file| file.path().to_str() == Some(&entry.path));
            let found = found.unwrap_or_else(|| panic!("no {}", entry.path));
            assert_eq!(u32::from(found.mode().permissions()), entry.mode, "{}", entry.path);
            let kept = found.flags().contains(FileFlags::CONFIG | FileFlags::NOREPLACE);
            assert_eq!(kept, entry.role == Role::Configuration, "{}", entry.path);
        }
    }

    #[test]
    fn it_requires_the_libraries_of_the_program() {
        let found = requires(&Sources::example().program.needs);
        let wanted =
            ["libc.so.6()(64bit)", "libgcc_s.so.1()(64bit)", "libc.so.6(GLIBC_2.34)(64bit)"];
        assert_eq!(found, wanted);
    }

    #[test]
    fn scripts_can_be_parsed() {
        for script in ["post", "preun", "postun"] {
            let text = Sources::example().text(&format!("{SCRIPTS}/{script}")).unwrap();
            let parsed = std::process::Command::new("sh").args(["-n", "-c", &text]).status();
            assert!(parsed.unwrap().success(), "{script}");
        }
    }
}
