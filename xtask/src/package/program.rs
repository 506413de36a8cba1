//! The program that is packaged: stripped, its machine, and the libraries that it
//! needs.

use crate::servers::scratch::run;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

/// Offset of the machine in the header of an ELF file, as two bytes.
const ELF_MACHINE: usize = 18;
/// The C library's symbols have versions with this prefix.
const GLIBC: &str = "GLIBC_";

/// Kinds of processors that there are packages for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Machine {
    X86_64,
    Aarch64,
}

impl Machine {
    fn of(elf: &[u8]) -> Option<Self> {
        let little = elf.starts_with(b"\x7fELF\x02\x01");
        // Numbers of the ELF specification.
        match (little, elf.get(ELF_MACHINE..)?.first_chunk()?) {
            (true, [62, 0]) => Some(Self::X86_64),
            (true, [183, 0]) => Some(Self::Aarch64),
            _ => None,
        }
    }

    /// Returns its name in Debian, which images have, too.
    pub(super) fn debian(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
        }
    }

    /// Returns its name in RPM packages.
    pub(super) fn rpm(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }
}

/// Libraries that a program is linked with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Needs {
    /// Names of the libraries, sorted.
    pub(super) libraries: Vec<String>,
    /// Least version of glibc, as major and minor number; `None` without glibc.
    pub(super) glibc: Option<(u32, u32)>,
}

/// A stripped program.
#[derive(Clone, Debug)]
pub(super) struct Program {
    /// The file.
    pub(super) content: Vec<u8>,
    pub(super) machine: Machine,
    pub(super) needs: Needs,
}

impl Program {
    /// Reads a program and strips it.
    ///
    /// # Errors
    /// If it is no program for a machine that there are packages for, or binutils
    /// are missing.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        let wrong = |text: &str| io::Error::other(format!("{}: {text}", path.display()));
        let machine = Machine::of(&fs::read(path)?)
            .ok_or_else(|| wrong("not a program of Linux for x86-64 or 64-bit ARM"))?;
        let dir = tempfile::tempdir()?;
        let stripped = dir.path().join("zgate");
        // Symbols, debugging information and the names of compilers.
        let mut strip = Command::new("strip");
        strip.args(["--strip-all", "--remove-section=.comment", "-o"]).arg(&stripped).arg(path);
        run(&mut strip).map_err(|error| binutils(&error))?;
        let headers = run(Command::new("objdump").arg("-p").arg(&stripped));
        let needs = needs(&headers.map_err(|error| binutils(&error))?);
        Ok(Self { content: fs::read(&stripped)?, machine, needs })
    }
}

fn binutils(error: &io::Error) -> io::Error {
    let next = match error.kind() {
        io::ErrorKind::NotFound => "; install binutils",
        _ => "; a program for another machine needs the binutils of that machine",
    };
    io::Error::new(error.kind(), format!("{error}{next}"))
}

/// Returns the needs of a program by the words of `objdump -p`.
fn needs(headers: &str) -> Needs {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let lines: Vec<_> = headers.lines().map(words).collect();
    let mut libraries: Vec<_> = lines
        .iter()
        .filter(|line| line.first().is_some_and(|word| word == "NEEDED"))
        .filter_map(|line| line.get(1).cloned())
        .collect();
    libraries.sort();
    let version = |line: &Vec<String>| {
        let (major, minor) = line.last()?.strip_prefix(GLIBC)?.split_once('.')?;
        Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
    };
    Needs { libraries, glibc: lines.iter().filter_map(version).max() }
}

#[cfg(test)]
impl Program {
    /// Returns a program of tests.
    pub(super) fn example() -> Self {
        let libraries = ["ld-linux-x86-64.so.2", "libc.so.6", "libgcc_s.so.1"];
        Self {
            content: b"\x7fELF: a program".to_vec(),
            machine: Machine::X86_64,
            needs: Needs { libraries: libraries.map(str::to_owned).to_vec(), glibc: Some((2, 34)) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADERS: &str = "
Dynamic Section:
  NEEDED               libgcc_s.so.1
  NEEDED               libc.so.6
  INIT                 0x000000000009b000

Version References:
  required from libc.so.6:
    0x09691a75 0x00 07 GLIBC_2.2.5
    0x069691b4 0x00 05 GLIBC_2.34
    0x0d696916 0x00 05 GLIBC_2.6
  required from libgcc_s.so.1:
    0x0b792650 0x00 10 GCC_3.0
";

    #[test]
    fn libraries_and_the_latest_glibc_are_needs() {
        let found = needs(HEADERS);
        assert_eq!(found.libraries, ["libc.so.6", "libgcc_s.so.1"]);
        assert_eq!(found.glibc, Some((2, 34)));
        assert_eq!(needs("Program Header:\n"), Needs::default());
    }

    #[test]
    fn the_machine_stands_in_the_header() {
        let mut header = [0; 20];
        header[..6].copy_from_slice(b"\x7fELF\x02\x01");
        header[ELF_MACHINE] = 62;
        assert_eq!(Machine::of(&header), Some(Machine::X86_64));
        header[ELF_MACHINE] = 183;
        assert_eq!(Machine::of(&header), Some(Machine::Aarch64));
        header[ELF_MACHINE] = 8;
        assert_eq!(Machine::of(&header), None);
        assert_eq!(Machine::of(b"#!/bin/sh"), None);
    }
}
