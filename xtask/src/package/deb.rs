//! Debian packages: `deb(5)`, an `ar` archive of a version and two tar archives.

use super::archive::{Entry, Role, gzipped, write_tar};
use super::contents::Sources;
use super::program::Needs;
use super::release::{DESCRIPTION, HOME, MAINTAINER, Release, SUMMARY};
use md5::{Digest, Md5};
use std::fmt::Write;
use std::io;

/// Version of the format.
const FORMAT: &[u8] = b"2.0\n";
/// Scripts of the maintainer.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];
/// Directory of the scripts.
const SCRIPTS_DIR: &str = "deploy/packages/deb";
/// Debian packages of libraries that the program may be linked with. Those of the
/// C library have its version.
const LIBRARIES: [(&str, &str); 5] = [
    ("libgcc_s.so.1", "libgcc-s1"),
    ("libc.so.6", "libc6"),
    ("libm.so.6", "libc6"),
    ("ld-linux-x86-64.so.2", "libc6"),
    ("ld-linux-aarch64.so.1", "libc6"),
];
/// Libraries for RDMA are opened at the start, if they are there.
const RECOMMENDS: &str = "ibverbs-providers, librdmacm1t64 | librdmacm1, rdma-core";
const SUGGESTS: &str = "zfsutils-linux, zfs-zed, libgssapi-krb5-2";
/// Bytes that an entry takes besides its content, as Debian's policy counts.
const KIBIBYTE: u64 = 1024;

/// Returns the package.
///
/// # Errors
/// If a script cannot be read, or the program needs a library of no package.
pub(super) fn build(
    entries: &[Entry],
    sources: &Sources,
    release: &Release,
) -> io::Result<Vec<u8>> {
    let mut control = vec![
        Entry::file("/control", 0o644, control(entries, sources, release)?),
        Entry::file("/md5sums", 0o644, sums(entries)),
        Entry::file("/conffiles", 0o644, conffiles(entries)),
    ];
    for script in SCRIPTS {
        let text = sources.text(&format!("{SCRIPTS_DIR}/{script}"))?;
        control.push(Entry::file(format!("/{script}"), 0o755, text));
    }
    let tar = |entries: &[Entry]| {
        let mut out = Vec::new();
        write_tar(entries, "./", release.epoch, &mut out)?;
        gzipped(&out)
    };
    let members = [
        ("debian-binary", FORMAT.to_vec()),
        ("control.tar.gz", tar(&control)?),
        ("data.tar.gz", tar(entries)?),
    ];
    Ok(ar(&members, release.epoch))
}

/// Returns an `ar` archive; members are aligned to two bytes.
fn ar(members: &[(&str, Vec<u8>)], epoch: u64) -> Vec<u8> {
    let mut out = b"!<arch>\n".to_vec();
    for (name, content) in members {
        let length = content.len();
        let header = format!("{name:<16}{epoch:<12}{:<6}{:<6}{:<8}{length:<10}`\n", 0, 0, "100644");
        out.extend_from_slice(header.as_bytes());
        out.extend_from_slice(content);
        out.resize(out.len().next_multiple_of(2), b'\n');
    }
    out
}

fn control(entries: &[Entry], sources: &Sources, release: &Release) -> io::Result<String> {
    let program = &sources.program;
    let installed: u64 =
        entries.iter().map(|entry| (entry.content.len() as u64).div_ceil(KIBIBYTE).max(1)).sum();
    let description: String = DESCRIPTION.lines().map(|line| format!(" {line}\n")).collect();
    Ok(format!(
        "Package: zgate\nVersion: {}\nArchitecture: {}\nMaintainer: {MAINTAINER}\n\
         Installed-Size: {installed}\nDepends: {}\nRecommends: {RECOMMENDS}\nSuggests: {SUGGESTS}\n\
         Section: net\nPriority: optional\nHomepage: {HOME}\nDescription: {SUMMARY}\n{description}",
        release.full_version(),
        program.machine.debian(),
        depends(&program.needs)?.join(", "),
    ))
}

