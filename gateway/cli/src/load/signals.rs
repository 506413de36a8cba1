//! Signals that ask a command to stop.

use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// A signal that asked the process to stop.
#[derive(Clone, Copy, Debug)]
pub(super) struct StopSignal {
    /// Name.
    pub(super) name: &'static str,
    number: i32,
}

impl StopSignal {
    fn of(name: &'static str, kind: SignalKind) -> Self {
        Self { name, number: kind.as_raw_value() }
    }

    /// Returns the exit status that a shell reports for a program ended by the
    /// signal.
    pub(super) fn exit_status(self) -> i32 {
        128 + self.number
    }
}

/// SIGINT and SIGTERM; they no longer end the process by themselves.
pub(super) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    /// Begins to handle them.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(super) fn new() -> io::Result<Self> {
        let (interrupt, terminate) = (SignalKind::interrupt(), SignalKind::terminate());
        Ok(Self { interrupt: signal(interrupt)?, terminate: signal(terminate)? })
    }

    /// Waits for the next one.
    pub(super) async fn next(&mut self) -> StopSignal {
        tokio::select! {
            _ = self.interrupt.recv() => StopSignal::of("SIGINT", SignalKind::interrupt()),
            _ = self.terminate.recv() => StopSignal::of("SIGTERM", SignalKind::terminate()),
        }
    }
}
