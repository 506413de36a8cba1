//! Transmission of a session's PDUs to an initiator (RFC 7145 §7, §9.5):
//! Data-In becomes an RDMA Write, R2T an RDMA Read, all others a Send.

use super::header::{Header, RemoteBuffer};
use super::limits::{IMMEDIATE_KEPT, MAX_ADVERTISED};
use super::message::{encode, in_memory};
use crate::pdu::{Bhs, DataIn, Itt, Opcode, Outgoing, R2t};
use bytes::Bytes;
use std::collections::HashMap;
use thiserror::Error;

/// A piece of the initiator's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its key.
    pub stag: u32,
    /// Address of its first byte.
    pub address: u64,
    /// Its length in bytes.
    pub len: u32,
}

/// An RDMA Write.
#[derive(Clone, Debug)]
pub struct RdmaWrite {
    /// Destination of the write.
    pub to: Piece,
    /// The data to be written, in order.
    pub data: Vec<Bytes>,
}

/// An RDMA Read: the answer to an R2T.
#[derive(Clone, Debug)]
pub struct RdmaRead {
    /// The R2T of the session.
    pub r2t: R2t,
    /// Source of the read.
    pub from: Piece,
    /// The immediate data of the command, if no other data precedes: with it in
    /// front, the data is one piece.
    pub front: Option<Bytes>,
}

/// Operation for a PDU.
#[derive(Clone, Debug)]
pub enum Step {
    /// None yet: the data is sent with the following response.
    Later,
    /// Read from the initiator's memory.
    Read(RdmaRead),
    /// Write to the initiator's memory, then send a message.
    Send {
        /// The writes, in order.
        rdma_writes: Vec<RdmaWrite>,
        /// The message.
        message: Vec<Bytes>,
        /// A key to be invalidated by the message.
        invalidate: Option<u32>,
    },
}

/// The initiator advertised no memory for its request, or the owner supplied
/// data that is not in memory.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum PeerFault {
    /// No Read STag.
    #[error("the initiator advertised no memory for read data")]
    NoReadBuffer,
    /// No Write STag.
    #[error("the initiator advertised no memory for write data")]
    NoWriteBuffer,
    /// Memory that would wrap around the end of the address space.
    #[error("the advertised memory exceeds the address space")]
    Address,
    /// Data that a device cannot access; an error of the owner.
    #[error("data that is not in memory")]
    NotInMemory,
}

/// The memory that a command advertised.
#[derive(Debug)]
struct Advertised {
    write: Option<RemoteBuffer>,
    read: Option<RemoteBuffer>,
    immediate: Bytes,
    /// Start of the solicited data: the offset of the first R2T.
    solicited_from: Option<u32>,
    rdma_writes: Vec<RdmaWrite>,
}

/// The target's side of one connection in full feature phase.
#[derive(Debug)]
pub struct Target {
    advertised: HashMap<Itt, Advertised>,
    /// Commands since the last look at what immediate data is still of use.
    unseen: usize,
    /// Keys may be invalidated by a Send.
    invalidate: bool,
    /// The advertised memory begins after the unsolicited data.
    solicited_only: bool,
}

impl Target {
    /// A target with the capabilities from the private data and the login.
    #[must_use]
    pub fn new(invalidate: bool, solicited_only: bool) -> Self {
        Self { advertised: HashMap::new(), unseen: 0, invalidate, solicited_only }
    }

    /// Records the memory that a SCSI command advertises. Call it before the
    /// session gets the command. `is_alive` returns whether a task is
    /// unfinished.
    pub fn command(
        &mut self,
        bhs: &Bhs,
        header: &Header,
        immediate: Bytes,
        is_alive: impl Fn(Itt) -> bool,
    ) {
        let Header::Control { write, read } = *header else { return };
        // RFC 7143 §11.17.1: the session rejects a tag in use; the memory
        // advertised by the task with that tag remains valid.
        let itt = bhs.itt();
        if is_alive(itt) || (write.is_none() && read.is_none()) {
            return;
        }
        if self.advertised.len() >= MAX_ADVERTISED {
            self.advertised.retain(|itt, _| is_alive(*itt));
        }
        self.unseen += 1;
        if self.unseen >= IMMEDIATE_KEPT {
            self.unseen = 0;
            let ended = self.advertised.iter_mut().filter(|(itt, _)| !is_alive(**itt));
            // Their keys stay: a response may be on its way.
            ended.for_each(|(_, task)| task.immediate = Bytes::new());
        }
        let rdma_writes = Vec::new();
        self.advertised
            .insert(itt, Advertised { write, read, immediate, solicited_from: None, rdma_writes });
    }