/// Returns the packages of the libraries, and those that scripts use.
fn depends(needs: &Needs) -> io::Result<Vec<String>> {
    let mut all = vec!["init-system-helpers (>= 1.54~)".to_owned()];
    for library in &needs.libraries {
        let known = LIBRARIES.iter().find(|(known, _)| known == library).map(|(_, name)| *name);
        let name = known.ok_or_else(|| {
            io::Error::other(format!("the program needs {library}, of a package that is not known"))
        })?;
        all.push(match (name, needs.glibc) {
            ("libc6", Some((major, minor))) => format!("libc6 (>= {major}.{minor})"),
            _ => name.to_owned(),
        });
    }
    all.sort();
    all.dedup();
    Ok(all)
}

fn sums(entries: &[Entry]) -> String {
    let mut files: Vec<_> = entries
        .iter()
        .filter(|entry| !matches!(entry.role, Role::Directory | Role::Configuration))
        .collect();
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files.iter().fold(String::new(), |mut out, entry| {
        let _ = writeln!(out, "{:x}  {}", Md5::digest(&entry.content), entry.relative());
        out
    })
}

fn conffiles(entries: &[Entry]) -> String {
    let changed = entries.iter().filter(|entry| entry.role == Role::Configuration);
    changed.map(|entry| format!("{}\n", entry.path)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::contents::Format;
    use super::*;
    use std::io::Read;

    fn package() -> Vec<u8> {
        let (sources, release) = (Sources::example(), Release::example());
        build(&sources.entries(Format::Deb, &release).unwrap(), &sources, &release).unwrap()
    }

    /// Returns the member of an `ar` archive.
    fn member(archive: &[u8], wanted: &str) -> Vec<u8> {
        let mut rest = archive.strip_prefix(b"!<arch>\n").unwrap();
        loop {
            let (header, after) = rest.split_at(60);
            let text = std::str::from_utf8(header).unwrap();
            let length: usize = text[48..58].trim().parse().unwrap();
            if text[..16].trim() == wanted {
                return after[..length].to_vec();
            }
            rest = &after[length.next_multiple_of(2)..];
        }
    }

    fn control_file(name: &str) -> (u32, String) {
        let packed = member(&package(), "control.tar.gz");
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(packed.as_slice()));
        let mut entries = archive.entries().unwrap().map(Result::unwrap);
        let mut found = entries
            .find(|entry| entry.path_bytes().as_ref() == format!("./{name}").as_bytes())
            .unwrap();
        let mut text = String::new();
        found.read_to_string(&mut text).unwrap();
        (found.header().mode().unwrap(), text)
    }

    #[test]
    fn two_builds_are_the_same_bytes() {
        assert!(package() == package());
        assert_eq!(member(&package(), "debian-binary"), FORMAT);
    }

    #[test]
    fn the_configuration_is_kept_at_an_upgrade() {
        let kept = "/etc/zgate/zgate.toml\n/etc/zfs/zed.d/history_event-zgate.sh\n";
        assert_eq!(control_file("conffiles").1, kept);
    }

    #[test]
    fn scripts_can_be_run_and_parsed() {
        for script in SCRIPTS {
            let (mode, text) = control_file(script);
            assert_eq!((mode, text.lines().next()), (0o755, Some("#!/bin/sh")), "{script}");
            let parsed = std::process::Command::new("sh").args(["-n", "-c", &text]).status();
            assert!(parsed.unwrap().success(), "{script}");
        }
        assert!(!control_file("prerm").1.contains("upgrade)"), "an upgrade stops nothing");
    }

    #[test]
    fn it_depends_on_the_libraries_of_the_program() {
        let (_, text) = control_file("control");
        assert!(text.contains("\nVersion: 1.2.3-4\nArchitecture: amd64\n"), "{text}");
        let depends = "\nDepends: init-system-helpers (>= 1.54~), libc6 (>= 2.34), libgcc-s1\n";
        assert!(text.contains(depends), "{text}");
        let strange = Needs { libraries: vec!["libzfs.so.4".to_owned()], glibc: None };
        assert!(depends_error(&strange).contains("libzfs.so.4"));
    }

    fn depends_error(needs: &Needs) -> String {
        depends(needs).unwrap_err().to_string()
    }

    #[test]
    fn sums_are_of_files_that_nobody_changes() {
        let (_, text) = control_file("md5sums");
        assert!(text.contains("  usr/bin/zgate\n"), "{text}");
        assert!(!text.contains("  etc/"), "{text}");
    }
}
