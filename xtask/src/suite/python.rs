//! The Python package: its wheel is built and installed in a clean virtual
//! environment, its tests run against a gateway, and the six lines of its
//! README against a demo.

use crate::servers::{ServerProcess, scratch, zgate};
use crate::totals::Outcome;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

const PACKAGE: &str = "loader/python";

/// Runs everything; each unit test counts.
///
/// # Errors
/// What cannot be installed or built.
pub(crate) fn run(binary: &Path, model: Option<&Path>, outcome: &mut Outcome) -> io::Result<()> {
    let python = install()?;
    let mut command = Command::new(&python);
    command.args(["-m", "unittest", "-v", "test_zgate"]);
    command.current_dir(format!("{PACKAGE}/tests")).env("ZGATE", binary);
    if let Some(model) = model {
        command.env("MODEL", model);
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
    outcome.check("README example", readme(&python, binary).map_err(|error| error.to_string()));
    Ok(())
}

/// A clean environment with the wheel and the peers its tests compare with.
fn install() -> io::Result<PathBuf> {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let target = std::path::absolute(target)?;
    let (wheels, venv) = (target.join("wheels"), target.join("python-venv"));
    for old in [&wheels, &venv] {
        if old.exists() {
            std::fs::remove_dir_all(old)?;
        }
    }
    scratch::run(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    let python = venv.join("bin/python3");
    let pip = |what: &[&str]| {
        scratch::run(Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(what))
    };
    pip(&["maturin>=1.7,<2"])?;
    scratch::run(
        Command::new(&python)
            .args(["-m", "maturin", "build", "--quiet", "--release", "--out"])
            .arg(&wheels)
            .arg("--target-dir")
            .arg(target.join("python"))
            .current_dir(PACKAGE),
    )?;
    let wheel = std::fs::read_dir(&wheels)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .find(|path| path.extension().is_some_and(|ending| ending == "whl"))
        .ok_or_else(|| io::Error::other("maturin made no wheel"))?;
    pip(&[&wheel.display().to_string(), "safetensors", "tqdm"])?;
    Ok(python)
}

/// The example of the package's README, as it stands there but for the port.
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
