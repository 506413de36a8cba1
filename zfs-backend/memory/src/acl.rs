//! POSIX ACLs: relation to the mode, and inheritance.

use crate::inode::{Inode, SET_GID};
use crate::permission::require_owner;
use crate::tree::Tree;
use zgate_store::file_store::{PosixAcl, PosixAclEntry, PosixAclTag};
use zgate_store::{Caller, FileKind, NodeHandle, StoreError, StoreResult};

/// Most entries accepted; more than any file system stores.
const MAX_ACL_ENTRIES: usize = 8192;

impl Tree {
    /// Returns both ACLs; derived from the mode if none are stored.
    pub(crate) fn get_acl(&self, node: &NodeHandle) -> StoreResult<PosixAcl> {
        let inode = self.inode(node)?;
        let access = match inode.acl.is_empty() {
            true => PosixAclEntry::of_mode(inode.mode).to_vec(),
            false => inode.acl.clone(),
        };
        Ok(PosixAcl { access, default: inode.default_acl.clone() })
    }

    /// Replaces both ACLs.
    pub(crate) fn set_acl(
        &mut self,
        who: &Caller,
        node: &NodeHandle,
        acl: &PosixAcl,
    ) -> StoreResult<()> {
        let inode = self.inode(node)?;
        if !self.traits.acls
            || inode.kind() == FileKind::Symlink
            || (!inode.is_directory() && !acl.default.is_empty())
        {
            return Err(StoreError::NotSupported);
        }
        self.require_writable()?;
        require_owner(who, inode)?;
        let (access, default) = (canonical(&acl.access)?, canonical(&acl.default)?);
        let number = inode.number;
        let inode = self.at_mut(number)?;
        inode.default_acl = default;
        if access.is_empty() {
            inode.acl.clear();
        } else {
            inode.mode = inode.mode & !0o777 | mode_of(&access);
            if who.uid != 0 && !who.in_group(inode.gid) {
                inode.mode &= !SET_GID;
            }
            inode.acl = if says_more_than_mode(&access) { access } else { Vec::new() };
        }
        self.attributes_changed(number)
    }
}

/// Returns whether the ACL has more entries than the three classes of a mode.
fn says_more_than_mode(entries: &[PosixAclEntry]) -> bool {
    entries.len() > 3
}

/// Checks the rules of IEEE 1003.1e draft 17 §23.1.1 for an ACL and puts it in
/// canonical order. An empty ACL stays empty.
fn canonical(entries: &[PosixAclEntry]) -> StoreResult<Vec<PosixAclEntry>> {
    if entries.len() > MAX_ACL_ENTRIES {
        return Err(StoreError::NoSpace);
    }
    let mut sorted = entries.to_vec();
    sorted.sort_by_key(|entry| entry.tag);
    let has = |tag| entries.iter().any(|entry| entry.tag == tag);
    let named = entries
        .iter()
        .any(|entry| matches!(entry.tag, PosixAclTag::User(_) | PosixAclTag::Group(_)));
    let complete = has(PosixAclTag::UserObj)
        && has(PosixAclTag::GroupObj)
        && has(PosixAclTag::Other)
        && (!named || has(PosixAclTag::Mask));
    let twice = sorted.windows(2).any(|pair| pair[0].tag == pair[1].tag);
    let wide = entries.iter().any(|entry| entry.perms > 7);
    if twice || wide || !(complete || entries.is_empty()) {
        return Err(StoreError::Invalid);
    }
    Ok(sorted)
}

/// Returns the permission bits of an ACL: the mask takes the place of the
/// group.
fn mode_of(entries: &[PosixAclEntry]) -> u32 {
    let has_mask = entries.iter().any(|entry| entry.tag == PosixAclTag::Mask);
    let shifted = entries.iter().map(|entry| {
        let perms = u32::from(entry.perms);
        match entry.tag {
            PosixAclTag::UserObj => perms << 6,
            PosixAclTag::Mask => perms << 3,
            PosixAclTag::GroupObj if !has_mask => perms << 3,
            PosixAclTag::Other => perms,
            _ => 0,
        }
    });
    shifted.fold(0, |mode, bits| mode | bits)
}

/// Adjusts an ACL to a mode that was set.
pub(crate) fn chmod(inode: &mut Inode) {
    let mode = inode.mode;
    apply_mode(&mut inode.acl, |_, shift| ((mode >> shift) & 7) as u8);
}

fn apply_mode(entries: &mut [PosixAclEntry], perms: impl Fn(u8, u32) -> u8) {
    let has_mask = entries.iter().any(|entry| entry.tag == PosixAclTag::Mask);
    for entry in entries {
        let shift = match entry.tag {
            PosixAclTag::UserObj => 6,
            PosixAclTag::Mask => 3,
            PosixAclTag::GroupObj if !has_mask => 3,
            PosixAclTag::Other => 0,
            _ => continue,
        };
        entry.perms = perms(entry.perms, shift);
    }
}

/// Applies the directory's default ACL to a new object: its permission bits,
/// narrowed by the requested mode, and its own ACLs (IEEE 1003.1e draft 17
/// §23.5.1).
pub(crate) fn inherit(dir: &Inode, child: &mut Inode) {
    if dir.default_acl.is_empty() || child.kind() == FileKind::Symlink {
        return;
    }
    let asked = child.mode;
    let mut access = dir.default_acl.clone();
    apply_mode(&mut access, |own, shift| own & ((asked >> shift) & 7) as u8);
    child.mode = asked & !0o777 | mode_of(&access);
    if says_more_than_mode(&access) {
        child.acl = access;
    }
    if child.is_directory() {
        child.default_acl = dir.default_acl.clone();
    }
}

