//! Removal, renaming and linking of names.

use crate::attributes::kind_of;
use crate::entry::Entry;
use crate::errno::{OrStoreError, store_error};
use crate::name::Name;
use crate::syscall;
use crate::tree::{Identified, Tree};
use rustix::fs::{AtFlags, CWD, Statx};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use zgate_io::access_check::Rights;
use zgate_store::file_store::DirChange;
use zgate_store::{Caller, FileKind, NodeHandle, StoreError, StoreResult};

/// Rights needed to change the entries of a directory.
const CHANGES_ENTRIES: Rights = Rights::WRITE.and(Rights::EXECUTE);

impl Tree {
    /// Removes a name. The kernel refuses that of a mount point, without access to what is
    /// mounted there: it knows the owner and the type of the object that is covered.
    pub(crate) fn remove(
        &self,
        who: &Caller,
        dir: &NodeHandle,
        name: &[u8],
        kind: Option<FileKind>,
    ) -> StoreResult<DirChange> {
        let name = Name::parse(name)?;
        let dir = self.directory(dir)?;
        if self.hides(&dir, name.as_bytes()) {
            return Err(StoreError::NotFound);
        }
        let _lock = dir.lock_entries();
        self.precheck(who, &dir, Rights::EXECUTE)?;
        let found = self
            .identify(&dir, &name, self.checks_owner(who))
            .map_err(|error| self.dir_error(&dir, error))?;
        self.precheck(who, &dir, CHANGES_ENTRIES)?;
        self.precheck_sticky(who, &dir, owner_of(&found))?;
        let wants_dir = kind.map(|kind| kind == FileKind::Directory);
        let is_dir = is_directory(&found);
        check_type(wants_dir, is_dir)?;
        let before = dir.attr()?.change;
        if let Err(error) = unlink(&dir, &name, is_dir.or(wants_dir)) {
            // That the type is the wrong one comes before other errors.
            if found.is_some() && is_dir.is_none() && wants_dir.is_some() {
                let found = self.identify(&dir, &name, true).unwrap_or_default();
                check_type(wants_dir, is_directory(&found))?;
            }
            return Err(error);
        }
        if let Some((victim, _)) = &found {
            self.name_removed(victim, &dir, &name);
        }
        dir.mark_entries_modified();
        Ok(DirChange { atomic: true, before, after: dir.attr()?.change })
    }

    /// Renames atomically. The kernel refuses mount points as in [`Self::remove`], unless
    /// both names are the same, which changes nothing (RFC 8881, section 18.26.3).
    pub(crate) fn rename(
        &self,
        who: &Caller,
        from_dir: &NodeHandle,
        from_name: &[u8],
        to_dir: &NodeHandle,
        to_name: &[u8],
    ) -> StoreResult<(DirChange, DirChange)> {
        let (from_name, to_name) = (Name::parse(from_name)?, Name::parse(to_name)?);
        let (from_dir, to_dir) = (self.directory(from_dir)?, self.directory(to_dir)?);
        if self.hides(&from_dir, from_name.as_bytes()) {
            return Err(StoreError::NotFound);
        }
        if self.hides(&to_dir, to_name.as_bytes()) {
            return Err(StoreError::AccessDenied);
        }
        let _locks = lock_both(&from_dir, &to_dir);
        for dir in [&from_dir, &to_dir] {
            self.precheck(who, dir, CHANGES_ENTRIES)?;
        }
        let checks_owner = self.checks_owner(who);
        let moved = self
            .identify(&from_dir, &from_name, checks_owner)
            .map_err(|error| self.dir_error(&from_dir, error))?;
        let replaced = match self.identify(&to_dir, &to_name, checks_owner) {
            // What is replaced must be known: the caches must forget it.
            Err(StoreError::OutOfResources) => return Err(StoreError::OutOfResources),
            found => found.ok(),
        };
        self.precheck_sticky(who, &from_dir, owner_of(&moved))?;
        if let Some(replaced) = &replaced {
            self.precheck_sticky(who, &to_dir, owner_of(replaced))?;
        }
        let before_from = from_dir.attr()?.change;
        let before_to = if same(&from_dir, &to_dir) { before_from } else { to_dir.attr()?.change };
        rustix::fs::renameat(&from_dir.fd, from_name.as_c_str(), &to_dir.fd, to_name.as_c_str())
            .map_err(not_empty)
            .map_err(|error| self.dir_error(&to_dir, error))?;
        let handle = |found: &Identified| found.as_ref().map(|(handle, _)| *handle);
        if replaced.as_ref().is_none_or(|replaced| handle(replaced) != handle(&moved)) {
            if let Some((moved, _)) = &moved {
                self.renamed(moved, (&from_dir, &from_name), (&to_dir, &to_name));
            }
            if let Some(Some((target, _))) = &replaced {
                self.name_removed(target, &to_dir, &to_name);
            }
            from_dir.mark_entries_modified();
            to_dir.mark_entries_modified();
        }
        let after_from = from_dir.attr()?.change;
        let after_to = if same(&from_dir, &to_dir) { after_from } else { to_dir.attr()?.change };
        Ok((
            DirChange { atomic: true, before: before_from, after: after_from },
            DirChange { atomic: true, before: before_to, after: after_to },
        ))
    }

