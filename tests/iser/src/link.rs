//! A connection of the fabric with an iSER target at its end.

use bytes::Bytes;
use std::io;
use std::net::SocketAddr;
use zgate_fabric::{
    Access, ConnectError, Connection, EmulatedFabric, Event, Exposed, Fabric, SendBatch, SendPart,
    Setup, WorkId,
};
use zgate_iscsi::iser::limits::RECEIVE_BYTES;
use zgate_iscsi::iser::{PrivateData, RemoteBuffer, initiator};
use zgate_iscsi::pdu::Outgoing;
use zgate_store::AlignedBuf;

/// Receives posted, more than any command window.
const RECEIVES: u64 = 400;

/// Memory that the target may use.
pub type Memory = Box<dyn Exposed>;

/// A message from the target.
#[derive(Clone, Debug)]
pub struct Arrived {
    /// The message.
    pub message: Vec<u8>,
    /// A key invalidated by it.
    pub invalidated: Option<u32>,
}

/// The connection.
#[derive(Debug)]
pub struct Link {
    fabric: EmulatedFabric,
    connection: Box<dyn Connection>,
    /// The target's answer to the connection request.
    pub private_data: PrivateData,
    next_work: u64,
}

/// The description of memory for a header.
#[must_use]
pub fn advertise(memory: &Memory) -> RemoteBuffer {
    RemoteBuffer { stag: memory.rkey(), base: memory.address() }
}

impl Link {
    /// Connects with `private_data` in the request.
    ///
    /// # Errors
    /// The error of the connection request.
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

    /// Stops receiving from the target.
    pub(crate) fn stop_taking(&self) {
        self.fabric.stop_taking();
    }

    /// Resumes receiving, first the messages that arrived in the meantime.
    pub(crate) fn take_again(&self) {
        self.fabric.take_again();
    }

    /// Exposes memory with these bytes, which the target may read.
    ///
    /// # Errors
    /// Errors of the fabric.
    pub fn lend(&self, bytes: &[u8]) -> io::Result<Memory> {
        let mut buffer = AlignedBuf::zeroed(bytes.len());
        buffer.copy_from_slice(bytes);
        self.fabric.expose(buffer, Access { read: true, write: false })
    }

    /// Exposes memory that the target may write.
    ///
    /// # Errors
    /// Errors of the fabric.
    pub fn room(&self, len: usize) -> io::Result<Memory> {
        self.fabric.expose(AlignedBuf::zeroed(len), Access { read: false, write: true })
    }

    /// Number of exposed buffers.
    #[must_use]
    pub fn exposed(&self) -> usize {
        self.fabric.exposed_buffers()
    }

    /// Sends a PDU with the memory it advertises.
    ///
    /// # Errors
    /// Refuses data that is not in memory.
    pub fn send(
        &mut self,
        pdu: Outgoing,
        write: Option<&Memory>,
        read: Option<&Memory>,
    ) -> io::Result<()> {
        let message = initiator::message(pdu, write.map(advertise), read.map(advertise));
        self.send_raw(message.ok_or(io::ErrorKind::InvalidInput)?)
    }

    /// Sends raw bytes.
    ///
    /// # Errors
    /// Refuses a message that is too long.
    pub fn send_raw(&mut self, gather: Vec<Bytes>) -> io::Result<()> {
        self.next_work += 1;
        let send = Some(SendPart { gather, invalidate: None });
        let batch = SendBatch { id: WorkId(self.next_work), writes: Vec::new(), send };
        self.connection.post_send(batch).map_err(|error| io::Error::other(error.to_string()))
    }

    /// The next message; `None` after the end of the connection.
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
