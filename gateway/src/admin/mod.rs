//! Live commands: one JSON line in, one JSON line out, over a unix socket that
//! only its owner may use.

mod connect;
mod request;

use connect::connect_within;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use zgate_io::throttle::warn_seldom;

pub use connect::connect;
pub(crate) use connect::refuse_another;
pub use request::{MAX_ALIVE_SECONDS, Request};

/// Longest request accepted, in bytes.
pub const MAX_REQUEST_BYTES: u64 = 64 << 10;
/// Most requests answered concurrently; more are refused.
const MAX_RUNNING_REQUESTS: usize = 16;
/// Pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Time for which either side waits for the other.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);
/// Time that an answer about the cores may take beyond that of the cores.
const ALIVE_ROUND_TRIP: Duration = Duration::from_secs(1);
/// Begin of the reply to a line that is no request of this version.
const NOT_A_REQUEST: &str = "not a request: ";

/// Reply to a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "reply", content = "value")]
pub(crate) enum Reply {
    /// Result of a successful request.
    Ok(serde_json::Value),
    /// Reason for which the request failed.
    Error(String),
}

/// Process that sent a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Client {
    /// Its user.
    pub uid: u32,
    /// Its number.
    pub pid: i32,
}

impl Client {
    /// Returns the process that connected, as the kernel knows it.
    fn of(stream: &UnixStream) -> Option<Self> {
        let known = rustix::net::sockopt::socket_peercred(stream).ok()?;
        Some(Self { uid: known.uid.as_raw(), pid: known.pid.as_raw_nonzero().get() })
    }
}

/// Answers requests of clients.
pub(crate) type Handler = Arc<dyn Fn(Request, Option<Client>) -> Reply + Send + Sync>;

fn named(path: &Path, what: &str, error: &io::Error) -> io::Error {
    let hint = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; run as root, or set admin_socket to a path of your \
            own"
        }
        _ => "",
    };
    let reason = format!("admin socket: cannot {what} {}: {error}{hint}", path.display());
    io::Error::new(error.kind(), reason)
}

/// Opens the socket and answers requests on a separate thread.
///
/// # Errors
/// The path and the reason, also if another gateway listens there.
pub(crate) fn start(path: &Path, handler: Handler) -> io::Result<()> {
    if let Some(dir) = path.parent()
        && !dir.exists()
    {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(|error| named(dir, "create", &error))?;
    }
    refuse_another(path, "admin_socket")?;
    refuse_foreign_file(path, "admin_socket")?;
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(named(path, "replace", &error));
        }
        _ => {}
    }
    let listener = bind_private(path).map_err(|error| named(path, "open", &error))?;
    let running = Arc::new(AtomicUsize::new(0));
    let handler = one_change_at_a_time(handler);
    std::thread::Builder::new().name("zgate-admin".to_owned()).spawn(move || {
        for stream in accepted(listener.incoming(), || std::thread::sleep(ACCEPT_PAUSE)) {
            let request = RunningRequest::begin(&running);
            let handler = Arc::clone(&handler);
            // A request that waits for storage must not delay others.
            let answering =
                std::thread::Builder::new().name("zgate-admin".to_owned()).spawn(move || {
                    if let Err(error) = answer(&stream, &handler, request) {
                        tracing::debug!(%error, "admin socket");
                    }
                });
            if let Err(error) = answering {
                tracing::warn!(%error, "admin socket: a request cannot be answered");
            }
        }
    })?;
    Ok(())
}

/// Returns the connections that are accepted, with a pause after each failure: usually a
/// descriptor is missing, and accept(2) fails at once then, whether anybody connects or not.
fn accepted<T>(
    incoming: impl Iterator<Item = io::Result<T>>,
    pause: impl Fn(),
) -> impl Iterator<Item = T> {
    incoming.filter_map(move |stream| {
        if let Err(error) = &stream {
            warn_seldom!(%error, "admin socket: cannot accept a connection");
            pause();
        }
        stream.ok()
    })
}

