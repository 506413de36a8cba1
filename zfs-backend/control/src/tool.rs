//! Execution of `zfs`, `zpool` and similar programs.

use crate::left_behind::{LEFT_BEHIND, storage_of};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Time limit of a query, in seconds. On a suspended pool `zpool` hangs
/// forever.
pub const QUESTION_SECONDS: u64 = 30;
/// Most output accepted from a program, in bytes.
pub const MAX_OUTPUT_BYTES: u64 = 64 << 20;
/// Time after the limit of a program for which what it has printed is still read: it may have
/// ended just before the limit.
const PIPE_PATIENCE: Duration = Duration::from_secs(2);
/// Most bytes that are read of a pipe at once: those that Linux keeps in one.
const PIPE_BYTES: usize = 64 << 10;

/// Reason for which a program gave no usable answer.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The program is missing or not executable.
    #[error("cannot run {program}: {source}; is zfsutils-linux installed?")]
    Start {
        /// Name of the program.
        program: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The program exited with a status other than 0.
    #[error("{command}: {said}")]
    Failed {
        /// The command line.
        command: String,
        /// Exit status; none if a signal ended it.
        status: Option<i32>,
        /// Its error output.
        said: String,
    },
    /// The program exceeded its time limit and was killed.
    #[error("{command}: no answer in {seconds} s; is the pool suspended? see `zpool status`")]
    TimedOut {
        /// The command line.
        command: String,
        /// Time limit in seconds.
        seconds: u64,
    },
    /// The program has ended, but not its output: a process that it has started keeps it open.
    #[error(
        "{command}: it has ended, but its output has not in {seconds} s: a process that it started \
         keeps it open; end that process"
    )]
    HeldOpen {
        /// The command line.
        command: String,
        /// Time limit in seconds.
        seconds: u64,
    },
    /// Earlier programs of the same storage were killed, and have not ended.
    #[error(
        "{command}: not started, because {waiting} earlier commands there have not ended; is the \
         pool suspended? see `zpool status`"
    )]
    Blocked {
        /// The command line.
        command: String,
        /// Number of the programs that have not ended.
        waiting: usize,
    },
    /// The output could not be parsed.
    #[error("{command}: not understood: {reason}")]
    Answer {
        /// The command line.
        command: String,
        /// Reason.
        reason: String,
    },
}

impl ToolError {
    /// Returns whether ZFS is not installed at all.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Start { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// Returns whether the storage has not answered in time.
    #[must_use]
    pub fn is_late(&self) -> bool {
        matches!(self, Self::TimedOut { .. } | Self::HeldOpen { .. } | Self::Blocked { .. })
    }

    /// Returns whether the pool, dataset or snapshot of the query does not
    /// exist.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        let words = ["does not exist", "no such pool", "could not find"];
        matches!(self, Self::Failed { said, .. } if words.iter().any(|word| said.contains(word)))
    }
}

/// Runs a program and returns its output. The real one is [`SystemTool`]; tests
/// use [`Recorded`].
pub trait Tool: Send + Sync {
    /// Runs `program` to its end and returns its standard output.
    ///
    /// # Errors
    /// See [`ToolError`].
    fn run(&self, program: &str, arguments: &[&str]) -> Result<String, ToolError>;

    /// Runs `program` with a short text at its standard input. The default leaves the text
    /// out: tools of tests know by the command what they are asked.
    ///
    /// # Errors
    /// See [`ToolError`].
    fn run_with_input(
        &self,
        program: &str,
        arguments: &[&str],
        _input: &'static str,
    ) -> Result<String, ToolError> {
        self.run(program, arguments)
    }

    /// Runs `program` to its end, and returns its standard output also if it failed: a question
    /// about several things is answered for those that are there. The default leaves out what a
    /// program that fails has printed.
    fn run_in_part(&self, program: &str, arguments: &[&str]) -> (String, Option<ToolError>) {
        match self.run(program, arguments) {
            Ok(output) => (output, None),
            Err(error) => (String::new(), Some(error)),
        }
    }
}

/// Runs programs of this machine, with messages in English.
#[derive(Debug, Clone, Copy)]
pub struct SystemTool {
    /// Time limit of each program, in seconds.
    pub limit_seconds: u64,
}

impl Default for SystemTool {
    fn default() -> Self {
        Self { limit_seconds: QUESTION_SECONDS }
    }
}

impl Tool for SystemTool {
    fn run(&self, program: &str, arguments: &[&str]) -> Result<String, ToolError> {
        self.run_with_input(program, arguments, "")
    }

    fn run_with_input(
        &self,
        program: &str,
        arguments: &[&str],
        input: &'static str,
    ) -> Result<String, ToolError> {
        let (output, failed) = self.carry_out(program, arguments, input)?;
        failed.map_or(Ok(output), Err)
    }

