//! Extended attributes of the `user.` name space (RFC 8276).

use crate::entry::Entry;
use crate::errno::{OrStoreError, store_error};
use crate::syscall;
use crate::tree::Tree;
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;
use zgate_io::access_check::Rights;
use zgate_store::file_store::{DirChange, XattrSet};
use zgate_store::{Caller, FileKind, NodeHandle, StoreError, StoreResult};

const PREFIX: &[u8] = b"user.";
/// Longest name with its prefix (XATTR_NAME_MAX).
const MAX_XATTR_NAME_BYTES: usize = 255;
/// Longest value and longest list of names (XATTR_SIZE_MAX, XATTR_LIST_MAX).
const MAX_XATTR_BYTES: usize = 64 << 10;

impl Tree {
    /// Reads an attribute.
    pub(crate) fn get_xattr(
        &self,
        who: &Caller,
        node: &NodeHandle,
        name: &[u8],
    ) -> StoreResult<Vec<u8>> {
        let name = full_name(name)?;
        let entry = self.entry(node)?;
        only_file_or_directory(&entry, StoreError::NoXattr)?;
        self.precheck(who, &entry, Rights::READ)?;
        read(&entry, &name)
    }

    /// Sets an attribute.
    pub(crate) fn set_xattr(
        &self,
        who: &Caller,
        node: &NodeHandle,
        name: &[u8],
        value: &[u8],
        how: XattrSet,
    ) -> StoreResult<DirChange> {
        let name = full_name(name)?;
        if value.len() > MAX_XATTR_BYTES {
            return Err(StoreError::XattrTooBig);
        }
        let flags = match how {
            XattrSet::Either => XattrFlags::empty(),
            XattrSet::Create => XattrFlags::CREATE,
            XattrSet::Replace => XattrFlags::REPLACE,
        };
        self.change_xattr(who, node, |path| {
            rustix::fs::setxattr(path, name.as_c_str(), value, flags)
        })
    }

    /// Removes an attribute.
    pub(crate) fn remove_xattr(
        &self,
        who: &Caller,
        node: &NodeHandle,
        name: &[u8],
    ) -> StoreResult<DirChange> {
        let name = full_name(name)?;
        self.change_xattr(who, node, |path| rustix::fs::removexattr(path, name.as_c_str()))
    }

    fn change_xattr(
        &self,
        who: &Caller,
        node: &NodeHandle,
        change: impl FnOnce(&CStr) -> rustix::io::Result<()>,
    ) -> StoreResult<DirChange> {
        let entry = self.entry(node)?;
        only_file_or_directory(&entry, StoreError::NotPermitted)?;
        self.precheck(who, &entry, Rights::WRITE)?;
        let _lock = entry.lock_entries();
        let before = entry.attr()?.change;
        change(&syscall::proc_path(&entry.fd)).or_store()?;
        entry.mark_modified();
        // Writes to the same file do not take the lock.
        let atomic = entry.kind == FileKind::Directory;
        Ok(DirChange { atomic, before, after: entry.attr()?.change })
    }

    /// Returns the names of the attributes, sorted.
    pub(crate) fn list_xattrs(&self, who: &Caller, node: &NodeHandle) -> StoreResult<Vec<Vec<u8>>> {
        let entry = self.entry(node)?;
        if only_file_or_directory(&entry, StoreError::NoXattr).is_err() {
            return Ok(Vec::new());
        }
        self.require(who, &entry, Rights::READ)?;
        let mut list = vec![0; MAX_XATTR_BYTES];
        let path = syscall::proc_path(&entry.fd);
        let len = rustix::fs::listxattr(path.as_c_str(), &mut list[..]).or_store()?;
        let mut names: Vec<_> = list[..len]
            .split(|&byte| byte == 0)
            .filter_map(|name| name.strip_prefix(PREFIX))
            .map(<[u8]>::to_vec)
            .collect();
        names.sort_unstable();
        Ok(names)
    }
}

/// Reads an attribute by its full name.
pub(crate) fn read(entry: &Entry, name: &CStr) -> StoreResult<Vec<u8>> {
    read_of(&entry.fd, name)
}

/// Reads an attribute of an open object by its full name.
pub(crate) fn read_of(fd: &OwnedFd, name: &CStr) -> StoreResult<Vec<u8>> {
    let path = syscall::proc_path(fd);
    let mut value = vec![0; 1 << 10];
    loop {
        match rustix::fs::getxattr(path.as_c_str(), name, &mut value[..]) {
            Ok(len) => {
                value.truncate(len);
                return Ok(value);
            }
            Err(Errno::RANGE) if value.len() < MAX_XATTR_BYTES => value.resize(MAX_XATTR_BYTES, 0),
            Err(errno) => return Err(store_error(errno)),
        }
    }
}

/// Refuses other objects: Linux keeps `user.` attributes only on regular files
/// and directories (xattr(7)).
fn only_file_or_directory(entry: &Entry, otherwise: StoreError) -> StoreResult<()> {
    match entry.kind {
        FileKind::Regular | FileKind::Directory => Ok(()),
        _ => Err(otherwise),
    }
}

fn full_name(name: &[u8]) -> StoreResult<CString> {
    if name.is_empty() {
        return Err(StoreError::Invalid);
    }
    if name.len() + PREFIX.len() > MAX_XATTR_NAME_BYTES {
        return Err(StoreError::NameTooLong);
    }
    CString::new([PREFIX, name].concat()).map_err(|_| StoreError::BadName)
}
