//! The commands of the documents for users: those that need nothing but this
//! machine are run, with the output that the document shows. The gateway that
//! they talk to serves the README's own configuration from a scratch directory.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use zgate_test_harness::documents::{self, Block, DOCUMENTS};
use zgate_test_harness::{free_port, zgate_binary};

/// The longest a gateway may take to come up.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Size of the disk that stands for a zvol, in bytes.
const DISK_BYTES: u64 = 1 << 20;

/// A scratch directory where the documents' commands find what they name.
struct Scratch {
    dir: tempfile::TempDir,
    nfs: u16,
    iscsi: u16,
    gateway: Option<Child>,
}

impl Scratch {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let scratch = Self { dir, nfs: free_port(), iscsi: free_port(), gateway: None };
        let root = scratch.dir.path();
        for folder in ["bin", "tank/models", "tank/luns", "target/dist"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        fs::File::create(root.join("vm0")).unwrap().set_len(DISK_BYTES).unwrap();
        fs::write(root.join("zgate.toml"), scratch.configuration()).unwrap();
        // The commands as they are written, with the ports and the socket of
        // this test.
        let script = format!(
            "#!/bin/sh\ncase \"$1\" in\n\
             demo) exec {program} \"$@\" --port {} --metrics-port {} ;;\n\
             status|exports|clients|targets|sessions|lun|acl|reload|drain|mount-hint)\n\
             exec {program} \"$@\" --socket {}/admin.sock ;;\n\
             *) exec {program} \"$@\" ;;\nesac\n",
            free_port(),
            free_port(),
            root.display(),
            program = zgate_binary().display(),
        );
        for program in ["bin/zgate", "target/dist/zgate"] {
            fs::write(root.join(program), &script).unwrap();
            fs::set_permissions(root.join(program), fs::Permissions::from_mode(0o755)).unwrap();
        }
        scratch
    }

    /// The configurations of the README, and the target that OPERATIONS.md
    /// changes.
    fn configuration(&self) -> String {
        let blocks = documents::blocks("README.md");
        let toml = blocks.iter().filter(|block| block.language == "toml");
        let text: String = toml.map(|block| block.text.as_str()).collect();
        let root = self.dir.path().display();
        let server = format!(
            "[server]\nstate_dir = \"{root}/state\"\nadmin_socket = \"{root}/admin.sock\"\n\
             metrics_listen = \"127.0.0.1:0\"\n"
        );
        let target = "[[target]]\nname = \"iqn.2026-11.test:vm\"\n";
        text.replace("[server]\n", &server)
            .replace("0.0.0.0:2049", &format!("127.0.0.1:{}", self.nfs))
            .replace("0.0.0.0:3260", &format!("127.0.0.1:{}", self.iscsi))
            .replace("\"/tank/", &format!("\"{root}/tank/"))
            .replace("/dev/zvol/tank/vm0", &format!("{root}/vm0"))
            + target
    }

    fn shell(&self, command: &str) -> Command {
        let root = self.dir.path();
        let path = std::env::var("PATH").unwrap_or_default();
        let command = command.replace("/tank/", &format!("{}/tank/", root.display()));
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &format!("exec 2>&1; {command}")])
            .current_dir(root)
            .env("PATH", format!("{}:{path}", root.join("bin").display()));
        shell
    }

    fn run(&self, command: &str) -> Output {
        self.shell(command).output().unwrap()
    }

    /// Starts a gateway by this command, and waits until it answers.
    fn serve(&mut self, command: &str) {
        let command = format!("exec {command}");
        let quiet = self.shell(&command).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = self.gateway.insert(quiet.unwrap());
        let id = child.id();
        let begin = Instant::now();
        while !self.run("zgate status").status.success() {
            let ended = self.gateway.as_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none(), "{command} ended: {ended:?}");
            assert!(begin.elapsed() < START_TIMEOUT, "{command}, process {id}, does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns an output as it would be with the usual ports and paths.
    fn usual(&self, output: &Output) -> String {
        let text = String::from_utf8_lossy(&output.stdout);
        text.replace(&format!("{}/tank/", self.dir.path().display()), "/tank/")
            .replace(&format!("{}/conf.d/", self.dir.path().display()), "/etc/zgate/conf.d/")
            .replace(&format!(":{}", self.nfs), ":2049")
            .replace(&format!(" {}", self.iscsi), " 3260")
            .replace(&format!(":{}", self.iscsi), ":3260")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(mut gateway) = self.gateway.take() {
            let _ = gateway.kill();
            let _ = gateway.wait();
        }
    }
}

/// Replaces numbers with a decimal point: they are measurements.
fn without_measurements(text: &str) -> String {
    let measured = |word: &str| word == "…" || word.parse::<f64>().is_ok() && word.contains('.');
    let line = |line: &str| {
        let words = line.split(' ').map(|word| if measured(word) { "N" } else { word });
        words.collect::<Vec<_>>().join(" ")
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

fn run(block: &Block) {
    const SERVE: &str = "zgate serve";
    let mut scratch = Scratch::new();
    let commands = block.commands();
    if !commands.iter().any(|command| command.text.starts_with(SERVE)) {
        scratch.serve("zgate serve --config zgate.toml");
    }
    for documents::Command { text, output } in &commands {
        if text.starts_with(SERVE) {
            scratch.serve(text);
            continue;
        }
        let done = scratch.run(text);
        let said = scratch.usual(&done);
        let place = format!("{}: {text}", block.place);
        assert!(done.status.success() || output.starts_with("zgate: "), "{place}: {said}");
        if !output.is_empty() {
            assert_eq!(without_measurements(&said), without_measurements(output), "{place}");
        }
    }
}

/// Runs the commands of a document, at least those of so many blocks.
fn run_all(document: &str, least: usize) {
    let mut ran = 0;
    for block in documents::blocks(document).iter().filter(|block| block.has_commands()) {
        if block.marker == "run" {
            run(block);
            ran += 1;
            continue;
        }
        let reason = block.marker.strip_prefix("needs: ").unwrap_or_default();
        assert!(!reason.is_empty(), "{}: mark it `run` or `needs: REASON`", block.place);
    }
    assert!(ran >= least, "{document}: only {ran} blocks were run");
}

#[test]
fn commands_of_the_readme_run() {
    run_all("README.md", 1);
}

#[test]
fn commands_of_the_installation_run() {
    run_all("deploy/INSTALL.md", 1);
}

#[test]
fn commands_of_operations_run() {
    run_all("docs/OPERATIONS.md", 4);
}

#[test]
fn documented_configurations_are_valid() {
    for block in DOCUMENTS.iter().flat_map(|document| documents::blocks(document)) {
        if block.language == "toml" {
            let checked = zgate_config::parse(&block.text, Path::new(&block.place));
            assert!(checked.is_ok(), "{}", checked.unwrap_err());
        }
    }
}
