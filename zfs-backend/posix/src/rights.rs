//! Permission checks that the kernel does not make for us.
//!
//! A gateway that runs as root takes on the caller's identity and lets the
//! kernel decide. Otherwise it is an ordinary user: then the store applies the
//! mode rules to callers first, and the kernel checks the gateway's own user as
//! well.

use crate::entry::Entry;
use crate::errno::OrStoreError;
use crate::setattr::sets_one_to_now;
use crate::syscall;
use crate::tree::Tree;
use zgate_io::access_check::{Rights, check_access};
use zgate_io::credentials;
use zgate_store::{AccessMask, Attr, Caller, FileKind, SetAttr, SetTime, StoreError, StoreResult};

impl Tree {
    /// Returns whether the kernel checks `who` itself.
    fn kernel_decides(&self, who: &Caller) -> bool {
        self.switches_identity || who.uid == credentials::process_identity().uid
    }

    /// Refuses unless `who` has the rights; a no-op if the kernel checks the
    /// operation itself.
    pub(crate) fn precheck(&self, who: &Caller, entry: &Entry, rights: Rights) -> StoreResult<()> {
        if self.kernel_decides(who) {
            return Ok(());
        }
        let mask = mode_mask(who, entry)?;
        if allows(mask, rights) { Ok(()) } else { Err(StoreError::AccessDenied) }
    }

    /// Refuses unless `who` has the rights. Runs under `who`'s identity if
    /// identities are switched.
    pub(crate) fn require(&self, who: &Caller, entry: &Entry, rights: Rights) -> StoreResult<()> {
        self.precheck(who, entry, rights)?;
        check_access(&entry.fd, rights).or_store()
    }

    /// Returns whether [`Self::precheck_sticky`] asks who owns an entry that is removed or
    /// renamed for `who`.
    pub(crate) fn checks_owner(&self, who: &Caller) -> bool {
        !self.kernel_decides(who) && who.uid != 0
    }

    /// Refuses to remove or rename another user's entry in a sticky directory, or one whose
    /// owner is not known.
    pub(crate) fn precheck_sticky(
        &self,
        who: &Caller,
        dir: &Entry,
        victim_uid: Option<u32>,
    ) -> StoreResult<()> {
        if !self.checks_owner(who) {
            return Ok(());
        }
        let stat = syscall::stat(&dir.fd)?;
        let sticky = u32::from(stat.stx_mode) & 0o1000 != 0;
        if sticky && who.uid != stat.stx_uid && victim_uid != Some(who.uid) {
            return Err(StoreError::NotPermitted);
        }
        Ok(())
    }

    /// Refuses attribute changes that only the owner or root may make, before the
    /// first of them is made: data must not be cut off for a request that fails.
    /// `known` are the attributes before, if they are known. Runs under `who`'s identity if
    /// identities are switched.
    pub(crate) fn precheck_setattr(
        &self,
        who: &Caller,
        entry: &Entry,
        known: Option<&Attr>,
        changes: &SetAttr,
    ) -> StoreResult<()> {
        if self.switches_identity && who.uid == 0 {
            return Ok(());
        }
        let (own_uid, own_gid) = match known {
            Some(attr) => (attr.uid, attr.gid),
            None => {
                let stat = syscall::stat(&entry.fd)?;
                (stat.stx_uid, stat.stx_gid)
            }
        };
        if !self.switches_identity {
            let gives_away = changes.uid.is_some_and(|uid| uid != own_uid)
                || changes.gid.is_some_and(|gid| gid != own_gid && !who.in_group(gid));
            if gives_away {
                return Err(StoreError::NotPermitted);
            }
            if self.kernel_decides(who) {
                return Ok(());
            }
        }
        if who.uid == 0 || who.uid == own_uid {
            return Ok(());
        }
        // The kernel refuses this to others also where it changes nothing.
        let moved = |id: u32, own: u32| self.switches_identity || id != own;
        let moves = changes.uid.is_some_and(|uid| moved(uid, own_uid))
            || changes.gid.is_some_and(|gid| moved(gid, own_gid));
        let set_by_hand = |time| matches!(time, Some(SetTime::At(_)));
        // The mode of a symbolic link is not set.
        let changes_mode = changes.mode.is_some() && entry.kind != FileKind::Symlink;
        if changes_mode || moves || set_by_hand(changes.atime) || set_by_hand(changes.mtime) {
            return Err(StoreError::NotPermitted);
        }
        if sets_one_to_now(changes) {
            return self.require(who, entry, Rights::WRITE);
        }
        if changes.size.is_some() || changes.atime.is_some() || changes.mtime.is_some() {
            return self.precheck(who, entry, Rights::WRITE);
        }
        Ok(())
    }

    /// Returns the rights of `who`. Runs under `who`'s identity if identities
    /// are switched.
    pub(crate) fn access(&self, who: &Caller, entry: &Entry) -> StoreResult<AccessMask> {
        let asked = |rights| match check_access(&entry.fd, rights).or_store() {
            Ok(()) => Ok(true),
            Err(StoreError::AccessDenied | StoreError::ReadOnly | StoreError::NotPermitted) => {
                Ok(false)
            }
            Err(StoreError::TextBusy) => Ok(false),
            Err(error) => Err(error),
        };
        let kernel = AccessMask {
            read: asked(Rights::READ)?,
            write: asked(Rights::WRITE)?,
            execute: asked(Rights::EXECUTE)?,
        };
        if self.kernel_decides(who) {
            return Ok(kernel);
        }
        let mode = mode_mask(who, entry)?;
        Ok(AccessMask {
            read: kernel.read && mode.read,
            write: kernel.write && mode.write,
            execute: kernel.execute && mode.execute,
        })
    }
}

fn mode_mask(who: &Caller, entry: &Entry) -> StoreResult<AccessMask> {
    let stat = syscall::stat(&entry.fd)?;
    let is_dir = entry.kind == FileKind::Directory;
    let mode = u32::from(stat.stx_mode);
    Ok(AccessMask::from_mode(who, mode, stat.stx_uid, stat.stx_gid, is_dir))
}

fn allows(mask: AccessMask, rights: Rights) -> bool {
    (mask.read || !rights.contains(Rights::READ))
        && (mask.write || !rights.contains(Rights::WRITE))
        && (mask.execute || !rights.contains(Rights::EXECUTE))
}
