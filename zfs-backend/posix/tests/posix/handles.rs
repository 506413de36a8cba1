//! Lifetime of handles, and objects they must not reach.

use crate::fixture::*;
use std::path::Path;
use std::sync::Arc;
use zgate_posix::{HandleMode, PosixOptions, PosixStore};
use zgate_store::{FileKind, FileStore, NodeHandle, StoreError};

#[test]
fn kernel_handles_survive_a_restart_of_the_store() {
    let s = fixture(HandleMode::Auto);
    if !s.store.traits().persistent_handles {
        return;
    }
    for secret in [None, Some([9; 16])] {
        let open = || {
            let options = PosixOptions { handle_secret: secret, ..options(HandleMode::Auto) };
            PosixStore::open(s.dir.path(), options).unwrap()
        };
        let name = format!("f{}", secret.is_some());
        std::fs::write(s.path(&name), b"x").unwrap();
        let first = open();
        let node = block_on(first.lookup(&root(), &first.root(), name.as_bytes())).unwrap();
        let (top, fsid) = (first.root(), first.fsid());
        drop(first);
        std::fs::rename(s.path(&name), s.path("renamed")).unwrap();
        let second = open();
        assert_eq!((second.root(), second.fsid()), (top, fsid));
        assert_eq!(block_on(second.getattr(&node.handle)).unwrap().fileid, node.attr.fileid);
        std::fs::remove_file(s.path("renamed")).unwrap();
        second.release();
        assert_eq!(error_of(block_on(second.getattr(&node.handle))), StoreError::Stale);
    }
}

#[test]
fn in_tree_handles_end_with_the_store() {
    let s = fixture(HandleMode::InTree);
    assert!(!s.store.traits().persistent_handles);
    std::fs::write(s.path("f"), b"x").unwrap();
    let node = block_on(s.lookup(&s.root(), "f")).unwrap();
    let second = open_store(s.dir.path(), HandleMode::InTree);
    assert_eq!(error_of(block_on(second.getattr(&node.handle))), StoreError::Stale);
}

#[test]
fn in_tree_handles_are_found_again_after_eviction() {
    let s = fixture(HandleMode::InTree);
    let few = PosixOptions { fd_cache_entries: 1, ..options(HandleMode::InTree) };
    let store = PosixStore::open(s.dir.path(), few).unwrap();
    std::fs::create_dir_all(s.path("a/b/c")).unwrap();
    block_on(async {
        let mut dir = store.root();
        for name in ["a", "b", "c"] {
            dir = store.lookup(&root(), &dir, name.as_bytes()).await.unwrap().handle;
        }
        let mut files = Vec::new();
        for n in 0..400 {
            let name = format!("f{n}");
            std::fs::write(s.path("a/b/c").join(&name), b"").unwrap();
            files.push(store.lookup(&root(), &dir, name.as_bytes()).await.unwrap());
        }
        for file in files {
            assert_eq!(store.getattr(&file.handle).await.unwrap().fileid, file.attr.fileid);
        }
    });
}

#[test]
fn an_inode_number_used_again_is_another_object() {
    in_both_modes(|s| async move {
        let (old, open) = s.file("f").await;
        drop(open);
        std::fs::remove_file(s.path("f")).unwrap();
        s.store.release();
        for n in 0..50 {
            std::fs::write(s.path(&format!("n{n}")), b"").unwrap();
        }
        assert_eq!(error_of(s.store.getattr(&old.handle).await), StoreError::Stale);
    });
}

