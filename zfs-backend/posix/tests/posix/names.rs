//! Creation, lookup, renaming, linking and removal of names.

use crate::fixture::*;
use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use tokio::sync::oneshot;
use zgate_io::continuation::Home;
use zgate_io::credentials::process_identity;
use zgate_posix::{DescriptorBudget, HandleMode, PosixOptions, PosixStore};
use zgate_store::file_store::{CreateMode, NamedObject, NewNode};
use zgate_store::{FileKind, FileStore, SetAttr, StoreError};

#[test]
fn a_tree_is_built_and_taken_down() {
    in_both_modes(|s| async move {
        let dir = s.mkdir(&s.root(), "dir").await;
        let made = s.create_as(&root(), &dir.handle, "file", 0o640).await.unwrap();
        assert!(made.created && made.dir.atomic && made.dir.after > made.dir.before);
        assert_eq!(made.node.attr.mode, 0o640);
        let found = s.lookup(&dir.handle, "file").await.unwrap();
        assert_eq!(found.handle, made.node.handle);
        let parent = s.store.lookup_parent(&root(), &dir.handle).await.unwrap();
        assert_eq!(parent.handle, s.root());
        let above = s.store.lookup_parent(&root(), &s.root()).await;
        assert_eq!(error_of(above), StoreError::NotFound);
        assert_eq!(error_of(s.lookup(&dir.handle, "nothing").await), StoreError::NotFound);
        assert_eq!(error_of(s.lookup(&made.node.handle, "x").await), StoreError::NotDirectory);
        let full = s.store.remove(&root(), &s.root(), b"dir", Some(FileKind::Directory)).await;
        assert_eq!(error_of(full), StoreError::NotEmpty);
        let wrong = s.store.remove(&root(), &s.root(), b"dir", Some(FileKind::Regular)).await;
        assert_eq!(error_of(wrong), StoreError::IsDirectory);
        let wrong = s.store.remove(&root(), &dir.handle, b"file", Some(FileKind::Directory)).await;
        assert_eq!(error_of(wrong), StoreError::NotDirectory);
        let change = s.store.remove(&root(), &dir.handle, b"file", None).await.unwrap();
        assert!(change.after > change.before);
        drop(made.open);
        s.store.remove(&root(), &s.root(), b"dir", Some(FileKind::Directory)).await.unwrap();
        assert_eq!(error_of(s.store.getattr(&dir.handle).await), StoreError::Stale);
        let orphan = s.create_as(&root(), &dir.handle, "x", 0o600).await;
        assert_eq!(error_of(orphan), StoreError::Stale);
    });
}

#[test]
fn the_wrong_type_comes_before_missing_rights() {
    in_both_modes(|s| async move {
        let own = process_identity();
        if own.uid == 0 && !is_root() {
            // It has all rights, and cannot take on the identity of somebody who has not.
            return;
        }
        let dir = s.mkdir(&s.root(), "dir").await.handle;
        s.create_as(&root(), &dir, "file", 0o644).await.unwrap();
        s.mkdir(&dir, "inner").await;
        let may_write = |bits| set_permissions(s.path("dir"), Permissions::from_mode(bits));
        may_write(0o555).unwrap();
        // The types are asked for after the kernel's refusal where it has handles, which only
        // root may use; an ordinary user knows them before.
        let who = if is_root() { user(1000, 1000) } else { own.clone() };
        let remove = async |name: &[u8], kind| s.store.remove(&who, &dir, name, kind).await;
        let wrong = remove(&b"file"[..], Some(FileKind::Directory)).await;
        assert_eq!(error_of(wrong), StoreError::NotDirectory);
        let wrong = remove(&b"inner"[..], Some(FileKind::Regular)).await;
        assert_eq!(error_of(wrong), StoreError::IsDirectory);
        for name in [&b"file"[..], b"inner"] {
            assert_eq!(error_of(remove(name, None).await), StoreError::AccessDenied);
        }
        assert_eq!(error_of(remove(&b"nothing"[..], None).await), StoreError::NotFound);
        // Its files can be deleted again.
        may_write(0o755).unwrap();
    });
}

#[test]
fn bad_names_never_reach_the_kernel() {
    in_both_modes(|s| async move {
        for name in [&b".."[..], b".", b"a/b", b"../x", b"a\0"] {
            let found = s.store.lookup(&root(), &s.root(), name).await;
            assert_eq!(error_of(found), StoreError::BadName);
            let removed = s.store.remove(&root(), &s.root(), name, None).await;
            assert_eq!(error_of(removed), StoreError::BadName);
        }
        let long = [b'x'; 256];
        let found = s.store.lookup(&root(), &s.root(), &long).await;
        assert_eq!(error_of(found), StoreError::NameTooLong);
    });
}