fn one_change_at_a_time(handler: Handler) -> Handler {
    let changing = Mutex::new(());
    Arc::new(move |request, client| {
        if request.waits_for_nobody() {
            return handler(request, client);
        }
        let _one = changing.lock().unwrap_or_else(PoisonError::into_inner);
        handler(request, client)
    })
}

/// A request that is being answered, counted until it is dropped.
struct RunningRequest {
    all: Arc<AtomicUsize>,
    /// Number of requests being answered, including this one, when it began.
    count: usize,
}

impl RunningRequest {
    fn begin(all: &Arc<AtomicUsize>) -> Self {
        Self { all: Arc::clone(all), count: all.fetch_add(1, Ordering::AcqRel) + 1 }
    }
}

impl Drop for RunningRequest {
    fn drop(&mut self) {
        self.all.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Returns what is wrong with the path of a socket: a file that no gateway has made is there.
pub(crate) fn foreign_file(path: &Path) -> Option<String> {
    let found = std::fs::symlink_metadata(path).ok()?;
    (!found.file_type().is_socket()).then(|| format!("{} is no socket", path.display()))
}

/// Returns the next step for a file in the place of a socket that `key` of the configuration
/// names.
pub(crate) fn next_step_for_foreign_file(key: &str) -> String {
    format!("remove it, or correct {key}")
}

/// Refuses to replace anything but the socket of an earlier gateway: `key` of the
/// configuration may name a file by mistake.
///
/// # Errors
/// The kind of file that is there instead, and the next step.
pub(crate) fn refuse_foreign_file(path: &Path, key: &str) -> io::Result<()> {
    let Some(fault) = foreign_file(path) else { return Ok(()) };
    let reason = format!("{fault}; {}", next_step_for_foreign_file(key));
    Err(io::Error::new(io::ErrorKind::AlreadyExists, reason))
}

/// Binds the socket in a private directory and moves it into place once its
/// mode is set, so that no other user can ever connect.
pub(crate) fn bind_private(path: &Path) -> io::Result<UnixListener> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let private = parent.unwrap_or(Path::new(".")).join(format!(".zgate-{}", std::process::id()));
    std::fs::DirBuilder::new().mode(0o700).create(&private)?;
    let inside = private.join("s");
    let bound = std::fs::File::open(&private).and_then(|dir| {
        // By its descriptor: the path itself may be longer than that of a socket may be.
        let short = format!("/proc/self/fd/{}/s", dir.as_raw_fd());
        let listener = UnixListener::bind(short)?;
        std::fs::set_permissions(&inside, std::fs::Permissions::from_mode(0o600))?;
        std::fs::rename(&inside, path)?;
        Ok(listener)
    });
    // The directory is no longer needed, whether or not this succeeded.
    let _ = std::fs::remove_file(&inside);
    let _ = std::fs::remove_dir(&private);
    bound
}

fn answer(stream: &UnixStream, handler: &Handler, running: RunningRequest) -> io::Result<()> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut line = String::new();
    BufReader::new(stream.take(MAX_REQUEST_BYTES)).read_line(&mut line)?;
    let reply = match serde_json::from_str::<Request>(&line) {
        Ok(request) if request.is_uncounted() => {
            drop(running);
            handler(request, Client::of(stream))
        }
        Ok(_) if running.count > MAX_RUNNING_REQUESTS => Reply::Error(format!(
            "{MAX_RUNNING_REQUESTS} requests are running already; if storage hangs, the gateway's log \
             names it"
        )),
        Ok(request) => handler(request, Client::of(stream)),
        Err(error) => Reply::Error(format!("{NOT_A_REQUEST}{error}")),
    };
    let mut stream = stream;
    stream.write_all(&serde_json::to_vec(&reply)?)?;
    stream.write_all(b"\n")
}

