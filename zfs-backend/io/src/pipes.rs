//! Pipes that carry file data from a worker to a socket.
//!
//! A file system with a cache of its own (ZFS) cannot lend its pages to a
//! socket. `splice` into a pipe makes it copy the data once, into pages that a
//! second `splice` passes to the socket as they are: a buffer between the two
//! would cost another copy.

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use rustix::process::{Resource, getrlimit};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Capacity of a pipe, in bytes. The kernel allows processes without privileges
/// no more.
const PIPE_BYTES: usize = 1 << 20;
/// Most pipes of one engine. While all of them are in use, data is read into
/// memory: a client that receives nothing holds pipes, but stops nobody.
const MAX_PIPES: usize = 32;
/// Number of pipes is at most the limit of open files divided by this.
const DESCRIPTORS_PER_PIPE: usize = 128;

/// Returns the most pipes that a process has with this limit of open files. Each
/// has two descriptors.
#[must_use]
pub fn max_pipes(descriptor_limit: usize) -> usize {
    (descriptor_limit / DESCRIPTORS_PER_PIPE).min(MAX_PIPES)
}

#[derive(Debug)]
struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
}

/// The pipes of an engine.
#[derive(Debug)]
pub struct Pipes {
    /// Most pipes.
    max: usize,
    /// Empty ones.
    idle: Mutex<Vec<Pipe>>,
    /// Number of pipes, empty or not.
    open: AtomicUsize,
    /// Set once the kernel refuses pipes of this size.
    refused: AtomicBool,
}

impl Default for Pipes {
    fn default() -> Self {
        Self::new()
    }
}

impl Pipes {
    /// Creates a set of pipes within the limit of open files.
    #[must_use]
    pub fn new() -> Self {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let max = max_pipes(usize::try_from(limit).unwrap_or(usize::MAX));
        let (idle, open, refused) = Default::default();
        Self { max, idle, open, refused }
    }

    /// Reads exactly `len` bytes at `offset` into a pipe. Waits for the disk.
    /// `None`: read into memory; no pipe is free, the file ends before, or the
    /// file system or the kernel does not support it.
    ///
    /// # Errors
    /// The error of splice(2).
    pub fn read(
        self: &Arc<Self>,
        file: &OwnedFd,
        offset: u64,
        len: usize,
    ) -> io::Result<Option<FilledPipe>> {
        if len > PIPE_BYTES || self.refused.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let Some(pipe) = self.take() else { return Ok(None) };
        let filled = fill(&pipe, file, offset, len);
        let left = *filled.as_ref().unwrap_or(&0);
        // Dropped if it is not full: whatever it holds goes with it.
        let pipe = FilledPipe {
            pipe: Some(pipe),
            left: AtomicUsize::new(left),
            is_dirty: AtomicBool::new(left != len),
            claimed: AtomicU64::new(0),
            home: Arc::clone(self),
        };
        match filled {
            Ok(count) => Ok((count == len).then_some(pipe)),
            Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => {
                self.refused.store(true, Ordering::Relaxed);
                Ok(None)
            }
            Err(errno) => Err(errno.into()),
        }
    }

    fn take(&self) -> Option<Pipe> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if idle.is_some() {
            return idle;
        }
        let opened = self.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |open| {
            (open < self.max).then_some(open + 1)
        });
        if opened.is_err() {
            return None;
        }
        let made = make();
        if let Err(errno) = made {
            self.open.fetch_sub(1, Ordering::Relaxed);
            // Out of descriptors is no reason to stop trying.
            if !matches!(errno, Errno::MFILE | Errno::NFILE) {
                self.refused.store(true, Ordering::Relaxed);
            }
        }
        made.ok()
    }
}

fn make() -> Result<Pipe, Errno> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    if fcntl_setpipe_size(&writer, PIPE_BYTES)? < PIPE_BYTES {
        return Err(Errno::PERM);
    }
    Ok(Pipe { reader, writer })
}

