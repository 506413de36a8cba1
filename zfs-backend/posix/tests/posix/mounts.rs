//! Child file systems. Needs the right to mount.

use crate::fixture::*;
use bytes::Bytes;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use zgate_posix::{HandleMode, PosixOptions, PosixStore};
use zgate_store::file_store::Stability;
use zgate_store::{FileStore, StoreError};

/// A small memory file system, unmounted when dropped.
pub(crate) struct Small(pub(crate) PathBuf);

impl Small {
    pub(crate) fn mount(at: PathBuf, size: &std::ffi::CStr) -> Option<Self> {
        std::fs::create_dir_all(&at).unwrap();
        if mount("none", &at, "tmpfs", MountFlags::empty(), size).is_err() {
            not_run("the right to mount is needed");
            return None;
        }
        Some(Self(at))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

#[test]
fn child_mounts_are_crossed_both_ways() {
    for mode in [HandleMode::Auto, HandleMode::InTree] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/child")).unwrap();
        let covered = std::fs::metadata(dir.path().join("a/child")).unwrap().ino();
        let Some(small) = Small::mount(dir.path().join("a/child"), c"size=1m") else {
            return;
        };
        std::fs::write(small.0.join("f"), b"inside").unwrap();
        let store = open_store(dir.path(), mode);
        block_on(async {
            let a = store.lookup(&root(), &store.root(), b"a").await.unwrap();
            let child = store.lookup(&root(), &a.handle, b"child").await.unwrap();
            assert_ne!(child.attr.fsid, a.attr.fsid);
            assert_eq!(child.attr.mounted_on_fileid, covered);
            assert_ne!(child.attr.fileid, covered);
            let page = store.readdir(&root(), &a.handle, 0, 10, true).await.unwrap();
            assert_eq!(page.entries[0].fileid, covered);
            assert_eq!(page.entries[0].node.unwrap().handle, child.handle);
            let above = store.lookup_parent(&root(), &child.handle).await.unwrap();
            assert_eq!(above.handle, a.handle);
            let f = store.lookup(&root(), &child.handle, b"f").await.unwrap();
            store.release();
            assert_eq!(store.getattr(&f.handle).await.unwrap().size, 6);
            let moved = store.rename(&root(), &child.handle, b"f", &a.handle, b"f").await;
            assert_eq!(error_of(moved), StoreError::CrossDevice);
            let linked = store.link(&root(), &f.handle, &a.handle, b"f").await;
            assert_eq!(error_of(linked), StoreError::CrossDevice);
            let busy = store.remove(&root(), &a.handle, b"child", None).await;
            assert_eq!(error_of(busy), StoreError::Busy);
            if store.traits().persistent_handles {
                let again = open_store(dir.path(), mode);
                assert_eq!(again.getattr(&f.handle).await.unwrap().fileid, f.attr.fileid);
            }
            // After an unmount the handles are stale.
            store.release();
            drop(small);
            std::thread::sleep(std::time::Duration::from_millis(300));
            assert_eq!(error_of(store.getattr(&f.handle).await), StoreError::Stale);
            let uncovered = store.lookup(&root(), &a.handle, b"child").await.unwrap();
            assert_eq!((uncovered.attr.fileid, uncovered.attr.fsid), (covered, a.attr.fsid));
        });
    }
}

#[test]
fn directories_of_the_same_file_system_mounted_below_are_found_by_their_handles() {
    let outer = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(outer.path().join("elsewhere/in")).unwrap();
    let at = outer.path().join("export/bound");
    std::fs::create_dir_all(&at).unwrap();
    if mount_bind(outer.path().join("elsewhere"), &at).is_err() {
        return not_run("the right to mount is needed");
    }
    let _bound = Small(at);
    for handle_secret in [None, Some([5; 16])] {
        let options = PosixOptions { handle_secret, ..options(HandleMode::Auto) };
        let store = PosixStore::open(&outer.path().join("export"), options).unwrap();
        block_on(async {
            let bound = store.lookup(&root(), &store.root(), b"bound").await.unwrap();
            let inside = store.lookup(&root(), &bound.handle, b"in").await.unwrap();
            store.release();
            let found = store.getattr(&inside.handle).await.unwrap();
            assert_eq!(found.fileid, inside.attr.fileid);
        });
    }
}

#[test]
fn a_mount_that_is_looked_up_hides_no_other_of_its_file_system() {
    let outer = tempfile::tempdir().unwrap();
    let export = outer.path().join("export");
    for dir in ["first", "second/in", "export/x"] {
        std::fs::create_dir_all(outer.path().join(dir)).unwrap();
    }
    // The way to z leads through other storage, so nobody who needs x takes it up.
    let Some(other) = Small::mount(export.join("y"), c"size=1m") else { return };
    std::fs::create_dir(other.0.join("z")).unwrap();
    let mut bound = Vec::new();
    for (dir, at) in [("first", "x"), ("second", "y/z")] {
        let at = export.join(at);
        mount_bind(outer.path().join(dir), &at).unwrap();
        bound.push(Small(at));
    }
    let store = open_store(&export, HandleMode::Auto);
    block_on(async {
        let y = store.lookup(&root(), &store.root(), b"y").await.unwrap();
        let z = store.lookup(&root(), &y.handle, b"z").await.unwrap();
        let inside = store.lookup(&root(), &z.handle, b"in").await.unwrap();
        store.release();
        store.lookup(&root(), &store.root(), b"x").await.unwrap();
        assert_eq!(store.getattr(&inside.handle).await.unwrap().fileid, inside.attr.fileid);
    });
}

#[test]
fn a_child_is_found_by_a_handle_however_often_mounts_are_released() {
    for mode in [HandleMode::Auto, HandleMode::InTree] {
        let dir = tempfile::tempdir().unwrap();
        let Some(small) = Small::mount(dir.path().join("child"), c"size=1m") else { return };
        std::fs::write(small.0.join("f"), b"inside").unwrap();
        let store = open_store(dir.path(), mode);
        block_on(async {
            let child = store.lookup(&root(), &store.root(), b"child").await.unwrap();
            let f = store.lookup(&root(), &child.handle, b"f").await.unwrap();
            for _ in 0..3 {
                store.release();
                assert_eq!(store.getattr(&f.handle).await.unwrap().size, 6);
            }
        });
    }
}

#[test]
fn a_file_has_one_identity_through_all_mounts_that_lead_to_it() {
    for mode in [HandleMode::Auto, HandleMode::InTree] {
        let dir = tempfile::tempdir().unwrap();
        let Some(small) = Small::mount(dir.path().join("export/child"), c"size=1m") else {
            return;
        };
        std::fs::write(small.0.join("f"), b"inside").unwrap();
        let at = dir.path().join("bound");
        std::fs::create_dir(&at).unwrap();
        mount_bind(&small.0, &at).unwrap();
        let bound = Small(at);
        let wide = open_store(&dir.path().join("export"), mode);
        block_on(async {
            let child = wide.lookup(&root(), &wide.root(), b"child").await.unwrap();
            let f = wide.lookup(&root(), &child.handle, b"f").await.unwrap();
            let known = wide.identity(&f.handle);
            assert!(known.is_some());
            for path in [&small.0, &bound.0] {
                let narrow = open_store(path, mode);
                let f = narrow.lookup(&root(), &narrow.root(), b"f").await.unwrap();
                assert_eq!(narrow.identity(&f.handle), known, "through {}", path.display());
            }
            wide.release();
            assert_eq!(wide.identity(&f.handle), known, "while no mount is held");
        });
    }
}

#[test]
fn a_mount_made_later_is_found() {
    for mode in [HandleMode::Auto, HandleMode::InTree] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("late")).unwrap();
        let store = open_store(dir.path(), mode);
        block_on(async {
            let before = store.lookup(&root(), &store.root(), b"late").await.unwrap();
            let Some(_small) = Small::mount(dir.path().join("late"), c"size=1m") else {
                return;
            };
            let after = store.lookup(&root(), &store.root(), b"late").await.unwrap();
            assert_ne!(before.handle, after.handle);
            assert_eq!(after.attr.mounted_on_fileid, before.attr.fileid);
        });
    }
}

