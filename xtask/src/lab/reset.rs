//! Power of the second machine, at the command of either machine: to the lab what
//! a management board is to a pair of servers. It works if the machine hangs, too.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Time between two looks for an order.
const PAUSE: Duration = Duration::from_millis(50);
/// Time limit of the emulator for an answer.
const ANSWER: Duration = Duration::from_secs(10);
/// Most lines that the emulator may print before the answer to a command.
const EVENTS: usize = 64;

/// Order of a machine: what happens to the second one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// It loses its memory and boots again.
    Reset,
    /// Its processors stand still.
    Stop,
    /// They go on.
    Continue,
}

impl Order {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "reset" => Some(Self::Reset),
            "stop" => Some(Self::Stop),
            "continue" => Some(Self::Continue),
            _ => None,
        }
    }

    /// Returns the emulator's commands. A machine that stands still would not
    /// boot.
    fn commands(self) -> &'static [&'static str] {
        match self {
            Self::Reset => &["system_reset", "cont"],
            Self::Stop => &["stop"],
            Self::Continue => &["cont"],
        }
    }
}

/// Thread that waits for orders until this is dropped.
#[derive(Debug)]
pub(crate) struct ResetSwitch {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ResetSwitch {
    /// Watches the directory in which both machines leave orders: the file
    /// `power` has a number and the order, `power.done` gets the number.
    pub(crate) fn new(orders: PathBuf, monitor: PathBuf) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let watched = Arc::clone(&ended);
        let thread = std::thread::spawn(move || {
            while !watched.load(Ordering::Relaxed) {
                std::thread::sleep(PAUSE);
                if let Err(error) = obey(&orders, &monitor) {
                    eprintln!("   power of the second machine: {error}");
                }
            }
        });
        Self { ended, thread: Some(thread) }
    }
}

impl Drop for ResetSwitch {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It has printed its errors itself.
            let _ = thread.join();
        }
    }
}

/// Executes the order that waits, if there is one.
fn obey(orders: &Path, monitor: &Path) -> io::Result<()> {
    let waiting = orders.join("power");
    let Ok(text) = fs::read_to_string(&waiting) else { return Ok(()) };
    fs::remove_file(&waiting)?;
    let invalid = || io::Error::new(io::ErrorKind::InvalidData, format!("no order: {text:?}"));
    let (number, order) = text.trim().split_once(' ').ok_or_else(invalid)?;
    let order = Order::parse(order).ok_or_else(invalid)?;
    if order == Order::Reset {
        // It says so itself when it has booted again.
        match fs::remove_file(orders.join("ready")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    execute(monitor, order.commands())?;
    let part = orders.join("power.part");
    fs::write(&part, number)?;
    fs::rename(part, orders.join("power.done"))
}

/// Has commands executed by the emulator (QMP), one after the other.
fn execute(monitor: &Path, commands: &[&str]) -> io::Result<()> {
    let mut stream = UnixStream::connect(monitor)?;
    stream.set_read_timeout(Some(ANSWER))?;
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    for command in ["qmp_capabilities"].iter().chain(commands) {
        writeln!(stream, "{{\"execute\": \"{command}\"}}")?;
        let answer = lines.by_ref().take(EVENTS).find_map(|line| match line {
            Ok(line) if line.contains("\"return\"") => Some(Ok(())),
            Ok(line) if line.contains("\"error\"") => Some(Err(io::Error::other(line))),
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        });
        answer.unwrap_or_else(|| Err(io::ErrorKind::UnexpectedEof.into()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    /// Emulator that notes commands, and prints an event before each answer.
    fn emulator(path: &Path) -> JoinHandle<Vec<String>> {
        let listener = UnixListener::bind(path).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            writeln!(stream, "{{\"QMP\": {{}}}}").unwrap();
            let mut noted = Vec::new();
            for line in BufReader::new(stream.try_clone().unwrap()).lines() {
                noted.push(line.unwrap());
                writeln!(stream, "{{\"event\": \"RESET\"}}\n{{\"return\": {{}}}}").unwrap();
            }
            noted
        })
    }

    #[test]
    fn an_order_is_executed_and_confirmed_once() {
        let dir = tempfile::tempdir().unwrap();
        let monitor = dir.path().join("qmp");
        let emulator = emulator(&monitor);
        fs::write(dir.path().join("ready"), "").unwrap();
        fs::write(dir.path().join("power"), "17 reset\n").unwrap();
        obey(dir.path(), &monitor).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("power.done")).unwrap(), "17");
        assert!(!dir.path().join("ready").exists());
        assert!(!dir.path().join("power").exists());
        obey(dir.path(), &monitor).unwrap();
        let noted = emulator.join().unwrap().join(" ");
        assert!(noted.contains("qmp_capabilities") && noted.contains("system_reset"), "{noted}");
    }

    #[test]
    fn what_is_no_order_is_not_confirmed() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("power"), "18 explode").unwrap();
        assert!(obey(dir.path(), &dir.path().join("qmp")).is_err());
        assert!(!dir.path().join("power.done").exists());
    }
}
