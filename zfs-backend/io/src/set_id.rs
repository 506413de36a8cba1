//! Set-id bits of files whose data changes.
//!
//! Linux clears the set-user-id bit, and the set-group-id bit of a program,
//! when a file changes, unless the thread that changes it has CAP_FSETID
//! (`file_remove_privs` in its VFS, `zfs_clear_setid_bits_if_necessary` in
//! OpenZFS). It decides at each change, and under the file's own lock. The
//! threads that write for clients are root's and have that capability. So they
//! drop it for every caller but root and leave the decision to the kernel: a
//! mode read before the change may be outdated by then.
//!
//! A thread drops the capability once and not for each change, so that data
//! workers serve one caller after the other without a system call in between. A
//! ring has a second identity without the capability.

use rustix::fs::{fchown, fstat};
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use zgate_store::Caller;

/// Both set-id bits of a mode.
const SET_ID_BITS: u32 = 0o6000;

/// Treatment of a file's set-id bits when its data changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetIdBits {
    /// They stay.
    Kept,
    /// The kernel clears the bits that let a program run as another user.
    Cleared,
}

thread_local! {
    /// Set if this thread has dropped CAP_FSETID.
    static PUT_OFF: Cell<bool> = const { Cell::new(false) };
}

impl SetIdBits {
    /// Returns the rule for changes by `who`: changes by root keep the bits.
    #[must_use]
    pub fn after_change_by(who: &Caller) -> Self {
        if who.uid == 0 { Self::Kept } else { Self::Cleared }
    }

    /// Clears the bits explicitly where the kernel does not: before a change on
    /// a thread that must keep its credentials, or by a call that the file
    /// system does not count as a change.
    ///
    /// # Errors
    /// The error of fstat(2) or fchown(2).
    pub fn clear(self, fd: &OwnedFd) -> io::Result<()> {
        if self == Self::Cleared && fstat(fd)?.st_mode & SET_ID_BITS != 0 {
            // A chown without a new owner: the kernel clears the bits under the
            // file's lock, and no concurrent chmod is undone.
            match fchown(fd, None, None) {
                // A foreign file, and a gateway without privilege: it could not
                // keep the bits either.
                Err(Errno::PERM) if !has_right()? => {}
                done => done?,
            }
        }
        Ok(())
    }

    /// Runs `work`, which changes data of `fd`, on a data worker. Work on names
    /// and attributes belongs on threads that keep CAP_FSETID.
    ///
    /// # Errors
    /// If the bits cannot be cleared; `work` has not run then.
    pub fn during<T>(self, fd: &OwnedFd, work: impl FnOnce() -> T) -> io::Result<T> {
        match self {
            Self::Kept => take_back(),
            Self::Cleared if put_off().is_err() => self.clear(fd)?,
            Self::Cleared => {}
        }
        Ok(work())
    }
}

/// Drops CAP_FSETID from this thread's effective set.
pub(crate) fn put_off() -> io::Result<()> {
    if !PUT_OFF.get() {
        change_effective(|effective| effective.remove(CapabilitySet::FSETID))?;
        PUT_OFF.set(true);
    }
    Ok(())
}

/// Takes CAP_FSETID back if this thread has dropped it. Without it bits are
/// cleared that could stay, so a failure does no harm.
pub(crate) fn take_back() {
    let back = || change_effective(|effective| effective.insert(CapabilitySet::FSETID));
    if PUT_OFF.get() && back().is_ok() {
        PUT_OFF.set(false);
    }
}

/// Records that the thread has changed its file system user, which makes the
/// kernel change its capabilities: CAP_FSETID may be present again
/// (capabilities(7)).
pub(crate) fn identity_changed() {
    PUT_OFF.set(false);
}

fn has_right() -> io::Result<bool> {
    Ok(capabilities(None)?.effective.contains(CapabilitySet::FSETID))
}

