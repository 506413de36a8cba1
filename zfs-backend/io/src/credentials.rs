//! Execution of work under a caller's file system identity.
//!
//! Linux keeps fsuid, fsgid and the supplementary groups per thread when they
//! are set by the bare system calls. With an fsuid other than 0 the kernel
//! drops the capabilities that override file permissions from the effective set
//! of the thread (capabilities(7)), and gives them back with fsuid 0. Only a
//! process whose effective user is root switches: any other would keep its
//! capabilities under a foreign uid.

use crate::set_id;
use std::cell::{Cell, RefCell};
use std::io;
use std::sync::{Arc, OnceLock};
use zgate_store::Caller;

thread_local! {
    /// Present identity of this thread; `None` is the process's own.
    static WORN: RefCell<Option<Caller>> = const { RefCell::new(None) };
    /// Set if this thread never takes on another identity; see
    /// [`keep_identity`].
    static KEPT: Cell<bool> = const { Cell::new(false) };
}

/// Pins this thread to its identity: work under other identities goes to other
/// threads.
///
/// For threads that use RDMA. Linux refuses writes to the device files of verbs
/// and of the connection manager from a thread whose credentials are not the
/// very object the file was opened with. A thread that switched to another
/// identity and back has new credentials, equal but not identical.
pub fn keep_identity() {
    KEPT.set(true);
}

/// Returns the process's own identity, as it was at first use.
pub fn process_identity() -> &'static Caller {
    static IDENTITY: OnceLock<Caller> = OnceLock::new();
    IDENTITY.get_or_init(|| Caller {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: rustix::process::getgroups()
            .map(|groups| groups.iter().map(|group| group.as_raw()).collect())
            .unwrap_or_else(|_| Arc::from([])),
    })
}

/// Returns whether this process can take on other identities: it is root, and a
/// trial on a scratch thread succeeded.
#[must_use]
pub fn can_switch() -> bool {
    static VERDICT: OnceLock<bool> = OnceLock::new();
    *VERDICT.get_or_init(|| {
        process_identity().uid == 0
            && std::thread::spawn(|| {
                wear(&Caller { uid: 65_534, gid: 65_534, groups: Arc::from([65_534]) }).is_ok()
            })
            .join()
            .unwrap_or(false)
    })
}

/// Returns whether `who` needs no switch: the superuser with the process's
/// group.
fn is_process(who: &Caller) -> bool {
    let process = process_identity();
    who.uid == process.uid
        && who.gid == process.gid
        && (who.groups == process.groups || (who.uid == 0 && who.groups.is_empty()))
}

/// Runs `work` as `who` on this thread and then restores the previous identity.
///
/// # Errors
/// `EPERM` if the identity cannot be taken on, as on a pinned thread; `work`
/// has not run then.
pub fn as_caller<T>(who: &Caller, work: impl FnOnce() -> T) -> io::Result<T> {
    let before = WORN.with_borrow(Clone::clone);
    let _back = Back(before);
    assume(who)?;
    Ok(work())
}

/// Runs `work` under the process's own identity and then restores the previous
/// identity.
pub fn as_process<T>(work: impl FnOnce() -> T) -> T {
    let before = WORN.with_borrow(Clone::clone);
    if before.is_none() {
        return work();
    }
    let _back = Back(before);
    restore();
    work()
}

/// Restores an earlier identity of the thread when dropped, also after a panic.
struct Back(Option<Caller>);

impl Drop for Back {
    fn drop(&mut self) {
        match self.0.take() {
            None => restore(),
            Some(who) => {
                if assume(&who).is_err() {
                    give_up();
                }
            }
        }
    }
}

/// Takes on an identity until the next `assume` or `restore`.
pub(crate) fn assume(who: &Caller) -> io::Result<()> {
    if is_process(who) {
        restore();
        set_id::take_back();
        return Ok(());
    }
    if WORN.with_borrow(|worn| worn.as_ref() == Some(who)) {
        return Ok(());
    }
    if KEPT.get() || !can_switch() {
        return Err(io::Error::from_raw_os_error(libc::EPERM));
    }
    WORN.set(Some(who.clone()));
    match wear(who) {
        Ok(()) => Ok(()),
        Err(error) => {
            restore();
            Err(error)
        }
    }
}

