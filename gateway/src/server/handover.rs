//! Handover to another machine: what runs is finished and answered, then all
//! clients are kept waiting, until this gateway is stopped and the other one has
//! the address ([ADR 31]).
//!
//! [ADR 31]: ../../../docs/adr/0031-a-handover-holds-connections.md

use super::limits::{HOLD_PATIENCE, HOLD_PAUSE, MAX_HOLD_SECONDS, SYNC_PATIENCE};
use super::shared::Shared;
use procfs::net::{TcpNetEntry, TcpState};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::Serialize;
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Set while a thread syncs: one that hangs is not joined by others.
static SYNCING: AtomicBool = AtomicBool::new(false);

/// The turn of the thread that syncs; it ends with this value, after a panic too.
struct SyncTurn;

impl SyncTurn {
    /// Begins, unless another thread syncs.
    fn begin() -> Option<Self> {
        (!SYNCING.swap(true, Ordering::AcqRel)).then(|| Self)
    }
}

impl Drop for SyncTurn {
    fn drop(&mut self) {
        SYNCING.store(false, Ordering::Release);
    }
}

/// Result of a handover.
#[derive(Debug, Serialize)]
pub(crate) struct HandedOver {
    /// Set while clients wait.
    held: bool,
    /// Set if everything that clients wrote was on stable storage before.
    synced: bool,
    /// Number of connections whose requests have not ended, because storage does
    /// not answer.
    unfinished: usize,
    /// Number of connections whose peers have not acknowledged all replies, or
    /// whose last bytes nobody has read.
    undelivered: usize,
    /// Number of seconds after which clients are served again, if the gateway is
    /// not stopped before.
    seconds: u64,
}

