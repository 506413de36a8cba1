//! Permission checks: mode bits, ACLs, root, sticky directories.

use crate::inode::{Inode, STICKY};
use zgate_store::file_store::{PosixAclEntry, PosixAclTag};
use zgate_store::{AccessMask, Caller, StoreError, StoreResult};

/// Rights wanted, as 4|2|1.
pub(crate) const READ: u8 = 4;
/// See [`READ`].
pub(crate) const WRITE: u8 = 2;
/// See [`READ`].
pub(crate) const EXECUTE: u8 = 1;

/// Returns whether `who` has all of the rights.
pub(crate) fn permits(who: &Caller, inode: &Inode, want: u8) -> bool {
    if who.uid == 0 || inode.acl.is_empty() {
        let mask =
            AccessMask::from_mode(who, inode.mode, inode.uid, inode.gid, inode.is_directory());
        return want & !bits(mask) == 0;
    }
    acl_permits(who, inode, want)
}

/// Applies the access check algorithm of IEEE 1003.1e draft 17 §23.1.5.
fn acl_permits(who: &Caller, inode: &Inode, want: u8) -> bool {
    let perms_of = |tag| {
        let entry: Option<&PosixAclEntry> = inode.acl.iter().find(|entry| entry.tag == tag);
        entry.map(|entry| entry.perms)
    };
    let grants = |perms: u8| want & !perms == 0;
    let mask = perms_of(PosixAclTag::Mask).unwrap_or(7);
    if who.uid == inode.uid {
        return grants(perms_of(PosixAclTag::UserObj).unwrap_or(0));
    }
    if let Some(perms) = perms_of(PosixAclTag::User(who.uid)) {
        return grants(perms & mask);
    }
    let mut in_any_group = false;
    for entry in &inode.acl {
        let matches = match entry.tag {
            PosixAclTag::GroupObj => who.in_group(inode.gid),
            PosixAclTag::Group(gid) => who.in_group(gid),
            _ => false,
        };
        if matches && grants(entry.perms & mask) {
            return true;
        }
        in_any_group |= matches;
    }
    !in_any_group && grants(perms_of(PosixAclTag::Other).unwrap_or(0))
}

fn bits(mask: AccessMask) -> u8 {
    u8::from(mask.read) * READ + u8::from(mask.write) * WRITE + u8::from(mask.execute) * EXECUTE
}

/// Refuses unless `who` has the rights.
pub(crate) fn require(who: &Caller, inode: &Inode, want: u8) -> StoreResult<()> {
    if permits(who, inode, want) { Ok(()) } else { Err(StoreError::AccessDenied) }
}

/// Returns the rights of `who`.
pub(crate) fn access(who: &Caller, inode: &Inode, read_only: bool) -> AccessMask {
    AccessMask {
        read: permits(who, inode, READ),
        write: !read_only && permits(who, inode, WRITE),
        execute: permits(who, inode, EXECUTE),
    }
}

/// Returns whether `who` owns the object or is root.
pub(crate) fn owns(who: &Caller, inode: &Inode) -> bool {
    who.uid == 0 || who.uid == inode.uid
}

/// Refuses unless `who` owns the object or is root.
pub(crate) fn require_owner(who: &Caller, inode: &Inode) -> StoreResult<()> {
    if owns(who, inode) { Ok(()) } else { Err(StoreError::NotPermitted) }
}

/// Refuses to remove or rename another user's entry in a sticky directory.
pub(crate) fn require_unsticky(who: &Caller, dir: &Inode, victim: &Inode) -> StoreResult<()> {
    if dir.mode & STICKY == 0 || owns(who, dir) || owns(who, victim) {
        return Ok(());
    }
    Err(StoreError::NotPermitted)
}

#[cfg(test)]
mod tests {
    use crate::fixture::*;
    use zgate_store::file_store::{CreateMode, NewNode, OpenAccess};
    use zgate_store::{Caller, FileStore, NodeHandle, SetAttr, StoreError, StoreResult};

    fn open_as(
        s: &Fixture,
        who: &Caller,
        node: &NodeHandle,
        access: OpenAccess,
    ) -> StoreResult<()> {
        block_on(s.store.open(who, node, access)).map(|_| ())
    }

    #[test]
    fn others_are_kept_out() {
        let s = Fixture::new();
        let (alice, bob) = (user(1001, 2001), user(1002, 2002));
        let dir = s.make_as(&alice, &s.root(), "private", &NewNode::Directory, 0o700).unwrap();
        let secret = s.create_as(&alice, &dir.handle, "secret", 0o600).unwrap().node;
        let found = block_on(s.store.lookup(&bob, &dir.handle, b"secret"));
        assert_eq!(error_of(found), StoreError::AccessDenied);
        assert_eq!(open_as(&s, &bob, &secret.handle, READ), Err(StoreError::AccessDenied));
        let listed = block_on(s.store.readdir(&bob, &dir.handle, 0, 10, true));
        assert_eq!(error_of(listed), StoreError::AccessDenied);
        let made = s.create_as(&bob, &dir.handle, "x", 0o600).map(|_| ());
        assert_eq!(error_of(made), StoreError::AccessDenied);
        let gone = block_on(s.store.remove(&bob, &dir.handle, b"secret", None));
        assert_eq!(error_of(gone), StoreError::AccessDenied);
        let top = s.root();
        let moved = s.store.rename(&bob, &dir.handle, b"secret", &top, b"mine");
        assert_eq!(error_of(block_on(moved)), StoreError::AccessDenied);
        let mask = block_on(s.store.access(&bob, &secret.handle)).unwrap();
        assert!(!mask.read && !mask.write && !mask.execute);
        let mask = block_on(s.store.access(&alice, &secret.handle)).unwrap();
        assert!(mask.read && mask.write && !mask.execute);
        // Listing needs read permission, attributes need search permission.
        block_on(s.store.setattr(&alice, &dir.handle, &mode(0o744), None)).unwrap();
        let page = block_on(s.store.readdir(&bob, &dir.handle, 0, 10, true)).unwrap();
        assert_eq!(page.entries[0].node, Err(StoreError::AccessDenied));
    }

