//! Virtual time for a thread with sockets of the kernel. It passes only where a test says so:
//! as long as the test's own task yields, the runtime looks at its sockets and runs what is
//! ready, and its clock stands still.

use super::client_end::ClientEnd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::net::TcpStream;
use tokio::task::LocalSet;

/// Looks at the sockets after which all tasks have seen what was sent to them: a new connection
/// goes from the listener over its core to its own task, which waits for its first bytes.
const LOOKS: usize = 4;

/// Runs a test on one thread, in virtual time.
pub(crate) fn in_virtual_time<T>(work: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().unwrap();
    let local = LocalSet::new();
    let result = local.block_on(&runtime, work);
    // Its tasks have sockets of the runtime.
    drop(local);
    result
}

/// Lets all tasks and sockets of this thread go on; no time passes.
pub(crate) async fn give_way() {
    for _ in 0..LOOKS {
        tokio::task::yield_now().await;
    }
}

/// Waits until the kernel has something for one of these connections, for at most `seconds` of
/// real time; no virtual time passes. Bytes to a socket of the same machine are there at
/// once, but for what the kernel sends again, and for a moment in which the machine is busy.
pub(crate) async fn kernel<'a>(ends: impl IntoIterator<Item = &'a ClientEnd>, seconds: i64) {
    let wanted: Vec<(TcpStream, PollFlags)> = ends
        .into_iter()
        .map(|end| {
            let out = if end.has_unsent() { PollFlags::OUT } else { PollFlags::empty() };
            (end.stream.try_clone().unwrap(), PollFlags::IN | out)
        })
        .collect();
    // The runtime's clock stands still while such a task runs, and its sockets are served.
    let waits = tokio::task::spawn_blocking(move || {
        let mut wanted: Vec<_> =
            wanted.iter().map(|(stream, events)| PollFd::new(stream, *events)).collect();
        let most = Timespec { tv_sec: seconds, tv_nsec: 0 };
        // Whatever it says: the caller looks at the sockets.
        let _ = poll(&mut wanted, Some(&most));
    });
    waits.await.unwrap();
}
