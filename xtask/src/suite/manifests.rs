//! The manifests of `deploy/kubernetes`: `kubectl kustomize` renders the base and each
//! example, and each object is validated against the schemas of Kubernetes.

use crate::servers::scratch::run as run_command;
use crate::totals::Outcome;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

const FOLDER: &str = "deploy/kubernetes";
/// Environment with the validator.
const VENV: &str = "target/kubernetes-venv";
/// Script that validates the objects of a file, and prints each with its result.
const VALIDATE: &str = "xtask/src/suite/manifests.py";

/// Renders and validates everything.
///
/// # Errors
/// A program that cannot be started or installed.
pub(crate) fn run(outcome: &mut Outcome) -> io::Result<()> {
    let python = Path::new(VENV).join("bin/python3");
    if !python.is_file() {
        run_command(Command::new("python3").args(["-m", "venv", VENV]))?;
        let packages = ["-m", "pip", "install", "--quiet", "kubernetes-validate", "pyyaml"];
        run_command(Command::new(&python).args(packages))?;
    }
    for folder in kustomizations(Path::new(FOLDER))? {
        let rendered = Command::new("kubectl").arg("kustomize").arg(&folder).output();
        let rendered = rendered.map_err(|error| {
            io::Error::other(format!("kubectl: {error}; install kubernetes-client"))
        })?;
        if !rendered.status.success() {
            let said = String::from_utf8_lossy(&rendered.stderr).into_owned();
            outcome.check(&format!("{} renders", folder.display()), Err(said));
            continue;
        }
        outcome.check(&format!("{} renders", folder.display()), Ok(()));
        let file = tempfile::NamedTempFile::new()?;
        fs::write(file.path(), &rendered.stdout)?;
        let judged = Command::new(&python).arg(VALIDATE).arg(file.path()).output()?;
        let lines = String::from_utf8_lossy(&judged.stdout).into_owned();
        for line in lines.lines() {
            match line.split_once('\t') {
                Some((name, "")) => outcome.check(name, Ok(())),
                Some((name, reason)) => outcome.check(name, Err(reason.to_owned())),
                None => outcome.failed.push(line.to_owned()),
            }
        }
        if !judged.status.success() || lines.is_empty() {
            let said = String::from_utf8_lossy(&judged.stderr).into_owned();
            outcome.failed.push(format!("{}: {said}", folder.display()));
        }
    }
    helm(outcome)
}

/// Folders with a kustomization.
fn kustomizations(folder: &Path) -> io::Result<Vec<std::path::PathBuf>> {
    let mut found = Vec::new();
    let mut left = vec![folder.to_owned()];
    while let Some(dir) = left.pop() {
        if dir.join("kustomization.yaml").is_file() {
            found.push(dir.clone());
        }
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                left.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Lints the chart where there is a helm program.
fn helm(outcome: &mut Outcome) -> io::Result<()> {
    let chart = Path::new(FOLDER).join("chart");
    match Command::new("helm").arg("lint").arg("--strict").arg(&chart).output() {
        Ok(linted) => {
            let said = String::from_utf8_lossy(&linted.stdout).into_owned();
            let result = if linted.status.success() { Ok(()) } else { Err(said) };
            outcome.check("helm lint", result);
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            outcome.skipped.push("helm lint: no helm program on this machine".to_owned());
            Ok(())
        }
        Err(error) => Err(error),
    }
}
