//! A connection of the fabric with an iSER target at its end.

use bytes::Bytes;
use std::io;
use std::net::SocketAddr;
use zgate_fabric::{
    Access, ConnectError, Connection, EmulatedFabric, Event, Exposed, Fabric, SendBatch, SendPart,
    Setup, WorkId,
};
use zgate_iscsi::pdu::Outgoing;
use zgate_iser::limits::RECEIVE_BYTES;
use zgate_iser::{PrivateData, RemoteBuffer, initiator};
use zgate_store::AlignedBuf;

/// Receives posted, more than any command window.
const RECEIVES: u64 = 400;

/// Memory that the target may use.
pub type Memory = Box<dyn Exposed>;

/// What came from the target.
#[derive(Clone, Debug)]
pub struct Arrived {
    /// The message.
    pub message: Vec<u8>,
    /// A key that came to its end with it.
    pub invalidated: Option<u32>,
}

/// The connection.
#[derive(Debug)]
pub struct Link {
    fabric: EmulatedFabric,
    connection: Box<dyn Connection>,
    /// What the target answered to the connection request.
    pub private_data: PrivateData,
    next_work: u64,
}

/// Where memory is, as a header says it.
#[must_use]
pub fn advertise(memory: &Memory) -> RemoteBuffer {
    RemoteBuffer { stag: memory.rkey(), base: memory.address() }
}

impl Link {
    /// Connects; `private_data` is what the request says.
    ///
    /// # Errors
    /// When there is no target.
    pub async fn connect(to: SocketAddr, private_data: &[u8]) -> io::Result<Self> {
        let fabric = EmulatedFabric::new();
        let receives = (0..RECEIVES).map(|id| (WorkId(id), AlignedBuf::zeroed(RECEIVE_BYTES)));
        let setup = Setup {
            receives: receives.collect(),
            private_data: private_data.to_vec(),
            ..Setup::default()
        };
        let made = fabric.connect(to, setup).await.map_err(|error| match error {
            ConnectError::Io(error) => error,
            ConnectError::Rejected(_) => io::ErrorKind::ConnectionRefused.into(),
        })?;
        let private_data = PrivateData::decode(&made.private_data);
        Ok(Self { fabric, connection: made.connection, private_data, next_work: RECEIVES })
    }

    /// From now on nothing that the target sends is taken in.
    pub(crate) fn stop_taking(&self) {
        self.fabric.stop_taking();
    }

    /// Memory with these bytes that the target may read.
    ///
    /// # Errors
    /// The fabric's.
    pub fn lend(&self, bytes: &[u8]) -> io::Result<Memory> {
        let mut buffer = AlignedBuf::zeroed(bytes.len());
        buffer.copy_from_slice(bytes);
        self.fabric.expose(buffer, Access { read: true, write: false })
    }

    /// Memory that the target may write.
    ///
    /// # Errors
    /// The fabric's.
    pub fn room(&self, len: usize) -> io::Result<Memory> {
        self.fabric.expose(AlignedBuf::zeroed(len), Access { read: false, write: true })
    }

    /// Buffers that are exposed now.
    #[must_use]
    pub fn exposed(&self) -> usize {
        self.fabric.exposed_buffers()
    }

    /// Sends a PDU with what it advertises.
    ///
    /// # Errors
    /// For data that is not in memory.
    pub fn send(
        &mut self,
        pdu: Outgoing,
        write: Option<&Memory>,
        read: Option<&Memory>,
    ) -> io::Result<()> {
        let message = initiator::message(pdu, write.map(advertise), read.map(advertise));
        self.send_raw(message.ok_or(io::ErrorKind::InvalidInput)?)
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// For a message that is too long.
    pub fn send_raw(&mut self, gather: Vec<Bytes>) -> io::Result<()> {
        self.next_work += 1;
        let send = Some(SendPart { gather, invalidate: None });
        let batch = SendBatch { id: WorkId(self.next_work), writes: Vec::new(), send };
        self.connection.post_send(batch).map_err(|error| io::Error::other(error.to_string()))
    }

    /// The next message. `None`: the connection has ended.
    pub async fn receive(&mut self) -> Option<Arrived> {
        loop {
            match self.connection.event().await {
                Event::Received { id, buffer, len, invalidated } => {
                    let message = buffer[..len].to_vec();
                    self.connection.post_receive(id, buffer);
                    return Some(Arrived { message, invalidated });
                }
                Event::Disconnected(_) => return None,
                _ => {}
            }
        }
    }
}
