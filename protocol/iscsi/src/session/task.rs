//! The task table's entries.

use super::events::{Completion, ConnHandle, TaskTag};
use super::gather::Gather;
use crate::limits::MAX_GATHERED_BYTES;
use crate::pdu::{ScsiCommand, TaskAttribute, Ttt};
use crate::serial::Sn;
use crate::time::Timestamp;
use bytes::Bytes;
use std::collections::VecDeque;

/// Sense key ABORTED COMMAND.
const ABORTED_COMMAND: u8 = 0x0b;

/// ASC and ASCQ of conditions that iSCSI itself reports (RFC 7143 §11.4.7.2), all
/// ABORTED COMMAND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Condition(pub(crate) u8, pub(crate) u8);

impl Condition {
    pub(crate) const UNEXPECTED_UNSOLICITED: Self = Self(0x0c, 0x0c);
    pub(crate) const INCORRECT_AMOUNT: Self = Self(0x0c, 0x0d);
    pub(crate) const CRC: Self = Self(0x47, 0x05);

    /// Sense data in descriptor format (SPC-4 §4.5.2), or in fixed format (§4.5.3).
    pub(crate) fn sense(self, is_descriptor: bool) -> Bytes {
        let Self(asc, ascq) = self;
        if is_descriptor {
            return Bytes::copy_from_slice(&[0x72, ABORTED_COMMAND, asc, ascq, 0, 0, 0, 0]);
        }
        let mut sense = [0; 18];
        sense[0] = 0x70;
        sense[2] = ABORTED_COMMAND;
        sense[7] = 10;
        sense[12] = asc;
        sense[13] = ascq;
        Bytes::copy_from_slice(&sense)
    }
}

/// Result of a task that was not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// CHECK CONDITION.
    Check(Condition),
    /// Another status, without sense data.
    Status(u8),
}

impl Failure {
    /// TASK SET FULL: there was no memory for its data (RFC 7143 §11.4.2, SAM-5 §5.3.1).
    pub(crate) const NO_MEMORY: Self = Self::Status(0x28);
}

/// A sequence of Data-Out PDUs: the unsolicited one, or the answer to an R2T.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sequence {
    pub(crate) ttt: Ttt,
    pub(crate) r2t_sn: u32,
    pub(crate) start: u32,
    pub(crate) end: u32,
    /// Offset at which the next PDU must start, if PDUs are in order.
    pub(crate) next_offset: u32,
    pub(crate) next_data_sn: u32,
    /// Undamaged bytes received.
    pub(crate) received: u32,
    /// A PDU was lost or damaged.
    pub(crate) lossy: bool,
}

impl Sequence {
    pub(crate) fn new(ttt: Ttt, r2t_sn: u32, start: u32, end: u32) -> Self {
        Self {
            ttt,
            r2t_sn,
            start,
            end,
            next_offset: start,
            next_data_sn: 0,
            received: 0,
            lossy: false,
        }
    }
}

/// Phase of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Waiting for its CmdSN or its data.
    Collecting,
    /// Delivered to the owner.
    Delivered,
    /// Delivered to the owner; the result will be discarded, unless the task
    /// answers late.
    Aborting,
}

