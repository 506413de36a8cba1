//! Clients that load the model, and the cost of one load; each runs in a
//! separate process.

use crate::servers::ServerProcess;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Script that loads every tensor of every file into its own memory and prints
/// the time: the time starts after the imports.
const SAFETENSORS: &str = "
import sys, time
from safetensors.numpy import load_file
begun = time.perf_counter()
loaded = [load_file(name) for name in sys.argv[1:]]
print(time.perf_counter() - begun)
";

/// A client that loads the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Contender {
    /// `zgate load --stream` over TCP: tensors are dropped as they arrive, as
    /// nfs-cat drops its data.
    Stream,
    /// `zgate load` over TCP: all tensors are kept.
    Keep,
    /// The safetensors package, from the file system the server exports.
    Local,
    /// libnfs's nfs-cat, one file after the other, to /dev/null.
    NfsCat,
}

impl Contender {
    pub(super) const ALL: [Self; 4] = [Self::Stream, Self::Keep, Self::Local, Self::NfsCat];

    /// Returns the name in reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Stream => "zgate load --stream",
            Self::Keep => "zgate load",
            Self::Local => "safetensors, local",
            Self::NfsCat => "nfs-cat",
        }
    }
}

/// Measurements of one load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figure {
    pub(super) seconds: f64,
    pub(super) client_cpu_seconds: f64,
    pub(super) server_cpu_seconds: f64,
    /// Peak resident memory of the client, in bytes.
    pub(super) client_peak_bytes: u64,
}

/// Source of the loads.
#[derive(Debug)]
pub(super) struct Field<'a> {
    pub(super) binary: &'a Path,
    pub(super) python: &'a Path,
    pub(super) server: &'a ServerProcess,
    /// Directory of the model on this machine, and its path in the export.
    pub(super) dir: PathBuf,
    pub(super) exported: &'a str,
    pub(super) files: &'a [String],
    pub(super) connections: usize,
}

impl Field<'_> {
    /// Loads the whole model once.
    ///
    /// # Errors
    /// The error, with the client's output.
    pub(super) fn load(&self, contender: Contender) -> io::Result<Figure> {
        let before = self.server.cpu_seconds()?;
        let (mut seconds, mut cpu, mut peak) = (0.0, 0.0, 0u64);
        for command in self.commands(contender) {
            let ended = run(command)?;
            cpu += ended.cpu_seconds;
            peak = peak.max(ended.peak_bytes);
            seconds += match contender {
                // These two are compared by their total time, from start to end
                // of the process.
                Contender::NfsCat => ended.seconds,
                Contender::Stream => {
                    peak = peak.max(said_peak_bytes(&ended.said)?);
                    ended.seconds
                }
                // These two are compared by the time of the load only.
                Contender::Local => number(ended.said.trim())?,
                Contender::Keep => {
                    let said: serde_json::Value = serde_json::from_str(&ended.said)?;
                    peak = peak.max(said_peak_bytes(&ended.said)?);
                    number(&said[0]["seconds"].to_string())?
                }
            };
        }
        Ok(Figure {
            seconds,
            client_cpu_seconds: cpu,
            server_cpu_seconds: self.server.cpu_seconds()? - before,
            client_peak_bytes: peak,
        })
    }

    fn commands(&self, contender: Contender) -> Vec<Command> {
        let port = self.server.address.port();
        match contender {
            Contender::Stream | Contender::Keep => {
                let mut command = Command::new(self.binary);
                let url = format!(
                    "nfs://127.0.0.1:{port}/export/{}?rdma=off&connections={}",
                    self.exported, self.connections
                );
                command.args(["load", "--json", &url]);
                if contender == Contender::Stream {
                    command.arg("--stream");
                }
                vec![command]
            }
            Contender::Local => {
                let mut command = Command::new(self.python);
                command.args(["-c", SAFETENSORS]);
                command.args(self.files.iter().map(|name| self.dir.join(name)));
                vec![command]
            }
            Contender::NfsCat => self
                .files
                .iter()
                .map(|name| {
                    let url = format!(
                        "nfs://127.0.0.1/export/{}/{name}?version=4&nfsport={port}",
                        self.exported
                    );
                    let mut command = Command::new("sh");
                    command.args(["-c", "exec nfs-cat \"$0\" > /dev/null", &url]);
                    command
                })
                .collect(),
        }
    }
}

/// Returns the memory that `zgate load --json` reports.
fn said_peak_bytes(said: &str) -> io::Result<u64> {
    let said: serde_json::Value = serde_json::from_str(said)?;
    Ok(said[0]["peak_memory_bytes"].as_u64().unwrap_or(0))
}

fn number(text: &str) -> io::Result<f64> {
    text.parse().map_err(|_| io::Error::other(format!("no figure: {text}")))
}

/// Result of a process that has ended.
struct Ended {
    seconds: f64,
    cpu_seconds: f64,
    peak_bytes: u64,
    said: String,
}

/// Runs a command that must succeed, and samples its memory meanwhile.
fn run(mut command: Command) -> io::Result<Ended> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let begun = Instant::now();
    let mut child = command.spawn()?;
    let ended = AtomicBool::new(false);
    let (seconds, peak_bytes) = std::thread::scope(|scope| {
        let peak = scope.spawn(|| watch_peak(child.id(), &ended));
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let waited = waitid(WaitId::Pid(Pid::from_child(&child)), options);
        let seconds = begun.elapsed().as_secs_f64();
        ended.store(true, Ordering::Relaxed);
        waited.map_err(io::Error::from)?;
        let peak = peak.join().map_err(|_| io::Error::other("the sampling thread panicked"))?;
        Ok::<_, io::Error>((seconds, peak))
    })?;
    // The process has ended but was not waited for: the kernel still has its
    // accounting.
    let (user, system) = crate::servers::cpu_split(child.id())?;
    let (mut said, mut complaint) = (String::new(), String::new());
    if let Some(mut pipe) = child.stdout.take() {
        pipe.read_to_string(&mut said)?;
    }
    if let Some(mut pipe) = child.stderr.take() {
        pipe.read_to_string(&mut complaint)?;
    }
    if !child.wait()?.success() {
        return Err(io::Error::other(format!("{command:?}: {complaint}{said}")));
    }
    Ok(Ended { seconds, cpu_seconds: user + system, peak_bytes, said })
}

/// Returns the peak resident memory of a process, sampled until it has ended.
fn watch_peak(pid: u32, ended: &AtomicBool) -> u64 {
    let mut peak_bytes = 0;
    while !ended.load(Ordering::Relaxed) {
        // The process may end between two samples: the last value counts.
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok());
        peak_bytes = kib.map_or(peak_bytes, |kib: u64| kib << 10);
        std::thread::sleep(Duration::from_millis(4));
    }
    peak_bytes
}
