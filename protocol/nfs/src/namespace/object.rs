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
        FileKey::of(&self.export, &self.node)
    }
}

/// A file as clients of one export know it: what they hold of it is theirs through
/// this export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileKey {
    /// The export.
    pub export: ExportId,
    /// The file.
    pub id: FileId,
}

impl FileKey {
    /// The key of an object.
    #[must_use]
    pub fn of(export: &Export, node: &NodeHandle) -> Self {
        Self { export: export.id, id: FileId::of(export, node) }
    }
}

/// A file, whatever export it is reached through: what is held of it conflicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    /// Its identity among the files of all stores.
    name: NodeHandle,
    /// The export, if `name` is a handle that its store does not know.
    within: Option<ExportId>,
}

impl FileId {
    fn of(export: &Export, node: &NodeHandle) -> Self {
        match export.store.identity(node) {
            Some(name) => Self { name, within: None },
            // Most likely made up: it must not stand for a file of another export.
            None => Self { name: *node, within: Some(export.id) },
        }
    }
}
