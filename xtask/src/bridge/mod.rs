//! NFS over TCP in, RPC-over-RDMA over the emulated fabric out: what judges
//! that know only TCP need to judge the other transport. Calls and replies go
//! the way a kernel's client sends them: data of WRITE in read chunks, results
//! of READ in write chunks, long calls at position zero, long replies in reply
//! chunks, callbacks on the same connection.

mod carry;
mod walk;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// How often each way was taken.
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

    /// In one line.
    pub(crate) fn line(&self) -> String {
        self.all().map(|(name, count)| format!("{count} {name}")).join(", ")
    }

    /// How often that was.
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.all().iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| *count)
    }
}

/// A bridge that runs; it ends when dropped.
#[derive(Debug)]
pub(crate) struct Bridge {
    /// Where it takes TCP.
    pub(crate) address: SocketAddr,
    pub(crate) tally: Arc<Tally>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Bridge {
    /// Starts one to the RDMA listener at `to`, which need not be there yet.
    ///
    /// # Errors
    /// What the system says.
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
            // A bridge that panicked shows in the judge's results.
            let _ = thread.join();
        }
    }
}

async fn accept(listener: std::net::TcpListener, to: SocketAddr, tally: Arc<Tally>) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    while let Ok((stream, _)) = listener.accept().await {
        let tally = Arc::clone(&tally);
        tokio::spawn(async move {
            // The judge sees a connection that ends.
            let _ = carry::serve(stream, to, tally).await;
        });
    }
}
