//! Who may do what: mode bits, ACLs, root, sticky directories.

use crate::inode::{Inode, STICKY};
use zgate_store::file_store::{PosixAclEntry, PosixAclTag};
use zgate_store::{AccessMask, Caller, StoreError, StoreResult};

/// Rights wanted, as 4|2|1.
pub(crate) const READ: u8 = 4;
/// See [`READ`].
pub(crate) const WRITE: u8 = 2;
/// See [`READ`].
pub(crate) const EXECUTE: u8 = 1;

/// Whether `who` has all of the rights wanted.
pub(crate) fn permits(who: &Caller, inode: &Inode, want: u8) -> bool {
    if who.uid == 0 || inode.acl.is_empty() {
        let mask =
            AccessMask::from_mode(who, inode.mode, inode.uid, inode.gid, inode.is_directory());
        return want & !bits(mask) == 0;
    }
    acl_permits(who, inode, want)
}

/// The access check algorithm of IEEE 1003.1e draft 17 §23.1.5.
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

/// Refuses unless `who` has the rights wanted.
pub(crate) fn require(who: &Caller, inode: &Inode, want: u8) -> StoreResult<()> {
    if permits(who, inode, want) { Ok(()) } else { Err(StoreError::AccessDenied) }
}

/// What `who` may do.
pub(crate) fn access(who: &Caller, inode: &Inode, read_only: bool) -> AccessMask {
    AccessMask {
        read: permits(who, inode, READ),
        write: !read_only && permits(who, inode, WRITE),
        execute: permits(who, inode, EXECUTE),
    }
}

/// Whether `who` owns the object or is root.
pub(crate) fn owns(who: &Caller, inode: &Inode) -> bool {
    who.uid == 0 || who.uid == inode.uid
}

/// Refuses unless `who` owns the object or is root.
pub(crate) fn require_owner(who: &Caller, inode: &Inode) -> StoreResult<()> {
    if owns(who, inode) { Ok(()) } else { Err(StoreError::NotPermitted) }
}

/// Refuses to remove or rename another's entry in a sticky directory.
pub(crate) fn require_unsticky(who: &Caller, dir: &Inode, victim: &Inode) -> StoreResult<()> {
    if dir.mode & STICKY == 0 || owns(who, dir) || owns(who, victim) {
        return Ok(());
    }
    Err(StoreError::NotPermitted)
}
