//! A client of one server: names, and information for users.

use crate::background::{give_back, renewal};
use crate::backoff::{bounded, patiently};
use crate::channel::{Channel, Start};
use crate::compound::{Ops, Results};
use crate::error::ClientError;
use crate::leave::{abandon, in_background, leave};
use crate::session::{Session, SessionRequest};
use crate::state::delegation::DelegationCounts;
use crate::state::returns::HeldState;
use crate::transport::{Counters, TransportChoice};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::task::AbortOnDropHandle;
use zgate_nfs_wire::v4::Fh;
use zgate_nfs_wire::v4::attr::{CHANGE, SIZE, TYPE};
use zgate_nfs_wire::v4::op::create_session::ChannelAttrs;
use zgate_nfs_wire::v4::op::rename;
use zgate_nfs_wire::v4::{Bitmap, Fattr, OpNum};
use zgate_rpc::{AuthSys, Credential};
use zgate_xdr::Decoder;

/// Default time limit of a start while the server does not answer.
pub const START_WAIT: Duration = Duration::from_secs(10);

/// Room that a message needs besides the data of a READ or WRITE, in bytes.
const HEAD_BYTES: u32 = 4 << 10;
/// Least READ and WRITE that is of use, in bytes.
const MIN_TRANSFER_BYTES: u32 = 1 << 10;

/// Returns the largest READ and WRITE that fit the messages of a session, at most `most`.
fn transfer_bytes(fore: &ChannelAttrs, most: u32) -> Result<u32, ClientError> {
    let bytes = fore.max_response_bytes.min(fore.max_request_bytes);
    let room = bytes.saturating_sub(HEAD_BYTES);
    if room < MIN_TRANSFER_BYTES {
        return Err(ClientError::ShortMessages { bytes, min: HEAD_BYTES + MIN_TRANSFER_BYTES });
    }
    Ok(most.min(room))
}

/// Options of a client.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Connections to each address, all of one session.
    pub connections: usize,
    /// Most requests in flight.
    pub slots: u32,
    /// Largest transfer in bytes.
    pub max_transfer_bytes: u32,
    /// Credential.
    pub credential: Credential,
    /// Name of the client (client_owner4).
    pub owner: Vec<u8>,
    /// Verifier that changes when the client restarts.
    pub verifier: [u8; 8],
    /// Time limit of the start while the server cannot be reached or answers
    /// nothing.
    pub wait: Duration,
    /// Time limit of a request while the server cannot be reached, restarts or
    /// returns NFS4ERR_DELAY; also of the start, once the server has answered.
    pub patience: Duration,
    /// Transport: TCP, RDMA, or whichever is available.
    pub transport: TransportChoice,
}

/// Returns a name that no other client has, on this host or another: a server
/// would take two clients with one name for one client, and each would destroy
/// the other's session.
fn own_name() -> Vec<u8> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("zgate {host} {} {} {count}", std::process::id(), nanoseconds()).into_bytes()
}

fn nanoseconds() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            connections: 1,
            slots: 64,
            max_transfer_bytes: 1 << 20,
            credential: Credential::Sys(AuthSys::default()),
            owner: own_name(),
            verifier: nanoseconds().to_be_bytes(),
            wait: START_WAIT,
            patience: Duration::from_secs(150),
            transport: TransportChoice::default(),
        }
    }
}

/// A client. Its lease is renewed while it exists, whether it is used or not.
#[derive(Debug)]
pub struct Client {
    channel: Arc<Channel>,
    keeper: AbortOnDropHandle<()>,
    runner: AbortOnDropHandle<()>,
    max_transfer_bytes: u32,
    left: AtomicBool,
    /// The runtime it was made on.
    home: Handle,
    /// The process it was made in: a child created by fork has the object, but
    /// not its tasks.
    process: u32,
}

/// A client that is dropped without `close` unregisters in the background;
/// [`crate::all_left`] waits for it.
impl Drop for Client {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            self.leave();
        }
    }
}

/// A start that has not succeeded yet: dropped, it removes from the servers
/// what they know of the client.
struct Unfinished {
    start: Option<Arc<Start>>,
    home: Handle,
}

impl Unfinished {
    /// Removes it now; returns the task.
    fn abandon(&mut self) -> Option<JoinHandle<()>> {
        let start = self.start.take().filter(|start| !start.introduced().is_empty())?;
        Some(in_background(&self.home, async move { abandon(&start).await }))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        self.abandon();
    }
}

/// Object found by a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its handle.
    pub fh: Fh,
    /// nfs_ftype4: 1 regular, 2 directory.
    pub kind: u32,
    /// Change attribute: differs after every modification.
    pub change: u64,
    /// Length in bytes.
    pub size: u64,
}

impl Client {
    /// Connects and creates a session. If the server cannot be reached, retries
    /// until the time limit of `wait`. A task on the caller's runtime renews the
    /// lease.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`] and [`ClientError::Silent`]; the error of the
    /// server or the connection.
    pub async fn connect(
        address: SocketAddr,
        options: &ClientOptions,
    ) -> Result<Self, ClientError> {
        Self::connect_all(&[address], options).await
    }

