//! Transfer of a stream from `zfs send` to a file or a receiver. All programs
//! are started with their arguments as they are; no shell of this machine sees
//! them.

use super::destination::Destination;
use super::send::Sending;
use crate::tool::command_line;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

/// Bytes copied at a time.
const CHUNK_BYTES: usize = 1 << 20;
/// Most bytes kept of a program's error output.
const SAID_BYTES: u64 = 64 << 10;

/// Result of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Bytes transferred.
    pub bytes: u64,
}

/// Reason for which a stream did not arrive completely.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// A program could not be started.
    #[error("cannot run {program}: {source}")]
    Start {
        /// Name of the program.
        program: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The file could not be written.
    #[error("{path}: {source}", path = .path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The file exists already.
    #[error("{path} exists already; choose another name or remove it", path = .0.display())]
    Exists(PathBuf),
    /// A program exited with a status other than 0; the stream is incomplete.
    #[error("{command}: {said}")]
    Failed {
        /// The command line.
        command: String,
        /// Its error output.
        said: String,
        /// Bytes transferred before the failure.
        bytes: u64,
    },
}

impl StreamError {
    /// Returns whether data had been transferred before the failure.
    #[must_use]
    pub fn was_under_way(&self) -> bool {
        matches!(self, Self::Failed { bytes, .. } if *bytes > 0)
    }
}

/// Commands that reach the receiver.
#[derive(Clone, Debug)]
pub struct Transport {
    /// ssh, or a program in its place; is called with host and command.
    pub ssh: String,
}

impl Transport {
    /// Returns the command that runs a program on the other machine; empty for
    /// this one.
    #[must_use]
    pub fn ask(&self, login: Option<&str>) -> Vec<String> {
        let there = |login: &str| vec![self.ssh.clone(), "--".to_owned(), login.to_owned()];
        login.map(there).unwrap_or_default()
    }

    /// Returns the command that receives a stream: resumable, without mounting, and
    /// never with `-F`, which destroys what the sender does not have.
    #[must_use]
    pub fn receive(&self, destination: &Destination) -> Option<Vec<String>> {
        let (login, dataset) = match destination {
            Destination::File(_) => return None,
            Destination::Ssh { login, dataset } => (Some(login.as_str()), dataset),
            Destination::Local(dataset) => (None, dataset),
        };
        let arguments = ["receive", "-s", "-u", dataset.as_str()];
        let mut command = self.ask(login);
        if command.is_empty() {
            command.push("zfs".to_owned());
            command.extend(arguments.into_iter().map(str::to_owned));
        } else {
            // The remote shell receives one line: quote it for that shell.
            command.push(command_line("zfs", &arguments));
        }
        Some(command)
    }
}

struct Running {
    child: Child,
    line: String,
    said: JoinHandle<String>,
}

fn start(
    program: &str,
    arguments: &[String],
    input: Stdio,
    output: Stdio,
) -> Result<Running, StreamError> {
    let failed = |source| StreamError::Start { program: program.to_owned(), source };
    let mut child = Command::new(program)
        .args(arguments)
        .env("LC_ALL", "C")
        .stdin(input)
        .stdout(output)
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let errors = child.stderr.take();
    let said = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = errors {
            let _ = pipe.by_ref().take(SAID_BYTES).read_to_end(&mut bytes);
            // A program that writes more must not block.
            let _ = io::copy(&mut pipe, &mut io::sink());
        }
        String::from_utf8_lossy(&bytes).trim().to_owned()
    });
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    Ok(Running { child, line: command_line(program, &words), said })
}

impl Running {
    fn end(mut self, bytes: u64) -> Result<(), StreamError> {
        let status = self
            .child
            .wait()
            .map_err(|source| StreamError::Start { program: self.line.clone(), source })?;
        let said = self.said.join().unwrap_or_default();
        if status.success() {
            return Ok(());
        }
        let said = if said.is_empty() { status.to_string() } else { said };
        Err(StreamError::Failed { command: self.line, said, bytes })
    }
}

fn start_send(sending: &Sending) -> Result<Running, StreamError> {
    start("zfs", &sending.arguments(false), Stdio::null(), Stdio::piped())
}

