//! A connection to one address of the server that comes back by itself.

use crate::error::ClientError;
use crate::transport::tcp::RpcConnection;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;
use zgate_store::BufferPool;

/// The longest pause between two attempts to connect.
const MAX_PAUSE: Duration = Duration::from_secs(2);
/// How long one attempt may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug)]
pub(crate) struct Link {
    address: SocketAddr,
    pool: BufferPool,
    current: Mutex<Option<Arc<RpcConnection>>>,
}

impl Link {
    pub(crate) fn new(address: SocketAddr, pool: BufferPool) -> Self {
        Self { address, pool, current: Mutex::new(None) }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The connection; a new one, if there was none or it is lost.
    ///
    /// # Errors
    /// [`ClientError::Transport`] when none could be made by `until`.
    pub(crate) async fn connection(
        &self,
        until: Instant,
    ) -> Result<Arc<RpcConnection>, ClientError> {
        let mut current = self.current.lock().await;
        if let Some(connection) = current.as_ref().filter(|connection| !connection.is_closed()) {
            return Ok(Arc::clone(connection));
        }
        let mut pause = Duration::from_millis(20);
        loop {
            let attempt = RpcConnection::connect(self.address, self.pool.clone());
            let error = match tokio::time::timeout(CONNECT_TIMEOUT, attempt).await {
                Ok(Ok(connection)) => {
                    let connection = Arc::new(connection);
                    *current = Some(Arc::clone(&connection));
                    return Ok(connection);
                }
                Ok(Err(error)) => error,
                Err(_) => ClientError::Transport {
                    address: self.address.to_string(),
                    source: std::io::Error::from(std::io::ErrorKind::TimedOut),
                },
            };
            if Instant::now() + pause >= until {
                return Err(error);
            }
            tracing::debug!(%error, "connecting again");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }
}