    /// Connects over several addresses of one server (session trunking, RFC
    /// 8881 §2.10.5).
    ///
    /// # Errors
    /// [`ClientError::OtherServer`] if two addresses lead to different servers;
    /// the error of the server or the connection.
    pub async fn connect_all(
        addresses: &[SocketAddr],
        options: &ClientOptions,
    ) -> Result<Self, ClientError> {
        let request = SessionRequest {
            owner: options.owner.clone(),
            verifier: options.verifier,
            minor: 1,
            credential: options.credential.clone(),
            slots: options.slots,
            max_message_bytes: options.max_transfer_bytes + (16 << 10),
        };
        let home = Handle::current();
        let choice = options.transport.clone();
        let start = Start::new(addresses, options.connections, choice, request);
        let mut unfinished = Unfinished { start: Some(Arc::clone(&start)), home: home.clone() };
        let opened = start.open(bounded(options.wait), bounded(options.patience)).await;
        let opened = opened.and_then(|channel| {
            let bytes = transfer_bytes(&channel.session().fore, options.max_transfer_bytes)?;
            Ok((Arc::new(channel), bytes))
        });
        let (channel, max_transfer_bytes) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                if let Some(leaving) = unfinished.abandon() {
                    // It ends within a time limit, and reports nothing.
                    let _ = leaving.await;
                }
                return Err(error);
            }
        };
        unfinished.start = None;
        let (keeper, runner) = (renewal::start(&channel), give_back::start(&channel));
        let (left, process) = (AtomicBool::new(false), std::process::id());
        Ok(Self { channel, keeper, runner, max_transfer_bytes, left, home, process })
    }

    /// Unregisters from the server: open files are closed, and the session and
    /// the client are destroyed, in at most [`crate::LEAVE_TIMEOUT`]. The client
    /// is unusable afterwards.
    pub async fn close(&self) {
        if let Some(leaving) = self.leave() {
            // It ends within a time limit, and reports nothing.
            let _ = leaving.await;
        }
    }

    /// Begins to unregister, as [`Self::close`], and returns the task; none if
    /// that has begun before.
    pub fn leave(&self) -> Option<JoinHandle<()>> {
        if self.left.swap(true, Ordering::Relaxed) {
            return None;
        }
        let channel = Arc::clone(&self.channel);
        channel.close();
        self.keeper.abort();
        self.runner.abort();
        let mut held: Vec<Arc<HeldState>> = channel.delegations().returns().drain();
        held.extend(channel.opens().iter().filter_map(|open| open.take()).map(Arc::new));
        Some(in_background(&self.home, async move { leave(&channel, &held).await }))
    }

    /// Returns the largest READ and WRITE in bytes.
    #[must_use]
    pub fn max_transfer_bytes(&self) -> u32 {
        self.max_transfer_bytes
    }

    /// Returns the counters of placed READ data.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        self.channel.context().counters()
    }

    /// Returns the counters of delegations.
    #[must_use]
    pub fn delegations(&self) -> DelegationCounts {
        self.channel.delegations().counts()
    }

    /// Returns the RDMA fabric, if RDMA may be used.
    pub(crate) fn fabric(&self) -> Option<Arc<dyn zgate_fabric::Fabric>> {
        self.channel.context().fabric()
    }

    /// Returns whether there is an RDMA connection now.
    pub(crate) async fn is_rdma(&self) -> bool {
        for link in self.channel.links() {
            if link.is_rdma().await == Some(true) {
                return true;
            }
        }
        false
    }

    /// Returns the present transport of the calls, and the reason, for people.
    /// Connections are made on first use.
    pub async fn transport(&self) -> String {
        let (mut rdma, mut tcp) = (0, 0);
        for link in self.channel.links() {
            match link.is_rdma().await {
                Some(true) => rdma += 1,
                Some(false) => tcp += 1,
                None => {}
            }
        }
        let unused = self.channel.links().len() - rdma - tcp;
        let parts = [(rdma, "over RDMA"), (tcp, "over TCP"), (unused, "when needed")];
        let text: Vec<String> = parts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, over)| format!("{count} {over}"))
            .collect();
        let s = if self.channel.links().len() == 1 { "" } else { "s" };
        format!("connection{s}: {} ({})", text.join(", "), self.channel.context().reason())
    }

    /// Returns the most requests that can be in flight.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.session().fore.slots
    }

    pub(crate) fn channel(&self) -> &Arc<Channel> {
        &self.channel
    }

    pub(crate) fn patience(&self) -> Duration {
        self.channel.patience()
    }

    fn session(&self) -> Arc<Session> {
        self.channel.session()
    }

    /// Sends a COMPOUND, using the connections in turn.
    ///
    /// # Errors
    /// The error of the server or the connection.
    pub async fn call(&self, ops: Ops, cache_this: bool) -> Result<Results, ClientError> {
        self.channel.call(ops, cache_this).await
    }

    /// Looks up a path from the server's root.
    ///
    /// # Errors
    /// [`ClientError::Path`] if the path leads nowhere; the error of the server
    /// or the connection.
    pub async fn find(&self, path: &str) -> Result<Found, ClientError> {
        let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
        // As many steps at a time as fit besides SEQUENCE, PUTFH, GETFH,
        // GETATTR.
        let most = (self.session().fore.max_ops as usize).saturating_sub(4).max(1);
        let walk = async |from: Option<&Found>, steps: Range<usize>| {
            patiently(self.patience(), async || self.walk(from, &names, steps.clone()).await).await
        };
        let mut found = walk(None, 0..names.len().min(most)).await?;
        for start in (most..names.len()).step_by(most) {
            found = walk(Some(&found), start..names.len().min(start + most)).await?;
        }
        Ok(found)
    }

    /// Walks some steps of a path.
    async fn walk(
        &self,
        from: Option<&Found>,
        names: &[&str],
        steps: Range<usize>,
    ) -> Result<Found, ClientError> {
        let mut ops = match from {
            None => Ops::new().putrootfh(),
            Some(found) => Ops::new().putfh(&found.fh),
        };
        for name in &names[steps.clone()] {
            ops = ops.lookup(name.as_bytes());
        }
        let ops = ops.getfh().getattr(&Bitmap::of(&[TYPE, CHANGE, SIZE]));
        let mut results = self.call(ops, false).await?;
        results.skip(if from.is_some() { OpNum::Putfh } else { OpNum::Putrootfh })?;
        for step in steps {
            results.skip(OpNum::Lookup).map_err(|error| match error.status() {
                Some(status) if !error.asks_for_patience() => {
                    let join = |names: &[&str]| format!("/{}", names.join("/"));
                    ClientError::Path { path: join(names), parent: join(&names[..step]), status }
                }
                _ => error,
            })?;
        }
        let fh = results.next(OpNum::Getfh)?;
        let attrs: Fattr = results.next(OpNum::Getattr)?;
        let mut d = Decoder::new(&attrs.values.0);
        let garbled = |_| ClientError::Garbled("GETATTR");
        let kind = d.u32().map_err(garbled)?;
        let (change, size) = (d.u64().map_err(garbled)?, d.u64().map_err(garbled)?);
        Ok(Found { fh, kind, change, size })
    }

    /// Renames within a directory; replaces an existing target.
    ///
    /// # Errors
    /// The error of the server or the connection.
    pub async fn rename(&self, dir: &Fh, from: &str, to: &str) -> Result<(), ClientError> {
        let name = |text: &str| zgate_xdr::Opaque(text.as_bytes().to_vec());
        let args = rename::Args { old: name(from), new: name(to) };
        let ops = Ops::new().putfh(dir).op(OpNum::Savefh, &()).op(OpNum::Rename, &args);
        patiently(self.patience(), async || {
            let mut results = self.call(ops.clone(), true).await?;
            results.skip(OpNum::Putfh)?;
            results.skip(OpNum::Savefh)?;
            results.next::<rename::Res>(OpNum::Rename).map(|_| ())
        })
        .await
    }

    /// Removes a name.
    ///
    /// # Errors
    /// The error of the server or the connection.
    pub async fn remove(&self, dir: &Fh, name: &str) -> Result<(), ClientError> {
        let ops = Ops::new().putfh(dir).remove(name.as_bytes());
        patiently(self.patience(), async || {
            let mut results = self.call(ops.clone(), true).await?;
            results.skip(OpNum::Putfh)?;
            results.next::<zgate_nfs_wire::v4::ChangeInfo>(OpNum::Remove).map(|_| ())
        })
        .await
    }
}

/// Returns type and size from the result of a GETATTR.
pub(crate) fn kind_and_size(attrs: &Fattr) -> Result<(u32, u64), ClientError> {
    let mut d = Decoder::new(&attrs.values.0);
    let garbled = |_| ClientError::Garbled("GETATTR");
    Ok((d.u32().map_err(garbled)?, d.u64().map_err(garbled)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_whose_messages_have_no_room_for_data_is_refused() {
        let fore = |max_request_bytes, max_response_bytes| ChannelAttrs {
            header_pad_bytes: 0,
            max_request_bytes,
            max_response_bytes,
            max_cached_bytes: 0,
            max_ops: 8,
            slots: 1,
        };
        let most = 1 << 20;
        assert_eq!(transfer_bytes(&fore(u32::MAX, u32::MAX), most).unwrap(), most);
        assert_eq!(transfer_bytes(&fore(8 << 10, u32::MAX), most).unwrap(), 4 << 10);
        for (request, response) in [(4 << 10, most), (most, 4 << 10), (0, 0)] {
            let refused = transfer_bytes(&fore(request, response), most).unwrap_err();
            assert!(matches!(refused, ClientError::ShortMessages { .. }), "{refused}");
        }
    }
}