    fn run_in_part(&self, program: &str, arguments: &[&str]) -> (String, Option<ToolError>) {
        self.carry_out(program, arguments, "").unwrap_or_else(|error| (String::new(), Some(error)))
    }
}

impl SystemTool {
    /// Returns the output of a program, and its failure if it has ended with one.
    fn carry_out(
        &self,
        program: &str,
        arguments: &[&str],
        input: &'static str,
    ) -> Result<(String, Option<ToolError>), ToolError> {
        self.carry_out_by(thread::Builder::new, program, arguments, input)
    }

    /// Does the same with these threads.
    fn carry_out_by(
        &self,
        threads: fn() -> thread::Builder,
        program: &str,
        arguments: &[&str],
        input: &'static str,
    ) -> Result<(String, Option<ToolError>), ToolError> {
        let (storage, command) = (storage_of(arguments), command_line(program, arguments));
        let began = Instant::now();
        if let Some(waiting) = LEFT_BEHIND.blocks(storage) {
            return Err(ToolError::Blocked { command, waiting });
        }
        let start = |source| ToolError::Start { program: program.to_owned(), source };
        let limit = Instant::now() + Duration::from_secs(self.limit_seconds);
        // First: a program that nobody reads must not begin.
        let output = Reader::start(threads(), limit + PIPE_PATIENCE).map_err(start)?;
        let errors = Reader::start(threads(), limit + PIPE_PATIENCE).map_err(start)?;
        let mut child = Command::new(program)
            .args(arguments)
            .env("LC_ALL", "C")
            .stdin(if input.is_empty() { Stdio::null() } else { Stdio::piped() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(start)?;
        if let Some(mut pipe) = child.stdin.take() {
            // It has room for this text. A program that has ended without reading it says why.
            let _ = pipe.write_all(input.as_bytes());
        }
        let output = output.begin(child.stdout.take());
        let errors = errors.begin(child.stderr.take());
        let Some(status) = wait_until(&mut child, limit).map_err(start)? else {
            // A process in an uninterruptible wait survives the signal.
            LEFT_BEHIND.leave(storage, child);
            return Err(ToolError::TimedOut { command, seconds: self.limit_seconds });
        };
        let taken = |reader: thread::JoinHandle<Taken>| reader.join().unwrap_or_default();
        let (output, errors) = (taken(output), taken(errors));
        if !output.is_all {
            // More may come: without it, things that are there would be taken for gone.
            return Err(ToolError::HeldOpen { command, seconds: self.limit_seconds });
        }
        let (output, errors) = (output.bytes, errors.bytes);
        if output.len() as u64 >= MAX_OUTPUT_BYTES {
            // Nobody has read the rest: without it, things that are there would be taken for gone.
            let reason = format!("{MAX_OUTPUT_BYTES} bytes of output or more");
            return Err(ToolError::Answer { command, reason });
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (output, errors) = (text(&output), text(&errors));
        let milliseconds = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        tracing::debug!(command, milliseconds, %status, "a command has ended");
        if status.success() {
            return Ok((output, None));
        }
        let said = if errors.trim().is_empty() { &output } else { &errors };
        let said = said.trim().to_owned();
        let failed = ToolError::Failed { command, status: status.code(), said };
        Ok((output, Some(failed)))
    }
}

/// A thread that reads a pipe to its end, once it has one.
struct Reader<R> {
    pipe: mpsc::Sender<R>,
    read: thread::JoinHandle<Taken>,
}

impl<R: Read + AsFd + Send + 'static> Reader<R> {
    /// Starts the thread, which ends at the limit in any case.
    ///
    /// # Errors
    /// The system's: it may be out of threads.
    fn start(threads: thread::Builder, limit: Instant) -> io::Result<Self> {
        let (pipe, given) = mpsc::channel::<R>();
        let read = threads.spawn(move || match given.recv() {
            Ok(mut pipe) => Taken::of(&mut pipe, limit),
            // A program that does not start has none.
            Err(mpsc::RecvError) => Taken::default(),
        })?;
        Ok(Self { pipe, read })
    }

    /// Gives the thread its pipe; returns what becomes of it.
    fn begin(self, pipe: Option<R>) -> thread::JoinHandle<Taken> {
        if let Some(pipe) = pipe {
            // The thread waits for it.
            let _ = self.pipe.send(pipe);
        }
        self.read
    }
}

/// Content of a pipe, as far as it was read.
#[derive(Debug, Default)]
struct Taken {
    bytes: Vec<u8>,
    /// Set if nothing more comes, or nothing more is wanted; not at the limit.
    is_all: bool,
}

impl Taken {
    /// Reads a pipe to its end, at most [`MAX_OUTPUT_BYTES`], and until the limit: whoever has
    /// the other end may keep it open for ever.
    fn of(pipe: &mut (impl Read + AsFd), limit: Instant) -> Self {
        let (mut taken, mut chunk) = (Self::default(), vec![0; PIPE_BYTES]);
        while (taken.bytes.len() as u64) < MAX_OUTPUT_BYTES {
            if !await_ready(&*pipe, limit) || Instant::now() >= limit {
                return taken;
            }
            match pipe.read(&mut chunk) {
                Ok(0) => break,
                Ok(read) => taken.bytes.extend_from_slice(&chunk[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        taken.bytes.truncate(MAX_OUTPUT_BYTES as usize);
        taken.is_all = true;
        taken
    }
}

/// Waits until a program has ended; `None`: it runs at the limit.
fn wait_until(child: &mut Child, limit: Instant) -> io::Result<Option<ExitStatus>> {
    // Kernels before Linux 5.3 have no pidfd: there, the program is only looked at.
    if let Ok(end) = pidfd_open(Pid::from_child(child), PidfdFlags::empty()) {
        await_end(&end, limit);
    }
    look_until(child, limit)
}

/// Waits until the process of a pidfd has ended, at most until the limit: it is readable then
/// (pidfd_open(2)).
fn await_end(end: &OwnedFd, limit: Instant) {
    await_ready(end, limit);
}

/// Waits until a read would not wait, at most until the limit; returns whether that is so.
fn await_ready(file: &impl AsFd, limit: Instant) -> bool {
    loop {
        let left = limit.saturating_duration_since(Instant::now());
        let Ok(left) = Timespec::try_from(left) else { return false };
        match poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&left)) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(ready) => return ready > 0,
            Err(_) => return false,
        }
    }
}

/// Looks again and again whether a program has ended; `None`: it runs at the limit.
fn look_until(child: &mut Child, limit: Instant) -> io::Result<Option<ExitStatus>> {
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= limit {
            return Ok(None);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// Returns the command as typed in a shell.
#[must_use]
pub fn command_line(program: &str, arguments: &[&str]) -> String {
    let plain = |text: &str| {
        !text.is_empty()
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-:./@=,%+".contains(c))
    };
    let mut line = program.to_owned();
    for argument in arguments {
        line.push(' ');
        if plain(argument) {
            line.push_str(argument);
        } else {
            line.push_str(&format!("'{}'", argument.replace('\'', r"'\''")));
        }
    }
    line
}

/// Scripted answer of a program: its output, or a status and a message.
type Answer = Result<String, (i32, String)>;

/// Answers from a script, in order; each command must match the script. For
/// tests.
#[derive(Debug, Default)]
pub struct Recorded {
    script: Mutex<VecDeque<(String, Answer)>>,
}

impl Recorded {
    /// Expects `command` next and answers `output`.
    #[must_use]
    pub fn then(self, command: &str, output: &str) -> Self {
        self.push(command, Ok(output.to_owned()))
    }

    /// Expects `command` next and fails it with `status` and `said`.
    #[must_use]
    pub fn then_fail(self, command: &str, status: i32, said: &str) -> Self {
        self.push(command, Err((status, said.to_owned())))
    }

    fn push(self, command: &str, answer: Answer) -> Self {
        if let Ok(mut script) = self.script.lock() {
            script.push_back((command.to_owned(), answer));
        }
        self
    }

    /// Returns whether all expected commands were run.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.script.lock().is_ok_and(|script| script.is_empty())
    }
}

impl Tool for Recorded {
    fn run(&self, program: &str, arguments: &[&str]) -> Result<String, ToolError> {
        let command = command_line(program, arguments);
        let next = self.script.lock().ok().and_then(|mut script| script.pop_front());
        let reason = match next {
            Some((expected, answer)) if expected == command => {
                return answer.map_err(|(status, said)| ToolError::Failed {
                    command,
                    status: Some(status),
                    said,
                });
            }
            Some((expected, _)) => format!("the script has {expected:?} here"),
            None => "the script has ended".to_owned(),
        };
        Err(ToolError::Answer { command, reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_status_and_errors_come_back() {
        let tool = SystemTool::default();
        assert_eq!(tool.run("sh", &["-c", "printf hello"]).unwrap(), "hello");
        let failed = tool.run("sh", &["-c", "echo no such pool >&2; exit 3"]).unwrap_err();
        assert!(matches!(&failed, ToolError::Failed { status: Some(3), .. }), "{failed}");
        assert!(failed.is_absent());
        assert!(tool.run("zgate-no-such-program", &[]).unwrap_err().is_missing());
    }

    #[test]
    fn without_threads_no_program_begins() {
        let dir = tempfile::tempdir().unwrap();
        let mark = dir.path().join("begun");
        // No memory has room for their stacks.
        let none = || thread::Builder::new().stack_size(usize::MAX / 4);
        let tool = SystemTool::default();
        let error = tool.carry_out_by(none, "touch", &[mark.to_str().unwrap()], "").unwrap_err();
        assert!(matches!(error, ToolError::Start { .. }), "{error}");
        assert!(!mark.exists());
    }

    #[test]
    fn a_program_that_does_not_end_is_given_up() {
        let tool = SystemTool { limit_seconds: 0 };
        let began = Instant::now();
        let error = tool.run("sleep", &["20"]).unwrap_err();
        assert!(matches!(error, ToolError::TimedOut { .. }), "{error}");
        assert!(began.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn the_end_of_a_program_is_told_and_where_it_is_not_it_is_looked_for() {
        let far = Instant::now() + Duration::from_secs(3600);
        let mut told = Command::new("true").spawn().unwrap();
        if let Ok(end) = pidfd_open(Pid::from_child(&told), PidfdFlags::empty()) {
            await_end(&end, far);
            assert!(told.try_wait().unwrap().is_some(), "it has ended by then");
        }
        told.wait().unwrap();
        let mut ends = Command::new("sh").args(["-c", "exit 3"]).spawn().unwrap();
        assert_eq!(look_until(&mut ends, far).unwrap().unwrap().code(), Some(3));
        let mut stays = Command::new("sleep").arg("600").spawn().unwrap();
        assert!(wait_until(&mut stays, Instant::now()).unwrap().is_none());
        assert!(look_until(&mut stays, Instant::now()).unwrap().is_none());
        stays.kill().unwrap();
        assert!(!wait_until(&mut stays, far).unwrap().unwrap().success());
    }

    #[test]
    fn a_process_that_keeps_the_output_open_keeps_nobody_waiting() {
        let tool = SystemTool { limit_seconds: 1 };
        let began = Instant::now();
        // The shell ends at once; what it leaves has its output.
        let error = tool.run("sh", &["-c", "echo found; sleep 20 & exit 0"]).unwrap_err();
        assert!(began.elapsed() < Duration::from_secs(10));
        assert!(error.is_late(), "{error}");
        for part in ["sh -c", "keeps it open", "end that process"] {
            assert!(error.to_string().contains(part), "{error}");
        }
        // What is kept open elsewhere is no reason to lose the answer.
        let script = "echo found; sleep 20 >/dev/null & exit 0";
        assert_eq!(tool.run("sh", &["-c", script]).unwrap(), "found\n");
    }

    #[test]
    fn a_pipe_is_read_to_its_end_or_the_limit() {
        let (mut ours, mut theirs) = io::pipe().unwrap();
        theirs.write_all(b"some").unwrap();
        let some = Taken::of(&mut ours, Instant::now() + Duration::from_millis(500));
        assert!(some.bytes == b"some" && !some.is_all);
        theirs.write_all(b"rest").unwrap();
        drop(theirs);
        let rest = Taken::of(&mut ours, Instant::now() + Duration::from_secs(3600));
        assert!(rest.bytes == b"rest" && rest.is_all);
    }

    #[test]
    fn a_program_gets_its_input() {
        let tool = SystemTool::default();
        assert_eq!(tool.run_with_input("cat", &[], "text").unwrap(), "text");
        assert_eq!(tool.run("cat", &[]).unwrap(), "");
        assert_eq!(tool.run_with_input("true", &[], "text").unwrap(), "");
    }

    #[test]
    fn what_a_program_that_fails_has_printed_is_told() {
        let tool = SystemTool::default();
        let script = "echo found; echo no such pool >&2; exit 1";
        let (output, failed) = tool.run_in_part("sh", &["-c", script]);
        assert_eq!(output, "found\n");
        assert!(failed.is_some_and(|error| error.is_absent()));
        let (output, failed) = tool.run_in_part("echo", &["found"]);
        assert!(output == "found\n" && failed.is_none());
        let (output, failed) = tool.run_in_part("zgate-no-such-program", &[]);
        assert!(output.is_empty() && failed.is_some_and(|error| error.is_missing()));
    }

    #[test]
    fn output_that_is_cut_off_is_no_answer() {
        let most = MAX_OUTPUT_BYTES.to_string();
        let cut = SystemTool::default().run("head", &["-c", &most, "/dev/zero"]).unwrap_err();
        assert!(matches!(cut, ToolError::Answer { .. }), "{cut}");
    }

    #[test]
    fn much_output_does_not_block() {
        let text = SystemTool::default().run("sh", &["-c", "head -c 1000000 /dev/zero"]).unwrap();
        assert_eq!(text.len(), 1_000_000);
    }

    #[test]
    fn command_lines_can_be_pasted() {
        assert_eq!(
            command_line("zfs", &["set", "a=b c", "p/it's"]),
            r"zfs set 'a=b c' 'p/it'\''s'"
        );
    }
}