#[test]
fn the_three_ways_to_create() {
    in_both_modes(|s| async move {
        let (first, open) = s.file("f").await;
        s.write(&open, 0, b"content").await;
        let again = s.create_as(&root(), &s.root(), "f", 0o600).await;
        assert_eq!(error_of(again.map(|_| ())), StoreError::Exists);

        let cut = SetAttr { size: Some(0), mode: Some(0o777), ..SetAttr::default() };
        let unchecked = s
            .store
            .create_file(&root(), &s.root(), b"f", CreateMode::Unchecked, &cut)
            .await
            .unwrap();
        assert!(!unchecked.created && unchecked.open.is_none());
        assert_eq!(unchecked.node.handle, first.handle);
        assert_eq!((unchecked.node.attr.size, unchecked.node.attr.mode), (0, 0o644));

        let exclusive = |verifier| {
            let s = s.clone();
            async move {
                let mode = CreateMode::Exclusive(verifier);
                s.store.create_file(&root(), &s.root(), b"x", mode, &mode_bits()).await
            }
        };
        let one = exclusive([0x91, 2, 3, 4, 5, 6, 7, 8]).await.unwrap();
        assert!(one.created);
        let replay = exclusive([0x91, 2, 3, 4, 5, 6, 7, 8]).await.unwrap();
        assert!(replay.created && replay.open.is_some());
        assert_eq!(replay.node.handle, one.node.handle);
        assert_eq!(replay.dir.before, replay.dir.after);
        let other = exclusive([1, 2, 3, 4, 5, 6, 7, 9]).await;
        assert_eq!(error_of(other.map(|_| ())), StoreError::Exists);

        s.mkdir(&s.root(), "d").await;
        let found = s
            .store
            .create_file(&root(), &s.root(), b"d", CreateMode::Unchecked, &cut)
            .await
            .unwrap();
        assert!(!found.created);
        assert_eq!(found.node.attr.kind, FileKind::Directory);
    });
}

fn mode_bits() -> SetAttr {
    mode(0o400)
}

#[test]
fn all_kinds_of_objects() {
    in_both_modes(|s| async move {
        let link = NewNode::Symlink(b"../outside/target".to_vec());
        let (node, change) = s
            .store
            .create_node(&root(), &s.root(), b"link", &link, &SetAttr::default())
            .await
            .unwrap();
        assert!(change.after > change.before);
        assert_eq!(node.attr.kind, FileKind::Symlink);
        let target = s.store.readlink(&root(), &node.handle).await.unwrap();
        assert_eq!(target, b"../outside/target");
        assert_eq!(error_of(s.lookup(&node.handle, "x").await), StoreError::IsSymlink);
        assert_eq!(error_of(s.store.readlink(&root(), &s.root()).await), StoreError::WrongType);
        let mut kinds = vec![(NewNode::Fifo, FileKind::Fifo), (NewNode::Socket, FileKind::Socket)];
        if is_root() {
            kinds.push((NewNode::CharDevice(1, 3), FileKind::CharDevice));
            kinds.push((NewNode::BlockDevice(7, 9), FileKind::BlockDevice));
        }
        for (index, (what, kind)) in kinds.into_iter().enumerate() {
            let name = format!("node{index}");
            let (node, _) = s
                .store
                .create_node(&root(), &s.root(), name.as_bytes(), &what, &mode(0o620))
                .await
                .unwrap();
            assert_eq!((node.attr.kind, node.attr.mode), (kind, 0o620));
            if let NewNode::CharDevice(major, minor) = what {
                assert_eq!(node.attr.rdev, (major, minor));
            }
            let opened = s.store.open(&root(), &node.handle, READ).await;
            assert_eq!(error_of(opened), StoreError::WrongType);
        }
        let (dir, _) = s
            .store
            .create_node(&root(), &s.root(), b"sgid", &NewNode::Directory, &mode(0o2775))
            .await
            .unwrap();
        assert_eq!(dir.attr.mode, 0o2775);
        let again = s
            .store
            .create_node(&root(), &s.root(), b"sgid", &NewNode::Directory, &mode(0o755))
            .await;
        assert_eq!(error_of(again), StoreError::Exists);
    });
}