fn change_effective(change: impl FnOnce(&mut CapabilitySet)) -> io::Result<()> {
    let mut sets = capabilities(None)?;
    let before = sets.effective;
    change(&mut sets.effective);
    // Only permitted capabilities can be made effective.
    sets.effective &= sets.permitted;
    if sets.effective != before {
        set_capabilities(None, sets)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::{as_caller, can_switch};
    use crate::{EngineChoice, IoEngine, WriteMethod, WriteMode, WriteSync};
    use bytes::Bytes;
    use rustix::fs::{Mode, fchmod};
    use std::sync::Arc;

    fn mode(fd: &OwnedFd) -> u32 {
        fstat(fd).unwrap().st_mode & 0o7777
    }

    fn program() -> OwnedFd {
        let fd = OwnedFd::from(tempfile::tempfile().unwrap());
        fchmod(&fd, Mode::from_raw_mode(0o6777)).unwrap();
        fd
    }

    fn write(fd: &OwnedFd) {
        rustix::io::pwrite(fd, b"x", 0).unwrap();
    }

    #[test]
    fn a_thread_changes_sides_as_often_as_it_is_asked() {
        if !can_switch() {
            return;
        }
        let fd = program();
        for _ in 0..3 {
            SetIdBits::Kept.during(&fd, || write(&fd)).unwrap();
            assert_eq!(mode(&fd), 0o6777);
        }
        for _ in 0..3 {
            SetIdBits::Cleared.during(&fd, || write(&fd)).unwrap();
            assert_eq!(mode(&fd), 0o777);
            // Setting the bits needs another capability, which root has.
            fchmod(&fd, Mode::from_raw_mode(0o6777)).unwrap();
        }
        SetIdBits::Kept.during(&fd, || write(&fd)).unwrap();
        assert_eq!(mode(&fd), 0o6777);
    }

    #[test]
    fn every_way_to_write_decides_alike() {
        if !can_switch() {
            return;
        }
        let engines = [EngineChoice::Threads, EngineChoice::Uring];
        for engine in engines.iter().filter_map(|choice| IoEngine::new(*choice, 2).ok()) {
            let write = async |set_id, method, sync| {
                let (fd, data) = (Arc::new(program()), Bytes::from_static(b"x"));
                let to = (&fd, WriteMode { method, set_id });
                engine.write_from(to, 0, data, sync).await.unwrap();
                mode(&fd)
            };
            let all = async {
                for sync in [WriteSync::None, WriteSync::Data, WriteSync::Full] {
                    for method in [WriteMethod::Memory, WriteMethod::Cached] {
                        let left = write(SetIdBits::Cleared, method, sync).await;
                        assert_eq!(left, 0o777, "{engine:?} {method:?} {sync:?}");
                        let left = write(SetIdBits::Kept, method, sync).await;
                        assert_eq!(left, 0o6777, "{engine:?} {method:?} {sync:?}");
                    }
                }
            };
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(all);
        }
    }

    #[test]
    fn an_identity_worn_in_between_gives_nothing_back() {
        if !can_switch() {
            return;
        }
        let fd = program();
        SetIdBits::Cleared.during(&fd, || ()).unwrap();
        let other = Caller { uid: 1234, gid: 2345, groups: Arc::from([]) };
        as_caller(&other, || ()).unwrap();
        SetIdBits::Cleared.during(&fd, || write(&fd)).unwrap();
        assert_eq!(mode(&fd), 0o777);
    }

    #[test]
    fn root_of_another_group_keeps_them_after_a_change_that_could_not() {
        if !can_switch() {
            return;
        }
        let fd = program();
        SetIdBits::Cleared.during(&fd, || ()).unwrap();
        let other_group = Caller { uid: 0, gid: 2345, groups: Arc::from([7]) };
        as_caller(&other_group, || write(&fd)).unwrap();
        assert_eq!(mode(&fd), 0o6777);
        SetIdBits::Kept.during(&fd, || write(&fd)).unwrap();
        assert_eq!(mode(&fd), 0o6777);
    }

    #[test]
    fn by_hand_the_same_bits_go() {
        for (before, after) in [(0o6777, 0o777), (0o6766, 0o2766), (0o1755, 0o1755)] {
            let fd = OwnedFd::from(tempfile::tempfile().unwrap());
            fchmod(&fd, Mode::from_raw_mode(before)).unwrap();
            SetIdBits::Kept.clear(&fd).unwrap();
            assert_eq!(mode(&fd), before);
            SetIdBits::Cleared.clear(&fd).unwrap();
            assert_eq!(mode(&fd), after, "{before:o}");
        }
    }

    #[test]
    fn root_alone_keeps_them() {
        let user = Caller { uid: 7, gid: 0, groups: Arc::from([0]) };
        assert_eq!(SetIdBits::after_change_by(&user), SetIdBits::Cleared);
        assert_eq!(SetIdBits::after_change_by(&Caller::root()), SetIdBits::Kept);
    }
}
