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
    /// Returns the current attributes.
    pub(crate) fn getattr(&self, node: &NodeHandle) -> StoreResult<Attr> {
        Ok(self.inode(node)?.attr(self.settings.fsid))
    }

    /// Returns the rights of `who`.
    pub(crate) fn access(&self, who: &Caller, node: &NodeHandle) -> StoreResult<AccessMask> {
        Ok(permission::access(who, self.inode(node)?, self.settings.read_only))
    }

    /// Returns the target of a symbolic link.
    pub(crate) fn readlink(&self, node: &NodeHandle) -> StoreResult<Vec<u8>> {
        match &self.inode(node)?.body {
            crate::inode::Body::Symlink(target) => Ok(target.clone()),
            _ => Err(StoreError::WrongType),
        }
    }

    /// Changes all attributes or, on an error, none. `writer` is the number of
    /// a file that the caller has open for writing, which suffices to change
    /// its size.
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
            // As with reads and writes, the owner may regardless of the mode.
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

/// Checks the right to set times: a caller with write permission may set stamps to
/// the current time; everything else requires the owner. A change of size sets the
/// time of modification by itself.
fn may_set_times(who: &Caller, inode: &Inode, changes: &SetAttr) -> StoreResult<()> {
    let by_hand = |time| matches!(time, Some(SetTime::At(_)));
    if by_hand(changes.atime) || by_hand(changes.mtime) || changes.btime.is_some() {
        return permission::require_owner(who, inode);
    }
    let touches = changes.atime.is_some() || (changes.mtime.is_some() && changes.size.is_none());
    if touches && !permission::owns(who, inode) && !permits(who, inode, WRITE) {
        return Err(StoreError::AccessDenied);
    }
    Ok(())
}

/// Refuses a length that no file of this store can have.
pub(crate) fn check_size(changes: &SetAttr, max_file_bytes: u64) -> StoreResult<()> {
    match changes.size {
        Some(size) if size > max_file_bytes => Err(StoreError::TooLarge),
        _ => Ok(()),
    }
}

/// Refuses invalid time stamps.
pub(crate) fn check_times(changes: &SetAttr) -> StoreResult<()> {
    let bad = |at: Timestamp| at.nanoseconds >= 1_000_000_000;
    let set_bad = |time| matches!(time, Some(SetTime::At(at)) if bad(at));
    if set_bad(changes.atime) || set_bad(changes.mtime) || changes.btime.is_some_and(bad) {
        return Err(StoreError::Invalid);
    }
    Ok(())
}

/// Refuses a change of owner or group that `who` may not make (chown(2)).
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

#[cfg(test)]
mod tests {
    use crate::EPOCH_SECONDS;
    use crate::MemoryStore;
    use crate::fixture::*;
    use std::sync::Arc;
    use zgate_store::{Caller, FileStore, SetAttr, SetTime, StoreError, Timestamp};

