//! The end of contexts that the gateway has begun, told to its clients (RFC 2203
//! §5.4). Nobody waits for it and nothing depends on it: a client that does not
//! learn of it keeps the context until its ticket ends.

use super::limits::{FAREWELL_TIMEOUT, MAX_FAREWELLS};
use crate::nfs::callback_stream::CallbackStream;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use zgate_rpc::gss::ProtectedCall;

/// Calls that end contexts.
#[derive(Debug)]
pub(super) struct Farewells(Arc<Semaphore>);

impl Default for Farewells {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_FAREWELLS)))
    }
}

impl Farewells {
    /// Returns what sends such a call to a client. It does not wait, because contexts
    /// are dropped under locks and on any thread; the call is made by the present
    /// runtime.
    pub(super) fn to(
        &self,
        client: SocketAddr,
    ) -> impl FnOnce(ProtectedCall) + Send + Sync + 'static {
        let (slots, runtime) = (Arc::clone(&self.0), Handle::current());
        move |call| {
            // Many clients have ended at once: the others are not told.
            let Ok(slot) = slots.try_acquire_owned() else { return };
            runtime.spawn(async move {
                let _slot = slot;
                let told = async {
                    let mut stream = CallbackStream::connect(client).await?;
                    stream.exchange(&call.record).await
                };
                // The client may be gone, or have forgotten the context.
                let _ = timeout(FAREWELL_TIMEOUT, told).await;
            });
        }
    }
}