#[test]
fn renaming_keeps_handles_and_numbers() {
    in_both_modes(|s| async move {
        let (one, two) = (s.mkdir(&s.root(), "one").await, s.mkdir(&s.root(), "two").await);
        let inner = s.mkdir(&one.handle, "inner").await;
        let made = s.create_as(&root(), &inner.handle, "file", 0o644).await.unwrap();
        drop(made.open);
        let (from, to) =
            s.store.rename(&root(), &one.handle, b"inner", &two.handle, b"moved").await.unwrap();
        assert!(from.after > from.before && to.after > to.before);
        s.store.release();
        let attr = s.store.getattr(&made.node.handle).await.unwrap();
        assert_eq!(attr.fileid, made.node.attr.fileid);
        let found = s.lookup(&two.handle, "moved").await.unwrap();
        assert_eq!(found.handle, inner.handle);
        let parent = s.store.lookup_parent(&root(), &inner.handle).await.unwrap();
        assert_eq!(parent.handle, two.handle);

        // Renaming onto another object replaces it.
        let (victim, victim_open) = s.file("victim").await;
        drop(victim_open);
        let (mover, _open) = s.file("mover").await;
        s.store.rename(&root(), &s.root(), b"mover", &s.root(), b"victim").await.unwrap();
        assert_eq!(error_of(s.store.getattr(&victim.handle).await), StoreError::Stale);
        assert_eq!(s.lookup(&s.root(), "victim").await.unwrap().handle, mover.handle);

        let loop_ = s.store.rename(&root(), &s.root(), b"two", &inner.handle, b"x").await;
        assert_eq!(error_of(loop_), StoreError::Invalid);
        let missing = s.store.rename(&root(), &s.root(), b"no", &s.root(), b"x").await;
        assert_eq!(error_of(missing), StoreError::NotFound);
    });
}

#[test]
fn hard_links() {
    in_both_modes(|s| async move {
        let (file, _open) = s.file("a").await;
        let change = s.store.link(&root(), &file.handle, &s.root(), b"b").await.unwrap();
        assert!(change.after > change.before);
        let linked = s.lookup(&s.root(), "b").await.unwrap();
        assert_eq!((linked.handle, linked.attr.nlink), (file.handle, 2));
        assert!(linked.attr.change > file.attr.change);
        let again = s.store.link(&root(), &file.handle, &s.root(), b"b").await;
        assert_eq!(error_of(again), StoreError::Exists);
        // Renaming onto another link of the same file does nothing.
        let (from, _) = s.store.rename(&root(), &s.root(), b"a", &s.root(), b"b").await.unwrap();
        assert_eq!(from.before, from.after);
        assert!(s.lookup(&s.root(), "a").await.is_ok());
        let dir = s.mkdir(&s.root(), "d").await;
        let linked = s.store.link(&root(), &dir.handle, &s.root(), b"e").await;
        assert_eq!(error_of(linked), StoreError::IsDirectory);
        // One name is removed, the handle stays valid.
        s.store.remove(&root(), &s.root(), b"b", None).await.unwrap();
        s.store.release();
        assert_eq!(s.store.getattr(&file.handle).await.unwrap().nlink, 1);
        let link = NewNode::Symlink(b"t".to_vec());
        let (link, _) = s
            .store
            .create_node(&root(), &s.root(), b"l", &link, &SetAttr::default())
            .await
            .unwrap();
        s.store.link(&root(), &link.handle, &s.root(), b"l2").await.unwrap();
        assert_eq!(s.lookup(&s.root(), "l2").await.unwrap().handle, link.handle);
    });
}

#[test]
fn many_at_once_in_one_directory() {
    in_both_modes(|s| async move {
        let local = tokio::task::LocalSet::new();
        local
            .run_until(async {
                let mut tasks = Vec::new();
                for task in 0..8 {
                    let s = s.clone();
                    tasks.push(tokio::task::spawn_local(async move {
                        for round in 0..40 {
                            let (a, b) = (format!("a{task}-{round}"), format!("b{task}-{round}"));
                            let made = s.create_as(&root(), &s.root(), &a, 0o644).await.unwrap();
                            let open = made.open.unwrap();
                            s.write(&open, 0, a.as_bytes()).await;
                            let (from, to) = (a.as_bytes(), b.as_bytes());
                            s.store.rename(&root(), &s.root(), from, &s.root(), to).await.unwrap();
                            assert_eq!(s.read(&open, 0, 100).await.0, a.as_bytes());
                            let found = s.lookup(&s.root(), &b).await.unwrap();
                            assert_eq!(found.handle, made.node.handle);
                            s.store.remove(&root(), &s.root(), to, None).await.unwrap();
                        }
                    }));
                }
                for task in tasks {
                    task.await.unwrap();
                }
            })
            .await;
        assert_eq!(std::fs::read_dir(s.dir.path()).unwrap().count(), 0);
    });
}

