//! A client of one server: connections, the session, names.

use crate::compound::{Ops, Results};
use crate::error::ClientError;
use crate::session::{Session, SessionRequest};
use crate::transport::tcp::RpcConnection;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use zgate_nfs::namespace::Fh;
use zgate_nfs::v4::wire::{Bitmap, Fattr, OpNum};
use zgate_rpc::{AuthSys, Credential};
use zgate_store::BufferPool;
use zgate_xdr::Decoder;

/// fattr4 numbers used here.
const TYPE: u32 = 1;
const SIZE: u32 = 4;

/// How to reach a server.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Connections, all of one session.
    pub connections: usize,
    /// Requests in flight.
    pub slots: u32,
    /// Largest transfer in bytes.
    pub max_transfer_bytes: u32,
    /// As whom.
    pub credential: Credential,
    /// The client's own name.
    pub owner: Vec<u8>,
    /// Changes when the client restarts.
    pub verifier: [u8; 8],
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            connections: 1,
            slots: 64,
            max_transfer_bytes: 1 << 20,
            credential: Credential::Sys(AuthSys::default()),
            owner: format!("zgate-client-{}", std::process::id()).into_bytes(),
            verifier: u64::from(std::process::id()).to_be_bytes(),
        }
    }
}

/// A client.
#[derive(Debug)]
pub struct Client {
    connections: Vec<RpcConnection>,
    session: Session,
    next: AtomicUsize,
    max_transfer_bytes: u32,
}

/// What a name leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its handle.
    pub fh: Fh,
    /// nfs_ftype4: 1 regular, 2 directory.
    pub kind: u32,
    /// Its length in bytes.
    pub size: u64,
}

impl Client {
    /// Connects and creates a session.
    ///
    /// # Errors
    /// What the server or the connection says.
    pub async fn connect(
        address: SocketAddr,
        options: &ClientOptions,
    ) -> Result<Self, ClientError> {
        let pool = BufferPool::new(128 << 20);
        let mut connections = Vec::new();
        for _ in 0..options.connections.max(1) {
            connections.push(RpcConnection::connect(address, pool.clone()).await?);
        }
        let request = SessionRequest {
            owner: options.owner.clone(),
            verifier: options.verifier,
            minor: 1,
            credential: options.credential.clone(),
            slots: options.slots,
            max_message_bytes: options.max_transfer_bytes + (16 << 10),
        };
        let session = Session::create(&connections[0], &request).await?;
        let room = session.fore.max_response_bytes.min(session.fore.max_request_bytes);
        let max_transfer_bytes = options.max_transfer_bytes.min(room.saturating_sub(4 << 10));
        Ok(Self { connections, session, next: AtomicUsize::new(0), max_transfer_bytes })
    }

    /// Largest READ and WRITE in bytes.
    #[must_use]
    pub fn max_transfer_bytes(&self) -> u32 {
        self.max_transfer_bytes
    }

    /// Sends a COMPOUND, on the connections in turn.
    ///
    /// # Errors
    /// What the server or the connection says.
    pub async fn call(&self, ops: Ops, cache_this: bool) -> Result<Results, ClientError> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % self.connections.len();
        self.session.call(&self.connections[turn], ops, cache_this).await
    }

    /// Walks a path from the server's root.
    ///
    /// # Errors
    /// What the server or the connection says.
    pub async fn find(&self, path: &str) -> Result<Found, ClientError> {
        let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
        let mut ops = Ops::new().putrootfh();
        for name in &names {
            ops = ops.lookup(name.as_bytes());
        }
        let ops = ops.getfh().getattr(&Bitmap::of(&[TYPE, SIZE]));
        let mut results = self.call(ops, false).await?;
        results.skip(OpNum::Putrootfh)?;
        for _ in &names {
            results.skip(OpNum::Lookup)?;
        }
        let fh = results.next(OpNum::Getfh)?;
        let attrs: Fattr = results.next(OpNum::Getattr)?;
        let mut d = Decoder::new(&attrs.values.0);
        let garbled = |_| ClientError::Garbled("GETATTR");
        let (kind, size) = (d.u32().map_err(garbled)?, d.u64().map_err(garbled)?);
        Ok(Found { fh, kind, size })
    }

    /// Removes a name.
    ///
    /// # Errors
    /// What the server or the connection says.
    pub async fn remove(&self, dir: &Fh, name: &str) -> Result<(), ClientError> {
        let ops = Ops::new().putfh(dir).remove(name.as_bytes());
        let mut results = self.call(ops, true).await?;
        results.skip(OpNum::Putfh)?;
        results.next::<zgate_nfs::v4::wire::ChangeInfo>(OpNum::Remove).map(|_| ())
    }
}
