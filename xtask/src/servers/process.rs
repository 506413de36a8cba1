//! A server as a child process: when it is ready, what it used.

use std::fs::{self, File};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take until it accepts connections.
const START_PATIENCE: Duration = Duration::from_secs(30);
/// How long it may take to stop after SIGTERM.
const STOP_PATIENCE: Duration = Duration::from_secs(20);

/// A running server; killed when dropped.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    /// What reports call it.
    pub(crate) name: &'static str,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    child: Child,
}

impl ServerProcess {
    /// Starts a server and waits until it accepts connections.
    ///
    /// # Errors
    /// With the end of its log when it does not come up.
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
                return Err(io::Error::other(format!("{name} does not come up; its log:\n{tail}")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// CPU time of all its threads so far, in seconds.
    ///
    /// # Errors
    /// When the process is gone.
    pub(crate) fn cpu_seconds(&self) -> io::Result<f64> {
        self.cpu_split().map(|(user, system)| user + system)
    }

    /// User and system CPU time of all its threads so far, in seconds.
    ///
    /// # Errors
    /// When the process is gone.
    pub(crate) fn cpu_split(&self) -> io::Result<(f64, f64)> {
        cpu_split(self.child.id())
    }

    /// Most memory it had resident, in bytes.
    ///
    /// # Errors
    /// When the process is gone.
    pub(crate) fn peak_memory_bytes(&self) -> io::Result<u64> {
        self.memory_bytes("VmHWM:")
    }

    /// Memory it has resident now, in bytes.
    ///
    /// # Errors
    /// When the process is gone.
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

    /// Stops it as an operator does.
    ///
    /// # Errors
    /// When it has to be killed.
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
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// User and system CPU time of all threads of a process so far, in seconds;
/// also of one that has ended and was not waited for.
///
/// # Errors
/// When there is no such process.
pub(crate) fn cpu_split(process: u32) -> io::Result<(f64, f64)> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The command name may hold blanks; the fields follow its parenthesis.
    let fields: Vec<&str> =
        stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok());
    let (Some(user), Some(system)) = (ticks(11), ticks(12)) else {
        return Err(io::Error::other("cannot read /proc/PID/stat"));
    };
    let second = rustix::param::clock_ticks_per_second() as f64;
    Ok((user / second, system / second))
}

/// The end of a log.
pub(crate) fn tail_of(log: &Path) -> String {
    let text = fs::read(log).map(|raw| String::from_utf8_lossy(&raw).into_owned());
    let text = text.unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