    fn renamed(&self, moved: &NodeHandle, from: (&Entry, &Name), to: (&Entry, &Name)) {
        if !to.0.mount.kernel_handles {
            self.known_names.forget_name(moved, &from.0.handle, from.1.as_bytes());
            self.known_names.remember(moved, &to.0.handle, to.1.as_bytes());
        }
        match self.cached(moved) {
            Some(entry) => entry.mark_modified(),
            None => {
                self.modifications.fetch_add(1, Ordering::AcqRel);
            }
        }
    }

    /// Adds a hard link.
    pub(crate) fn link(
        &self,
        who: &Caller,
        node: &NodeHandle,
        dir: &NodeHandle,
        name: &[u8],
    ) -> StoreResult<DirChange> {
        let name = Name::parse(name)?;
        let (entry, dir) = (self.entry(node)?, self.directory(dir)?);
        if entry.kind == FileKind::Directory {
            return Err(StoreError::IsDirectory);
        }
        if self.hides(&dir, name.as_bytes()) {
            return Err(StoreError::AccessDenied);
        }
        if entry.mount.id != dir.mount.id {
            return Err(StoreError::CrossDevice);
        }
        let _lock = dir.lock_entries();
        self.precheck(who, &dir, CHANGES_ENTRIES)?;
        let before = dir.attr()?.change;
        let path = syscall::proc_path(&entry.fd);
        rustix::fs::linkat(CWD, path.as_c_str(), &dir.fd, name.as_c_str(), AtFlags::SYMLINK_FOLLOW)
            .or_store()
            .map_err(|error| self.link_error(&entry, &dir, error))?;
        if !dir.mount.kernel_handles {
            self.known_names.remember(node, &dir.handle, name.as_bytes());
        }
        entry.mark_modified();
        dir.mark_entries_modified();
        Ok(DirChange { atomic: true, before, after: dir.attr()?.change })
    }

    /// Maps "not found" of a link without a missing name: one of the two
    /// objects is gone.
    fn link_error(&self, entry: &Entry, dir: &Entry, error: StoreError) -> StoreError {
        if error == StoreError::NotFound && syscall::stat(&entry.fd).is_ok_and(|s| s.stx_nlink == 0)
        {
            return StoreError::Stale;
        }
        self.dir_error(dir, error)
    }
}

/// Returns the owner of an object, if it is known.
fn owner_of(found: &Identified) -> Option<u32> {
    attributes_of(found).map(|stat| stat.stx_uid)
}

/// Returns whether an object is a directory, if that is known.
fn is_directory(found: &Identified) -> Option<bool> {
    attributes_of(found).map(|stat| kind_of(stat) == FileKind::Directory)
}

fn attributes_of(found: &Identified) -> Option<&Statx> {
    found.as_ref().and_then(|(_, stat)| stat.as_ref())
}