#[cfg(test)]
mod tests {
    use crate::fixture::*;
    use std::sync::Arc;
    use zgate_store::file_store::{NewNode, PosixAcl, PosixAclEntry, PosixAclTag as Tag};
    use zgate_store::{Caller, FileStore, StoreError};

    fn acl(entries: &[(Tag, u8)]) -> Vec<PosixAclEntry> {
        entries.iter().map(|&(tag, perms)| PosixAclEntry { tag, perms }).collect()
    }

    fn extended() -> Vec<PosixAclEntry> {
        acl(&[
            (Tag::UserObj, 6),
            (Tag::User(4242), 6),
            (Tag::GroupObj, 4),
            (Tag::Group(50), 2),
            (Tag::Mask, 6),
            (Tag::Other, 0),
        ])
    }

    fn only(access: Vec<PosixAclEntry>) -> PosixAcl {
        PosixAcl { access, default: vec![] }
    }

    #[test]
    fn acls_are_kept_and_decide() {
        let s = Fixture::new();
        let (node, _open) = s.file("f");
        let h = &node.handle;
        let plain = block_on(s.store.get_acl(h)).unwrap();
        assert_eq!(plain, only(acl(&[(Tag::UserObj, 6), (Tag::GroupObj, 4), (Tag::Other, 4)])));
        let mut shuffled = extended();
        shuffled.reverse();
        block_on(s.store.set_acl(&root(), h, &only(shuffled))).unwrap();
        assert_eq!(block_on(s.store.get_acl(h)).unwrap(), only(extended()));
        let attr = block_on(s.store.getattr(h)).unwrap();
        assert_eq!(attr.mode, 0o660);
        assert!(attr.change > node.attr.change);
        let access = |who: &Caller| {
            let mask = block_on(s.store.access(who, h)).unwrap();
            (mask.read, mask.write, mask.execute)
        };
        assert_eq!(access(&user(4242, 1)), (true, true, false));
        assert_eq!(access(&user(4243, 1)), (false, false, false));
        assert_eq!(access(&user(7, 50)), (false, true, false));
        // chmod changes the mask.
        block_on(s.store.setattr(&root(), h, &mode(0o640), None)).unwrap();
        assert_eq!(access(&user(4242, 1)), (true, false, false));
        assert_eq!(access(&user(7, 50)), (false, false, false));
    }

    #[test]
    fn one_group_entry_has_to_grant_all_that_is_wanted() {
        let s = Fixture::new();
        let dir = s.mkdir(&s.root(), "d");
        let mut split = extended();
        for entry in &mut split {
            match entry.tag {
                Tag::GroupObj => entry.perms = 1,
                Tag::Mask => entry.perms = 7,
                _ => {}
            }
        }
        block_on(s.store.set_acl(&root(), &dir.handle, &only(split))).unwrap();
        // One group may search, another may write: the caller has both rights,
        // but not in one check (IEEE 1003.1e draft 17 §23.1.5).
        let who = Caller { uid: 7, gid: 50, groups: Arc::from([0]) };
        let mask = block_on(s.store.access(&who, &dir.handle)).unwrap();
        assert!(!mask.read && mask.write && mask.execute);
        let made = s.create_as(&who, &dir.handle, "f", 0o600).map(|_| ());
        assert_eq!(error_of(made), StoreError::AccessDenied);
    }

    #[test]
    fn new_objects_inherit_the_default() {
        let s = Fixture::new();
        let dir = s.mkdir(&s.root(), "d");
        let plain = block_on(s.store.get_acl(&dir.handle)).unwrap().access;
        let both = PosixAcl { access: plain.clone(), default: extended() };
        block_on(s.store.set_acl(&root(), &dir.handle, &both)).unwrap();
        let file = s.create_as(&root(), &dir.handle, "f", 0o644).unwrap().node;
        let own = block_on(s.store.get_acl(&file.handle)).unwrap();
        let perms: Vec<_> = own.access.iter().map(|entry| entry.perms).collect();
        assert_eq!((perms, file.attr.mode), (vec![6, 6, 4, 2, 4, 0], 0o640));
        assert!(own.default.is_empty());
        let sub = s.make_as(&root(), &dir.handle, "s", &NewNode::Directory, 0o777).unwrap();
        assert_eq!(block_on(s.store.get_acl(&sub.handle)).unwrap().default, extended());
        block_on(s.store.set_acl(&root(), &dir.handle, &only(plain))).unwrap();
        assert!(block_on(s.store.get_acl(&dir.handle)).unwrap().default.is_empty());
    }

    #[test]
    fn acls_that_make_no_sense_are_refused() {
        let s = Fixture::new();
        let (node, _open) = s.file("f");
        let set = |who: &Caller, acl: &PosixAcl| block_on(s.store.set_acl(who, &node.handle, acl));
        let mut no_mask = extended();
        no_mask.retain(|entry| entry.tag != Tag::Mask);
        let mut twice = extended();
        twice.push(PosixAclEntry { tag: Tag::User(4242), perms: 1 });
        let mut wide = extended();
        wide[0].perms = 8;
        for bad in [no_mask, twice, wide, acl(&[(Tag::UserObj, 7)])] {
            assert_eq!(set(&root(), &only(bad)), Err(StoreError::Invalid));
        }
        let default = PosixAcl { access: extended(), default: extended() };
        assert_eq!(set(&root(), &default), Err(StoreError::NotSupported));
        assert_eq!(set(&user(9, 9), &only(extended())), Err(StoreError::NotPermitted));
    }
}
