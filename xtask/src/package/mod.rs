//! `cargo xtask package`: what users install. A Debian package, an RPM package,
//! an image of a container and the wheel of the Python package. Two runs with the
//! same sources make the same bytes.

#[cfg(test)]
mod after_upgrade_tests;
mod archive;
mod base;
mod contents;
mod deb;
mod oci;
mod program;
mod release;
mod rpm;
#[cfg(test)]
mod zedlet_tests;

use crate::output;
use crate::servers::zgate;
use crate::suite::python;
use clap::{Args, ValueEnum};
use contents::{Format, Sources};
use program::Program;
use release::Release;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Arguments of `package`.
#[derive(Args, Debug)]
pub(crate) struct PackageArgs {
    /// Make only this; may be repeated
    #[arg(long, value_enum)]
    only: Vec<Kind>,
    /// Directory for the packages
    #[arg(long, default_value = "target/packages")]
    out: PathBuf,
    /// Package this program instead of building one with the profile `dist`
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Let this zgate write manual pages and completions, where the packaged one cannot run
    #[arg(long, value_name = "FILE")]
    generator: Option<PathBuf>,
    /// Root file system of the image, as a tar archive, instead of one of Debian
    #[arg(long, value_name = "FILE")]
    base: Option<PathBuf>,
    /// Number of the package among those of one version
    #[arg(long, default_value_t = 1)]
    revision: u32,
    /// Print the files as JSON on standard output
    #[arg(long)]
    json: bool,
}

/// Kinds of packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// For Debian and its relatives
    Deb,
    /// For Fedora, RHEL and their relatives
    Rpm,
    /// An image of a container, as an archive with the layout of OCI
    Oci,
    /// The Python package `zgate`
    Wheel,
}

/// A file that was made.
#[derive(Debug, Serialize)]
struct Made {
    kind: Kind,
    file: PathBuf,
    bytes: u64,
    sha256: String,
}

/// Makes the packages.
///
/// # Errors
/// What could not be built or written, and the next step.
pub(crate) fn run(args: &PackageArgs) -> io::Result<()> {
    let wanted = |kind| args.only.is_empty() || args.only.contains(&kind);
    let release = Release::of_tree(args.revision)?;
    fs::create_dir_all(&args.out)?;
    let mut made = Vec::new();
    if [Kind::Deb, Kind::Rpm, Kind::Oci].into_iter().any(wanted) {
        let sources = sources(args)?;
        if wanted(Kind::Deb) {
            made.push(write_deb(&sources, &release, &args.out)?);
        }
        if wanted(Kind::Rpm) {
            let file = args.out.join(release.rpm_name(sources.program.machine));
            fs::write(&file, rpm::build(&sources, &release)?)?;
            made.push(Made::of(Kind::Rpm, file)?);
        }
        if wanted(Kind::Oci) {
            let file = args.out.join(release.oci_name(sources.program.machine));
            let machine = sources.program.machine;
            let base = base::prepare(args.base.as_deref(), machine, &release, &args.out)?;
            oci::write(&sources, &release, base.path(), &file)?;
            made.push(Made::of(Kind::Oci, file)?);
        }
    }
    if wanted(Kind::Wheel) {
        for file in python::publish(&args.out, release.epoch)? {
            made.push(Made::of(Kind::Wheel, file)?);
        }
    }
    if args.json {
        return output::print(&format!("{}\n", serde_json::to_string(&made)?));
    }
    let lines = made.iter().map(|one| format!("{:>11}  {}\n", one.bytes, one.file.display()));
    output::print(&lines.collect::<String>())
}

fn sources(args: &PackageArgs) -> io::Result<Sources> {
    let binary = match &args.binary {
        Some(path) => fs::canonicalize(path).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        })?,
        None => zgate::build_as_packaged()?,
    };
    let generator = args.generator.as_ref().unwrap_or(&binary);
    Sources::gather(Path::new("."), Program::read(&binary)?, generator)
}

fn write_deb(sources: &Sources, release: &Release, out: &Path) -> io::Result<Made> {
    let file = out.join(release.deb_name(sources.program.machine));
    fs::write(&file, deb::build(&sources.entries(Format::Deb, release)?, sources, release)?)?;
    Made::of(Kind::Deb, file)
}

/// Makes three Debian packages for the lab, in the order of their versions: the
/// second has the program of the first, that of the third differs.
///
/// # Errors
/// What could not be built or written.
pub(crate) fn for_the_lab(binary: &Path, out: &Path) -> io::Result<()> {
    let mut sources = Sources::gather(Path::new("."), Program::read(binary)?, binary)?;
    for revision in 1..=3 {
        if revision == 3 {
            // Behind what the kernel maps.
            sources.program.content.push(b'\n');
        }
        write_deb(&sources, &Release::of_tree(revision)?, out)?;
    }
    Ok(())
}

impl Made {
    fn of(kind: Kind, file: PathBuf) -> io::Result<Self> {
        let mut digest = Sha256::new();
        let bytes = io::copy(&mut fs::File::open(&file)?, &mut digest)?;
        Ok(Self { kind, file, bytes, sha256: format!("{:x}", digest.finalize()) })
    }
}