/// Restores the process's own identity.
pub(crate) fn restore() {
    if WORN.with_borrow(Option::is_none) {
        return;
    }
    if wear(process_identity()).is_err() {
        give_up();
    }
    WORN.set(None);
}

/// Ends the process: a thread that cannot restore its identity must not serve
/// another caller.
fn give_up() -> ! {
    tracing::error!("a thread cannot restore its own identity; stopping the process");
    std::process::abort();
}

#[allow(unsafe_code)]
fn wear(who: &Caller) -> io::Result<()> {
    // The value -1 means "no change" to these calls.
    if who.uid == u32::MAX || who.gid == u32::MAX || who.groups.contains(&u32::MAX) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // With user 0 the kernel gives CAP_FSETID back to a thread of another user,
    // but not to one of user 0 that only takes on other groups.
    if who.uid == 0 {
        set_id::take_back();
    }
    set_id::identity_changed();
    // SAFETY: setgroups reads `len` group ids from a live slice; the bare
    // system call changes this thread only.
    let status =
        unsafe { libc::syscall(libc::SYS_setgroups, who.groups.len(), who.groups.as_ptr()) };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both calls take plain numbers and change this thread only. A call
    // with -1 changes nothing and returns the present value, which is needed
    // because neither call reports failure.
    let (gid, uid) = unsafe {
        libc::setfsgid(who.gid);
        libc::setfsuid(who.uid);
        (libc::setfsgid(u32::MAX), libc::setfsuid(u32::MAX))
    };
    if gid as u32 == who.gid && uid as u32 == who.uid {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::EPERM))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    #[test]
    fn a_thread_that_keeps_its_identity_does_nothing_as_others() {
        let other = Caller { uid: 1234, gid: 2345, groups: Arc::from([]) };
        let kept = std::thread::spawn(move || {
            keep_identity();
            let own = as_caller(process_identity(), || ()).is_ok();
            (own, as_caller(&other, || ()).is_err())
        });
        assert_eq!(kept.join().unwrap(), (true, true));
    }

    #[test]
    fn files_belong_to_the_identity_worn() {
        if !can_switch() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let who = Caller { uid: 1234, gid: 2345, groups: Arc::from([7, 8]) };
        let path = dir.path().join("a");
        as_caller(&who, || {
            std::fs::write(&path, b"x").unwrap();
            as_process(|| std::fs::write(dir.path().join("root"), b"x").unwrap());
            std::fs::write(dir.path().join("b"), b"x").unwrap();
        })
        .unwrap();
        let meta = std::fs::metadata(&path).unwrap();
        assert_eq!((meta.uid(), meta.gid()), (1234, 2345));
        assert_eq!(std::fs::metadata(dir.path().join("b")).unwrap().uid(), 1234);
        assert_eq!(std::fs::metadata(dir.path().join("root")).unwrap().uid(), 0);
        std::fs::write(dir.path().join("c"), b"x").unwrap();
        assert_eq!(std::fs::metadata(dir.path().join("c")).unwrap().uid(), 0);
    }

    #[test]
    fn root_capabilities_do_not_leak_to_a_caller() {
        if !can_switch() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let secret = dir.path().join("secret");
        std::fs::write(&secret, b"x").unwrap();
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
        let who = Caller { uid: 1234, gid: 2345, groups: Arc::from([]) };
        assert!(as_caller(&who, || std::fs::read(&secret).is_err()).unwrap());
        assert!(std::fs::read(&secret).is_ok());
    }

    #[test]
    fn the_no_change_value_is_refused() {
        let who = Caller { uid: u32::MAX, gid: 5, groups: Arc::from([]) };
        assert!(as_caller(&who, || ()).is_err());
    }
}
