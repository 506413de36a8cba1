//! Events of the process: signals, and what the main thread does with them.

use super::systemd::notify;
use crate::net::boundary::close_open_files;
use crate::observe::panics::caught_blocking;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use tokio::signal::unix::{SignalKind, signal};

/// Event for the main thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The configuration is to be read again.
    Reload,
    /// That has ended.
    Reloaded,
    /// The gateway is to stop.
    Stop,
}

/// Reads the configuration again, and tells what comes of it.
pub(super) type Reload = Arc<dyn Fn() + Send + Sync>;

/// Carries out reloads, one after the other, until the gateway is told to stop. Reloads
/// that are asked for during one are one more. Returns whether one goes on.
pub(super) fn until_stop(
    events: &Sender<Event>,
    happened: &Receiver<Event>,
    reload: &Reload,
) -> bool {
    let (mut is_reloading, mut again) = (false, false);
    while let Ok(event) = happened.recv() {
        match event {
            Event::Stop => break,
            Event::Reload if is_reloading => again = true,
            Event::Reload => is_reloading = begin(events, reload),
            Event::Reloaded => {
                notify("READY=1");
                is_reloading = std::mem::take(&mut again) && begin(events, reload);
            }
        }
    }
    is_reloading
}

/// Begins a reload on a thread of its own: storage may keep it, and a stop does not wait
/// for that. Returns whether it has begun.
fn begin(events: &Sender<Event>, reload: &Reload) -> bool {
    let (events, reload) = (events.clone(), Arc::clone(reload));
    let work = move || {
        // A panic is logged, and its end told all the same: the next reload begins from
        // what is in effect.
        caught_blocking("a reload", &*reload);
        // The gateway may have stopped.
        let _ = events.send(Event::Reloaded);
    };
    let begun = std::thread::Builder::new().name("zgate-reload".to_owned()).spawn(work);
    if let Err(error) = &begun {
        tracing::error!(%error, "cannot start the thread of a reload; nothing changed: try again");
        notify("READY=1");
    }
    begun.is_ok()
}

/// Has SIGHUP reload.
///
/// # Errors
/// The system's.
pub(super) fn watch_hangup(events: &Sender<Event>) -> io::Result<()> {
    watch(events, SignalKind::hangup(), Event::Reload)
}

/// Has SIGTERM and Ctrl-C drain.
///
/// # Errors
/// The system's.
pub(super) fn watch_stop(events: &Sender<Event>) -> io::Result<()> {
    watch(events, SignalKind::terminate(), Event::Stop)?;
    watch(events, SignalKind::interrupt(), Event::Stop)
}

/// Has SIGABRT, by which a service manager ends a gateway that gives no sign of life, close what is
/// open before: the storage that silences a core may keep this process, and must not keep the next
/// gateway from starting.
///
/// # Errors
/// The system's.
pub(super) fn watch_abort() -> io::Result<()> {
    on_signal(SignalKind::from_raw(rustix::process::Signal::ABORT.as_raw()), || {
        tracing::error!("ended by SIGABRT, as by a watchdog");
        close_open_files();
        std::process::abort()
    })
}

/// Makes a signal an event from now on.
fn watch(events: &Sender<Event>, kind: SignalKind, event: Event) -> io::Result<()> {
    let events = events.clone();
    on_signal(kind, move || events.send(event).is_ok())
}

/// Calls `told` for each signal from now on, on a thread of its own, until it returns false.
fn on_signal(kind: SignalKind, told: impl Fn() -> bool + Send + 'static) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut signals = {
        let _entered = runtime.enter();
        signal(kind)?
    };
    std::thread::Builder::new().name("zgate-signals".to_owned()).spawn(move || {
        runtime.block_on(async {
            while signals.recv().await.is_some() {
                if !told() {
                    return;
                }
            }
        });
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::serve::serve;
    use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
    use rustix::process::{Pid, Signal, kill_process};
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    use std::path::Path;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    /// Time limit for expected events.
    const PATIENCE: Duration = Duration::from_secs(30);

    /// Runs the main thread's loop on another one, which tells its result.
    fn run(events: &Sender<Event>, happened: Receiver<Event>, reload: Reload) -> Receiver<bool> {
        let ((told, result), events) = (channel(), events.clone());
        std::thread::spawn(move || told.send(until_stop(&events, &happened, &reload)).unwrap());
        result
    }

    #[test]
    fn a_stop_does_not_wait_for_a_reload() {
        let ((events, happened), (begins, begun), (ends, waits)) =
            (channel(), channel(), channel::<()>());
        let waits = Mutex::new(waits);
        let result = run(
            &events,
            happened,
            Arc::new(move || {
                begins.send(()).unwrap();
                // The other end is dropped when the test has ended.
                let _ = waits.lock().unwrap().recv();
            }),
        );
        events.send(Event::Reload).unwrap();
        begun.recv_timeout(PATIENCE).unwrap();
        events.send(Event::Stop).unwrap();
        assert_eq!(result.recv_timeout(PATIENCE), Ok(true), "the reload goes on");
        drop(ends);
    }

    #[test]
    fn reloads_come_one_after_the_other_also_after_one_that_panics() {
        let ((events, happened), (begins, begun), (ends, waits)) =
            (channel(), channel(), channel::<()>());
        let (waits, count, stop) = (Mutex::new(waits), AtomicUsize::new(0), events.clone());
        let result = run(
            &events,
            happened,
            Arc::new(move || {
                let before = count.fetch_add(1, Ordering::Relaxed);
                begins.send(before).unwrap();
                if before > 0 {
                    return stop.send(Event::Stop).unwrap();
                }
                // The other end is dropped when the others have been asked for.
                let _ = waits.lock().unwrap().recv();
                panic!("expected by the test");
            }),
        );
        events.send(Event::Reload).unwrap();
        assert_eq!(begun.recv_timeout(PATIENCE), Ok(0));
        for _ in 0..3 {
            events.send(Event::Reload).unwrap();
        }
        assert!(begun.try_recv().is_err(), "the first one goes on");
        drop(ends);
        assert_eq!(begun.recv_timeout(PATIENCE), Ok(1));
        assert!(result.recv_timeout(PATIENCE).is_ok());
        assert!(begun.try_recv().is_err(), "the three are one");
    }

    /// Set for a process that this test sends a signal: its configuration.
    const CHILD: &str = "ZGATE_TEST_EARLY_SIGNAL";

    #[test]
    fn a_signal_to_reload_does_not_end_a_start() {
        if let Some(path) = std::env::var_os(CHILD) {
            assert!(serve(Path::new(&path), false).is_err(), "the configuration is wrong");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        // The start waits for the text of its configuration.
        let path = dir.path().join("zgate.toml");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let name = "server::events::tests::a_signal_to_reload_does_not_end_a_start";
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let mut child = child.args(["--exact", name]).env(CHILD, &path).spawn().unwrap();
        let deadline = Instant::now() + PATIENCE;
        let mut writer = loop {
            let mut options = std::fs::OpenOptions::new();
            let flags = OFlags::NONBLOCK.bits() as i32;
            match options.write(true).custom_flags(flags).open(&path) {
                Ok(writer) => break writer,
                // Nobody reads yet.
                Err(_) => std::thread::yield_now(),
            }
            assert!(Instant::now() < deadline, "the start does not read its configuration");
        };
        kill_process(Pid::from_child(&child), Signal::HUP).unwrap();
        // It may have ended.
        let _ = writer.write_all(b"[wrong]\n");
        drop(writer);
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
}
