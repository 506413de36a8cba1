//! `cargo xtask profile`: records how often the gateway runs which code under the loads of the
//! benchmarks. Packages and benchmarks are built with this record: the compiler inlines what runs
//! often, and puts it together.
//!
//! The record is a file of the repository, because two builds of a package make the same bytes, and
//! what is recorded differs from run to run. Code that has changed since is built as without one.

use crate::bench::iscsi::load as iscsi;
use crate::bench::nfs::load as nfs;
use crate::bench::nfs::work::Work;
use crate::bridge::Bridge;
use crate::cargo::{self, Compiler};
use crate::servers::scratch::run as run_program;
use crate::servers::{Scratch, ServerProcess, zgate};
use clap::Args;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folder of the record.
const DIR: &str = "deploy/packages/profile";
/// Its name, with the version of LLVM that wrote it: earlier ones cannot read it.
const NAME: (&str, &str) = ("llvm-", ".profdata");
/// Size of the large file and of the disk, in MiB.
const SIZE_MIB: u64 = 128;
/// Random requests, and files, of a load.
const OPERATIONS: u64 = 4_000;
const TARGET: &str = "iqn.2026-11.test.zgate:disk";

/// Arguments of `profile`.
#[derive(Args, Debug)]
pub(crate) struct ProfileArgs {
    /// Folder for the record
    #[arg(long, default_value = DIR)]
    out: PathBuf,
}

/// Records a profile in place of the one that there is.
///
/// # Errors
/// What could not be built or started, and the next step.
pub(crate) fn run(args: &ProfileArgs) -> io::Result<()> {
    let compiler = Compiler::ask()?;
    let merge = compiler.tool("llvm-profdata")?;
    let counts = tempfile::Builder::new().prefix("zgate-profile-").tempdir()?;
    eprintln!("builds a gateway that counts what it runs");
    let flags = [format!("-Cprofile-generate={}", counts.path().display())];
    // With a target, programs that run in the build count nothing.
    cargo::build_with("zgate", "dist", &flags, &["--target", &compiler.host])?;
    let binary = cargo::target_dir().join(&compiler.host).join("dist/zgate");
    let binary = fs::canonicalize(binary)?;
    let scratch = Scratch::new((SIZE_MIB * 4 + 512) << 20)?;
    exercise_nfs(&binary, &scratch)?;
    exercise_iscsi(&binary, &scratch)?;
    fs::create_dir_all(&args.out)?;
    for (_, earlier) in records(&args.out)? {
        fs::remove_file(earlier)?;
    }
    let record = args.out.join(format!("{}{}{}", NAME.0, compiler.llvm, NAME.1));
    // Sparse: without the functions that did not run.
    let mut merging = Command::new(merge);
    merging.args(["merge", "--sparse", "-o"]).arg(&record).arg(counts.path());
    run_program(&mut merging)?;
    let bytes = fs::metadata(&record)?.len();
    crate::output::print(&format!("{bytes:>11}  {}\n", record.display()))
}

/// Runs the loads of `bench nfs`, over TCP and over the emulated fabric.
fn exercise_nfs(binary: &Path, scratch: &Scratch) -> io::Result<()> {
    let rdma_port = zgate::free_port()?;
    let options = zgate::ZgateOptions { rdma_port: Some(rdma_port), ..Default::default() };
    let server = zgate::start(binary, scratch, &options)?;
    let bridge = Bridge::start(SocketAddr::from((Ipv4Addr::LOCALHOST, rdma_port)))?;
    for (dir, address) in [("tcp", server.address), ("rdma", bridge.address)] {
        fs::create_dir(scratch.export().join(dir))?;
        fill(&scratch.export().join(dir).join("big"))?;
        for work in Work::ALL {
            eprintln!("{dir}: {}", work.name());
            nfs::run(&nfs::LoadRequest {
                address,
                work,
                size: SIZE_MIB << 20,
                operations: OPERATIONS,
                dir: dir.to_owned(),
            })?;
        }
    }
    drop(bridge);
    // It writes what it has counted when it ends.
    server.stop()
}