/// Refuses to remove a directory as something else, or something else as a directory.
fn check_type(wants_dir: Option<bool>, is_dir: Option<bool>) -> StoreResult<()> {
    match (wants_dir, is_dir) {
        (Some(true), Some(false)) => Err(StoreError::NotDirectory),
        (Some(false), Some(true)) => Err(StoreError::IsDirectory),
        _ => Ok(()),
    }
}

/// Removes an entry of a directory, itself a directory or not; `None`: that is not known.
fn unlink(dir: &Entry, name: &Name, is_dir: Option<bool>) -> StoreResult<()> {
    let call = |flags| rustix::fs::unlinkat(&dir.fd, name.as_c_str(), flags);
    let done = match is_dir {
        Some(false) => call(AtFlags::empty()),
        Some(true) => call(AtFlags::REMOVEDIR),
        // Linux says so for every file system, and where the name could be removed otherwise.
        None => match call(AtFlags::empty()) {
            Err(Errno::ISDIR) => call(AtFlags::REMOVEDIR),
            done => done,
        },
    };
    done.map_err(not_empty)
}

/// Maps the error of some file systems that report EEXIST for a directory that
/// is not empty.
fn not_empty(errno: Errno) -> StoreError {
    match errno {
        Errno::EXIST => StoreError::NotEmpty,
        other => store_error(other),
    }
}

fn same(one: &Entry, other: &Entry) -> bool {
    one.handle == other.handle
}

/// Locks two directories in the order of their handles, so that two renames
/// never wait for each other.
fn lock_both<'a>(one: &'a Arc<Entry>, other: &'a Arc<Entry>) -> impl Sized + 'a {
    let (first, second) = if one.handle <= other.handle { (one, other) } else { (other, one) };
    let first_lock = first.lock_entries();
    let second_lock = (!same(first, second)).then(|| second.lock_entries());
    (first_lock, second_lock)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::PosixOptions;
    use crate::store::PosixStore;
    use std::path::Path;
    use std::sync::Weak;
    use zgate_io::{EngineChoice, IoEngine, credentials};
    use zgate_store::file_store::CreateMode;
    use zgate_store::{BufferPool, SetAttr};

    /// Opens a store with one worker for short calls.
    fn store(path: &Path) -> Arc<PosixStore> {
        let engine = IoEngine::new(EngineChoice::Threads, 1).unwrap();
        PosixStore::open(path, PosixOptions::new(engine, BufferPool::new(1 << 20))).unwrap()
    }

    /// Runs work on the worker, as the process itself.
    fn on_the_worker<T: Send + 'static>(
        store: &PosixStore,
        work: impl FnOnce(&Arc<Tree>, &Caller) -> T + Send + 'static,
    ) -> T {
        let tree = Arc::clone(&store.tree);
        let job = store.engine().run(move || work(&tree, credentials::process_identity()));
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(job).unwrap()
    }

    /// Makes a file that no client has open.
    fn make(tree: &Arc<Tree>, who: &Caller, name: &[u8]) -> Weak<Entry> {
        let (top, attrs) = (tree.root.handle, SetAttr::default());
        let made = tree.create_file(who, &top, name, CreateMode::Guarded, &attrs);
        Arc::downgrade(&tree.cached(&made.unwrap().unwrap().node.handle).unwrap())
    }

    #[test]
    fn a_file_that_loses_its_name_is_closed_after_the_reply() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        let files = on_the_worker(&store, |tree, who| {
            let top = tree.root.handle;
            let files = [b"a", b"b", b"c"].map(|name| make(tree, who, name));
            tree.remove(who, &top, b"a", None).unwrap();
            tree.rename(who, &top, b"b", &top, b"c").unwrap();
            let open = files.each_ref().map(Weak::strong_count);
            assert_eq!(open, [1, 1, 1], "the reply waits for none of them");
            assert_eq!(tree.freeing.load(Ordering::Acquire), 2, "they are in use until then");
            files
        });
        // The next job begins when the descriptors are closed.
        on_the_worker(&store, |_, _| ());
        assert_eq!(files.map(|file| file.strong_count()), [0, 1, 0]);
        assert_eq!(store.tree.freeing.load(Ordering::Acquire), 0);
    }
}
