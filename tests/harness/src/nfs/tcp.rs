//! The simulated server with a TCP socket, for clients with their own sockets.
//! Everything runs on one thread, and the server's clock follows tokio's: while
//! that is paused, time advances only when all tasks wait.

use super::{CallbackCall, Harness};
use bytes::Bytes;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use zgate_nfs::runtime::ConnectionId;
use zgate_nfs::{Call, Peer};
use zgate_nfs_wire::v4::{OpNum, Status};
use zgate_rpc::message::encode_success;
use zgate_rpc::{CallHeader, Credential};
use zgate_xdr::{Decoder, Encode, Encoder};

const SECOND: Duration = Duration::from_secs(1);
const LAST_FRAGMENT: u32 = 1 << 31;
const REPLY: u32 = 1;
const COMPOUND: u32 = 1;
const MAX_TAG_BYTES: usize = 1024;

/// Ways in which the server fails.
#[derive(Default)]
struct Faults {
    loses_reply: Cell<bool>,
    refuses_back_channels: Cell<bool>,
}

impl Faults {
    /// Returns the reply to a call that is refused.
    fn refusal(&self, call: &[u8]) -> Option<Bytes> {
        let mut d = Decoder::new(call);
        let header = CallHeader::decode(&mut d).ok()?;
        // Tag, minor version and number of the operations are before the first one.
        d.opaque(MAX_TAG_BYTES).ok()?;
        let [_, _, first] = [d.u32().ok()?, d.u32().ok()?, d.u32().ok()?];
        let binds = header.procedure == COMPOUND && first == OpNum::BindConnToSession as u32;
        if !binds || !self.refuses_back_channels.get() {
            return None;
        }
        let mut e = Encoder::new();
        encode_success(&mut e, header.xid);
        Status::Serverfault.encode(&mut e);
        e.opaque(b"");
        e.u32(1);
        OpNum::BindConnToSession.encode(&mut e);
        Status::Serverfault.encode(&mut e);
        e.finish().flatten()
    }
}

/// A harness that listens on the loopback interface; its tasks end when it is
/// dropped.
pub struct TcpServer {
    /// The listening address.
    pub address: SocketAddr,
    harness: Rc<Harness>,
    tasks: [AbortHandle; 2],
    connections: Rc<RefCell<Vec<AbortHandle>>>,
    faults: Rc<Faults>,
}

/// Callbacks without an answer, by transaction id.
type Unanswered = Rc<RefCell<HashMap<u32, oneshot::Sender<Bytes>>>>;

impl TcpServer {
    /// Starts to listen. It runs on the caller's `LocalSet`.
    pub async fn start(harness: &Rc<Harness>) -> Self {
        Self::start_at(harness, SocketAddr::from(([127, 0, 0, 1], 0))).await
    }

    /// Starts to listen at this address.
    pub async fn start_at(harness: &Rc<Harness>, address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Rc::<RefCell<Vec<AbortHandle>>>::default();
        let faults = Rc::<Faults>::default();
        let (harness, made) = (Rc::clone(harness), Rc::clone(&connections));
        let (served, fails) = (Rc::clone(&harness), Rc::clone(&faults));
        let accepting = tokio::task::spawn_local(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let work = serve(Rc::clone(&served), stream, Rc::clone(&fails));
                let task = tokio::task::spawn_local(work);
                made.borrow_mut().push(task.abort_handle());
            }
        });
        let ticked = Rc::clone(&harness);
        let ticking = tokio::task::spawn_local(async move {
            let mut ticks = tokio::time::interval(SECOND);
            loop {
                ticks.tick().await;
                ticked.pass_seconds(1);
            }
        });
        let tasks = [accepting.abort_handle(), ticking.abort_handle()];
        Self { address, harness, tasks, connections, faults }
    }

    /// Cuts the connection that asks next, in place of the reply.
    pub fn lose_next_reply(&self) {
        self.faults.loses_reply.set(true);
    }

    /// Refuses to use connections for callbacks from now on.
    pub fn refuse_back_channels(&self) {
        self.faults.refuses_back_channels.set(true);
    }

    /// Restarts the server; all connections are lost.
    pub fn restart(&self) {
        self.connections.borrow_mut().drain(..).for_each(|task| task.abort());
        self.harness.restart();
    }
}

impl Drop for TcpServer {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
        self.connections.borrow_mut().drain(..).for_each(|task| task.abort());
    }
}

/// Serves one connection until its end.
async fn serve(harness: Rc<Harness>, stream: TcpStream, faults: Rc<Faults>) {
    let connection = ConnectionId(harness.new_connection());
    let peer = stream.peer_addr().unwrap();
    let (mut read, mut write) = stream.into_split();
    let (calls, mut called) = mpsc::unbounded_channel::<CallbackCall>();
    harness.simulation.route_callbacks(connection, calls);
    let unanswered = Unanswered::default();
    loop {
        let out = tokio::select! {
            record = record(&mut read) => {
                let Ok(record) = record else { break };
                let refusal = faults.refusal(&record);
                let reply = refusal
                    .or_else(|| answer(&harness, connection, peer, &unanswered, record));
                if reply.is_some() && faults.loses_reply.take() {
                    break;
                }
                reply
            }
            Some(call) = called.recv() => {
                unanswered.borrow_mut().insert(call.xid, call.answer);
                Some(call.message)
            }
        };
        let Some(message) = out else { continue };
        let mark = LAST_FRAGMENT | message.len() as u32;
        let sent = [&mark.to_be_bytes(), &message[..]].concat();
        if write.write_all(&sent).await.is_err() {
            break;
        }
    }
    harness.simulation.cut(connection);
}

/// The reply to a call; `None` for the reply to a callback.
fn answer(
    harness: &Rc<Harness>,
    connection: ConnectionId,
    peer: SocketAddr,
    unanswered: &Unanswered,
    record: Bytes,
) -> Option<Bytes> {
    let mut d = Decoder::new(&record);
    let (xid, kind) = (d.u32().unwrap(), d.u32().unwrap());
    if kind == REPLY {
        if let Some(waiting) = unanswered.borrow_mut().remove(&xid) {
            // The server may no longer wait for it.
            let _ = waiting.send(record);
        }
        harness.simulation.settle();
        return None;
    }
    let mut d = Decoder::new(&record);
    let header = CallHeader::decode(&mut d).unwrap();
    let mut e = Encoder::new();
    encode_success(&mut e, xid);
    if header.procedure == COMPOUND {
        let (address, port, protection) = (peer.ip(), peer.port(), Default::default());
        let (kernel_encrypts, certificate) = (false, None);
        let peer = Peer {
            address,
            port,
            connection,
            rdma: false,
            protection,
            kernel_encrypts,
            certificate,
        };
        let credential = Credential::parse(&header.credential).unwrap();
        let entered = Default::default();
        let refused = Default::default();
        let call =
            Call { peer, credential, xid, span_allowed: false, entered, refused, groups: None };
        let (server, now) = (harness.server(), harness.simulation.clock());
        let work = Box::pin(async move { server.compound(&call, now, &mut d).await });
        e.append(&harness.simulation.drive(work).unwrap());
    }
    Some(e.finish().flatten().unwrap())
}

async fn record(read: &mut OwnedReadHalf) -> std::io::Result<Bytes> {
    let mark = read.read_u32().await?;
    assert!(mark & LAST_FRAGMENT != 0, "one fragment a record");
    let mut record = vec![0; (mark & !LAST_FRAGMENT) as usize];
    read.read_exact(&mut record).await?;
    Ok(record.into())
}
