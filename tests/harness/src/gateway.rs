//! A gateway as a process of its own.

use crate::{free_port, zgate_binary};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The longest a gateway may take to come up.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// A gateway that exports a scratch directory as `/export`.
pub struct Gateway {
    /// The scratch directory with its configuration, state and export.
    pub dir: tempfile::TempDir,
    /// NFS over TCP.
    pub address: SocketAddr,
    /// RLIMIT_NOFILE of its process, where it is not the test's own.
    open_files: Option<u64>,
    /// The configuration that it runs with; its socket and log lie beside it.
    config: PathBuf,
    child: Child,
}

impl Gateway {
    /// Starts one with this lease and grace period.
    pub fn start(lease_seconds: u32) -> Self {
        Self::start_with(lease_seconds, "")
    }

    /// Starts one with more configuration; `{dir}` in it is the scratch
    /// directory.
    pub fn start_with(lease_seconds: u32, more: &str) -> Self {
        Self::start_prepared(lease_seconds, more, |_| ())
    }

    /// The same; `prepare` puts files into the scratch directory first.
    pub fn start_prepared(lease_seconds: u32, more: &str, prepare: impl FnOnce(&Path)) -> Self {
        Self::start_limited(lease_seconds, more, None, prepare)
    }

    /// The same with a limit of open files.
    pub fn start_limited(
        lease_seconds: u32,
        more: &str,
        open_files: Option<u64>,
        prepare: impl FnOnce(&Path),
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        prepare(dir.path());
        fs::create_dir(dir.path().join("export")).unwrap();
        let port = free_port();
        let config = format!(
            "[server]\nlisten = [\"127.0.0.1:{port}\"]\nstate_dir = \"{0}/state\"\n\
             lease_seconds = {lease_seconds}\ngrace_seconds = {lease_seconds}\n\
             admin_socket = \"{0}/admin.sock\"\nmetrics_listen = \"127.0.0.1:0\"\n\
             [[export]]\npath = \"{0}/export\"\npseudo = \"/export\"\n\
             clients = [{{ match = \"127.0.0.1\", access = \"rw\", squash = \"none\" }}]\n",
            dir.path().display()
        );
        let config = config + &more.replace("{dir}", &dir.path().display().to_string());
        let path = dir.path().join("zgate.toml");
        fs::write(&path, config).unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let child = spawn(path.clone(), address, open_files);
        Self { dir, address, open_files, config: path, child }
    }

    /// Returns the exported directory.
    pub fn export(&self) -> PathBuf {
        self.dir.path().join("export")
    }

    /// Kills the gateway with SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again on the same port, state and export.
    pub fn restart(&mut self) {
        self.child = spawn(self.config.clone(), self.address, self.open_files);
    }

    /// Writes a configuration as another machine has it: other address, socket
    /// and directories, the same state and export. Returns its path, and the
    /// address.
    pub fn configure_elsewhere(&self) -> (PathBuf, SocketAddr) {
        let elsewhere = self.dir.path().join("elsewhere");
        fs::create_dir_all(&elsewhere).unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let socket = |dir: &Path| format!("\"{}/admin.sock\"", dir.display());
        let text = fs::read_to_string(&self.config).unwrap();
        let text = text.replace(&self.address.to_string(), &address.to_string());
        let text = text.replace(&socket(self.dir.path()), &socket(&elsewhere));
        let config = elsewhere.join("zgate.toml");
        fs::write(&config, text).unwrap();
        (config, address)
    }

    /// Starts it again as another machine does that takes over.
    pub fn restart_elsewhere(&mut self) {
        (self.config, self.address) = self.configure_elsewhere();
        self.restart();
    }

    /// Returns what it has logged since it was first started there.
    pub fn log(&self) -> String {
        fs::read_to_string(self.config.with_extension("log")).unwrap()
    }

    /// Returns the output of `zgate status`.
    pub fn status(&self) -> serde_json::Value {
        let output = self.command(&["status", "--json"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "zgate status: {said}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Returns the bytes in its buffers.
    pub fn buffers_in_use(&self) -> usize {
        self.status()["buffers_in_use_bytes"].as_u64().unwrap() as usize
    }

    /// Returns the bytes transferred over a transport in a direction, and the
    /// bytes copied, so far.
    pub fn carried(&self, transport: &str, direction: &str) -> (u64, u64) {
        let status = self.status();
        let of = |one: &&serde_json::Value| {
            (&one["transport"], &one["direction"]) == (&transport.into(), &direction.into())
        };
        let one = status["data"].as_array().unwrap().iter().find(of).unwrap();
        (one["moved_bytes"].as_u64().unwrap(), one["copied_bytes"].as_u64().unwrap())
    }

    /// Runs a live command against it.
    pub fn command(&self, args: &[&str]) -> std::process::Output {
        Command::new(zgate_binary())
            .args(args)
            .arg("--socket")
            .arg(self.config.with_file_name("admin.sock"))
            .output()
            .unwrap()
    }

    /// Returns whether it still runs.
    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Returns the number of its open descriptors.
    pub fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    /// Returns its peak resident memory, in bytes.
    pub fn peak_memory_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() << 10
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Stops it with SIGSTOP until SIGCONT: none of its threads runs any more
    /// on return.
    pub fn freeze(&self) {
        self.signal(rustix::process::Signal::STOP);
        let pid = rustix::process::WaitId::Pid(rustix::process::Pid::from_child(&self.child));
        let stopped = rustix::process::WaitIdOptions::STOPPED;
        assert!(rustix::process::waitid(pid, stopped).unwrap().unwrap().stopped());
    }

    /// Sends SIGTERM and waits for an orderly end.
    pub fn stop(&mut self) -> bool {
        self.signal(rustix::process::Signal::TERM);
        self.child.wait().unwrap().success()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a PATH with the test's own programs first.
fn bin_first(config: &Path) -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{}:{path}", config.with_file_name("bin").display())
}

/// The program, in a shell that sets the limit where there is one.
fn program(open_files: Option<u64>) -> Command {
    let Some(limit) = open_files else { return Command::new(zgate_binary()) };
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -n $0 && exec \"$@\""]).arg(limit.to_string()).arg(zgate_binary());
    shell
}

fn spawn(config: PathBuf, address: SocketAddr, open_files: Option<u64>) -> Child {
    let log = fs::File::options().create(true).append(true).open(config.with_extension("log"));
    let mut child = program(open_files)
        .args(["serve", "--config"])
        .arg(&config)
        .env("ZGATE_LOG", "info")
        .env("PATH", bin_first(&config))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log.unwrap())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + START_TIMEOUT;
    let admin_socket = config.with_file_name("admin.sock");
    let is_up =
        || TcpStream::connect(address).is_ok() && UnixStream::connect(&admin_socket).is_ok();
    while !is_up() {
        let log = || fs::read_to_string(config.with_extension("log")).unwrap_or_default();
        assert!(child.try_wait().unwrap().is_none(), "the gateway ended: {}", log());
        assert!(Instant::now() < deadline, "the gateway does not come up: {}", log());
        std::thread::sleep(Duration::from_millis(10));
    }
    child
}