/// Finishes what runs and keeps clients waiting for `seconds`, or serves again at
/// once if it is 0. Before, the file systems of `paths` and all disks write what they
/// hold back.
///
/// # Errors
/// If the time is too long, or the gateway is stopping.
pub(super) fn hand_over(
    shared: &Shared,
    paths: BTreeSet<PathBuf>,
    seconds: u64,
) -> io::Result<HandedOver> {
    if seconds > MAX_HOLD_SECONDS {
        let text = format!("{seconds} s: must be 0 to {MAX_HOLD_SECONDS}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    if seconds == 0 {
        resume(shared, "on request");
        let none = (false, 0, 0);
        return Ok(answer(false, none, 0));
    }
    let synced = sync(paths, shared.iscsi.flush_all(), SYNC_PATIENCE);
    if !shared.network.drain.hold(Duration::from_secs(seconds)) {
        return Err(io::Error::other("the gateway is stopping already"));
    }
    tracing::info!(seconds, "handed over: running requests are finished, clients wait");
    let (unfinished, undelivered) = wait_for_rest(shared);
    if unfinished + undelivered > 0 {
        tracing::warn!(unfinished, undelivered, "handed over before everything had ended");
    }
    Ok(answer(true, (synced, unfinished, undelivered), seconds))
}

fn answer(
    held: bool,
    (synced, unfinished, undelivered): (bool, usize, usize),
    seconds: u64,
) -> HandedOver {
    HandedOver { held, synced, unfinished, undelivered, seconds }
}

/// Serves again a gateway that nobody has stopped in time. Called about once a
/// second.
pub(super) fn resume_if_due(shared: &Shared) {
    if shared.network.drain.hold_left().is_some_and(|left| left.is_zero()) {
        resume(shared, "nobody has stopped this gateway in time");
    }
}

fn resume(shared: &Shared, why: &str) {
    // Before clients are heard again, and may conflict with each other.
    let excuse = |held: Duration| {
        shared.nfs.resume(held);
        shared.iscsi.resume(held);
    };
    if shared.network.drain.resume(excuse) {
        tracing::warn!(why, "the handover is over: clients are served again");
    }
}

/// Waits until all requests have ended and their replies have arrived; returns the
/// connections of which that is not true.
fn wait_for_rest(shared: &Shared) -> (usize, usize) {
    let addresses = addresses(shared);
    let deadline = Instant::now() + HOLD_PATIENCE;
    let mut quiet = 0;
    loop {
        let (busy, queued) = (shared.network.drain.busy(), undelivered(&sockets(), &addresses));
        // Twice: what was in a socket may be a request by now.
        quiet = if busy + queued == 0 { quiet + 1 } else { 0 };
        if quiet == 2 || Instant::now() > deadline {
            return (busy, queued);
        }
        std::thread::sleep(HOLD_PAUSE);
    }
}

fn addresses(shared: &Shared) -> BTreeSet<SocketAddr> {
    let nfs = shared.nfs_addresses.get().into_iter().flatten().copied();
    nfs.chain(shared.iscsi.portals().iter().map(|portal| portal.address)).collect()
}

fn sockets() -> Vec<TcpNetEntry> {
    [procfs::net::tcp(), procfs::net::tcp6()].into_iter().flatten().flatten().collect()
}

/// Returns whether a socket of a listener at `own` may have the address `local`.
/// Other gateways of the machine may serve at the same port of other addresses.
fn is_at(own: SocketAddr, local: SocketAddr) -> bool {
    let (ip, local_ip) = (own.ip().to_canonical(), local.ip().to_canonical());
    own.port() == local.port() && (ip.is_unspecified() || ip == local_ip)
}

/// Returns the number of connections to `addresses` with data in the kernel.
fn undelivered(sockets: &[TcpNetEntry], addresses: &BTreeSet<SocketAddr>) -> usize {
    let open = |socket: &&TcpNetEntry| {
        matches!(socket.state, TcpState::Established | TcpState::CloseWait)
            && addresses.iter().any(|own| is_at(*own, socket.local_address))
    };
    sockets.iter().filter(open).filter(|socket| socket.tx_queue + socket.rx_queue > 0).count()
}

/// Has file systems, and disks by `flush`, write what they hold back; returns whether
/// all did in time. The pool's export would do it, while clients wait.
fn sync(
    paths: BTreeSet<PathBuf>,
    flush: impl FnOnce() -> bool + Send + 'static,
    patience: Duration,
) -> bool {
    let Some(turn) = SyncTurn::begin() else { return false };
    let (done, ended) = mpsc::channel();
    let work = move || {
        // After a panic, the turn ends before the waiting thread learns of it.
        let (done, turn) = (done, turn);
        // Each, whatever became of those before it.
        let mut synced = true;
        for path in &paths {
            synced &= sync_file_system(path);
        }
        synced &= flush();
        drop(turn);
        // Nobody waits any more for one that took too long.
        let _ = done.send(synced);
    };
    match std::thread::Builder::new().name("zgate-sync".to_owned()).spawn(work) {
        Ok(_) => ended.recv_timeout(patience).unwrap_or(false),
        Err(error) => {
            tracing::warn!(%error, "no thread for a sync");
            false
        }
    }
}

/// Syncs the file system of an export; returns false if that fails. An absent one
/// holds nothing back.
fn sync_file_system(path: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::empty()).and_then(rustix::fs::syncfs) {
        Ok(()) | Err(Errno::NOENT) => true,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "cannot sync before a handover");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn data_that_a_peer_has_not_read_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = TcpStream::connect(address).unwrap();
        let (_server, _) = listener.accept().unwrap();
        let addresses = BTreeSet::from([address]);
        assert_eq!(undelivered(&sockets(), &addresses), 0);
        client.write_all(b"not read").unwrap();
        assert_eq!(undelivered(&sockets(), &addresses), 1);
        assert_eq!(undelivered(&sockets(), &BTreeSet::new()), 0, "another server's");
    }

    #[test]
    fn sockets_of_other_addresses_with_the_same_port_are_not_waited_for() {
        let served = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = served.local_addr().unwrap();
        let other = SocketAddr::new("127.0.0.2".parse().unwrap(), own.port());
        let listener = TcpListener::bind(other).unwrap();
        let mut client = TcpStream::connect(other).unwrap();
        let (_server, _) = listener.accept().unwrap();
        client.write_all(b"not read").unwrap();
        let of = |address| undelivered(&sockets(), &BTreeSet::from([address]));
        assert_eq!((of(own), of(other)), (0, 1));
    }

    #[test]
    fn a_listener_has_the_sockets_of_its_address_in_either_form() {
        let at = |own: &str, local: &str| is_at(own.parse().unwrap(), local.parse().unwrap());
        assert!(at("10.0.0.1:2049", "[::ffff:10.0.0.1]:2049"));
        assert!(at("[::]:2049", "10.0.0.1:2049") && at("0.0.0.0:2049", "10.0.0.1:2049"));
        assert!(at("[fd00::1]:2049", "[fd00::1]:2049"));
        assert!(!at("[fd00::1]:2049", "[fd00::2]:2049"));
        assert!(!at("10.0.0.1:2049", "10.0.0.2:2049"));
        assert!(!at("0.0.0.0:2049", "10.0.0.1:3260"));
    }

    // One test: no second sync begins while one runs.
    #[test]
    fn all_file_systems_and_disks_are_synced_but_absent_ones() {
        let dir = tempfile::tempdir().unwrap();
        let (absent, file) = (dir.path().join("absent"), dir.path().join("file"));
        std::fs::write(&file, "no directory").unwrap();
        let long = Duration::from_secs(60);
        let synced = |path: &Path, flush: fn() -> bool| {
            sync(BTreeSet::from([absent.clone(), path.to_owned()]), flush, long)
        };
        assert!(synced(dir.path(), || true), "an absent one holds nothing back");
        assert!(!synced(dir.path(), || false), "a disk did not flush");
        assert!(!synced(&file, || true));
        assert!(!synced(dir.path(), || panic!("of a disk")));
        assert!(synced(dir.path(), || true), "a panic ends the turn");
        let (told, flushed) = mpsc::channel();
        let flush = move || told.send(()).is_ok();
        assert!(!sync(BTreeSet::from([file]), flush, long));
        assert!(flushed.recv().is_ok(), "disks are flushed whatever became of file systems");
    }
}