    /// Takes the session's next PDU for this connection.
    ///
    /// # Errors
    /// See [`PeerFault`]: the connection must be closed.
    pub fn transmit(&mut self, pdu: Outgoing) -> Result<Step, PeerFault> {
        match pdu.bhs.opcode() {
            Opcode::DATA_IN => self.data_in(pdu),
            Opcode::R2T => self.r2t(R2t::parse(&pdu.bhs)),
            Opcode::SCSI_RESPONSE => {
                // RFC 7145 §7.3.2: the Read STag, and the Write STag of a task
                // that has only that.
                let ended = self.advertised.remove(&pdu.bhs.itt());
                let writes_and_key = ended.map(|task| (task.rdma_writes, task.read.or(task.write)));
                let (rdma_writes, buffer) = writes_and_key.unwrap_or_default();
                let invalidate = buffer.map(|b| b.stag).filter(|_| self.invalidate);
                send(pdu, rdma_writes, invalidate)
            }
            _ => send(pdu, Vec::new(), None),
        }
    }

    fn data_in(&mut self, pdu: Outgoing) -> Result<Step, PeerFault> {
        let DataIn { itt, offset, .. } = DataIn::parse(&pdu.bhs);
        let task = self.advertised.get_mut(&itt).ok_or(PeerFault::NoReadBuffer)?;
        let buffer = task.read.ok_or(PeerFault::NoReadBuffer)?;
        let to = piece(buffer, offset, pdu.data_bytes() as u32)?;
        let data = in_memory(pdu.data).ok_or(PeerFault::NotInMemory)?;
        task.rdma_writes.push(RdmaWrite { to, data });
        Ok(Step::Later)
    }

    fn r2t(&mut self, r2t: R2t) -> Result<Step, PeerFault> {
        let task = self.advertised.get_mut(&r2t.itt).ok_or(PeerFault::NoWriteBuffer)?;
        let buffer = task.write.ok_or(PeerFault::NoWriteBuffer)?;
        let first = *task.solicited_from.get_or_insert(r2t.offset);
        let skipped = if self.solicited_only { first } else { 0 };
        let offset = r2t.offset.checked_sub(skipped).ok_or(PeerFault::Address)?;
        let from = piece(buffer, offset, r2t.desired_bytes)?;
        let is_behind = r2t.offset as usize == task.immediate.len();
        let front = is_behind.then(|| std::mem::take(&mut task.immediate));
        Ok(Step::Read(RdmaRead { r2t, from, front }))
    }
}

fn piece(buffer: RemoteBuffer, offset: u32, len: u32) -> Result<Piece, PeerFault> {
    let address = buffer.base.checked_add(u64::from(offset)).ok_or(PeerFault::Address)?;
    address.checked_add(u64::from(len)).ok_or(PeerFault::Address)?;
    Ok(Piece { stag: buffer.stag, address, len })
}

