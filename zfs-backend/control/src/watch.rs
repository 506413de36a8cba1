//! Notification of changes: a `zpool events` that is restarted when it ends,
//! and the kernel's mount table, which signals changes (proc(5): poll with
//! POLLPRI). Neither costs anything while nothing happens.

use crate::events::{Event, EventReader};
use crate::replaced::{Replacement, ReplacementReader};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// First and longest pause before `zpool events` is restarted.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];
/// Length after which a run counts as successful, and the pauses start over.
const GOOD_RUN: Duration = Duration::from_secs(30);
/// Interval at which the thread that watches mounts checks whether to end.
const MOUNT_WAIT: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// Longest line of an event that is parsed, in bytes.
const MAX_LINE_BYTES: u64 = 64 << 10;
/// Longest error message of `zpool` that is logged, in bytes.
const MAX_COMPLAINT_BYTES: u64 = 1 << 10;

/// A change that may affect what is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// ZFS reported an event.
    Event(Event),
    /// The content of datasets may have been replaced. It comes at once, and before the event.
    Replaced(Replacement),
    /// Events may have been missed: `zpool events` was restarted.
    Restarted,
    /// Something was mounted or unmounted.
    Mounts,
}

/// Callback for every change; runs on threads of the watch.
pub type Listener = Arc<dyn Fn(Change) + Send + Sync>;

#[derive(Default)]
struct Control {
    stopped: AtomicBool,
    child: Mutex<Option<Child>>,
    pause: (Mutex<()>, Condvar),
}

/// A running watch; ends when it is dropped.
pub struct Watch {
    control: Arc<Control>,
    threads: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Watch({} threads)", self.threads.len())
    }
}

impl Watch {
    /// Starts watching until the value is dropped.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn start(listener: &Listener) -> io::Result<Self> {
        let control = Arc::new(Control::default());
        let thread = |name: &str, work: fn(&Control, &Listener)| {
            let (control, listener) = (Arc::clone(&control), Arc::clone(listener));
            let builder = std::thread::Builder::new().name(name.to_owned());
            builder.spawn(move || work(&control, &listener))
        };
        let threads =
            vec![thread("zgate-zevents", follow_events)?, thread("zgate-mounts", follow_mounts)?];
        Ok(Self { control, threads })
    }

    /// Returns what ends the watch without waiting.
    #[must_use]
    pub fn ending(&self) -> WatchEnd {
        WatchEnd(Arc::clone(&self.control))
    }
}

/// End of a watch, for those who do not wait for its threads.
#[derive(Clone)]
pub struct WatchEnd(Arc<Control>);

impl std::fmt::Debug for WatchEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WatchEnd")
    }
}

impl WatchEnd {
    /// Ends the watch and its `zpool events`, which would outlive this process. The
    /// threads end a moment later.
    pub fn end(&self) {
        self.0.end();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.control.end();
        for thread in self.threads.drain(..) {
            // A panic there has been printed already.
            let _ = thread.join();
        }
    }
}

impl Control {
    fn end(&self) {
        self.stopped.store(true, Ordering::Release);
        if let Some(child) = &mut *self.child() {
            // The process may have ended by itself; the thread waits for it.
            let _ = child.kill();
        }
        // A pause that has looked before, and does not sleep yet, holds this.
        let _guard = self.pause.0.lock().unwrap_or_else(PoisonError::into_inner);
        self.pause.1.notify_all();
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    fn child(&self) -> std::sync::MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, pause: Duration) {
        let guard = self.pause.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_stopped() {
            // Waking early or late does no harm: the caller checks its state
            // again.
            drop(self.pause.1.wait_timeout(guard, pause));
        }
    }
}

fn follow_events(control: &Control, listener: &Listener) {
    let mut pause = PAUSES[0];
    let mut told: Option<String> = None;
    let mut replaced = ReplacementReader::default();
    while !control.is_stopped() {
        let began = Instant::now();
        let said = run_once(control, listener, &mut replaced).unwrap_or_else(|e| e.to_string());
        let was_good = began.elapsed() > GOOD_RUN;
        pause = if was_good { PAUSES[0] } else { (pause * 2).min(PAUSES[1]) };
        if control.is_stopped() {
            return;
        }
        // Once, not with every attempt.
        let is_told = !was_good && told.as_ref() == Some(&said);
        if is_told {
            tracing::debug!(reason = said, ?pause, "zpool events has ended again");
        } else if said.is_empty() {
            tracing::info!(?pause, "zpool events has ended; it is started again");
        } else {
            tracing::warn!(
                reason = said,
                "ZFS reports no events: new zvols and changed properties are only found every \
                 rescan_seconds, and `zfs rollback` or `zfs receive` by hand into what is served \
                 is not noticed, unless OpenZFS's zed tells of it (`zgate doctor`): run `zgate \
                 replaced DATASET` after it; mounts and unmounts are still noticed at once. Events \
                 need CAP_SYS_ADMIN"
            );
        }
        told = Some(said);
        control.wait(pause);
    }
}

