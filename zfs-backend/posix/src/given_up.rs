//! Objects that their file system has given up. ZFS replaces the content of a file system while
//! objects of it are open, at a rollback and at the end of `zfs receive`. The descriptor of an
//! object that the new content lacks stays, and every call on it fails with EIO (`zfs_verify_zp`).
//! It does so as well when a later stream has brought the object back: its handle leads to
//! another inode then. Clients recover from a stale handle, and not from EIO.

use crate::entry::Entry;
use crate::file_systems::WaitsFor;
use crate::handle::Parsed;
use crate::syscall;
use crate::tree::{Tree, close, open_kernel_handle};
use zgate_io::credentials;
use zgate_store::StoreError;

impl Tree {
    /// Returns whether the file system has given up a cached object whose attributes it failed
    /// to read. Its entry has left the cache then. May wait for a disk.
    pub(crate) fn drops_given_up(&self, entry: &Entry) -> bool {
        let mount = &entry.mount;
        let may_be = mount.kernel_handles && mount.traits.waits_for == WaitsFor::Lock;
        if !may_be || !credentials::as_process(|| self.leads_elsewhere(entry)) {
            return false;
        }
        if let Some(kept) = self.cache.give_up(entry) {
            close(mount, true, move || drop(kept));
        }
        true
    }

    /// Returns whether the handle of an entry that fails leads to no object, or to one that does
    /// not fail.
    fn leads_elsewhere(&self, entry: &Entry) -> bool {
        let Ok(Parsed::Kernel { handle, .. }) = self.codec.parse(&entry.handle) else {
            return false;
        };
        match open_kernel_handle(&entry.mount.root, &handle) {
            Ok(fd) => syscall::stat(&fd).is_ok(),
            Err(error) => error == StoreError::Stale,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::PosixOptions;
    use crate::store::PosixStore;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use zgate_io::{EngineChoice, IoEngine};
    use zgate_store::{BufferPool, FileStore, NodeHandle};

    fn lock(_: &[u8]) -> WaitsFor {
        WaitsFor::Lock
    }

    /// Needs handles of the kernel, and passes silently without them.
    #[test]
    fn what_its_file_system_has_given_up_is_stale_or_found_again() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["gone", "back"] {
            std::fs::write(dir.path().join(name), b"data").unwrap();
        }
        let engine = IoEngine::new(EngineChoice::Threads, 1).unwrap();
        let options = PosixOptions::new(engine, BufferPool::new(1 << 20));
        let options = PosixOptions { waits_for: Some(lock), ..options };
        let store = PosixStore::open(dir.path(), options).unwrap();
        if !store.traits().persistent_handles {
            return;
        }
        let (tree, me, top) = (&store.tree, credentials::process_identity(), store.root());
        let find = |name: &[u8]| tree.lookup(me, &top, name).unwrap().unwrap().handle;
        let give_up = |handle: &NodeHandle| {
            let entry = tree.cached(handle).unwrap();
            entry.is_given_up.store(true, Ordering::Relaxed);
            entry
        };
        let [gone, back] = [&b"gone"[..], b"back"].map(find);
        let used = [&gone, &back].map(give_up);
        std::fs::remove_file(dir.path().join("gone")).unwrap();
        assert_eq!(tree.live_attr(&used[0]), Err(StoreError::Stale));
        // A request that has the entry keeps it from nobody.
        assert_eq!(tree.live_attr(&used[1]).unwrap().size, 4);
        assert!(!Arc::ptr_eq(&tree.cached(&back).unwrap(), &used[1]));
        // A name leads to it again, too.
        give_up(&back);
        assert_eq!(find(b"back"), back);
        assert!(tree.cached(&back).unwrap().attr().is_ok());
    }
}
