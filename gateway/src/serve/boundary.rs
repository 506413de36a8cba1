//! Where a panic stops. One request's is caught at the request, so that its
//! neighbours live on; a connection's at the connection, so that what it holds
//! comes back; one of a task that nothing works without ends the process, which
//! is started anew and recovers.

use super::dispatch::{self, Answer};
use super::service::{Drain, Service};
use crate::listen::receive::Received;
use futures_util::FutureExt;
use std::any::Any;
use std::panic::AssertUnwindSafe;
use zgate_nfs::Peer;
use zgate_rpc::message::encode_rejection;
use zgate_rpc::{AcceptError, Rejection};
use zgate_xdr::Encoder;

/// Exit status after a task that nothing works without has ended: EX_SOFTWARE of
/// sysexits.h. systemd starts the gateway again (`Restart=on-failure`).
pub(crate) const EXIT_BROKEN: i32 = 70;

/// The words of a panic.
fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// Does some work; `None` when it panicked, which is logged. What it holds has
/// been dropped by then. The locks of this program do not break by a panic: what
/// they guard is consistent at each step.
pub(crate) async fn caught<T>(what: &'static str, work: impl Future<Output = T>) -> Option<T> {
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(done) => Some(done),
        Err(panic) => {
            let panic = words(&*panic);
            tracing::error!(what, panic, "a bug of zgate: please report the lines above");
            None
        }
    }
}

/// Serves one record. A request that panics is answered with SYSTEM_ERR (RFC 5531
/// §9).
pub(crate) async fn answer(service: &Service, peer: &Peer, received: Received) -> Answer {
    let xid = received.xid();
    match caught("request", dispatch::answer(service, peer, received)).await {
        Some(answer) => answer,
        None => failed(xid),
    }
}

fn failed(xid: Option<u32>) -> Answer {
    let Some(xid) = xid else { return Answer::Close("a request without xid panicked") };
    let mut e = Encoder::new();
    encode_rejection(&mut e, xid, Rejection::Accept(AcceptError::SystemError));
    Answer::Reply(e.finish())
}

/// Serves a connection; returns what to log when it has ended, by a panic, too.
pub(crate) async fn connection(run: impl Future<Output = &'static str>) -> &'static str {
    caught("connection", run).await.unwrap_or("it panicked")
}

/// Does work that nothing works without, and that ends only when the gateway
/// does. When it ends before, so does the process.
pub(crate) async fn essential(what: &'static str, drain: &Drain, work: impl Future<Output = ()>) {
    caught(what, work).await;
    if !drain.is_wanted() {
        bring_down(what);
    }
}

/// Ends the process: a gateway that accepts nothing, or lets no lease expire, is
/// worse than one that is started again.
pub(crate) fn bring_down(what: &str) -> ! {
    tracing::error!(what, status = EXIT_BROKEN, "it has ended, and the gateway ends with it");
    std::process::exit(EXIT_BROKEN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream::{FuturesUnordered, StreamExt};

    #[tokio::test]
    async fn a_request_that_panics_leaves_its_neighbours_alone() {
        let mut running = FuturesUnordered::new();
        for xid in 0..3_u32 {
            running.push(async move {
                caught("request", async move {
                    tokio::task::yield_now().await;
                    assert!(xid != 1, "told to");
                    xid
                })
                .await
                .map_or_else(|| failed(Some(xid)), |_| Answer::Nothing)
            });
        }
        let (mut ended, mut refused) = (0, Vec::new());
        while let Some(answer) = running.next().await {
            ended += 1;
            if let Answer::Reply(message) = answer {
                refused = message.flatten().unwrap().to_vec();
            }
        }
        assert_eq!(ended, 3);
        // xid, REPLY, MSG_ACCEPTED, verifier AUTH_NONE, SYSTEM_ERR.
        let words: Vec<_> = refused.chunks(4).map(|word| word[3]).collect();
        assert_eq!(words, [1, 1, 0, 0, 0, 5]);
    }

    #[tokio::test]
    async fn a_connection_that_panics_comes_to_its_end() {
        assert_eq!(connection(async { panic!("told to") }).await, "it panicked");
        assert_eq!(connection(async { "closed" }).await, "closed");
    }

    /// Set for a process that is to end by this test.
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
                "serve::boundary::tests::an_essential_task_that_ends_takes_the_process_with_it";
            let mut child = std::process::Command::new(std::env::current_exe().unwrap());
            let output = child.args(["--exact", name]).env(CHILD, how).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(expected), "{how}: {said}");
            assert_eq!(said.contains("the clock"), expected != 0, "{how}: {said}");
        }
    }
}
