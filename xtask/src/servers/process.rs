//! A server as a child process: readiness and resource usage.

use std::fs::{self, File};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit until a server accepts connections.
const START_PATIENCE: Duration = Duration::from_secs(30);
/// Time limit until it stops after SIGTERM.
const STOP_PATIENCE: Duration = Duration::from_secs(20);

/// A running server, killed on drop.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    /// Name in reports.
    pub(crate) name: &'static str,
    /// Address it listens on.
    pub(crate) address: SocketAddr,
    child: Child,
}

impl ServerProcess {
    /// Starts a server and waits until it accepts connections.
    ///
    /// # Errors
    /// The end of its log, if it does not start.
    pub(crate) fn start(
        name: &'static str,
        mut command: Command,
        address: SocketAddr,
        log: &Path,
    ) -> io::Result<Self> {
        let out = File::options().create(true).append(true).open(log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()
            .map_err(|error| io::Error::other(format!("cannot start {name}: {error}")))?;
        let mut server = Self { name, address, child };
        let deadline = Instant::now() + START_PATIENCE;
        while TcpStream::connect(address).is_err() {
            let gone = server.child.try_wait()?;
            if gone.is_some() || Instant::now() > deadline {
                let tail = tail_of(log);
                return Err(io::Error::other(format!("{name} does not start; its log:\n{tail}")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// Returns the CPU time of all its threads so far, in seconds.
    ///
    /// # Errors
    /// If the process has ended.
    pub(crate) fn cpu_seconds(&self) -> io::Result<f64> {
        self.cpu_split().map(|(user, system)| user + system)
    }

    /// Returns user and system CPU time of all its threads so far, in seconds.
    ///
    /// # Errors
    /// If the process has ended.
    pub(crate) fn cpu_split(&self) -> io::Result<(f64, f64)> {
        cpu_split(self.child.id())
    }

    /// Returns its peak resident memory, in bytes.
    ///
    /// # Errors
    /// If the process has ended.
    pub(crate) fn peak_memory_bytes(&self) -> io::Result<u64> {
        self.memory_bytes("VmHWM:")
    }

    /// Returns its present resident memory, in bytes.
    ///
    /// # Errors
    /// If the process has ended.
    pub(crate) fn resident_bytes(&self) -> io::Result<u64> {
        self.memory_bytes("VmRSS:")
    }

    fn memory_bytes(&self, row: &str) -> io::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(row));
        let kib =
            line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
        kib.map(|kib| kib << 10)
            .ok_or_else(|| io::Error::other(format!("no {row} in /proc/PID/status")))
    }

    /// Stops it with SIGTERM, as an operator does.
    ///
    /// # Errors
    /// If it had to be killed.
    pub(crate) fn stop(mut self) -> io::Result<()> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        let deadline = Instant::now() + STOP_PATIENCE;
        while self.child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                return Err(io::Error::other(format!("{} does not stop", self.name)));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns user and system CPU time of all threads of a process so far, in
/// seconds; also of one that has ended but was not waited for.
///
/// # Errors
/// If there is no such process.
pub(crate) fn cpu_split(process: u32) -> io::Result<(f64, f64)> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The command name may contain blanks; the fields follow its parenthesis.
    let fields: Vec<&str> =
        stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok());
    let (Some(user), Some(system)) = (ticks(11), ticks(12)) else {
        return Err(io::Error::other("cannot read /proc/PID/stat"));
    };
    let second = rustix::param::clock_ticks_per_second() as f64;
    Ok((user / second, system / second))
}

/// Returns the end of a log.
pub(crate) fn tail_of(log: &Path) -> String {
    let text = fs::read(log).map(|raw| String::from_utf8_lossy(&raw).into_owned());
    let text = text.unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
