//! Extended attributes of the `user.` name space (RFC 8276), with Linux's
//! limits.

use crate::inode::Inode;
use crate::permission::{READ, WRITE, require};
use crate::tree::Tree;
use zgate_store::file_store::{DirChange, XattrSet};
use zgate_store::{Caller, FileKind, NodeHandle, StoreError, StoreResult};

/// Longest name (XATTR_NAME_MAX without `user.`).
const MAX_XATTR_NAME_BYTES: usize = 250;
/// Longest value (XATTR_SIZE_MAX).
const MAX_XATTR_BYTES: usize = 64 << 10;

impl Tree {
    /// Reads an attribute.
    pub(crate) fn get_xattr(
        &self,
        who: &Caller,
        node: &NodeHandle,
        name: &[u8],
    ) -> StoreResult<Vec<u8>> {
        self.check_xattr_name(name)?;
        let inode = self.inode(node)?;
        if !holds_xattrs(inode) {
            return Err(StoreError::NoXattr);
        }
        require(who, inode, READ)?;
        inode.xattrs.get(name).cloned().ok_or(StoreError::NoXattr)
    }

    /// Sets an attribute.
    pub(crate) fn set_xattr(
        &mut self,
        who: &Caller,
        node: &NodeHandle,
        name: &[u8],
        value: &[u8],
        how: XattrSet,
    ) -> StoreResult<DirChange> {
        self.check_xattr_name(name)?;
        if value.len() > MAX_XATTR_BYTES {
            return Err(StoreError::XattrTooBig);
        }
        let number = self.may_change_xattrs(who, node)?;
        let inode = self.at_mut(number)?;
        match (how, inode.xattrs.contains_key(name)) {
            (XattrSet::Create, true) => return Err(StoreError::Exists),
            (XattrSet::Replace, false) => return Err(StoreError::NoXattr),
            _ => inode.xattrs.insert(name.to_vec(), value.to_vec()),
        };
        self.xattrs_changed(number)
    }

    /// Removes an attribute.
    pub(crate) fn remove_xattr(
        &mut self,
        who: &Caller,
        node: &NodeHandle,
        name: &[u8],
    ) -> StoreResult<DirChange> {
        self.check_xattr_name(name)?;
        let number = self.may_change_xattrs(who, node)?;
        if self.at_mut(number)?.xattrs.remove(name).is_none() {
            return Err(StoreError::NoXattr);
        }
        self.xattrs_changed(number)
    }

    /// Returns the names of the attributes, sorted.
    pub(crate) fn list_xattrs(&self, who: &Caller, node: &NodeHandle) -> StoreResult<Vec<Vec<u8>>> {
        let inode = self.inode(node)?;
        if !self.traits.xattrs {
            return Err(StoreError::NotSupported);
        }
        if !holds_xattrs(inode) {
            return Ok(Vec::new());
        }
        require(who, inode, READ)?;
        Ok(inode.xattrs.keys().cloned().collect())
    }

    fn may_change_xattrs(&self, who: &Caller, node: &NodeHandle) -> StoreResult<u64> {
        let inode = self.inode(node)?;
        self.require_writable()?;
        if !holds_xattrs(inode) {
            return Err(StoreError::NotPermitted);
        }
        require(who, inode, WRITE)?;
        Ok(inode.number)
    }

    fn xattrs_changed(&mut self, number: u64) -> StoreResult<DirChange> {
        let before = self.at(number)?.change;
        self.attributes_changed(number)?;
        Ok(DirChange { atomic: true, before, after: self.at(number)?.change })
    }

    fn check_xattr_name(&self, name: &[u8]) -> StoreResult<()> {
        match name {
            _ if !self.traits.xattrs => Err(StoreError::NotSupported),
            [] => Err(StoreError::Invalid),
            _ if name.len() > MAX_XATTR_NAME_BYTES => Err(StoreError::NameTooLong),
            _ if name.contains(&0) => Err(StoreError::BadName),
            _ => Ok(()),
        }
    }
}

/// Returns whether an object can have `user.` attributes: on Linux only regular
/// files and directories can (xattr(7)).
fn holds_xattrs(inode: &Inode) -> bool {
    matches!(inode.kind(), FileKind::Regular | FileKind::Directory)
}

#[cfg(test)]
mod tests {
    use crate::fixture::*;
    use zgate_store::file_store::{NewNode, XattrSet};
    use zgate_store::{Caller, FileStore, StoreError};

    #[test]
    fn extended_attributes() {
        let s = Fixture::new();
        let (node, _open) = s.file("f");
        let h = &node.handle;
        let get = |name: &[u8]| block_on(s.store.get_xattr(&root(), h, name));
        let set = |name: &[u8], value: &[u8], how| {
            block_on(s.store.set_xattr(&root(), h, name, value, how))
        };
        assert_eq!(get(b"a"), Err(StoreError::NoXattr));
        let change = set(b"b", b"two", XattrSet::Create).unwrap();
        assert!(change.after > change.before);
        set(b"a", b"", XattrSet::Either).unwrap();
        assert_eq!(error_of(set(b"a", b"", XattrSet::Create)), StoreError::Exists);
        assert_eq!(error_of(set(b"c", b"", XattrSet::Replace)), StoreError::NoXattr);
        assert_eq!((get(b"b").unwrap(), get(b"a").unwrap()), (b"two".to_vec(), vec![]));
        let names = block_on(s.store.list_xattrs(&root(), h)).unwrap();
        assert_eq!(names, [b"a".to_vec(), b"b".to_vec()]);
        let removed = block_on(s.store.remove_xattr(&root(), h, b"a")).unwrap();
        assert!(removed.after > removed.before);
        let again = block_on(s.store.remove_xattr(&root(), h, b"a"));
        assert_eq!(error_of(again), StoreError::NoXattr);
        let huge = vec![0; 70_000];
        assert_eq!(error_of(set(b"h", &huge, XattrSet::Either)), StoreError::XattrTooBig);
        assert_eq!(error_of(set(&[b'n'; 252], b"", XattrSet::Either)), StoreError::NameTooLong);
        assert_eq!(error_of(set(b"", b"", XattrSet::Either)), StoreError::Invalid);
    }

    #[test]
    fn they_follow_the_mode_and_the_kind() {
        let s = Fixture::new();
        let (node, _open) = s.file("f");
        let who: Caller = user(5, 5);
        let set = |node, how| block_on(s.store.set_xattr(&who, node, b"a", b"", how));
        assert_eq!(error_of(set(&node.handle, XattrSet::Either)), StoreError::AccessDenied);
        let fifo = s.make_as(&who, &s.root(), "p", &NewNode::Fifo, 0o600).unwrap();
        assert_eq!(error_of(set(&fifo.handle, XattrSet::Either)), StoreError::NotPermitted);
        let got = block_on(s.store.get_xattr(&who, &fifo.handle, b"a"));
        assert_eq!(error_of(got), StoreError::NoXattr);
        assert!(block_on(s.store.list_xattrs(&who, &fifo.handle)).unwrap().is_empty());
    }
}
