//! Caller identity: the user and groups that an operation runs under, after
//! squashing.

use std::sync::Arc;

/// An identity as the storage sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Caller {
    /// Numeric user id.
    pub uid: u32,
    /// Numeric primary group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Arc<[u32]>,
}

impl Caller {
    /// Returns the superuser, used by the gateway for its own work.
    #[must_use]
    pub fn root() -> Self {
        Self { uid: 0, gid: 0, groups: Arc::from([]) }
    }

    /// Returns whether the caller belongs to `gid` directly or by a
    /// supplementary group.
    #[must_use]
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// A set of rights: read, write, execute/search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessMask {
    /// Right to read data or list the directory.
    pub read: bool,
    /// Right to write data or change directory entries.
    pub write: bool,
    /// Right to execute, or to search the directory.
    pub execute: bool,
}

impl AccessMask {
    /// Applies the classic rwx rule to an object with `mode`, owner `uid` and
    /// group `gid`: the first matching class decides. Root may read and write
    /// anything, and execute a file that anyone may execute (directories:
    /// always).
    #[must_use]
    pub fn from_mode(who: &Caller, mode: u32, uid: u32, gid: u32, is_dir: bool) -> Self {
        if who.uid == 0 {
            return Self { read: true, write: true, execute: is_dir || mode & 0o111 != 0 };
        }
        let bits = if who.uid == uid {
            mode >> 6
        } else if who.in_group(gid) {
            mode >> 3
        } else {
            mode
        };
        Self { read: bits & 4 != 0, write: bits & 2 != 0, execute: bits & 1 != 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_matching_class_decides() {
        let who = Caller { uid: 5, gid: 6, groups: Arc::from([7]) };
        assert!(!AccessMask::from_mode(&who, 0o077, 5, 6, false).read);
        assert!(AccessMask::from_mode(&who, 0o040, 1, 7, false).read);
        assert!(!AccessMask::from_mode(&who, 0o007, 1, 7, false).read);
        assert!(AccessMask::from_mode(&who, 0o001, 1, 1, false).execute);
        assert!(AccessMask::from_mode(&Caller::root(), 0, 1, 1, true).execute);
        assert!(!AccessMask::from_mode(&Caller::root(), 0, 1, 1, false).execute);
    }
}