/// A SCSI task.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) tag: TaskTag,
    pub(crate) conn: ConnHandle,
    pub(crate) command: ScsiCommand,
    pub(crate) phase: Phase,
    /// Its CmdSN has been reached.
    pub(crate) ordered: bool,
    /// A task management function will end the task: no R2Ts, no delivery.
    pub(crate) doomed: bool,
    pub(crate) failure: Option<Failure>,
    pub(crate) gather: Gather,
    pub(crate) sequences: Vec<Sequence>,
    /// Ranges to be solicited, as (offset, length).
    pub(crate) to_request: VecDeque<(u32, u32)>,
    pub(crate) next_r2t_sn: u32,
    /// R2TSNs whose sequences were given up with nothing received: the R2Ts may be lost.
    pub(crate) given_up_r2t_sns: Vec<u32>,
    pub(crate) recoveries: u32,
    /// First look at the clock since data of a sequence was requested or arrived.
    pub(crate) quiet_since: Option<Timestamp>,
    /// Sequence reception timeouts since data last arrived.
    pub(crate) silences: u32,
    /// Memory reserved for its data until the owner begins it, in bytes.
    pub(crate) reserved_bytes: u64,
    /// Share of the session's `gathering_bytes`, in bytes.
    pub(crate) counted_bytes: u64,
    /// Its connection is closed, and the task waits for a new allegiance.
    pub(crate) orphaned: bool,
    /// A result that waits for a new allegiance.
    pub(crate) finished: Option<Completion>,
    /// The function that aborts it was rejected: its result is sent, although
    /// what has not begun of it does not begin any more.
    pub(crate) answers_late: bool,
}

impl Task {
    pub(crate) fn new(tag: TaskTag, conn: ConnHandle, command: ScsiCommand, ordered: bool) -> Self {
        let expected = if command.write { command.expected_bytes } else { 0 };
        let expected = expected.min(MAX_GATHERED_BYTES);
        Self {
            tag,
            conn,
            command,
            phase: Phase::Collecting,
            ordered,
            doomed: false,
            failure: None,
            gather: Gather::new(expected),
            sequences: Vec::new(),
            to_request: VecDeque::new(),
            next_r2t_sn: 0,
            given_up_r2t_sns: Vec::new(),
            recoveries: 0,
            quiet_since: None,
            silences: 0,
            reserved_bytes: 0,
            counted_bytes: 0,
            orphaned: false,
            finished: None,
            answers_late: false,
        }
    }

    /// Expected length of the data to the target.
    pub(crate) fn write_bytes(&self) -> u32 {
        if self.command.write { self.command.expected_bytes } else { 0 }
    }

    /// Bytes gathered of the data to the target.
    pub(crate) fn gathered_bytes(&self) -> u32 {
        self.write_bytes().min(MAX_GATHERED_BYTES)
    }

    /// Memory that its data occupies, or may occupy at any moment, before the
    /// command is delivered; in bytes.
    pub(crate) fn gathering_bytes(&self) -> u64 {
        match self.phase {
            Phase::Collecting => self.reserved_bytes.max(self.gather.received_bytes().into()),
            Phase::Delivered | Phase::Aborting => 0,
        }
    }

    /// Expected length of the data to the initiator.
    pub(crate) fn read_bytes(&self) -> u32 {
        match (self.command.read, self.command.write) {
            (true, false) => self.command.expected_bytes,
            (true, true) => self.command.bidirectional_read_bytes.unwrap_or(0),
            _ => 0,
        }
    }

    pub(crate) fn is_bidirectional(&self) -> bool {
        self.command.read && self.command.write
    }

    /// True if the task occupies a place in the command window.
    pub(crate) fn is_counted(&self) -> bool {
        self.ordered && !self.command.immediate
    }

    /// Returns true if it came later than `other`, in the order of commands.
    pub(crate) fn arrived_after(&self, other: &Self) -> bool {
        match self.is_counted() && other.is_counted() {
            true => self.command.cmd_sn.after(other.command.cmd_sn),
            false => Sn(self.tag.serial).after(Sn(other.tag.serial)),
        }
    }

    /// True if SAM-5 §8.8 delays this task until `other` has ended.
    pub(crate) fn is_behind(&self, other: &Self) -> bool {
        let ordered = |task: &Self| task.command.attribute == TaskAttribute::Ordered;
        self.arrived_after(other)
            && other.ordered
            && self.command.lun == other.command.lun
            && self.command.attribute != TaskAttribute::HeadOfQueue
            && (ordered(self) || ordered(other))
    }

    /// Records a failure; only the first one has an effect.
    pub(crate) fn fail(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
        self.to_request.clear();
    }
}
