//! The open files of a process that ends while its storage hangs.
//!
//! A call that the kernel does not give up keeps its thread, and a thread keeps all open files
//! of its process. Addresses would stay bound, locks held and devices claimed until the storage
//! answers, although the process has ended, and nothing could take its place.

use rustix::fs::{CWD, Mode, OFlags};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Standard input, output and error stay.
const FIRST: RawFd = 3;

/// Set by the first thread that closes all.
static CLOSES: AtomicBool = AtomicBool::new(false);

/// Closes the sockets, files and devices of this process, for its very end. Requests that still
/// run get errors, and nobody hears of them, because the sockets come first. Each file system and
/// each device is closed by a thread of its own, and awaited for `patience` at most.
///
/// Returns the number of those that did not end in time. The first thread that calls it ends the
/// process afterwards: others that have a reason to end it do not return, and so do not cut that
/// short.
///
/// # Errors
/// The system's, if the open files cannot be listed.
pub fn close_all(patience: Duration) -> io::Result<usize> {
    while CLOSES.swap(true, Ordering::AcqRel) {
        std::thread::park();
    }
    let open = open_files(Path::new("/proc/self"))?;
    Ok(close(open, Instant::now() + patience))
}

/// An open file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OpenFile {
    number: RawFd,
    /// As the kernel names it: a path, or `socket:[…]` and the like.
    name: PathBuf,
    /// Lines of `/proc/self/fdinfo`.
    facts: String,
    /// Set for a Unix socket without a name: one of a pair within this process, as which signals
    /// reach its threads.
    is_of_pair: bool,
}

/// Files whose closing waits for the same thing, in the order of closing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    Sockets,
    /// A file system, by the number of its mount.
    Mount(String),
    Device(PathBuf),
}

fn is_socket(name: &Path) -> bool {
    name.to_string_lossy().starts_with("socket:")
}

#[allow(unsafe_code)]
fn is_of_pair(number: RawFd) -> bool {
    // SAFETY: only its name is asked for, which the system refuses if it is no Unix socket. It is
    // given back below, and not closed here.
    let socket = unsafe { UnixStream::from_raw_fd(number) };
    let name = socket.local_addr();
    let _: RawFd = socket.into_raw_fd();
    name.is_ok_and(|name| name.is_unnamed())
}

/// Returns the group of a file; none if it stays: what is in no file system keeps nothing from
/// anybody, and threads that wait for it are not disturbed.
fn group_of(file: &OpenFile) -> Option<Group> {
    if is_socket(&file.name) {
        return (!file.is_of_pair).then_some(Group::Sockets);
    }
    if !file.name.is_absolute() || file.name.starts_with("/proc") {
        return None;
    }
    if file.name.starts_with("/dev") {
        return Some(Group::Device(file.name.clone()));
    }
    let mount = file.facts.lines().find_map(|line| line.strip_prefix("mnt_id:"))?;
    Some(Group::Mount(mount.trim().to_owned()))
}

fn open_files(process: &Path) -> io::Result<Vec<OpenFile>> {
    let mut open = Vec::new();
    for entry in fs::read_dir(process.join("fd"))? {
        let entry = entry?;
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // What another thread has closed meanwhile is not open.
        let name = fs::read_link(entry.path());
        let facts = fs::read_to_string(process.join("fdinfo").join(entry.file_name()));
        if let (true, Ok(name), Ok(facts)) = (number >= FIRST, name, facts) {
            let is_of_pair = is_socket(&name) && is_of_pair(number);
            open.push(OpenFile { number, name, facts, is_of_pair });
        }
    }
    Ok(open)
}

/// Closes files; returns the number of groups that did not end by the deadline.
fn close(open: Vec<OpenFile>, deadline: Instant) -> usize {
    let mut groups: BTreeMap<Group, Vec<RawFd>> = BTreeMap::new();
    for file in open {
        if let Some(group) = group_of(&file) {
            groups.entry(group).or_default().push(file.number);
        }
    }
    let sockets = groups.remove(&Group::Sockets).into_iter().map(begin).collect();
    let left = awaited(sockets, deadline);
    left + awaited(groups.into_values().map(begin).collect(), deadline)
}

/// Begins to close files; the receiver is told of the end.
fn begin(numbers: Vec<RawFd>) -> Receiver<()> {
    let (done, ended) = channel();
    // A thread that cannot be started closes nothing: then they do not end.
    let _ = std::thread::Builder::new().name("zgate-close".to_owned()).spawn(move || {
        if numbers.into_iter().try_for_each(replace).is_ok() {
            // Nobody may wait for it any more.
            let _ = done.send(());
        }
    });
    ended
}

