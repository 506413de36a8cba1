//! A checkout of pynfs, copied and built with a separate Python environment.

use crate::cargo;
use crate::packages::{self, PYTHON_TOOLS};
use crate::servers::scratch::run as succeed;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Modules that pynfs imports: `ply` parses the XDR descriptions, `setuptools`
/// builds, `xdrlib` was removed from the standard library in Python 3.13.
const MODULES: &str = "import ply, setuptools, xdrlib, sys; print(sys.version.split()[0])";
/// Packages of these modules. The third one is empty where Python still has the
/// module.
const PACKAGES: [&str; 3] = ["ply", "setuptools<81", "standard-xdrlib; python_version >= '3.13'"];
/// Files that exist only after a build. `setup.py` reports success whether or
/// not it built.
const BUILT: [&str; 3] =
    ["rpc/rpc_type.py", "nfs4.0/lib/rpc/rpc_type.py", "nfs4.1/xdrdef/nfs4_type.py"];

/// A built copy of a checkout, and the Python that runs it. Dropping it removes
/// the copy.
#[derive(Debug)]
pub(crate) struct Checkout {
    copy: tempfile::TempDir,
    python: PathBuf,
}

impl Checkout {
    /// Creates a virtual environment for pynfs, `with_kerberos` if it is to use
    /// that, copies the checkout and builds the copy. Nothing is written to `dir`.
    ///
    /// # Errors
    /// A message naming what is missing, or the output of a build that produced
    /// nothing.
    pub(crate) fn prepare(dir: &Path, with_kerberos: bool) -> io::Result<Self> {
        if !dir.join("setup.py").is_file() {
            let why = format!("no pynfs checkout at {}: it has no setup.py", dir.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, why));
        }
        packages::ensure(PYTHON_TOOLS)?;
        let target = cargo::target_dir();
        let (python, version) = environment(&std::path::absolute(target.join("pynfs-venv"))?)?;
        if with_kerberos {
            add_kerberos(&python)?;
        }
        eprintln!("   pynfs: Python {version}, {}", python.display());
        let copy = tempfile::Builder::new().prefix("zgate-pynfs-").tempdir()?;
        copy_sources(dir, copy.path())?;
        if with_kerberos {
            correct_import(copy.path())?;
        }
        build(copy.path(), &python)?;
        Ok(Self { copy, python })
    }

    /// Returns a command that runs the interpreter.
    pub(crate) fn python(&self) -> Command {
        Command::new(&self.python)
    }

    /// Returns a command that runs a program in the checkout's folder `within`.
    pub(crate) fn command(&self, within: &str) -> Command {
        let mut command = Command::new(&self.python);
        command.current_dir(self.copy.path().join(within));
        command
    }
}

/// Returns the interpreter of the virtual environment at `venv` and its
/// version. An environment that lacks a module, or whose Python was removed, is
/// created again.
fn environment(venv: &Path) -> io::Result<(PathBuf, String)> {
    let python = venv.join("bin/python3");
    let version = |python: &Path| succeed(Command::new(python).args(["-c", MODULES]));
    if let Ok(version) = version(&python) {
        return Ok((python, version.trim().to_owned()));
    }
    succeed(Command::new("python3").args(["-m", "venv", "--clear"]).arg(venv))?;
    succeed(Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(PACKAGES))?;
    let version = version(&python)?;
    Ok((python, version.trim().to_owned()))
}

/// The Python module of GSS-API: built from source, with MIT's headers.
const GSS_MODULE: &str = "gssapi";

fn add_kerberos(python: &Path) -> io::Result<()> {
    let import = format!("import {GSS_MODULE}");
    if succeed(Command::new(python).args(["-c", &import])).is_err() {
        succeed(Command::new(python).args(["-m", "pip", "install", "--quiet", GSS_MODULE]))?;
    }
    Ok(())
}

/// Corrects one import of minor version 0's suite that has the form of Python 2:
/// without it the suite has no Kerberos, and says so nowhere.
fn correct_import(copy: &Path) -> io::Result<()> {
    let path = copy.join("nfs4.0/lib/rpc/rpcsec/sec_auth_gss.py");
    let text = fs::read_to_string(&path)?;
    let (old, new) = ("\nimport gss_type\n", "\nfrom . import gss_type\n");
    fs::write(path, text.replacen(old, new, 1))
}

