//! Commands: one file for each family, one table that knows them all.

pub(crate) mod alua;
pub(crate) mod capacity;
pub(crate) mod cdb;
pub(crate) mod compare_write;
pub(crate) mod copy_results;
pub(crate) mod defects;
pub(crate) mod diagnostic;
pub(crate) mod execute;
pub(crate) mod extended_copy;
pub(crate) mod inquiry;
pub(crate) mod lba_status;
pub(crate) mod log;
pub(crate) mod medium;
pub(crate) mod mode;
pub(crate) mod opcodes;
pub(crate) mod orwrite;
pub(crate) mod persistent;
pub(crate) mod prefetch;
pub(crate) mod read;
pub(crate) mod report_luns;
pub(crate) mod request_sense;
pub(crate) mod reserve6;
pub(crate) mod sanitize;
pub(crate) mod start_stop;
pub(crate) mod sync_cache;
pub(crate) mod table;
pub(crate) mod token;
pub(crate) mod unmap;
pub(crate) mod verify;
pub(crate) mod vpd;
pub(crate) mod write;
pub(crate) mod write_same;

use crate::disk::Disk;
use crate::disk::store_error::{self, Access};
use crate::nexus::Nexus;
use crate::sense::{Asc, ScsiStatus, Sense};
use crate::target::LogicalUnits;
use crate::transport::Task;
use bytes::Bytes;
use cdb::Cdb;
use std::sync::Arc;
use table::Row;
use zgate_store::block_store::BlockGeometry;
use zgate_store::{Payload, StoreError};

/// Task attribute (SAM-5 §8.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum TaskAttribute {
    /// None given.
    Untagged,
    /// SIMPLE.
    #[default]
    Simple,
    /// ORDERED.
    Ordered,
    /// HEAD OF QUEUE.
    HeadOfQueue,
    /// ACA.
    Aca,
}

/// A command as a transport delivers it.
#[derive(Clone, Debug)]
pub struct Command {
    /// The I_T nexus it came by.
    pub nexus: Arc<Nexus>,
    /// The command descriptor block.
    pub cdb: Cdb,
    /// Its task attribute. Ordering is the transport's task set's business.
    pub attribute: TaskAttribute,
    /// The data-out buffer, as much of it as the command needs (see
    /// [`crate::expected_data_out`]) and the initiator offered.
    pub data_out: Bytes,
    /// Bytes the initiator offered to send, which may be more or less than
    /// the command needs.
    pub data_out_offered_bytes: u64,
}

/// How a command ended.
#[derive(Clone, Debug)]
pub struct Response {
    /// SCSI status.
    pub status: ScsiStatus,
    /// Sense data, with CHECK CONDITION.
    pub sense: Option<Sense>,
    /// Data-in, cut to the allocation length of the CDB. The transport cuts
    /// it to what the initiator expects and reports the residual.
    pub data_in: Option<Payload>,
}

impl Response {
    /// A CHECK CONDITION.
    #[must_use]
    pub fn check(sense: Sense) -> Self {
        Self { status: ScsiStatus::CheckCondition, sense: Some(sense), data_in: None }
    }

    /// A status without sense data and data-in.
    #[must_use]
    pub fn bare(status: ScsiStatus) -> Self {
        Self { status, sense: None, data_in: None }
    }

    /// Length of the data-in in bytes.
    #[must_use]
    pub fn data_in_bytes(&self) -> u64 {
        self.data_in.as_ref().map_or(0, |payload| payload.len() as u64)
    }
}

/// What a command gives when it succeeds.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: ScsiStatus,
    pub(crate) data: Option<Payload>,
}

impl Reply {
    /// GOOD without data.
    pub(crate) const GOOD: Self = Self { status: ScsiStatus::Good, data: None };

    pub(crate) fn payload(payload: Payload) -> Self {
        Self { data: Some(payload), ..Self::GOOD }
    }

    /// Parameter data, cut to the allocation length (SPC-4 §4.2.5.6).
    pub(crate) fn data(mut data: Vec<u8>, allocation_bytes: u32) -> Self {
        data.truncate(usize::try_from(allocation_bytes).unwrap_or(usize::MAX));
        if data.is_empty() {
            return Self::GOOD;
        }
        Self::payload(Payload::Bytes(Bytes::from(data)))
    }
}

/// Why a command did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// CHECK CONDITION.
    Check(Sense),
    /// RESERVATION CONFLICT.
    Conflict,
    /// TASK ABORTED, which nobody is told.
    Aborted,
}

impl From<Sense> for Failure {
    fn from(sense: Sense) -> Self {
        Self::Check(sense)
    }
}

impl From<Asc> for Failure {
    /// ILLEGAL REQUEST with this code.
    fn from(asc: Asc) -> Self {
        Self::Check(Sense::illegal(asc))
    }
}

pub(crate) type Outcome = Result<Reply, Failure>;

/// A command on its way through a logical unit.
pub(crate) struct Cx<'a> {
    pub(crate) disk: &'a Disk,
    /// The logical units the initiator sees; none when the command came to
    /// the disk directly.
    pub(crate) luns: Option<&'a LogicalUnits>,
    pub(crate) task: &'a dyn Task,
    pub(crate) command: &'a Command,
    pub(crate) row: &'static Row,
    pub(crate) geometry: BlockGeometry,
}

impl Cx<'_> {
    pub(crate) fn cdb(&self) -> &Cdb {
        &self.command.cdb
    }

    /// A parameter list of `bytes` bytes; the initiator must have sent all
    /// of it.
    pub(crate) fn parameter_list(&self, bytes: u32) -> Result<&[u8], Failure> {
        let len = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.command.data_out.get(..len).ok_or(Failure::from(Asc::PARAMETER_LIST_LENGTH))
    }

    pub(crate) fn read_failed(error: StoreError) -> Failure {
        Failure::Check(store_error::sense(error, Access::Read))
    }

    pub(crate) fn write_failed(error: StoreError) -> Failure {
        Failure::Check(store_error::sense(error, Access::Write))
    }
}