    #[test]
    fn the_owner_and_stateless_opens() {
        let s = Fixture::new();
        let (alice, bob) = (user(1001, 2001), user(1002, 2002));
        let made = s.create_as(&alice, &s.root(), "f", 0o000).unwrap();
        let h = &made.node.handle;
        // The creator's open file works regardless of the mode.
        s.write(made.open.as_ref().unwrap(), 0, b"data").unwrap();
        assert_eq!(open_as(&s, &alice, h, READ_WRITE), Err(StoreError::AccessDenied));
        let stateless = OpenAccess { stateless: true, ..READ_WRITE };
        assert_eq!(open_as(&s, &alice, h, stateless), Ok(()));
        assert_eq!(open_as(&s, &bob, h, stateless), Err(StoreError::AccessDenied));
        let cut = block_on(s.store.setattr(&alice, h, &size(1), None)).unwrap();
        assert_eq!(cut.size, 1);
        // A program may be read by a caller who may execute it.
        block_on(s.store.setattr(&alice, h, &mode(0o711), None)).unwrap();
        let read = OpenAccess { stateless: true, ..READ };
        assert_eq!(open_as(&s, &bob, h, read), Ok(()));
        assert_eq!(open_as(&s, &bob, h, READ), Err(StoreError::AccessDenied));
        // So it may by an OPEN; that gives no other right.
        let run = OpenAccess { read_by_execute: true, ..READ };
        assert_eq!(open_as(&s, &bob, h, run), Ok(()));
        let change = OpenAccess { write: true, ..run };
        assert_eq!(open_as(&s, &bob, h, change), Err(StoreError::AccessDenied));
        block_on(s.store.setattr(&alice, h, &mode(0o700), None)).unwrap();
        assert_eq!(open_as(&s, &bob, h, run), Err(StoreError::AccessDenied));
        block_on(s.store.setattr(&alice, h, &mode(0o000), None)).unwrap();
        assert_eq!(open_as(&s, &alice, h, run), Err(StoreError::AccessDenied));
        assert_eq!(open_as(&s, &root(), &s.root(), READ), Err(StoreError::IsDirectory));
    }

    #[test]
    fn writing_clears_set_id_bits_unless_root_writes() {
        let s = Fixture::new();
        let bob = user(1002, 2002);
        let (node, _open) = s.file("f");
        block_on(s.store.setattr(&root(), &node.handle, &mode(0o6777), None)).unwrap();
        let now = || block_on(s.store.getattr(&node.handle)).unwrap().mode;
        let open = block_on(s.store.open(&root(), &node.handle, READ_WRITE)).unwrap();
        s.write(&open, 0, b"x").unwrap();
        assert_eq!(now(), 0o6777);
        let open = block_on(s.store.open(&bob, &node.handle, READ_WRITE)).unwrap();
        s.write(&open, 0, b"y").unwrap();
        assert_eq!(now(), 0o777);
    }

    #[test]
    fn sticky_directories_and_existing_names() {
        let s = Fixture::new();
        let (alice, bob) = (user(1001, 2001), user(1002, 2002));
        let set = |bits| block_on(s.store.setattr(&root(), &s.root(), &mode(bits), None)).unwrap();
        set(0o1777);
        s.create_as(&alice, &s.root(), "f", 0o666).unwrap();
        s.create_as(&bob, &s.root(), "own", 0o666).unwrap();
        let top = s.root();
        let gone = block_on(s.store.remove(&bob, &top, b"f", None));
        assert_eq!(error_of(gone), StoreError::NotPermitted);
        let over = block_on(s.store.rename(&bob, &top, b"own", &top, b"f"));
        assert_eq!(error_of(over), StoreError::NotPermitted);
        block_on(s.store.remove(&bob, &top, b"own", None)).unwrap();
        set(0o755);
        // An existing file can be opened in a directory where none can be
        // created.
        let none = SetAttr::default();
        let found = s.store.create_file(&bob, &top, b"f", CreateMode::Unchecked, &none);
        assert!(!block_on(found).unwrap().created);
        let made = s.create_as(&bob, &s.root(), "g", 0o666).map(|_| ());
        assert_eq!(error_of(made), StoreError::AccessDenied);
        let gone = block_on(s.store.remove(&alice, &top, b"f", None));
        assert_eq!(error_of(gone), StoreError::AccessDenied);
    }

    #[test]
    fn moving_a_directory_elsewhere_needs_the_right_to_write_to_it() {
        let s = Fixture::new();
        let bob = user(1002, 2002);
        let target = s.make_as(&bob, &s.root(), "target", &NewNode::Directory, 0o700).unwrap();
        s.mkdir(&s.root(), "roots");
        let top = s.root();
        let moved = s.store.rename(&bob, &top, b"roots", &target.handle, b"x");
        assert_eq!(error_of(block_on(moved)), StoreError::AccessDenied);
        block_on(s.store.rename(&bob, &top, b"roots", &top, b"renamed")).unwrap();
    }
}
