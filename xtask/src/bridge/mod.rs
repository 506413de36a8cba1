//! Bridge from NFS over TCP to RPC-over-RDMA on the emulated fabric, so that
//! test suites that support only TCP can test RDMA. Calls and replies have the
//! form that a kernel client uses: data of WRITE in read chunks, results of
//! READ in write chunks, long calls at position zero, long replies in reply
//! chunks, callbacks on the same connection.

mod carry;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// Number of uses of each kind of transfer.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(super) calls: AtomicU64,
    pub(super) read_chunks: AtomicU64,
    pub(super) whole_calls: AtomicU64,
    pub(super) write_chunks: AtomicU64,
    pub(super) reply_chunks: AtomicU64,
    pub(super) callbacks: AtomicU64,
    pub(super) refused: AtomicU64,
}

impl Tally {
    fn all(&self) -> [(&'static str, u64); 7] {
        [
            ("calls", &self.calls),
            ("read chunks", &self.read_chunks),
            ("calls at position zero", &self.whole_calls),
            ("write chunks", &self.write_chunks),
            ("reply chunks", &self.reply_chunks),
            ("callbacks", &self.callbacks),
            ("ERR_CHUNK", &self.refused),
        ]
        .map(|(name, count)| (name, count.load(Ordering::Relaxed)))
    }

    /// Formats the counts in one line.
    pub(crate) fn line(&self) -> String {
        self.all().map(|(name, count)| format!("{count} {name}")).join(", ")
    }

    /// Returns the number of uses of one kind.
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.all().iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| *count)
    }
}

/// A running bridge; ends when dropped.
#[derive(Debug)]
pub(crate) struct Bridge {
    /// Listening address for TCP.
    pub(crate) address: SocketAddr,
    pub(crate) tally: Arc<Tally>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Bridge {
    /// Starts a bridge to the RDMA listener at `to`, which may start later.
    ///
    /// # Errors
    /// Errors of the system.
    pub(crate) fn start(to: SocketAddr) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let tally = Arc::new(Tally::default());
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let counted = Arc::clone(&tally);
        let thread = std::thread::Builder::new().name("bridge".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = accept(listener, to, counted) => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Self { address, tally, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the bridge is visible in the results of the test.
            let _ = thread.join();
        }
    }
}

async fn accept(listener: std::net::TcpListener, to: SocketAddr, tally: Arc<Tally>) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    while let Ok((stream, _)) = listener.accept().await {
        let tally = Arc::clone(&tally);
        tokio::spawn(async move {
            // The test suite sees the end of the connection.
            let _ = carry::serve(stream, to, tally).await;
        });
    }
}
