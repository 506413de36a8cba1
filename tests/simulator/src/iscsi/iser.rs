//! iSER: a host's PDUs and the target's as messages, the host's registered
//! memory, and what the target does to it. Messages and steps are the
//! product's; what connects them follows `gateway/src/iscsi/iser`.

use super::wires::Arrived;
use crate::executor::lock;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Mutex;
use zgate_iscsi::iser::{
    Header, Message, Piece, RdmaRead, RdmaWrite, RemoteBuffer, Step, Target, initiator,
};
use zgate_iscsi::pdu::{Bhs, Frame, Itt, Opcode, Outgoing, R2t};
use zgate_iscsi::session::Solicited;

/// The host used memory that the target had no right to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Intruded(pub(super) Piece);

/// Memory that a command offers.
#[derive(Clone, Debug)]
struct Offered {
    itt: Itt,
    bytes: Vec<u8>,
}

/// Registered memory of one connection, by key.
#[derive(Default)]
pub(super) struct HostMemory {
    regions: BTreeMap<u32, Offered>,
    next_key: u32,
}

/// Addresses of a region begin here: not at zero.
const BASE: u64 = 0x1000;

impl HostMemory {
    fn register(&mut self, itt: Itt, bytes: Vec<u8>) -> Option<RemoteBuffer> {
        if bytes.is_empty() {
            return None;
        }
        self.next_key += 1;
        self.regions.insert(self.next_key, Offered { itt, bytes });
        Some(RemoteBuffer { stag: self.next_key, base: BASE })
    }

    fn slice(&mut self, piece: Piece) -> Result<&mut [u8], Intruded> {
        let start = piece.address.checked_sub(BASE).and_then(|at| usize::try_from(at).ok());
        let found = start.and_then(|start| {
            let end = start.checked_add(piece.len as usize)?;
            self.regions.get_mut(&piece.stag)?.bytes.get_mut(start..end)
        });
        found.ok_or(Intruded(piece))
    }

    /// The target reads memory.
    pub(super) fn read(&mut self, piece: Piece) -> Result<Bytes, Intruded> {
        self.slice(piece).map(|bytes| Bytes::copy_from_slice(bytes))
    }

    /// The target writes memory.
    pub(super) fn write(&mut self, write: &RdmaWrite) -> Result<(), Intruded> {
        let data = write.data.concat();
        let to = self.slice(write.to)?;
        if to.len() != data.len() {
            return Err(Intruded(write.to));
        }
        to.copy_from_slice(&data);
        Ok(())
    }

    /// A task has ended: its memory is the host's own again. Returns the data
    /// of a read.
    pub(super) fn take_back(&mut self, itt: Itt) -> Option<Bytes> {
        let keys: Vec<u32> =
            self.regions.iter().filter(|(_, one)| one.itt == itt).map(|(key, _)| *key).collect();
        let taken: Vec<_> = keys.iter().filter_map(|key| self.regions.remove(key)).collect();
        taken.into_iter().next_back().map(|one| one.bytes.into())
    }

    /// The message of a PDU that a host sends, with the memory it offers:
    /// `data` is what a command writes, and the bytes that it reads.
    pub(super) fn message(&mut self, pdu: Outgoing, data: Option<&(Bytes, u32)>) -> Vec<u8> {
        let (mut write, mut read) = (None, None);
        if let Some((out, back)) = data.filter(|_| pdu.bhs.opcode() == Opcode::SCSI_COMMAND) {
            write = self.register(pdu.bhs.itt(), out.to_vec());
            read = self.register(pdu.bhs.itt(), vec![0; *back as usize]);
        }
        let message = initiator::message(pdu, write, read);
        message.unwrap_or_else(|| panic!("data of a host is in memory")).concat()
    }
}

/// A message as its receiver takes it.
pub(super) fn received(message: &[u8]) -> Arrived {
    let message = Message::decode(message).unwrap_or_else(|error| panic!("a message: {error}"));
    let (bhs, ahs) = (message.bhs, Bytes::copy_from_slice(message.ahs));
    let data = match message.data {
        [] => Vec::new(),
        data => vec![Bytes::copy_from_slice(data)],
    };
    Arrived { frame: Frame::new(bhs, ahs, data), header: Some(message.header) }
}

/// Work that the target posts for one of its PDUs.
pub(super) enum Posted {
    /// An RDMA Read for an R2T; `has_front`: data sent with the command goes
    /// before what is read.
    Read { r2t: R2t, from: Piece, front: Option<Bytes> },
    /// RDMA Writes, and a message behind them.
    Send { writes: Vec<RdmaWrite>, message: Vec<u8> },
}

/// The target's end of a connection.
pub(super) struct TargetEnd(Mutex<Target>);

impl TargetEnd {
    pub(super) fn new(solicited_only: bool) -> Self {
        Self(Mutex::new(Target::new(true, solicited_only)))
    }

    /// Notes what a command offers, before the session gets it.
    pub(super) fn command(
        &self,
        (bhs, header): (&Bhs, &Header),
        immediate: Bytes,
        is_alive: impl Fn(Itt) -> bool,
    ) {
        lock(&self.0).command(bhs, header, immediate, is_alive);
    }

    /// Turns a PDU of the session into work.
    pub(super) fn transmit(&self, pdu: Outgoing) -> Option<Posted> {
        let step = lock(&self.0).transmit(pdu);
        match step.unwrap_or_else(|fault| panic!("a PDU for a host that offers memory: {fault}")) {
            Step::Later => None,
            Step::Read(RdmaRead { r2t, from, front }) => Some(Posted::Read { r2t, from, front }),
            Step::Send { rdma_writes, message, .. } => {
                Some(Posted::Send { writes: rdma_writes, message: message.concat() })
            }
        }
    }
}

/// The data of an RDMA Read, for the session.
pub(super) fn solicited(front: Option<Bytes>, read: &Bytes) -> Solicited {
    match front {
        Some(front) => Solicited::Front([&front[..], read].concat().into()),
        None => Solicited::Part(read.clone()),
    }
}
