//! Result of a command within this crate.

use crate::sense::{Asc, ScsiStatus, Sense};
use bytes::Bytes;
use zgate_store::Payload;

/// Result of a successful command.
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

    /// Returns parameter data, cut to the allocation length (SPC-4 §4.2.5.6).
    pub(crate) fn data(mut data: Vec<u8>, allocation_bytes: u32) -> Self {
        data.truncate(usize::try_from(allocation_bytes).unwrap_or(usize::MAX));
        if data.is_empty() {
            return Self::GOOD;
        }
        Self::payload(Payload::Bytes(Bytes::from(data)))
    }
}

/// Reason for which a command did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// CHECK CONDITION.
    Check(Sense),
    /// RESERVATION CONFLICT.
    Conflict,
    /// TASK ABORTED, which is not reported to the initiator.
    Aborted,
}

impl From<Sense> for Failure {
    fn from(sense: Sense) -> Self {
        Self::Check(sense)
    }
}

impl From<Asc> for Failure {
    /// Returns ILLEGAL REQUEST with this code.
    fn from(asc: Asc) -> Self {
        Self::Check(Sense::illegal(asc))
    }
}

pub(crate) type Outcome = Result<Reply, Failure>;
