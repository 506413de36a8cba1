//! POSIX ACLs: what they mean for the mode, and how they are inherited.

use crate::inode::{Inode, SET_GID};
use crate::permission::require_owner;
use crate::tree::Tree;
use zgate_store::file_store::{PosixAcl, PosixAclEntry, PosixAclTag};
use zgate_store::{Caller, FileKind, NodeHandle, StoreError, StoreResult};

/// More entries than any file system stores.
const MAX_ACL_ENTRIES: usize = 8192;

impl Tree {
    /// Both ACLs; derived from the mode where there are none.
    pub(crate) fn get_acl(&self, node: &NodeHandle) -> StoreResult<PosixAcl> {
        let inode = self.inode(node)?;
        let access = match inode.acl.is_empty() {
            true => from_mode(inode.mode),
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

/// The ACL a mode stands for.
fn from_mode(mode: u32) -> Vec<PosixAclEntry> {
    let entry = |tag, shift: u32| PosixAclEntry { tag, perms: ((mode >> shift) & 7) as u8 };
    vec![
        entry(PosixAclTag::UserObj, 6),
        entry(PosixAclTag::GroupObj, 3),
        entry(PosixAclTag::Other, 0),
    ]
}

/// Whether there is more in it than three classes.
fn says_more_than_mode(entries: &[PosixAclEntry]) -> bool {
    entries.len() > 3
}

/// Checks what IEEE 1003.1e draft 17 §23.1.1 asks of an ACL and puts it in
/// canonical order. Empty stays empty.
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

/// The permission bits an ACL stands for: the mask is the group's.
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

/// Brings an ACL in line with a mode that was set.
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

/// What a new object gets from its directory's default ACL: its permission
/// bits, narrowed by the mode asked for, and its own ACLs
/// (IEEE 1003.1e draft 17 §23.5.1).
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
