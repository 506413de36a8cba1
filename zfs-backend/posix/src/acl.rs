//! POSIX ACLs of objects.

use crate::acl_codec::{decode, encode};
use crate::entry::Entry;
use crate::errno::{OrStoreError, store_error};
use crate::syscall;
use crate::tree::Tree;
use crate::xattr;
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::ffi::CStr;
use zgate_store::file_store::{PosixAcl, PosixAclEntry};
use zgate_store::{Caller, FileKind, NodeHandle, SetAttr, StoreError, StoreResult};

const ACCESS: &CStr = c"system.posix_acl_access";
const DEFAULT: &CStr = c"system.posix_acl_default";

impl Tree {
    /// Returns both ACLs; derived from the mode if none are stored.
    pub(crate) fn get_acl(&self, node: &NodeHandle) -> StoreResult<PosixAcl> {
        let entry = self.entry(node)?;
        let stored = match entry.kind {
            FileKind::Symlink => None,
            _ => stored(&entry, ACCESS)?,
        };
        let access = match stored {
            Some(access) => access,
            None => PosixAclEntry::of_mode(self.live_attr(&entry)?.mode).to_vec(),
        };
        let default = match entry.kind {
            FileKind::Directory => stored_default(&entry)?,
            _ => Vec::new(),
        };
        Ok(PosixAcl { access, default })
    }

    /// Replaces both ACLs.
    pub(crate) fn set_acl(
        &self,
        who: &Caller,
        node: &NodeHandle,
        acl: &PosixAcl,
    ) -> StoreResult<()> {
        let entry = self.entry(node)?;
        let is_dir = entry.kind == FileKind::Directory;
        if entry.kind == FileKind::Symlink || (!is_dir && !acl.default.is_empty()) {
            return Err(StoreError::NotSupported);
        }
        // Only the owner may do this, as with chmod.
        let like_chmod = SetAttr { mode: Some(0), ..SetAttr::default() };
        self.precheck_setattr(who, &entry, None, &like_chmod)?;
        let _lock = entry.lock_entries();
        let result = store(&entry, ACCESS, &acl.access)
            .and_then(|()| if is_dir { store(&entry, DEFAULT, &acl.default) } else { Ok(()) });
        entry.mark_modified();
        result
    }
}

fn stored_default(entry: &Entry) -> StoreResult<Vec<PosixAclEntry>> {
    Ok(stored(entry, DEFAULT)?.unwrap_or_default())
}

/// Returns the stored ACL; `None` if there is none, or the file system has no
/// ACLs.
fn stored(entry: &Entry, name: &CStr) -> StoreResult<Option<Vec<PosixAclEntry>>> {
    match xattr::read(entry, name) {
        Ok(raw) => decode(&raw).map(Some),
        Err(StoreError::NoXattr | StoreError::NotSupported) => Ok(None),
        Err(error) => Err(error),
    }
}

fn store(entry: &Entry, name: &CStr, entries: &[PosixAclEntry]) -> StoreResult<()> {
    let path = syscall::proc_path(&entry.fd);
    if entries.is_empty() {
        return match rustix::fs::removexattr(path.as_c_str(), name) {
            Err(Errno::NODATA) => Ok(()),
            Err(errno) => Err(store_error(errno)),
            Ok(()) => Ok(()),
        };
    }
    let raw = encode(entries)?;
    rustix::fs::setxattr(path.as_c_str(), name, &raw, XattrFlags::empty()).or_store()
}