/// Returns the number of bytes moved: less than `len` at the end of the file, or
/// if the pipe is full before, because the data covers parts of more pages.
fn fill(pipe: &Pipe, file: &OwnedFd, offset: u64, len: usize) -> Result<usize, Errno> {
    let mut filled = 0;
    while filled < len {
        let mut at = offset.saturating_add(filled as u64);
        // Not blocking concerns room in the pipe alone.
        let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        match splice(file, Some(&mut at), &pipe.writer, None, len - filled, flags) {
            Ok(0) | Err(Errno::AGAIN) => break,
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(filled)
}

/// Data in a pipe, which can be sent once.
#[derive(Debug)]
pub struct FilledPipe {
    /// Until it is dropped.
    pipe: Option<Pipe>,
    left: AtomicUsize,
    /// The pipe holds more than `left`.
    is_dirty: AtomicBool,
    /// Bytes that have found their sender.
    claimed: AtomicU64,
    home: Arc<Pipes>,
}

impl FilledPipe {
    /// Makes the caller the only sender of these bytes. False if they have one,
    /// or if bytes before them have none: a pipe is sent from its first byte on.
    #[must_use]
    pub fn claim(&self, offset: u64, len: usize) -> bool {
        let end = offset.saturating_add(len as u64);
        self.claimed.compare_exchange(offset, end, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Moves at most `len` bytes to a socket. Returns their number: 0 only if
    /// nothing is left.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if the socket is full; the error of
    /// splice(2).
    pub fn send(&self, socket: impl AsFd, len: usize) -> io::Result<usize> {
        let left = self.left.load(Ordering::Relaxed);
        let (Some(pipe), len) = (&self.pipe, len.min(left)) else { return Ok(0) };
        if len == 0 {
            return Ok(0);
        }
        let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        let sent = match splice(&pipe.reader, None, socket, None, len, flags) {
            Ok(0) => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            sent => sent.map_err(io::Error::from),
        };
        match &sent {
            Ok(sent) => self.left.store(left - sent, Ordering::Relaxed),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // Nobody knows how much has left.
            Err(_) => self.is_dirty.store(true, Ordering::Relaxed),
        }
        sent
    }
}

impl Drop for FilledPipe {
    fn drop(&mut self) {
        let is_empty = *self.left.get_mut() == 0 && !*self.is_dirty.get_mut();
        match self.pipe.take() {
            Some(pipe) if is_empty => {
                self.home.idle.lock().unwrap_or_else(PoisonError::into_inner).push(pipe);
            }
            _ => {
                self.home.open.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, OFlags};
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    fn file(len: usize) -> (OwnedFd, Vec<u8>) {
        let content: Vec<u8> = (0..len).map(|at| (at / 7 % 251) as u8).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&content).unwrap();
        (file.into(), content)
    }

    fn idle(pipes: &Pipes) -> (usize, usize) {
        (pipes.idle.lock().unwrap().len(), pipes.open.load(Ordering::Relaxed))
    }

    #[test]
    fn data_passes_a_socket_that_is_full_at_times() {
        let pipes = Arc::new(Pipes::new());
        let (file, content) = file(PIPE_BYTES + 100);
        let filled = pipes.read(&file, 4096, PIPE_BYTES - 4096).unwrap().unwrap();
        let half = PIPE_BYTES / 2;
        assert!(!filled.claim(1, 10), "the first byte has no sender yet");
        assert!(filled.claim(0, half) && !filled.claim(0, half));
        assert!(filled.claim(half as u64, half) && !filled.claim(half as u64, half));
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let (mut received, mut was_full) = (Vec::new(), false);
        loop {
            match filled.send(&ours, PIPE_BYTES) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                    was_full = true;
                    let mut some = vec![0; 100_000];
                    let count = theirs.read(&mut some).unwrap();
                    received.extend_from_slice(&some[..count]);
                }
            }
        }
        drop((filled, ours));
        theirs.read_to_end(&mut received).unwrap();
        assert!(was_full);
        assert!(received == content[4096..PIPE_BYTES]);
        assert_eq!(idle(&pipes), (1, 1), "the pipe is kept for the next read");
    }

    /// Without the page cache, the disk fills the pages of the pipe.
    #[test]
    fn a_pipe_is_filled_past_the_cache() {
        let pipes = Arc::new(Pipes::new());
        let content: Vec<u8> = (0..PIPE_BYTES * 2).map(|at| (at / 7 % 251) as u8).collect();
        let place = std::env::current_exe().unwrap();
        let mut file = tempfile::NamedTempFile::new_in(place.parent().unwrap()).unwrap();
        file.write_all(&content).unwrap();
        file.as_file().sync_all().unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECT;
        let Ok(direct) = rustix::fs::open(file.path(), flags, Mode::empty()) else { return };
        let Some(filled) = pipes.read(&direct, 4096, PIPE_BYTES).unwrap() else { return };
        assert!(filled.claim(0, PIPE_BYTES));
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            theirs.read_to_end(&mut all).unwrap();
            all
        });
        while filled.send(&ours, PIPE_BYTES).unwrap() > 0 {}
        drop((filled, ours));
        assert!(reader.join().unwrap() == content[4096..4096 + PIPE_BYTES]);
        assert_eq!(idle(&pipes), (1, 1));
    }

    #[test]
    fn what_does_not_fit_is_read_into_memory() {
        let pipes = Arc::new(Pipes::new());
        let (file, _) = file(PIPE_BYTES * 2);
        assert!(pipes.read(&file, 0, PIPE_BYTES + 1).unwrap().is_none());
        assert!(pipes.read(&file, PIPE_BYTES as u64 * 2 - 10, 11).unwrap().is_none(), "its end");
        // A page cache lends its pages: one more than the pipe has room for.
        assert!(pipes.read(&file, 100, PIPE_BYTES).unwrap().is_none());
        assert_eq!(idle(&pipes), (0, 0), "a pipe with a rest is closed");
        assert!(pipes.read(&file, 0, PIPE_BYTES).unwrap().is_some());
    }

    #[test]
    fn clients_that_receive_nothing_hold_a_bounded_number() {
        let pipes = Arc::new(Pipes::new());
        let (file, _) = file(10_000);
        let mut held: Vec<_> =
            (0..pipes.max).map(|_| pipes.read(&file, 0, 10_000).unwrap().unwrap()).collect();
        assert!(pipes.read(&file, 0, 10_000).unwrap().is_none());
        held.pop();
        assert!(pipes.read(&file, 0, 10_000).unwrap().is_some());
        drop(held);
        assert_eq!(idle(&pipes), (0, 0));
    }

    #[test]
    fn a_file_that_cannot_be_spliced_is_tried_once() {
        let pipes = Arc::new(Pipes::new());
        let dir = OwnedFd::from(std::fs::File::open("/").unwrap());
        assert!(matches!(pipes.read(&dir, 0, 4096), Ok(None) | Err(_)));
        let (file, _) = file(4096);
        pipes.refused.store(true, Ordering::Relaxed);
        assert!(pipes.read(&file, 0, 4096).unwrap().is_none());
    }
}