/// Runs the loads of `bench iscsi`.
fn exercise_iscsi(binary: &Path, scratch: &Scratch) -> io::Result<()> {
    let disk = scratch.path().join("disk.raw");
    fill(&disk)?;
    let (port, dir) = (zgate::free_port()?, scratch.path().join("iscsi"));
    fs::create_dir(&dir)?;
    let config = dir.join("zgate.toml");
    let text = format!(
        "[server]\nlisten = [\"127.0.0.1:{nfs}\"]\nstate_dir = \"{dir}/state\"\n\
         admin_socket = \"{dir}/admin.sock\"\n\
         [iscsi]\nlisten = [\"127.0.0.1:{port}\"]\n\
         [[target]]\nname = \"{TARGET}\"\nallow_any_initiator = true\n\
         [[target.lun]]\nnumber = 0\npath = \"{disk}\"\n",
        nfs = zgate::free_port()?,
        dir = dir.display(),
        disk = disk.display(),
    );
    fs::write(&config, text)?;
    let mut command = Command::new(binary);
    command.arg("serve").arg("--config").arg(&config).env("ZGATE_LOG", "warn");
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let server = ServerProcess::start("zgate", command, address, &dir.join("zgate.log"))?;
    for work in iscsi::Work::ALL {
        eprintln!("iscsi: {}", work.name());
        iscsi::run(&iscsi::LoadRequest {
            address,
            target: TARGET.to_owned(),
            lun: 0,
            work,
            size: SIZE_MIB << 20,
            operations: OPERATIONS,
        })?;
    }
    server.stop()
}

fn fill(file: &Path) -> io::Result<()> {
    let block: Vec<u8> = (0..1_u32 << 20).map(|at| (at * 31 / 7) as u8).collect();
    fs::write(file, block.repeat(SIZE_MIB as usize))
}

/// Returns what the compiler is told for a build with the record of this tree; nothing, and says
/// so, if it cannot read that.
///
/// # Errors
/// If the compiler cannot be asked, or the folder not be read.
pub(crate) fn flags() -> io::Result<Vec<String>> {
    let compiler = Compiler::ask()?;
    let records = records(Path::new(DIR))?;
    let Some(record) = newest_for(&records, compiler.llvm) else {
        eprintln!(
            "xtask: {DIR} has no record that this compiler's LLVM {} reads: what is built is \
             slower; `cargo xtask profile` makes one",
            compiler.llvm
        );
        return Ok(Vec::new());
    };
    let record = fs::canonicalize(record)?;
    // Code that has changed since is nothing to warn of.
    let quiet = "-Cllvm-args=-no-pgo-warn-mismatch".to_owned();
    Ok(vec![format!("-Cprofile-use={}", record.display()), quiet])
}

/// Returns the records in a folder, by the version of LLVM that wrote them.
fn records(dir: &Path) -> io::Result<Vec<(u32, PathBuf)>> {
    if !dir.exists() {
        return Ok(Vec::new());
    }
    let paths = fs::read_dir(dir)?.map(|entry| entry.map(|entry| entry.path()));
    let mut found = Vec::new();
    for path in paths {
        let path = path?;
        let name = path.file_name().and_then(|name| name.to_str());
        let version = name.and_then(|name| name.strip_prefix(NAME.0)?.strip_suffix(NAME.1));
        if let Some(version) = version.and_then(|text| text.parse().ok()) {
            found.push((version, path));
        }
    }
    found.sort();
    Ok(found)
}

/// Returns the latest of these records that an LLVM can read.
fn newest_for(records: &[(u32, PathBuf)], llvm: u32) -> Option<&Path> {
    let readable = records.iter().rev().find(|(version, _)| *version <= llvm);
    readable.map(|(_, path)| path.as_path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_a_later_llvm_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["llvm-22.profdata", "llvm-23.profdata", "llvm-x.profdata", "README"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let found = records(dir.path()).unwrap();
        let newest = |llvm| newest_for(&found, llvm).map(|path| path.file_name().unwrap());
        assert_eq!(newest(24).unwrap(), "llvm-23.profdata");
        assert_eq!(newest(22).unwrap(), "llvm-22.profdata");
        assert_eq!(newest(21), None);
        assert!(records(&dir.path().join("none")).unwrap().is_empty());
    }

    #[test]
    fn this_tree_has_a_record() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(DIR);
        let found = records(&dir).unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        // Of each release one is kept for ever.
        let bytes = fs::metadata(&found[0].1).unwrap().len();
        assert!((100_000..4_000_000).contains(&bytes), "{bytes}");
    }
}
