//! The commands of the documents for users: those that need nothing but this
//! machine are run, with the output that the document shows; of the others each
//! block names the scenario of the lab that has them. The gateway that they talk
//! to serves the README's own configuration from a scratch directory, one for each
//! document: later blocks use files of earlier ones.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use zgate_test_harness::documents::{self, Block, DOCUMENTS, Runner, repository};
use zgate_test_harness::{free_port, not_run, zgate_binary};

/// The longest a gateway may take to come up.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Size of the disk that stands for a zvol, in bytes.
const DISK_BYTES: u64 = 1 << 20;

/// A scratch directory where the documents' commands find what they name.
struct Scratch {
    dir: tempfile::TempDir,
    nfs: u16,
    iscsi: u16,
    metrics: u16,
    gateway: Option<Child>,
}

impl Scratch {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (nfs, iscsi, metrics) = (free_port(), free_port(), free_port());
        let scratch = Self { dir, nfs, iscsi, metrics, gateway: None };
        let root = scratch.dir.path();
        for folder in ["bin", "tank/models", "tank/luns", "target/dist", "etc/zgate"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        for disk in ["vm0", "vm1", "disk.img"] {
            fs::File::create(root.join(disk)).unwrap().set_len(DISK_BYTES).unwrap();
        }
        let token = root.join("etc/zgate/status-token");
        fs::write(&token, "a-token-of-32-characters-0123456\n").unwrap();
        fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(root.join("zgate.toml"), scratch.configuration()).unwrap();
        // The commands as they are written, with the ports and the socket of
        // this test.
        let script = format!(
            "#!/bin/sh\ncase \"$1\" in\n\
             demo) exec {program} \"$@\" --port {} --metrics-port {} ;;\n\
             status|top|exports|clients|targets|sessions|lun|acl|reload|drain|mount-hint)\n\
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
             metrics_listen = \"127.0.0.1:{}\"\nstatus_token_file = \"{root}/etc/zgate/status-token\"\n",
            self.metrics
        );
        let target = format!(
            "[[target]]\nname = \"iqn.2026-11.test:vm\"\nallow_any_initiator = true\n\
             [[target.lun]]\nnumber = 0\npath = \"{root}/vm1\"\n"
        );
        text.replace("[server]\n", &server)
            .replace("0.0.0.0:2049", &format!("127.0.0.1:{}", self.nfs))
            .replace("0.0.0.0:3260", &format!("127.0.0.1:{}", self.iscsi))
            .replace("\"/tank/", &format!("\"{root}/tank/"))
            .replace("/dev/zvol/tank/vm0", &format!("{root}/vm0"))
            + &target
    }

    fn shell(&self, command: &str) -> Command {
        let root = self.dir.path();
        let path = std::env::var("PATH").unwrap_or_default();
        let command = command
            .replace("/tank/", &format!("{}/tank/", root.display()))
            .replace("/etc/zgate/", &format!("{}/etc/zgate/", root.display()))
            .replace("http://gw:9469", &format!("http://127.0.0.1:{}", self.metrics))
            .replace("iscsi://nas:3260", &format!("iscsi://127.0.0.1:{}", self.iscsi));
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

fn run(scratch: &mut Scratch, block: &Block) {
    const SERVE: &str = "zgate serve";
    let commands = block.commands();
    let starts = commands.iter().any(|command| command.text.starts_with(SERVE));
    if !starts && scratch.gateway.is_none() {
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
        if !output.is_empty() && block.runner() == Runner::Output {
            assert_eq!(without_measurements(&said), without_measurements(output), "{place}");
        }
    }
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&path).any(|dir| dir.join(program).is_file());
    // Its driver for iSCSI is a Debian package of its own.
    is_there && (program != "qemu-img" || qemu_img_has_iscsi())
}

fn qemu_img_has_iscsi() -> bool {
    let help = Command::new("qemu-img").arg("--help").output();
    help.is_ok_and(|help| String::from_utf8_lossy(&help.stdout).contains(" iscsi "))
}

/// Checks that a scenario has the commands of a block: either it reads them from
/// the document, or it has each program with its subcommands. The rest is its own
/// names.
fn check_lab(block: &Block, scenario: &str) {
    let path = repository(&format!("tests/lab/scenarios/{scenario}.sh"));
    let text = fs::read_to_string(&path);
    let text = text.unwrap_or_else(|error| panic!("{}: {scenario}: {error}", block.place));
    if text.contains("DOCUMENT=/lab/deploy/INSTALL.md") {
        return;
    }
    // The vocabulary that it is written in.
    let sourced: Vec<_> =
        text.lines().filter_map(|line| line.strip_prefix(". /lab/guest/")).collect();
    let read = |name: &&str| fs::read_to_string(repository(&format!("tests/lab/guest/{name}")));
    let sourced: String = sourced.iter().map(|name| read(name).unwrap()).collect();
    let text = (text + &sourced).replace("\"$ZGATE\"", "zgate");
    let text = text.replace("dpkg_run -i", "apt-get install");
    for command in block.commands() {
        let is_word = |word: &&str| word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        let words = command.text.split(' ').take_while(is_word);
        let words: Vec<_> = words.take_while(|word| !word.starts_with('-')).collect();
        // A person's part.
        if matches!(words[..], ["editor" | "vi" | "cp", ..]) {
            continue;
        }
        let place = &block.place;
        assert!(text.contains(&words.join(" ")), "{place}: {scenario} has no {}", command.text);
    }
}

/// Runs the commands of a document, at least those of so many blocks.
fn run_all(document: &str, least: usize) {
    let mut scratch = Scratch::new();
    let mut ran = 0;
    for block in documents::blocks(document).iter().filter(|block| block.has_commands()) {
        match block.runner() {
            Runner::Output | Runner::Success => run(&mut scratch, block),
            Runner::Programs(programs) => {
                let missing = programs.split(' ').find(|program| !is_installed(program));
                if let Some(program) = missing {
                    not_run(&block.place, &format!("{program} is missing"));
                    continue;
                }
                run(&mut scratch, block);
            }
            Runner::Lab(scenario) => {
                check_lab(block, scenario);
                continue;
            }
            Runner::None(_) => continue,
        }
        ran += 1;
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
    run_all("docs/OPERATIONS.md", 7);
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

/// Those of a pair cannot be tried here: they need two machines.
#[test]
fn commands_of_a_pair_fit_its_configurations() {
    let blocks = documents::blocks("docs/HIGH_AVAILABILITY.md");
    let usual = zgate_config::Config::default().server;
    let commands: Vec<String> = blocks
        .iter()
        .filter(|block| block.has_commands())
        .flat_map(|block| block.commands().into_iter().map(|command| command.text))
        .collect();
    let configurations = blocks.iter().filter(|block| block.language == "toml");
    for (index, block) in configurations.enumerate() {
        let config = zgate_config::parse(&block.text, Path::new(&block.place)).unwrap();
        let dir = &config.server.state_dir;
        let makes = |command: &String| {
            command.starts_with("install -d") && command.ends_with(&format!(" {}", dir.display()))
        };
        let made = *dir == usual.state_dir || commands.iter().any(makes);
        assert!(made, "{}: no command makes {}", block.place, dir.display());
        // The first one is that of the pool, to which commands without --socket talk.
        let socket = &config.server.admin_socket;
        assert!(index > 0 || *socket == usual.admin_socket, "{}: {socket:?}", block.place);
    }
}