#[test]
fn anything_can_be_brought_to_stable_storage() {
    in_both_modes(|s| async move {
        let who = root();
        let attrs = mode(0o700);
        let mut nodes = vec![s.root()];
        let made = s.store.create_file(&who, &s.root(), b"f", CreateMode::Guarded, &mode(0)).await;
        nodes.push(made.unwrap().node.handle);
        let link = NewNode::Symlink(b"f".to_vec());
        for (name, what) in [(&b"d"[..], NewNode::Directory), (b"l", link), (b"p", NewNode::Fifo)] {
            let made = s.store.create_node(&who, &s.root(), name, &what, &attrs).await;
            nodes.push(made.unwrap().0.handle);
        }
        s.store.release();
        s.store.sync_objects(&nodes).await.unwrap();
        s.store.remove(&who, &s.root(), b"d", None).await.unwrap();
        s.store.sync_objects(&nodes).await.unwrap();
    });
}

#[test]
fn a_change_alone_is_synced_by_the_worker_that_made_it() {
    const TMPFS_MAGIC: u64 = 0x0102_1994;
    // On a disk: names of a memory file system need no sync, and the test could not fail.
    let at = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let found = rustix::fs::statfs(at.path()).unwrap();
    if found.f_type.cast_unsigned() == TMPFS_MAGIC {
        return;
    }
    let store = open_store(at.path(), HandleMode::Auto);
    let here = || std::thread::current().id();
    block_on(async {
        let (home, returning) = Home::new(tokio::runtime::Handle::current());
        let (waits, told) = std::sync::mpsc::channel::<()>();
        let (done, ended) = oneshot::channel();
        let of_request = Arc::clone(&store);
        home.begin(async move {
            // A call that ends before its request waits is no reason to leave the core.
            let call = move || told.recv().map(|()| here());
            let worker = of_request.engine().run(call).await.unwrap().unwrap();
            let (who, top, bits) = (root(), of_request.root(), mode(0o755));
            let what = NewNode::Directory;
            let made = of_request.create_node(&who, &top, b"dir", &what, &bits).await;
            let made_by = here();
            let of = NamedObject::Changed(made.unwrap().0.handle);
            let synced = of_request.sync_names(of, &[top]).await;
            let by_names = here();
            let synced = synced.and(of_request.sync_objects(&[top]).await);
            let _ = done.send((synced, [worker, made_by, by_names, here()]));
        });
        waits.send(()).unwrap();
        let (synced, threads) = tokio::select! {
            result = ended => result.unwrap(),
            () = returning.run() => panic!("the core has ended"),
        };
        assert_eq!(synced, Ok(()));
        assert_eq!(threads, [threads[0]; 4]);
        assert_ne!(threads[0], here());
    });
}

#[test]
fn a_change_that_is_made_is_synced_without_a_free_descriptor() {
    for handle_mode in [HandleMode::Auto, HandleMode::InTree] {
        // On a disk: names of a memory file system need no sync.
        let at = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let descriptors = DescriptorBudget::new(8);
        let options = PosixOptions { descriptors, ..options(handle_mode) };
        let store = PosixStore::open(at.path(), options).unwrap();
        block_on(async {
            let (who, top, bits) = (root(), store.root(), mode(0o755));
            let made = store.create_node(&who, &top, b"dir", &NewNode::Directory, &bits).await;
            let dir = made.unwrap().0.handle;
            store.release();
            let mut held = Vec::new();
            let refused = loop {
                let name = format!("f{}", held.len()).into_bytes();
                match store.create_file(&who, &top, &name, CreateMode::Guarded, &bits).await {
                    Ok(made) => held.push(made),
                    Err(error) => break error,
                }
            };
            assert_eq!(refused, StoreError::OutOfResources);
            // Nor is it taken for gone.
            assert_eq!(error_of(store.getattr(&dir).await), StoreError::OutOfResources);
            assert_eq!(store.sync_names(NamedObject::Unchanged, &[dir]).await, Ok(()));
            assert_eq!(store.sync_objects(&[dir]).await, Ok(()));
        });
    }
}