/// Reads events until they end; returns the error output of `zpool`.
fn run_once(
    control: &Control,
    listener: &Listener,
    replaced: &mut ReplacementReader,
) -> io::Result<String> {
    let now_seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let mut child = Command::new("zpool")
        .args(["events", "-f", "-v", "-H"])
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let (output, complaints) = (child.stdout.take(), child.stderr.take());
    *control.child() = Some(child);
    if let Some(output) = output.filter(|_| !control.is_stopped()) {
        replaced.started(now_seconds);
        listener(Change::Restarted);
        read_events(BufReader::new(output), listener, replaced);
    }
    let ended = control.child().take();
    if let Some(mut child) = ended {
        // With its output closed, the process has ended or is about to end.
        let _ = child.kill();
        child.wait()?;
    }
    Ok(complaints.map(first_line).unwrap_or_default())
}

fn first_line(complaints: impl io::Read) -> String {
    let mut line = String::new();
    // An error message that cannot be read is treated as empty.
    let _ = BufReader::new(complaints.take(MAX_COMPLAINT_BYTES)).read_line(&mut line);
    line.trim().to_owned()
}

fn read_events(mut output: impl BufRead, listener: &Listener, replaced: &mut ReplacementReader) {
    let mut reader = EventReader::default();
    let mut line = Vec::new();
    loop {
        line.clear();
        match io::Read::take(&mut output, MAX_LINE_BYTES).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&line);
        if let Some(event) = reader.line(text.trim_end_matches(['\n', '\r'])) {
            if let Some(replacement) = replaced.event(&event) {
                listener(Change::Replaced(replacement));
            }
            listener(Change::Event(event));
        }
    }
}

fn follow_mounts(control: &Control, listener: &Listener) {
    let table = match File::open("/proc/self/mountinfo") {
        Ok(table) => table,
        Err(error) => {
            tracing::warn!(%error, "the mount table cannot be watched; mounts are only checked \
                every rescan_seconds");
            return;
        }
    };
    while !control.is_stopped() {
        let mut wanted = [PollFd::new(&table, PollFlags::PRI)];
        match poll(&mut wanted, Some(&MOUNT_WAIT)) {
            Ok(0) => {}
            Ok(_) => listener(Change::Mounts),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                tracing::warn!(%error, "the mount table is no longer watched");
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_is_its_first_line() {
        assert_eq!(first_line(&b"cannot open: no\nmore"[..]), "cannot open: no");
        assert_eq!(first_line(&b""[..]), "");
    }

    #[test]
    fn the_end_of_a_watch_ends_its_program_and_waits_for_no_thread() {
        let control = Arc::new(Control::default());
        *control.child() = Some(Command::new("sleep").arg("600").spawn().unwrap());
        WatchEnd(Arc::clone(&control)).end();
        assert!(control.is_stopped());
        let mut program = control.child().take().unwrap();
        assert!(!program.wait().unwrap().success());
    }

    #[test]
    fn the_end_of_a_watch_is_told_to_a_pause_that_is_about_to_sleep() {
        let control = Arc::new(Control::default());
        // As a pause that has looked whether the watch goes on.
        let about_to_sleep = control.pause.0.lock().unwrap();
        let ending = WatchEnd(Arc::clone(&control));
        let end = std::thread::spawn(move || ending.end());
        while !control.is_stopped() {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(20));
        assert!(!end.is_finished(), "it would tell nobody");
        let (awake, pause) = control.pause.1.wait_timeout(about_to_sleep, PAUSES[1]).unwrap();
        drop(awake);
        assert!(!pause.timed_out());
        end.join().unwrap();
    }

    #[test]
    fn events_reach_the_listener_and_a_watch_ends() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let keep = Arc::clone(&seen);
        let listener: Listener = Arc::new(move |change| keep.lock().unwrap().push(change));
        let text = "t\tsysevent.fs.zfs.pool_import\n        pool = \"lab\"\n\n\
            t\tsysevent.fs.zfs.history_event\n        history_dsname = \"lab/a/%recv\"\n        \
            history_internal_name = \"clone swap\"\n\n";
        read_events(text.as_bytes(), &listener, &mut ReplacementReader::default());
        let all = std::mem::take(&mut *seen.lock().unwrap());
        let [Change::Event(event), Change::Replaced(replaced), Change::Event(_)] = &all[..] else {
            panic!("{all:?}")
        };
        assert_eq!(event.pool.as_deref(), Some("lab"));
        assert_eq!(*replaced, Replacement::Of("lab/a".parse().unwrap()));
        // With or without ZFS installed, the watch starts and ends.
        drop(Watch::start(&listener).unwrap());
    }
}
