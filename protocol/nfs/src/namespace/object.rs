//! Objects of exports, and the keys of their state.

use super::export::{Export, ExportId};
use super::policy::Entry;
use std::sync::Arc;
use zgate_store::{Caller, NodeHandle};

/// An object of an export, as used by operations.
#[derive(Clone, Debug)]
pub struct Object {
    /// The export.
    pub export: Arc<Export>,
    /// The object.
    pub node: NodeHandle,
    /// Identity and access.
    pub entry: Arc<Entry>,
}

impl Object {
    /// The identity.
    #[must_use]
    pub fn who(&self) -> &Caller {
        &self.entry.who
    }

    /// The key of the object's open, lock and delegation state.
    #[must_use]
    pub fn file_key(&self) -> FileKey {
        FileKey { export: self.export.id, node: self.node }
    }
}

/// Identifies a file across all exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileKey {
    /// The export.
    pub export: ExportId,
    /// The object.
    pub node: NodeHandle,
}