fn awaited(ends: Vec<Receiver<()>>, deadline: Instant) -> usize {
    let late = |ended: &&Receiver<()>| {
        ended.recv_timeout(deadline.saturating_duration_since(Instant::now())).is_err()
    };
    ends.iter().filter(late).count()
}

/// Closes an open file and puts one in its place that can be neither read nor written: a thread
/// that still uses the number never meets the file of another one.
#[allow(unsafe_code)]
fn replace(number: RawFd) -> io::Result<()> {
    let inert = rustix::fs::openat(CWD, "/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    // SAFETY: the number is one of this process, which ends: its owner may go on to use it and
    // gets errors. It is given back below, and not closed here.
    let mut descriptor = unsafe { OwnedFd::from_raw_fd(number) };
    let replaced = rustix::io::dup3(&inert, &mut descriptor, rustix::io::DupFlags::CLOEXEC);
    let _: RawFd = descriptor.into_raw_fd();
    Ok(replaced?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FlockOperation, flock};
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixListener;

    fn file(name: &str, facts: &str) -> OpenFile {
        let facts = facts.to_owned();
        OpenFile { number: 7, name: name.into(), facts, is_of_pair: false }
    }

    /// Closes these alone, as all are closed at the end.
    fn close_these(numbers: &[RawFd]) {
        let mut open = open_files(Path::new("/proc/self")).unwrap();
        open.retain(|file| numbers.contains(&file.number));
        assert_eq!(open.len(), numbers.len());
        assert_eq!(close(open, Instant::now() + Duration::from_secs(30)), 0);
    }

    #[test]
    fn files_are_grouped_by_what_their_closing_waits_for() {
        let facts = "pos:\t0\nflags:\t02100000\nmnt_id:\t29\nino:\t4\n";
        let mount = |number: &str| Some(Group::Mount(number.to_owned()));
        assert_eq!(group_of(&file("socket:[1234]", "")), Some(Group::Sockets));
        assert_eq!(group_of(&file("/tank/a/file (deleted)", facts)), mount("29"));
        assert_eq!(group_of(&file("/tank/b", "mnt_id:\t31\n")), mount("31"));
        let zvol = Some(Group::Device("/dev/zd16".into()));
        assert_eq!(group_of(&file("/dev/zd16", facts)), zvol);
        for stays in ["anon_inode:[eventpoll]", "pipe:[5]", "/proc/1/ns/net", "/memfd:x"] {
            assert_eq!(group_of(&file(stays, "")), None, "{stays}");
        }
        assert!(Group::Sockets < Group::Mount("0".to_owned()));
    }

    #[test]
    fn addresses_and_locks_are_free_although_their_owners_live() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = TcpStream::connect(address).unwrap();
        let (mut accepted, _) = listener.accept().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let mut locked = fs::File::create(&path).unwrap();
        flock(&locked, FlockOperation::LockExclusive).unwrap();

        close_these(&[listener.as_raw_fd(), accepted.as_raw_fd(), locked.as_raw_fd()]);

        assert_eq!(client.read(&mut [0; 8]).unwrap(), 0, "the connection has ended");
        TcpListener::bind(address).unwrap();
        let again = fs::File::open(&path).unwrap();
        flock(&again, FlockOperation::NonBlockingLockExclusive).unwrap();
        // Their owners get errors, and meet no other file.
        assert!(accepted.write(b"x").is_err() && locked.write(b"x").is_err());
        assert!(listener.accept().is_err());
        assert_eq!(fs::read(&path).unwrap(), b"");
    }

    #[test]
    fn sockets_of_a_pair_stay_because_threads_wait_for_signals_there() {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("s")).unwrap();
        let (one, mut other) = UnixStream::pair().unwrap();
        close_these(&[listener.as_raw_fd(), one.as_raw_fd()]);
        assert!(UnixStream::connect(dir.path().join("s")).is_err());
        other.write_all(b"x").unwrap();
        assert_eq!((&one).read(&mut [0; 8]).unwrap(), 1);
    }

    #[test]
    fn a_file_that_does_not_close_is_not_awaited_for_longer() {
        let (_kept, never) = channel();
        let (done, ended) = channel();
        done.send(()).unwrap();
        assert_eq!(awaited(vec![never, ended], Instant::now() + Duration::from_millis(20)), 1);
    }
}