/// Copies to the end; the error returned is the writer's.
fn copy(
    from: &mut dyn Read,
    to: &mut dyn Write,
    progress: &mut dyn FnMut(u64),
) -> (u64, io::Result<()>) {
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut total = 0;
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return (total, Ok(())),
            Ok(count) => {
                if let Err(error) = to.write_all(&buffer[..count]) {
                    return (total, Err(error));
                }
                total += count as u64;
                progress(total);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The exit status of the program gives the reason.
            Err(_) => return (total, Ok(())),
        }
    }
}

/// Path of the incomplete file.
fn partial_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    path.with_file_name(name)
}

/// Writes the stream to a file: `PATH.partial` until all data is on disk, then
/// `PATH`. Only its owner may read it. `progress` is called with the bytes so
/// far.
///
/// # Errors
/// See [`StreamError`]; `PATH.partial` remains then.
pub fn into_file(
    sending: &Sending,
    path: &Path,
    progress: &mut dyn FnMut(u64),
) -> Result<Sent, StreamError> {
    let of = |path: &Path| {
        let path = path.to_owned();
        move |source| StreamError::File { path, source }
    };
    if path.symlink_metadata().is_ok() {
        return Err(StreamError::Exists(path.to_owned()));
    }
    let partial = partial_path(path);
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&partial)
        .map_err(of(&partial))?;
    let mut send = start_send(sending)?;
    let Some(mut stream) = send.child.stdout.take() else {
        return Err(of(&partial)(io::ErrorKind::BrokenPipe.into()));
    };
    let (bytes, written) = copy(&mut stream, &mut file, progress);
    drop(stream);
    if let Err(error) = written {
        // `zfs send` ends because its pipe is closed.
        let _ = send.end(bytes);
        return Err(of(&partial)(error));
    }
    send.end(bytes)?;
    file.sync_all().map_err(of(&partial))?;
    // Never replace a file that was created meanwhile.
    if path.symlink_metadata().is_ok() {
        return Err(StreamError::Exists(path.to_owned()));
    }
    std::fs::rename(&partial, path).map_err(of(path))?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    File::open(parent).and_then(|dir| dir.sync_all()).map_err(of(parent))?;
    Ok(Sent { bytes })
}

/// Sends to a receiving program. `progress` is called with the bytes so far.
///
/// # Errors
/// See [`StreamError`]: the receiver's error takes precedence.
pub fn into_receiver(
    sending: &Sending,
    receiver: &[String],
    progress: &mut dyn FnMut(u64),
) -> Result<Sent, StreamError> {
    let Some((program, arguments)) = receiver.split_first() else {
        let source = io::ErrorKind::InvalidInput.into();
        return Err(StreamError::Start { program: String::new(), source });
    };
    let mut receive = start(program, arguments, Stdio::piped(), Stdio::null())?;
    let mut send = start_send(sending)?;
    let (input, output) = (receive.child.stdin.take(), send.child.stdout.take());
    let bytes = match (output, input) {
        (Some(mut stream), Some(mut input)) => copy(&mut stream, &mut input, progress).0,
        _ => 0,
    };
    // Both pipes are closed by now: each side sees the end of the stream.
    let sent = send.end(bytes);
    receive.end(bytes)?;
    sent?;
    Ok(Sent { bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_receives() {
        let plain = Transport { ssh: "ssh".into() };
        let to = |text: &str| plain.receive(&text.parse().unwrap());
        assert_eq!(to("file:/a"), None);
        assert_eq!(to("local:b/c").unwrap(), ["zfs", "receive", "-s", "-u", "b/c"]);
        assert_eq!(
            to("ssh:root@nas:b/c d").unwrap(),
            ["ssh", "--", "root@nas", "zfs receive -s -u 'b/c d'"]
        );
    }

    #[test]
    fn everything_is_copied_and_counted() {
        let data = vec![7; CHUNK_BYTES * 2 + 5];
        let (mut out, mut seen) = (Vec::new(), 0);
        let (bytes, result) = copy(&mut &data[..], &mut out, &mut |bytes| seen = bytes);
        result.unwrap();
        assert_eq!((bytes, seen, out == data), (data.len() as u64, data.len() as u64, true));
    }

    #[test]
    fn a_file_that_is_there_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.zfs");
        std::fs::write(&path, "mine").unwrap();
        let rest = Sending::Rest { token: "1-a".into() };
        let error = into_file(&rest, &path, &mut |_| {}).unwrap_err();
        assert!(matches!(error, StreamError::Exists(_)), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
        assert_eq!(partial_path(&path), dir.path().join("a.zfs.partial"));
    }
}