    #[test]
    fn attributes_are_set_and_told() {
        let s = Fixture::new();
        let (node, _open) = s.file("f");
        let when = Timestamp { seconds: 1_000_000_000, nanoseconds: 123_456_789 };
        let changes = SetAttr {
            mode: Some(0o4751),
            uid: Some(1000),
            gid: Some(1001),
            size: Some(77),
            atime: Some(SetTime::At(when)),
            mtime: Some(SetTime::At(Timestamp { seconds: -5, nanoseconds: 0 })),
            btime: None,
        };
        let set =
            |changes: &SetAttr| block_on(s.store.setattr(&root(), &node.handle, changes, None));
        let attr = set(&changes).unwrap();
        // A chown clears set-id bits; the requested mode is set afterwards.
        assert_eq!((attr.mode, attr.size, attr.uid, attr.gid), (0o4751, 77, 1000, 1001));
        assert_eq!((attr.atime, attr.mtime.seconds), (when, -5));
        assert!(attr.change > node.attr.change && attr.ctime > node.attr.ctime);
        assert_eq!(block_on(s.store.getattr(&node.handle)).unwrap(), attr);
        let now = SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() };
        let later = set(&now).unwrap();
        assert_eq!((later.mtime.seconds, later.atime), (EPOCH_SECONDS, when));
        let given = SetAttr { uid: Some(5), ..SetAttr::default() };
        assert_eq!(set(&given).unwrap().mode, 0o751);
        let nobody = SetAttr { uid: Some(u32::MAX), ..SetAttr::default() };
        assert_eq!(error_of(set(&nobody)), StoreError::Invalid);
        let bad = SetTime::At(Timestamp { seconds: 0, nanoseconds: 1_000_000_000 });
        let bad = SetAttr { atime: Some(bad), size: Some(1), ..SetAttr::default() };
        assert_eq!(error_of(set(&bad)), StoreError::Invalid);
        assert_eq!(block_on(s.store.getattr(&node.handle)).unwrap().size, 77);
    }

    #[test]
    fn every_change_moves_the_change_number() {
        let s = Fixture::new();
        let (node, file) = s.file("f");
        let change = || block_on(s.store.getattr(&node.handle)).unwrap().change;
        let mut last = change();
        for round in 0..100u32 {
            s.write(&file, 0, &round.to_le_bytes()).unwrap();
            assert!(change() > last, "round {round}");
            last = change();
        }
        let mut last = block_on(s.store.getattr(&s.root())).unwrap().change;
        for round in 0..50 {
            let made = s.create_as(&root(), &s.root(), &format!("x{round}"), 0o600).unwrap();
            assert_eq!(made.dir.before, last);
            assert!(made.dir.after > last);
            last = made.dir.after;
        }
    }

    #[test]
    fn owners_others_and_their_groups() {
        let s = Fixture::new();
        let alice = Caller { uid: 1001, gid: 2001, groups: Arc::from([3001]) };
        let bob = user(1002, 2002);
        let made = s.create_as(&alice, &s.root(), "f", 0o600).unwrap();
        let h = &made.node.handle;
        let set =
            |who: &Caller, changes: &SetAttr| block_on(s.store.setattr(who, h, changes, None));
        assert_eq!(error_of(set(&bob, &mode(0o666))), StoreError::NotPermitted);
        assert_eq!(error_of(set(&bob, &size(0))), StoreError::AccessDenied);
        let touch =
            SetAttr { atime: Some(SetTime::Now), mtime: Some(SetTime::Now), ..SetAttr::default() };
        assert_eq!(error_of(set(&bob, &touch)), StoreError::AccessDenied);
        set(&alice, &mode(0o622)).unwrap();
        set(&bob, &touch).unwrap();
        let one = SetAttr { atime: None, ..touch };
        set(&bob, &one).unwrap();
        let cut = SetAttr { size: Some(0), ..one.clone() };
        set(&bob, &cut).unwrap();
        let when = Some(SetTime::At(Timestamp::default()));
        let by_hand = SetAttr { mtime: when, ..one.clone() };
        assert_eq!(error_of(set(&bob, &by_hand)), StoreError::NotPermitted);
        set(&alice, &mode(0o644)).unwrap();
        assert_eq!(error_of(set(&bob, &one)), StoreError::AccessDenied);
        let group = |gid| SetAttr { gid: Some(gid), ..SetAttr::default() };
        assert_eq!(set(&alice, &group(3001)).unwrap().gid, 3001);
        assert_eq!(error_of(set(&alice, &group(9))), StoreError::NotPermitted);
        assert_eq!(error_of(set(&bob, &group(2002))), StoreError::NotPermitted);
        let away = SetAttr { uid: Some(1002), ..SetAttr::default() };
        assert_eq!(error_of(set(&alice, &away)), StoreError::NotPermitted);
        assert_eq!(set(&root(), &away).unwrap().uid, 1002);
    }

    #[test]
    fn sizes_of_what_has_none() {
        let s = Fixture::new();
        let set = |node: &zgate_store::NodeHandle, changes: &SetAttr| {
            block_on(s.store.setattr(&root(), node, changes, None))
        };
        assert_eq!(error_of(set(&s.root(), &size(0))), StoreError::IsDirectory);
        let (node, _open) = s.file("f");
        assert_eq!(error_of(set(&node.handle, &size(u64::MAX))), StoreError::TooLarge);
        let link = zgate_store::file_store::NewNode::Symlink(b"t".to_vec());
        let link = s.make_as(&root(), &s.root(), "l", &link, 0).unwrap();
        assert_eq!(error_of(set(&link.handle, &size(0))), StoreError::IsSymlink);
        assert_eq!(error_of(set(&link.handle, &mode(0))), StoreError::NotSupported);
    }

    #[test]
    fn an_injected_clock_tells_the_time() {
        let mut seconds = 0;
        let clock = move || {
            seconds += 10;
            Timestamp { seconds, nanoseconds: 0 }
        };
        let s = Fixture { store: MemoryStore::builder().clock(clock).build() };
        let (node, _open) = s.file("f");
        let first = node.attr.mtime.seconds;
        let cut = block_on(s.store.setattr(&root(), &node.handle, &size(1), None)).unwrap();
        assert!(cut.mtime.seconds > first && cut.mtime.seconds % 10 == 0);
        assert_eq!(cut.btime, node.attr.btime);
    }
}