#[test]
fn nothing_outside_the_export_is_reached() {
    let outer = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(outer.path().join("export/in")).unwrap();
    std::fs::create_dir(outer.path().join("other")).unwrap();
    std::fs::write(outer.path().join("other/secret"), b"x").unwrap();
    std::fs::write(outer.path().join("export/in/file"), b"x").unwrap();
    let wide = open_store(outer.path(), HandleMode::Auto);
    let narrow = open_store(&outer.path().join("export"), HandleMode::Auto);
    if !narrow.traits().persistent_handles {
        return;
    }
    block_on(async {
        let other = wide.lookup(&root(), &wide.root(), b"other").await.unwrap();
        let secret = wide.lookup(&root(), &other.handle, b"secret").await.unwrap();
        for handle in [wide.root(), other.handle, secret.handle] {
            assert_eq!(error_of(narrow.getattr(&handle).await), StoreError::Stale);
            let opened = narrow.open(&root(), &handle, READ).await;
            assert_eq!(error_of(opened), StoreError::Stale);
        }
        let export = wide.lookup(&root(), &wide.root(), b"export").await.unwrap();
        assert_eq!(export.handle, narrow.root());
        let inside = wide.lookup(&root(), &export.handle, b"in").await.unwrap();
        let file = wide.lookup(&root(), &inside.handle, b"file").await.unwrap();
        assert!(narrow.getattr(&file.handle).await.is_ok());
        assert!(narrow.lookup_parent(&root(), &narrow.root()).await.is_err());

        // A handle must not reach a directory that was moved out of the export.
        let moved = narrow.lookup(&root(), &narrow.root(), b"in").await.unwrap();
        std::fs::rename(outer.path().join("export/in"), outer.path().join("out")).unwrap();
        let above = narrow.lookup_parent(&root(), &moved.handle).await;
        assert_eq!(error_of(above), StoreError::Stale);
    });
}

/// It is in the cache, where clients that use it keep it.
#[test]
fn a_directory_that_was_moved_out_of_the_export_is_left_within_a_second() {
    for mode in [HandleMode::Auto, HandleMode::InTree] {
        let outer = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(outer.path().join("export/dir/in")).unwrap();
        let store = open_store(&outer.path().join("export"), mode);
        block_on(async {
            let dir = store.lookup(&root(), &store.root(), b"dir").await.unwrap().handle;
            let inside = store.lookup(&root(), &dir, b"in").await.unwrap().handle;
            std::fs::rename(outer.path().join("export/dir"), outer.path().join("out")).unwrap();
            std::fs::write(outer.path().join("out/in/secret"), b"x").unwrap();
            std::thread::sleep(std::time::Duration::from_millis(1100));
            for handle in [&dir, &inside] {
                assert_eq!(error_of(store.getattr(handle).await), StoreError::Stale);
                let listed = store.readdir(&root(), handle, 0, 10, true).await;
                assert_eq!(error_of(listed), StoreError::Stale);
            }
            let found = store.lookup(&root(), &inside, b"secret").await;
            assert_eq!(error_of(found), StoreError::Stale);
        });
    }
}

/// The kernel tells no path that is longer than a page.
#[test]
fn a_directory_is_found_however_deep_it_lies() {
    in_both_modes(|s| async move {
        let (mut dir, mut above) = (s.root(), s.root());
        for _ in 0..20 {
            above = dir;
            dir = s.mkdir(&dir, &"d".repeat(250)).await.handle;
        }
        s.store.release();
        assert_eq!(s.store.getattr(&dir).await.unwrap().kind, FileKind::Directory);
        let parent = s.store.lookup_parent(&root(), &dir).await.unwrap();
        assert_eq!(parent.handle, above);
    });
}

#[test]
fn signed_handles_cannot_be_made_up() {
    let outer = tempfile::tempdir().unwrap();
    std::fs::create_dir(outer.path().join("export")).unwrap();
    let signed = |path: &std::path::Path, secret| {
        let options = PosixOptions { handle_secret: Some(secret), ..options(HandleMode::Auto) };
        PosixStore::open(path, options).unwrap()
    };
    let narrow = signed(&outer.path().join("export"), [1; 16]);
    let wide = signed(outer.path(), [2; 16]);
    if !narrow.traits().persistent_handles {
        return;
    }
    assert_eq!(error_of(block_on(narrow.getattr(&wide.root()))), StoreError::BadHandle);
}

#[test]
fn signed_in_tree_handles_cannot_be_made_up() {
    let dir = tempfile::tempdir().unwrap();
    let options = PosixOptions { handle_secret: Some([1; 16]), ..options(HandleMode::InTree) };
    let store = PosixStore::open(dir.path(), options).unwrap();
    assert!(block_on(store.getattr(&store.root())).is_ok());
    let mut raw = store.root().as_bytes().to_vec();
    // The number of another inode.
    raw[9] ^= 1;
    let forged = NodeHandle::new(&raw).unwrap();
    assert_eq!(error_of(block_on(store.getattr(&forged))), StoreError::BadHandle);
    assert_eq!(store.identity(&forged), None, "it stands for no file of another store");
}