/// Returns the next step for a socket that cannot be reached.
fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => {
            "start one with `zgate serve --config FILE`, or pass its `admin_socket` with \
             --socket; a gateway whose socket was removed still handles SIGHUP (reload) and \
             SIGTERM (drain)"
        }
        io::ErrorKind::ConnectionRefused => {
            "no gateway listens there: start one with `zgate serve --config FILE`"
        }
        io::ErrorKind::PermissionDenied => "only the user of the gateway may connect: try sudo",
        io::ErrorKind::TimedOut => "the process may be stopped: `systemctl status zgate`",
        _ => "pass the right one with --socket",
    }
}

/// Sends a request to a running gateway.
///
/// # Errors
/// The socket, the reason and the next step.
pub fn ask(path: &Path, request: &Request) -> io::Result<serde_json::Value> {
    ask_within(path, request, TIMEOUT)
}

/// Returns the cores of a running gateway that do not answer within `seconds`. One of an
/// earlier version, which runs on after an upgrade of its package, tells them with its
/// whole status, after a time of its own.
///
/// # Errors
/// The socket, the reason and the next step; a second later at most, too, if the
/// process is stopped.
pub fn silent_cores(path: &Path, seconds: u64) -> io::Result<Vec<u64>> {
    let patience = Duration::from_secs(seconds) + ALIVE_ROUND_TRIP;
    let answer = match ask_within(path, &Request::Alive { seconds }, patience) {
        Err(error) if error.to_string().starts_with(NOT_A_REQUEST) => ask(path, &Request::Status)?,
        // Of a process that is stopped, `zgate status` would tell no more.
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {
            let reason = format!(
                "the process does not run or does not answer within {} s: `systemctl status zgate`",
                patience.as_secs()
            );
            return Err(io::Error::new(io::ErrorKind::TimedOut, reason));
        }
        answer => answer?,
    };
    let silent = answer["silent_cores"].as_array().into_iter().flatten();
    Ok(silent.filter_map(serde_json::Value::as_u64).collect())
}

fn ask_within(path: &Path, request: &Request, patience: Duration) -> io::Result<serde_json::Value> {
    let began = Instant::now();
    let stream = connect_within(path, patience).map_err(|error| {
        let reason =
            format!("cannot reach the gateway at {}: {error}; {}", path.display(), hint(&error));
        io::Error::new(error.kind(), reason)
    })?;
    let left = patience.saturating_sub(began.elapsed());
    stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
    let mut asked = serde_json::to_vec(request)?;
    asked.push(b'\n');
    let failed = |error: io::Error| unanswered(path, patience, &error);
    let mut writer = &stream;
    writer.write_all(&asked).map_err(failed)?;
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line).map_err(failed)?;
    if line.is_empty() {
        let reason = "the gateway closed the connection without an answer; see its log";
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, reason));
    }
    let reply: Reply = serde_json::from_str(&line).map_err(|error| {
        let reason = format!(
            "{} is not the admin socket of a gateway, or the answer was cut off ({error}); pass \
             the `admin_socket` of its configuration with --socket",
            path.display()
        );
        io::Error::new(io::ErrorKind::InvalidData, reason)
    })?;
    match reply {
        Reply::Ok(value) => Ok(value),
        Reply::Error(why) => Err(io::Error::other(why)),
    }
}

