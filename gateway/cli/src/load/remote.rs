//! Resolution of a URL to a server, a path and a transport.

use rustix::process::{getegid, geteuid, getgroups};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use zgate_loader::transport::TransportChoice;
use zgate_loader::{Client, ClientOptions, NfsUrl};
use zgate_rpc::{AuthSys, Credential};

/// Most groups in AUTH_SYS (RFC 5531 appendix A).
const MAX_GROUPS: usize = 16;

/// A connected server and a path on it.
#[derive(Debug)]
pub(super) struct Remote {
    pub(super) client: Arc<Client>,
    pub(super) url: NfsUrl,
    /// Transport, and the reason for its choice.
    pub(super) transport: String,
}

impl Remote {
    /// Connects to the server of a URL.
    ///
    /// # Errors
    /// The URL and the reason.
    pub(super) async fn open(url: &NfsUrl, patience: Duration) -> Result<Self, Box<dyn Error>> {
        let transport = TransportChoice::discover(url.rdma, url.rdma_port)
            .map_err(|error| format!("{url}: rdma=on: {error}"))?;
        let addresses = url.resolve().map_err(|error| format!("{url}: {error}"))?;
        let options = ClientOptions {
            connections: url.connections,
            credential: own_credential(),
            patience,
            transport,
            ..ClientOptions::default()
        };
        let client = Client::connect_all(&addresses, &options).await.map_err(|error| {
            format!("{url}: {error}; is an NFSv4.1 server there, and does it export to this host?")
        })?;
        let transport = client.transport().await;
        Ok(Self { client: Arc::new(client), url: url.clone(), transport })
    }
}

/// Returns the credential of the user who runs this process.
fn own_credential() -> Credential {
    let groups = getgroups().unwrap_or_default();
    Credential::Sys(AuthSys {
        uid: geteuid().as_raw(),
        gid: getegid().as_raw(),
        groups: groups.iter().take(MAX_GROUPS).map(|group| group.as_raw()).collect(),
        ..AuthSys::default()
    })
}
