//! The end of a demo that a signal asks for: its files are removed first.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// Wish of a signal that the demo stops; all clones know of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Stop(Arc<(Mutex<bool>, Condvar)>);

impl Stop {
    /// Begins to handle SIGINT and SIGTERM; they no longer end the process by
    /// themselves.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(super) fn on_signals() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (mut interrupt, mut terminate) = {
            let _entered = runtime.enter();
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
        };
        let stop = Self::default();
        let asked = stop.clone();
        std::thread::Builder::new().name("zgate-signals".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
            });
            asked.ask();
        })?;
        Ok(stop)
    }

    /// Asks the demo to stop.
    pub(super) fn ask(&self) {
        let (asked, changed) = &*self.0;
        *asked.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
    }

    /// Fails once the demo is to stop.
    ///
    /// # Errors
    /// That it was stopped.
    pub(super) fn check(&self) -> io::Result<()> {
        let asked = *self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        if asked {
            return Err(io::Error::other("stopped by a signal before everything was compared"));
        }
        Ok(())
    }

    /// Waits until the demo is to stop.
    pub(super) fn wait(&self) {
        let (asked, changed) = &*self.0;
        let asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
        drop(changed.wait_while(asked, |asked| !*asked));
    }

    /// Waits until the demo is to stop, or the time is over.
    pub(super) fn wait_at_most(&self, limit: Duration) {
        let (asked, changed) = &*self.0;
        let asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
        drop(changed.wait_timeout_while(asked, limit, |asked| !*asked));
    }
}