/// Returns the error of a request whose connection fails.
fn unanswered(path: &Path, patience: Duration, error: &io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            let seconds = patience.as_secs();
            let reason = format!(
                "the gateway has not answered for {seconds} s, and may still carry it out: its log \
                 has the outcome, `zgate status` what hangs"
            );
            io::Error::new(io::ErrorKind::TimedOut, reason)
        }
        kind => {
            let reason = format!(
                "the gateway at {} has not answered: {error}; its log has the outcome",
                path.display()
            );
            io::Error::new(kind, reason)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_in_the_place_of_the_socket_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("data.img"), dir.path().join("link"));
        std::fs::write(&file, "precious").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let handler: Handler = Arc::new(|_, _| Reply::Ok(serde_json::Value::Null));
        for path in [&file, &link] {
            let said = start(path, Arc::clone(&handler)).unwrap_err().to_string();
            assert!(said.contains(&format!("{} is no socket", path.display())), "{said}");
            assert!(said.contains("correct admin_socket"), "{said}");
            assert_eq!(std::fs::read_to_string(path).unwrap(), "precious");
        }
        // One that an earlier gateway has left is replaced.
        let left = dir.path().join("admin.sock");
        drop(UnixListener::bind(&left).unwrap());
        start(&left, handler).unwrap();
        assert!(ask(&left, &Request::Status).is_ok());
    }

    #[test]
    fn a_socket_may_have_the_longest_path_that_a_client_can_connect_to() {
        let dir = tempfile::tempdir().unwrap();
        let longest = 107 - dir.path().as_os_str().len() - 1;
        // One directory with a long name, and a socket with a short one.
        let folder = dir.path().join("d".repeat(longest - 2));
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("s");
        assert_eq!(path.as_os_str().len(), 107);
        let handler: Handler = Arc::new(|_, _| Reply::Ok(serde_json::Value::Null));
        start(&path, handler).unwrap();
        assert!(ask(&path, &Request::Status).is_ok());
    }

    #[test]
    fn without_descriptors_the_socket_waits() {
        let refused = || Err(io::Error::from(rustix::io::Errno::MFILE));
        let incoming = [refused(), Ok(1), refused(), refused(), Ok(2)];
        let pauses = std::cell::Cell::new(0);
        let pause = || pauses.set(pauses.get() + 1);
        assert_eq!(accepted(incoming.into_iter(), pause).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(pauses.get(), 3);
    }

    #[test]
    fn what_is_no_admin_socket_is_named_with_the_next_step() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("api.sock");
        let listener = UnixListener::bind(&path).unwrap();
        // As the API does.
        let answering = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            BufReader::new(&stream).read_line(&mut String::new()).unwrap();
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        });
        let error = ask(&path, &Request::Status).unwrap_err();
        answering.join().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        let said = error.to_string();
        assert!(said.starts_with(&format!("{} is not the admin socket", path.display())), "{said}");
        assert!(said.contains("--socket"), "{said}");
        let reset = io::Error::from(io::ErrorKind::ConnectionReset);
        let said = unanswered(&path, TIMEOUT, &reset).to_string();
        assert!(said.contains(&path.display().to_string()), "{said}");
    }

    /// Returns whether a request is answered while this slow one waits for its storage.
    fn is_answered_during(slow: Request, other: Request) -> bool {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("admin.sock");
        let (answers, asked) = std::sync::mpsc::channel::<()>();
        let (begun, begins) = std::sync::mpsc::channel();
        let (hung, hangs) = (Mutex::new((asked, begun)), slow.clone());
        let handler: Handler = Arc::new(move |request, _| {
            if request == hangs {
                let hung = hung.lock().unwrap();
                hung.1.send(()).unwrap();
                let _ = hung.0.recv();
            }
            Reply::Ok(serde_json::json!({"up": true}))
        });
        start(&path, handler).unwrap();
        let at = path.clone();
        let asking = std::thread::spawn(move || ask(&at, &slow).is_ok());
        begins.recv().unwrap();
        let (told, answered) = std::sync::mpsc::channel();
        std::thread::spawn(move || told.send(ask(&path, &other).is_ok()));
        let is_answered = answered.recv_timeout(Duration::from_secs(20)) == Ok(true);
        drop(answers);
        assert!(asking.join().unwrap());
        is_answered
    }

    #[test]
    fn a_request_that_waits_for_storage_keeps_no_other_waiting() {
        assert!(is_answered_during(Request::Reload { force: false }, Request::Status));
        let replaced = Request::Replaced { dataset: "tank/a".to_owned() };
        assert!(is_answered_during(Request::Reload { force: false }, replaced));
    }

    #[test]
    fn a_new_size_that_waits_for_storage_keeps_no_change_waiting() {
        let (target, size_bytes) = ("iqn.2026-11.test:vm".to_owned(), Some(1 << 20));
        let resize = Request::LunResize { target, number: 0, size_bytes };
        assert!(is_answered_during(resize, Request::Reload { force: false }));
    }

    #[test]
    fn a_gateway_with_all_its_requests_hung_says_that_it_lives() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("admin.sock");
        let (ends, hung) = std::sync::mpsc::channel::<()>();
        let (begun, begins) = std::sync::mpsc::channel();
        let (hung, begun) = (Mutex::new(hung), Mutex::new(begun));
        let handler: Handler = Arc::new(move |request, _| match request {
            Request::Alive { seconds } => Reply::Ok(serde_json::json!({"silent_cores": [seconds]})),
            Request::Replaced { dataset } => Reply::Ok(dataset.into()),
            _ => {
                begun.lock().unwrap().send(()).unwrap();
                let _ = hung.lock().unwrap().recv();
                Reply::Ok(serde_json::Value::Null)
            }
        });
        start(&path, handler).unwrap();
        let ask_at = |request: Request| {
            let at = path.clone();
            std::thread::spawn(move || ask(&at, &request))
        };
        let asking: Vec<_> = (0..MAX_RUNNING_REQUESTS).map(|_| ask_at(Request::Status)).collect();
        for _ in 0..MAX_RUNNING_REQUESTS {
            begins.recv().unwrap();
        }
        let refused = ask(&path, &Request::Status).unwrap_err().to_string();
        assert!(refused.contains("running already"), "{refused}");
        assert_eq!(silent_cores(&path, 9).unwrap(), [9], "asked with its time");
        // Clients have to know whatever hangs.
        let replaced = Request::Replaced { dataset: "tank/a".to_owned() };
        assert_eq!(ask(&path, &replaced).unwrap(), "tank/a");
        drop(ends);
        for one in asking {
            one.join().unwrap().unwrap();
        }
    }

    #[test]
    fn a_stopped_process_is_told_after_the_time_of_the_cores() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("admin.sock");
        // The kernel accepts connections for a process that is stopped.
        let _stopped = UnixListener::bind(&path).unwrap();
        let error = silent_cores(&path, 0).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(
            error.to_string(),
            "the process does not run or does not answer within 1 s: `systemctl status zgate`"
        );
    }

    #[test]
    fn a_gateway_that_does_not_know_the_question_is_asked_for_its_status() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("admin.sock");
        // What an earlier version answers to a request of a later one.
        let handler: Handler = Arc::new(|request, _| match request {
            Request::Status => Reply::Ok(serde_json::json!({"silent_cores": [1]})),
            _ => Reply::Error("not a request: unknown variant `alive`".to_owned()),
        });
        start(&path, handler).unwrap();
        assert_eq!(silent_cores(&path, 9).unwrap(), [1]);
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(b"{\"request\":\"of-the-future\"}\n").unwrap();
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        assert!(answer.contains(&format!("\"{NOT_A_REQUEST}unknown variant")), "{answer}");
    }

    #[test]
    fn a_request_is_answered_and_the_socket_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sub/admin.sock");
        let handler: Handler = Arc::new(|request, client| match request {
            Request::Status => {
                let Client { uid, pid } = client.unwrap();
                assert_eq!(uid, rustix::process::getuid().as_raw());
                Reply::Ok(serde_json::json!({"up": pid == std::process::id() as i32}))
            }
            _ => Reply::Error("no".to_owned()),
        });
        start(&path, Arc::clone(&handler)).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(ask(&path, &Request::Status).unwrap()["up"], true);
        assert_eq!(ask(&path, &Request::Drain).unwrap_err().to_string(), "no");
        assert!(start(&path, handler).is_err(), "one gateway a socket");
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(b"rubbish\n").unwrap();
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        assert!(answer.contains("not a request"), "{answer}");
    }
}