#[test]
fn a_full_file_system_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let Some(_small) = Small::mount(dir.path().join("s"), c"size=64k") else {
        return;
    };
    let store = open_store(&dir.path().join("s"), HandleMode::Auto);
    block_on(async {
        let mode = zgate_store::file_store::CreateMode::Guarded;
        let made = store
            .create_file(&root(), &store.root(), b"f", mode, &crate::fixture::mode(0o600))
            .await
            .unwrap();
        let open = made.open.unwrap();
        let data = Bytes::from(vec![1; 1 << 20]);
        let (count, _) = store.write(&open, 0, data.clone(), Stability::Unstable).await.unwrap();
        assert!(count > 0 && count < data.len());
        let more = store.write(&open, count as u64, data, Stability::Unstable).await;
        assert_eq!(error_of(more), StoreError::NoSpace);
        let grown = store.allocate(&open, 0, 1 << 20).await;
        assert_eq!(error_of(grown), StoreError::NoSpace);
        assert_eq!(store.statfs(&store.root()).await.unwrap().available_bytes, 0);
    });
}

#[test]
fn a_read_only_mount_refuses_changes() {
    let dir = tempfile::tempdir().unwrap();
    let Some(small) = Small::mount(dir.path().join("s"), c"size=64k") else {
        return;
    };
    std::fs::write(small.0.join("f"), b"x").unwrap();
    rustix::mount::mount_remount(&small.0, MountFlags::RDONLY, c"size=64k").unwrap();
    let store = open_store(&small.0, HandleMode::Auto);
    block_on(async {
        let f = store.lookup(&root(), &store.root(), b"f").await.unwrap();
        assert!(store.open(&root(), &f.handle, READ).await.is_ok());
        let opened = store.open(&root(), &f.handle, READ_WRITE).await;
        assert_eq!(error_of(opened), StoreError::ReadOnly);
        let mask = store.access(&root(), &f.handle).await.unwrap();
        assert!(mask.read && !mask.write);
        let gone = store.remove(&root(), &store.root(), b"f", None).await;
        assert_eq!(error_of(gone), StoreError::ReadOnly);
        assert!(store.statfs(&f.handle).await.unwrap().read_only);
    });
}