#[test]
fn an_object_has_one_identity_in_two_stores() {
    for mode in [HandleMode::Auto, HandleMode::InTree] {
        let outer = tempfile::tempdir().unwrap();
        let below = outer.path().join("export");
        std::fs::create_dir(&below).unwrap();
        for name in ["f", "g"] {
            std::fs::write(below.join(name), b"x").unwrap();
        }
        let signed = |path: &Path, secret| {
            let options = PosixOptions { handle_secret: Some(secret), ..options(mode) };
            PosixStore::open(path, options).unwrap()
        };
        let (wide, narrow) = (signed(outer.path(), [1; 16]), signed(&below, [2; 16]));
        block_on(async {
            let export = wide.lookup(&root(), &wide.root(), b"export").await.unwrap().handle;
            let file = wide.lookup(&root(), &export, b"f").await.unwrap().handle;
            let same = narrow.lookup(&root(), &narrow.root(), b"f").await.unwrap().handle;
            let other = narrow.lookup(&root(), &narrow.root(), b"g").await.unwrap().handle;
            assert_ne!(file, same);
            assert!(narrow.identity(&same).is_some());
            assert_eq!(wide.identity(&file), narrow.identity(&same));
            assert_eq!(wide.identity(&export), narrow.identity(&narrow.root()));
            assert_ne!(narrow.identity(&other), narrow.identity(&same));
            // A handle that the store did not issue stands for no object.
            assert_eq!(narrow.identity(&file), None);
        });
    }
}

fn signed(path: &Path) -> Arc<PosixStore> {
    let options = PosixOptions { handle_secret: Some([3; 16]), ..options(HandleMode::Auto) };
    PosixStore::open(path, options).unwrap()
}

#[test]
fn a_signature_from_before_reaches_no_directory_outside_the_new_place() {
    let outer = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(outer.path().join("public/in")).unwrap();
    std::fs::create_dir_all(outer.path().join("private/deep")).unwrap();
    let before = signed(outer.path());
    if !before.traits().persistent_handles {
        return;
    }
    block_on(async {
        let public = before.lookup(&root(), &before.root(), b"public").await.unwrap();
        let inside = before.lookup(&root(), &public.handle, b"in").await.unwrap();
        let private = before.lookup(&root(), &before.root(), b"private").await.unwrap();
        let now = signed(&outer.path().join("public"));
        for handle in [before.root(), private.handle] {
            assert_eq!(error_of(now.getattr(&handle).await), StoreError::Stale);
            let found = now.lookup(&root(), &handle, b"deep").await;
            assert_eq!(error_of(found), StoreError::Stale);
        }
        assert_eq!(now.root(), public.handle);
        assert_eq!(now.getattr(&inside.handle).await.unwrap().fileid, inside.attr.fileid);
    });
}

#[test]
fn signed_handles_survive_a_rename_above_the_export() {
    let outer = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(outer.path().join("a/export/in")).unwrap();
    let store = signed(&outer.path().join("a/export"));
    if !store.traits().persistent_handles {
        return;
    }
    let inside = block_on(store.lookup(&root(), &store.root(), b"in")).unwrap();
    std::fs::rename(outer.path().join("a"), outer.path().join("b")).unwrap();
    store.release();
    assert_eq!(block_on(store.getattr(&inside.handle)).unwrap().fileid, inside.attr.fileid);
}

#[test]
fn garbage_is_refused() {
    in_both_modes(|s| async move {
        let mut raw = s.root().as_bytes().to_vec();
        for index in 0..raw.len() {
            raw[index] ^= 0x55;
            let forged = NodeHandle::new(&raw).unwrap();
            assert!(s.store.getattr(&forged).await.is_err(), "byte {index}");
            raw[index] ^= 0x55;
        }
        for len in 1..56 {
            let forged = NodeHandle::new(&vec![1; len]).unwrap();
            assert!(s.store.getattr(&forged).await.is_err());
        }
    });
}
