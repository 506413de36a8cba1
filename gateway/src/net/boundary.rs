//! Boundaries of panics. A panic of one request is caught at the request, so
//! that other requests continue; that of a connection at the connection, so
//! that its resources are released; that of an essential task ends the process,
//! which is started again and recovers.

use super::connection_end::{Bug, ConnectionEnd};
use super::drain::Drain;
use crate::observe::panics::tell;
use futures_util::FutureExt;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

/// Exit status after the end of an essential task: EX_SOFTWARE of sysexits.h.
/// systemd starts the gateway again (`Restart=on-failure`).
pub(crate) const EXIT_BROKEN: i32 = 70;

/// Time for which the closing of open files is awaited at the end of the process.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

/// Runs work; `None` if it panicked, which is logged. Its resources have been
/// dropped by then. A panic does not break this program's locks: the state they
/// guard is consistent at each step.
pub(crate) async fn caught<T>(what: &'static str, work: impl Future<Output = T>) -> Option<T> {
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(done) => Some(done),
        Err(panic) => {
            tell(what, &*panic);
            None
        }
    }
}

/// Serves a connection; returns the reason for its end, which may be a panic.
pub(crate) async fn connection(run: impl Future<Output = ConnectionEnd>) -> ConnectionEnd {
    caught("connection", run).await.unwrap_or(Bug::Panicked.into())
}

/// Runs work that the gateway needs, and that ends only with the gateway. If it
/// ends earlier, the process ends.
pub(crate) async fn essential(what: &'static str, drain: &Drain, work: impl Future<Output = ()>) {
    caught(what, work).await;
    if !drain.is_wanted() {
        bring_down(what);
    }
}

/// Ends the process: a gateway that accepts no connections, or lets no lease
/// expire, is worse than a restart.
pub(crate) fn bring_down(what: &str) -> ! {
    tracing::error!(
        what,
        status = EXIT_BROKEN,
        "an essential task has ended; the gateway ends, \
        too"
    );
    close_open_files();
    std::process::exit(EXIT_BROKEN)
}

/// Closes all that this process has open, as the last thing before it ends: calls to storage that
/// hangs would keep addresses, locks and devices of storage that does not, and the next gateway
/// could not start.
pub fn close_open_files() {
    match zgate_io::close_all(CLOSE_PATIENCE) {
        Ok(0) => {}
        Ok(left) => tracing::warn!(
            left,
            "file systems or devices do not answer; calls to them keep a part of this process"
        ),
        Err(error) => tracing::warn!(%error, "cannot list the open files of this process"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_connection_that_panics_comes_to_its_end() {
        assert_eq!(connection(async { panic!("told to") }).await, Bug::Panicked.into());
        let stops = connection(async { ConnectionEnd::Stopping });
        assert_eq!(stops.await, ConnectionEnd::Stopping);
    }

    /// Set for a process that this test causes to end.
    const CHILD: &str = "ZGATE_TEST_ESSENTIAL";

    #[tokio::test]
    async fn an_essential_task_that_ends_takes_the_process_with_it() {
        if let Ok(how) = std::env::var(CHILD) {
            tracing_subscriber::fmt().with_writer(std::io::stderr).init();
            let drain = Drain::default();
            if how == "drained" {
                drain.begin();
            }
            essential("the clock", &drain, async { assert!(how != "panics", "told to") }).await;
            return;
        }
        for (how, expected) in [("panics", EXIT_BROKEN), ("returns", EXIT_BROKEN), ("drained", 0)] {
            let name =
                "net::boundary::tests::an_essential_task_that_ends_takes_the_process_with_it";
            let mut child = std::process::Command::new(std::env::current_exe().unwrap());
            let output = child.args(["--exact", name]).env(CHILD, how).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(expected), "{how}: {said}");
            assert_eq!(said.contains("the clock"), expected != 0, "{how}: {said}");
        }
    }
}
