//! A task beside the client.

use tokio::task::JoinHandle;

/// Ends with this. What it does must not keep the client alive.
#[derive(Debug)]
pub(crate) struct Attendant(JoinHandle<()>);

impl Attendant {
    /// Starts it on the runtime of the caller.
    pub(crate) fn start(task: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(task))
    }

    /// Ends it.
    pub(crate) fn stop(&self) {
        self.0.abort();
    }
}

impl Drop for Attendant {
    fn drop(&mut self) {
        self.stop();
    }
}
