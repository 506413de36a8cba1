//! Context of a command.

use super::cdb::Cdb;
use super::outcome::Failure;
use super::request::Command;
use super::table::{Needs, Row};
use crate::disk::Disk;
use crate::disk::block_range::BlockRange;
use crate::disk::store_error::{self, Access};
use crate::logical_units::LogicalUnits;
use crate::sense::Asc;
use crate::transport::Task;
use zgate_store::StoreError;
use zgate_store::block_store::BlockGeometry;

/// Context of a command in a logical unit.
pub(crate) struct Cx<'a> {
    pub(crate) disk: &'a Disk,
    /// Logical units visible to the initiator; none if the command was sent to
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

    /// Returns a parameter list of `bytes` bytes; the initiator must have sent
    /// all of it.
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

    /// Checks before each further step of a long command that it is not aborted: whoever aborts it
    /// waits for one step of it.
    pub(crate) fn check_abort(&self) -> Result<(), Failure> {
        if self.task.is_aborted() { Err(Failure::Aborted) } else { Ok(()) }
    }

    /// Returns the blocks that the CDB names.
    pub(crate) fn range(&self) -> BlockRange {
        self.cdb().range(self.row.shape)
    }
}

impl Row {
    /// Returns whether this disk supports the command.
    pub(crate) fn exists(&self, disk: &Disk) -> bool {
        match self.needs {
            Needs::Nothing => true,
            Needs::Thin => disk.is_thin(&disk.store.geometry()),
            Needs::Sanitize => disk.config.sanitize,
            Needs::SanitizeAndThin => disk.config.sanitize && disk.is_thin(&disk.store.geometry()),
            Needs::ExplicitAlua => disk.config.explicit_alua,
        }
    }
}