fn send(
    pdu: Outgoing,
    rdma_writes: Vec<RdmaWrite>,
    invalidate: Option<u32>,
) -> Result<Step, PeerFault> {
    let message = encode(&Header::PLAIN, pdu).ok_or(PeerFault::NotInMemory)?;
    Ok(Step::Send { rdma_writes, message, invalidate })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pdu::{Lun, Residual, ScsiResponse, ServiceResponse, Ttt};
    use crate::serial::Sn;
    use zgate_store::Payload;

    const ITT: Itt = Itt(9);
    const WRITE: RemoteBuffer = RemoteBuffer { stag: 5, base: 1000 };
    const READ: RemoteBuffer = RemoteBuffer { stag: 6, base: 2000 };

    fn command(target: &mut Target, write: bool, read: bool, immediate: &'static [u8]) {
        let mut bhs = Bhs::new(Opcode::SCSI_COMMAND);
        bhs.put_u32(16, ITT.0);
        let header = Header::Control { write: write.then_some(WRITE), read: read.then_some(READ) };
        target.command(&bhs, &header, Bytes::from_static(immediate), |_| false);
    }

    fn response() -> Outgoing {
        ScsiResponse {
            response: ServiceResponse::COMPLETED,
            status: 0,
            itt: ITT,
            snack_tag: 0,
            stat_sn: Sn(1),
            exp_data_sn: 0,
            bidirectional: Residual::None,
            residual: Residual::None,
        }
        .encode(&[])
    }

    fn data_in(offset: u32, data: &'static [u8]) -> Outgoing {
        let pdu = DataIn {
            is_final: true,
            acknowledge: false,
            lun: Lun(0),
            itt: ITT,
            ttt: Ttt::NONE,
            data_sn: 0,
            offset,
            status: None,
        };
        pdu.encode(vec![Payload::Bytes(Bytes::from_static(data))])
    }

    fn r2t(offset: u32, desired_bytes: u32) -> Outgoing {
        R2t { lun: Lun(0), itt: ITT, ttt: Ttt(3), stat_sn: Sn(1), r2t_sn: 0, offset, desired_bytes }
            .encode()
    }

    #[test]
    fn read_data_is_written_in_front_of_its_response() {
        for invalidate in [false, true] {
            let mut target = Target::new(invalidate, true);
            command(&mut target, false, true, b"");
            assert!(matches!(target.transmit(data_in(0, b"abc")), Ok(Step::Later)));
            assert!(matches!(target.transmit(data_in(3, b"de")), Ok(Step::Later)));
            let Ok(Step::Send { rdma_writes, message, invalidate: key }) =
                target.transmit(response())
            else {
                panic!("the response is sent")
            };
            let places: Vec<_> =
                rdma_writes.iter().map(|push| (push.to.address, push.to.len)).collect();
            assert_eq!(places, [(2000, 3), (2003, 2)]);
            assert_eq!((message.len(), key), (1, invalidate.then_some(READ.stag)));
            // The task has ended: its memory is not used again.
            assert_eq!(target.transmit(data_in(0, b"x")).unwrap_err(), PeerFault::NoReadBuffer);
        }
    }

    #[test]
    fn writes_are_pulled_from_behind_what_came_unasked() {
        let mut target = Target::new(true, true);
        command(&mut target, true, false, b"1234");
        let Ok(Step::Read(read)) = target.transmit(r2t(4, 100)) else { panic!("a read") };
        assert_eq!(read.from, Piece { stag: 5, address: 1000, len: 100 });
        assert_eq!(read.front.as_deref(), Some(&b"1234"[..]));
        let Ok(Step::Read(read)) = target.transmit(r2t(104, 50)) else { panic!("a read") };
        assert_eq!((read.from.address, read.front), (1100, None));
        // Data-Outs arrived in between: the data in front is not one piece.
        command(&mut target, true, false, b"1234");
        let Ok(Step::Read(read)) = target.transmit(r2t(8, 100)) else { panic!("a read") };
        assert_eq!((read.from.address, read.front), (1000, None));
        let mut whole = Target::new(true, false);
        command(&mut whole, true, false, b"1234");
        let Ok(Step::Read(read)) = whole.transmit(r2t(4, 100)) else { panic!("a read") };
        assert_eq!(read.from.address, 1004);
    }

    #[test]
    fn memory_that_was_not_advertised_is_not_used() {
        let mut target = Target::new(true, true);
        assert_eq!(target.transmit(r2t(0, 1)).unwrap_err(), PeerFault::NoWriteBuffer);
        command(&mut target, false, true, b"");
        assert_eq!(target.transmit(r2t(0, 1)).unwrap_err(), PeerFault::NoWriteBuffer);
        command(&mut target, true, false, b"");
        assert_eq!(target.transmit(data_in(0, b"x")).unwrap_err(), PeerFault::NoReadBuffer);
        let mut bhs = Bhs::new(Opcode::SCSI_COMMAND);
        bhs.put_u32(16, ITT.0);
        let far = RemoteBuffer { stag: 1, base: u64::MAX - 2 };
        let header = Header::Control { write: None, read: Some(far) };
        target.command(&bhs, &header, Bytes::new(), |_| false);
        assert_eq!(target.transmit(data_in(0, b"xyz")).unwrap_err(), PeerFault::Address);
    }

    #[test]
    fn immediate_data_is_kept_for_tasks_alone() {
        let mut target = Target::new(true, true);
        let header = Header::Control { write: Some(WRITE), read: None };
        for itt in 0..3 * IMMEDIATE_KEPT as u32 {
            let mut bhs = Bhs::new(Opcode::SCSI_COMMAND);
            bhs.put_u32(16, itt);
            // The target has taken none but the first.
            let is_alive = |of: Itt| itt > 0 && of == Itt(0);
            target.command(&bhs, &header, Bytes::from_static(b"1234"), is_alive);
        }
        let keeps = |task: &&Advertised| !task.immediate.is_empty();
        assert!(target.advertised.values().filter(keeps).count() <= IMMEDIATE_KEPT + 1);
        assert_eq!(target.advertised[&Itt(0)].immediate, "1234");
    }

    #[test]
    fn tasks_that_end_without_a_response_are_forgotten_in_the_end() {
        let mut target = Target::new(true, true);
        let header = Header::Control { write: None, read: Some(READ) };
        for itt in 0..(MAX_ADVERTISED as u32) * 3 {
            let mut bhs = Bhs::new(Opcode::SCSI_COMMAND);
            bhs.put_u32(16, itt);
            target.command(&bhs, &header, Bytes::new(), |_| false);
        }
        assert!(target.advertised.len() <= MAX_ADVERTISED);
    }
}
