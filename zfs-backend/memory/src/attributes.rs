//! Reading and setting attributes.

use crate::acl;
use crate::inode::{Inode, SET_GID};
use crate::permission::{self, WRITE, permits, require};
use crate::tree::Tree;
use zgate_store::{
    AccessMask, Attr, Caller, FileKind, NodeHandle, SetAttr, SetTime, StoreError, StoreResult,
    Timestamp,
};

impl Tree {
    /// Attributes now.
    pub(crate) fn getattr(&self, node: &NodeHandle) -> StoreResult<Attr> {
        Ok(self.inode(node)?.attr(self.settings.fsid))
    }

    /// What `who` may do.
    pub(crate) fn access(&self, who: &Caller, node: &NodeHandle) -> StoreResult<AccessMask> {
        Ok(permission::access(who, self.inode(node)?, self.settings.read_only))
    }

    /// The target of a symbolic link.
    pub(crate) fn readlink(&self, node: &NodeHandle) -> StoreResult<Vec<u8>> {
        match &self.inode(node)?.body {
            crate::inode::Body::Symlink(target) => Ok(target.clone()),
            _ => Err(StoreError::WrongType),
        }
    }

    /// Changes attributes: all of them or, on an error, none. `writer` is the
    /// number of a file the caller has open for writing, which is right enough
    /// to change its size.
    pub(crate) fn setattr(
        &mut self,
        who: &Caller,
        node: &NodeHandle,
        changes: &SetAttr,
        writer: Option<u64>,
    ) -> StoreResult<Attr> {
        let inode = self.inode(node)?;
        if changes.is_empty() {
            return Ok(inode.attr(self.settings.fsid));
        }
        self.require_writable()?;
        self.may_set(who, inode, changes, writer == Some(inode.number))?;
        let number = inode.number;
        if let Some(size) = changes.size {
            self.change_data(number, |data| data.set_size(size))?;
            self.modified(number)?;
        } else {
            self.attributes_changed(number)?;
        }
        let inode = self.at_mut(number)?;
        if changes.size.is_some() && who.uid != 0 {
            inode.drop_set_id();
        }
        set_owner(inode, changes);
        if let Some(mode) = changes.mode {
            inode.mode = mode & 0o7777;
            if who.uid != 0 && !who.in_group(inode.gid) {
                inode.mode &= !SET_GID;
            }
            acl::chmod(inode);
        }
        set_times(inode, changes);
        Ok(self.at(number)?.attr(self.settings.fsid))
    }

    fn may_set(
        &self,
        who: &Caller,
        inode: &Inode,
        changes: &SetAttr,
        is_open: bool,
    ) -> StoreResult<()> {
        if changes.size.is_some() {
            inode.data()?;
            check_size(changes, self.traits.max_file_bytes)?;
            // As with reads and writes, the owner may whatever the mode says.
            if !is_open && !permission::owns(who, inode) {
                require(who, inode, WRITE)?;
            }
        }
        let restricted = self.traits.chown_restricted;
        check_owner_change(who, inode.uid, inode.gid, changes, restricted)?;
        if changes.mode.is_some() {
            permission::require_owner(who, inode)?;
            if inode.kind() == FileKind::Symlink {
                return Err(StoreError::NotSupported);
            }
        }
        check_times(changes)?;
        may_set_times(who, inode, changes)
    }
}

/// The current time may be set, on both stamps at once, by who may write;
/// everything else is the owner's (utimensat(2)).
fn may_set_times(who: &Caller, inode: &Inode, changes: &SetAttr) -> StoreResult<()> {
    let by_hand = |time| matches!(time, Some(SetTime::At(_)));
    let one_alone = changes.atime.is_some() != changes.mtime.is_some();
    if by_hand(changes.atime) || by_hand(changes.mtime) || one_alone || changes.btime.is_some() {
        return permission::require_owner(who, inode);
    }
    let touches = changes.atime.is_some();
    if touches && !permission::owns(who, inode) && !permits(who, inode, WRITE) {
        return Err(StoreError::AccessDenied);
    }
    Ok(())
}

/// Refuses a length no file of this store can have.
pub(crate) fn check_size(changes: &SetAttr, max_file_bytes: u64) -> StoreResult<()> {
    match changes.size {
        Some(size) if size > max_file_bytes => Err(StoreError::TooLarge),
        _ => Ok(()),
    }
}

/// Refuses time stamps that are none.
pub(crate) fn check_times(changes: &SetAttr) -> StoreResult<()> {
    let bad = |at: Timestamp| at.nanoseconds >= 1_000_000_000;
    let set_bad = |time| matches!(time, Some(SetTime::At(at)) if bad(at));
    if set_bad(changes.atime) || set_bad(changes.mtime) || changes.btime.is_some_and(bad) {
        return Err(StoreError::Invalid);
    }
    Ok(())
}

/// Refuses a change of owner or group `who` may not make (chown(2)).
pub(crate) fn check_owner_change(
    who: &Caller,
    uid: u32,
    gid: u32,
    changes: &SetAttr,
    restricted: bool,
) -> StoreResult<()> {
    if changes.uid == Some(u32::MAX) || changes.gid == Some(u32::MAX) {
        return Err(StoreError::Invalid);
    }
    if who.uid == 0 || (changes.uid.is_none() && changes.gid.is_none()) {
        return Ok(());
    }
    let gives_away = changes.uid.is_some_and(|new| new != uid)
        || changes.gid.is_some_and(|new| new != gid && !who.in_group(new));
    if who.uid != uid || (restricted && gives_away) {
        return Err(StoreError::NotPermitted);
    }
    Ok(())
}

fn set_owner(inode: &mut Inode, changes: &SetAttr) {
    if changes.uid.is_none() && changes.gid.is_none() {
        return;
    }
    inode.uid = changes.uid.unwrap_or(inode.uid);
    inode.gid = changes.gid.unwrap_or(inode.gid);
    if !inode.is_directory() {
        inode.drop_set_id();
    }
}

fn set_times(inode: &mut Inode, changes: &SetAttr) {
    let now = inode.ctime;
    let resolve = |time| match time {
        SetTime::Now => now,
        SetTime::At(at) => at,
    };
    if let Some(time) = changes.atime {
        inode.atime = resolve(time);
        inode.verifier = None;
    }
    if let Some(time) = changes.mtime {
        inode.mtime = resolve(time);
        inode.verifier = None;
    }
    if let Some(time) = changes.btime {
        inode.btime = time;
    }
}
