//! A command and its response, as a transport exchanges them.

use super::cdb::Cdb;
use crate::nexus::Nexus;
use crate::sense::{ScsiStatus, Sense};
use bytes::Bytes;
use std::sync::Arc;
use zgate_store::Payload;

/// Task attribute (SAM-5 §8.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum TaskAttribute {
    /// No attribute.
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
    /// I_T nexus that sent the command.
    pub nexus: Arc<Nexus>,
    /// The command descriptor block.
    pub cdb: Cdb,
    /// Task attribute. The transport's task set is responsible for ordering.
    pub attribute: TaskAttribute,
    /// Data-out buffer: the part of it that the command needs (see
    /// [`crate::expected_data_out`]) and the initiator offered.
    pub data_out: Bytes,
    /// Number of bytes the initiator offered, which may be more or less than
    /// the command needs.
    pub data_out_offered_bytes: u64,
}

/// Result of a command.
#[derive(Clone, Debug)]
pub struct Response {
    /// SCSI status.
    pub status: ScsiStatus,
    /// Sense data of CHECK CONDITION.
    pub sense: Option<Sense>,
    /// Data-in, cut to the allocation length of the CDB. The transport cuts it
    /// to the initiator's expected length and reports the residual.
    pub data_in: Option<Payload>,
}

impl Response {
    /// Returns CHECK CONDITION with sense data.
    #[must_use]
    pub fn check(sense: Sense) -> Self {
        Self { status: ScsiStatus::CheckCondition, sense: Some(sense), data_in: None }
    }

    /// Returns a status without sense data and data-in.
    #[must_use]
    pub fn bare(status: ScsiStatus) -> Self {
        Self { status, sense: None, data_in: None }
    }

    /// Returns the length of the data-in in bytes.
    #[must_use]
    pub fn data_in_bytes(&self) -> u64 {
        self.data_in.as_ref().map_or(0, |payload| payload.len() as u64)
    }
}