/// Copies files, folders and symbolic links, except Git's and the output of
/// earlier builds: an outdated generated file would be kept.
fn copy_sources(from: &Path, to: &Path) -> io::Result<()> {
    const LEFT_OUT: [&str; 3] = [".git", "build", "__pycache__"];
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        let target = to.join(&name);
        let kind = entry.file_type()?;
        if LEFT_OUT.iter().any(|left| name == *left) {
            continue;
        } else if kind.is_dir() {
            fs::create_dir(&target)?;
            copy_sources(&entry.path(), &target)?;
        } else if kind.is_symlink() {
            // Folders of the checkout share their descriptions by links.
            std::os::unix::fs::symlink(fs::read_link(entry.path())?, &target)?;
        } else if kind.is_file() {
            fs::copy(entry.path(), &target)?;
        }
    }
    for built in BUILT {
        match fs::remove_file(to.join(built)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Builds the copy. `setup.py` starts a `python3` of the path in each folder,
/// so the environment's programs come first there.
fn build(copy: &Path, python: &Path) -> io::Result<()> {
    let mut command = Command::new(python);
    command.args(["setup.py", "build"]).current_dir(copy).env("PATH", path_before(python)?);
    let said = succeed(&mut command)?;
    match BUILT.iter().find(|built| !copy.join(built).is_file()) {
        None => Ok(()),
        Some(built) => {
            let tail: Vec<&str> = said.lines().rev().take(20).collect();
            let tail: Vec<&str> = tail.into_iter().rev().collect();
            let why = format!("pynfs's build made no {built}:\n{}", tail.join("\n"));
            Err(io::Error::other(why))
        }
    }
}

/// Returns the path with the interpreter's folder first.
fn path_before(python: &Path) -> io::Result<OsString> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let bin = python.parent().map(Path::to_owned);
    std::env::join_paths(bin.into_iter().chain(std::env::split_paths(&paths))).map_err(|error| {
        io::Error::other(format!("the path has a folder that cannot be named: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A stand-in interpreter that treats `setup.py` as pynfs does: each folder
    /// is built by the first `python3` of the path, and the result is not
    /// checked.
    fn interpreter(dir: &Path, folder: &str) -> PathBuf {
        let python = dir.join("python3");
        let build = format!(
            "#!/bin/sh\ncase $1 in setup.py) python3 folder;; *) {folder};; esac\nexit 0\n"
        );
        fs::write(&python, build).unwrap();
        fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
        python
    }

    fn checkout() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for file in BUILT.iter().chain(&["setup.py", ".git/config", "xdr/build/old"]) {
            let path = dir.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "of the checkout").unwrap();
        }
        std::os::unix::fs::symlink("../nfs4.1/xdrdef", dir.path().join("nfs4.0/xdrdef")).unwrap();
        dir
    }

    #[test]
    fn folders_are_built_by_the_same_interpreter_in_a_copy() {
        let (from, to, bin) =
            (checkout(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        copy_sources(from.path(), to.path()).unwrap();
        assert!(!to.path().join(".git").exists() && !to.path().join("xdr/build").exists());
        assert!(to.path().join("nfs4.0/xdrdef/nfs4_type.py").parent().unwrap().is_dir());
        let made = format!("echo built | tee {}", BUILT.join(" "));
        build(to.path(), &interpreter(bin.path(), &made)).unwrap();
        for file in BUILT {
            assert_eq!(fs::read_to_string(to.path().join(file)).unwrap(), "built\n");
            assert_eq!(fs::read_to_string(from.path().join(file)).unwrap(), "of the checkout");
        }
    }

    #[test]
    fn a_build_that_made_nothing_is_an_error_with_its_output() {
        let (from, to, bin) =
            (checkout(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        copy_sources(from.path(), to.path()).unwrap();
        let python = interpreter(bin.path(), "echo No module named ply");
        let error = build(to.path(), &python).unwrap_err().to_string();
        assert!(error.contains("made no rpc/rpc_type.py"), "{error}");
        assert!(error.contains("No module named ply"), "{error}");
    }
}
