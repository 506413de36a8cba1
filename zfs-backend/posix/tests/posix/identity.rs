//! Several callers, each limited by the kernel's permission checks. Needs root.

use crate::fixture::*;
use bytes::Bytes;
use std::sync::Arc;
use zgate_store::file_store::{CreateMode, NewNode, OpenAccess, Stability};
use zgate_store::{Caller, FileStore, SetAttr, StoreError};

#[test]
fn files_belong_to_their_creator() {
    in_both_modes(|s| async move {
        if !is_root() {
            return;
        }
        let alice = Caller { uid: 1001, gid: 2001, groups: Arc::from([3001, 3002]) };
        let made = s.create_as(&alice, &s.root(), "f", 0o600).await.unwrap();
        assert_eq!((made.node.attr.uid, made.node.attr.gid), (1001, 2001));
        let (dir, _) = s
            .store
            .create_node(&alice, &s.root(), b"d", &NewNode::Directory, &mode(0o700))
            .await
            .unwrap();
        assert_eq!((dir.attr.uid, dir.attr.gid), (1001, 2001));
        let given = SetAttr { gid: Some(3002), ..SetAttr::default() };
        let attr = s.store.setattr(&alice, &dir.handle, &given, None).await.unwrap();
        assert_eq!(attr.gid, 3002);
        for foreign in [
            SetAttr { gid: Some(4000), ..SetAttr::default() },
            SetAttr { uid: Some(0), ..SetAttr::default() },
        ] {
            let refused = s.store.setattr(&alice, &dir.handle, &foreign, None).await;
            assert_eq!(error_of(refused), StoreError::NotPermitted);
        }
    });
}

#[test]
fn others_are_kept_out() {
    in_both_modes(|s| async move {
        if !is_root() {
            return;
        }
        let (alice, bob) = (user(1001, 2001), user(1002, 2002));
        let (dir, _) = s
            .store
            .create_node(&alice, &s.root(), b"private", &NewNode::Directory, &mode(0o700))
            .await
            .unwrap();
        let secret = s.create_as(&alice, &dir.handle, "secret", 0o600).await.unwrap();
        // Twice: from the worker and, cached, from this thread.
        for _ in 0..2 {
            let found = s.store.lookup(&bob, &dir.handle, b"secret").await;
            assert_eq!(error_of(found), StoreError::AccessDenied);
            assert!(s.store.lookup(&alice, &dir.handle, b"secret").await.is_ok());
        }
        let h = &secret.node.handle;
        assert_eq!(error_of(s.store.open(&bob, h, READ).await), StoreError::AccessDenied);
        let listed = s.store.readdir(&bob, &dir.handle, 0, 10, true).await;
        assert_eq!(error_of(listed), StoreError::AccessDenied);
        let made = s.create_as(&bob, &dir.handle, "x", 0o600).await;
        assert_eq!(error_of(made.map(|_| ())), StoreError::AccessDenied);
        let gone = s.store.remove(&bob, &dir.handle, b"secret", None).await;
        assert_eq!(error_of(gone), StoreError::AccessDenied);
        let moved = s.store.rename(&bob, &dir.handle, b"secret", &s.root(), b"mine").await;
        assert_eq!(error_of(moved), StoreError::AccessDenied);
        let chmod = s.store.setattr(&bob, h, &mode(0o666), None).await;
        assert_eq!(error_of(chmod), StoreError::NotPermitted);
        let cut = SetAttr { size: Some(0), ..SetAttr::default() };
        let cut = s.store.setattr(&bob, h, &cut, None).await;
        assert_eq!(error_of(cut), StoreError::AccessDenied);
        let mask = s.store.access(&bob, h).await.unwrap();
        assert!(!mask.read && !mask.write && !mask.execute);
        let mask = s.store.access(&alice, h).await.unwrap();
        assert!(mask.read && mask.write && !mask.execute);
        // Listing needs read permission, attributes need search permission.
        s.store.setattr(&alice, &dir.handle, &mode(0o744), None).await.unwrap();
        let page = s.store.readdir(&bob, &dir.handle, 0, 10, true).await.unwrap();
        assert_eq!(page.entries[0].node, Err(StoreError::AccessDenied));
    });
}

#[test]
fn the_owner_and_stateless_opens() {
    in_both_modes(|s| async move {
        if !is_root() {
            return;
        }
        let (alice, bob) = (user(1001, 2001), user(1002, 2002));
        let made = s.create_as(&alice, &s.root(), "f", 0o000).await.unwrap();
        let h = made.node.handle;
        // The creator's descriptor works regardless of the mode.
        s.write(made.open.as_ref().unwrap(), 0, b"data").await;
        assert_eq!(error_of(s.store.open(&alice, &h, READ_WRITE).await), StoreError::AccessDenied);
        let stateless = OpenAccess { stateless: true, ..READ_WRITE };
        let open = s.store.open(&alice, &h, stateless).await.unwrap();
        s.write(&open, 0, b"more").await;
        assert_eq!(error_of(s.store.open(&bob, &h, stateless).await), StoreError::AccessDenied);
        let cut = SetAttr { size: Some(1), ..SetAttr::default() };
        assert_eq!(s.store.setattr(&alice, &h, &cut, None).await.unwrap().size, 1);
        // A program may be read by a caller who may execute it.
        s.store.setattr(&alice, &h, &mode(0o711), None).await.unwrap();
        let read = OpenAccess { read: true, write: false, stateless: true, read_by_execute: false };
        assert!(s.store.open(&bob, &h, read).await.is_ok());
        assert_eq!(error_of(s.store.open(&bob, &h, READ).await), StoreError::AccessDenied);
        // So it may by an OPEN; that gives no other right.
        let run = OpenAccess { read_by_execute: true, ..READ };
        let open = s.store.open(&bob, &h, run).await.unwrap();
        assert_eq!(s.read(&open, 0, 1).await.0, b"m");
        let change = OpenAccess { write: true, ..run };
        assert_eq!(error_of(s.store.open(&bob, &h, change).await), StoreError::AccessDenied);
        s.store.setattr(&alice, &h, &mode(0o700), None).await.unwrap();
        assert_eq!(error_of(s.store.open(&bob, &h, run).await), StoreError::AccessDenied);
        s.store.setattr(&alice, &h, &mode(0o000), None).await.unwrap();
        assert_eq!(error_of(s.store.open(&alice, &h, run).await), StoreError::AccessDenied);
    });
}

#[test]
fn writing_clears_set_id_bits_unless_root_writes() {
    in_both_modes(|s| async move {
        if !is_root() {
            return;
        }
        let bob = user(1002, 2002);
        let (node, _open) = s.file("f").await;
        s.store.setattr(&root(), &node.handle, &mode(0o6777), None).await.unwrap();
        let open = s.store.open(&root(), &node.handle, READ_WRITE).await.unwrap();
        s.write(&open, 0, b"x").await;
        assert_eq!(s.store.getattr(&node.handle).await.unwrap().mode, 0o6777);
        let open = s.store.open(&bob, &node.handle, READ_WRITE).await.unwrap();
        s.store.write(&open, 0, Bytes::from_static(b"y"), Stability::Unstable).await.unwrap();
        assert_eq!(s.store.getattr(&node.handle).await.unwrap().mode, 0o777);
    });
}

#[test]
fn sticky_directories_and_existing_names() {
    in_both_modes(|s| async move {
        if !is_root() {
            return;
        }
        let (alice, bob) = (user(1001, 2001), user(1002, 2002));
        s.store.setattr(&root(), &s.root(), &mode(0o1777), None).await.unwrap();
        s.create_as(&alice, &s.root(), "f", 0o666).await.unwrap();
        let gone = s.store.remove(&bob, &s.root(), b"f", None).await;
        assert!(matches!(error_of(gone), StoreError::NotPermitted | StoreError::AccessDenied));
        s.store.setattr(&root(), &s.root(), &mode(0o755), None).await.unwrap();
        // An existing file can be opened in a directory where none can be
        // created.
        let found = s
            .store
            .create_file(&bob, &s.root(), b"f", CreateMode::Unchecked, &SetAttr::default())
            .await
            .unwrap();
        assert!(!found.created);
        let made = s.create_as(&bob, &s.root(), "g", 0o666).await;
        assert_eq!(error_of(made.map(|_| ())), StoreError::AccessDenied);
        let gone = s.store.remove(&alice, &s.root(), b"f", None).await;
        assert_eq!(error_of(gone), StoreError::AccessDenied);
    });
}

#[test]
fn nobody_wears_the_no_change_id() {
    in_both_modes(|s| async move {
        if !is_root() {
            return;
        }
        let made = s.create_as(&user(u32::MAX, 5), &s.root(), "f", 0o600).await;
        assert!(made.is_err());
        assert!(!s.path("f").exists());
    });
}

#[test]
fn identities_do_not_mix_under_load() {
    in_both_modes(|s| async move {
        if !is_root() {
            return;
        }
        let local = tokio::task::LocalSet::new();
        local
            .run_until(async {
                let mut tasks = Vec::new();
                for uid in 5000..5012 {
                    let s = s.clone();
                    tasks.push(tokio::task::spawn_local(async move {
                        let who = user(uid, uid + 1000);
                        for round in 0..30 {
                            let name = format!("u{uid}-{round}");
                            let made = s.create_as(&who, &s.root(), &name, 0o600).await.unwrap();
                            assert_eq!(made.node.attr.uid, uid);
                            let other = user(uid + 100, 1);
                            let h = &made.node.handle;
                            let refused = s.store.open(&other, h, READ).await;
                            assert_eq!(error_of(refused), StoreError::AccessDenied);
                            assert!(s.store.open(&who, h, READ).await.is_ok());
                            let found =
                                s.store.lookup(&who, &s.root(), name.as_bytes()).await.unwrap();
                            assert_eq!(found.attr.gid, uid + 1000);
                        }
                    }));
                }
                for task in tasks {
                    task.await.unwrap();
                }
            })
            .await;
    });
}

#[test]
fn without_root_the_mode_bits_decide() {
    in_both_modes(|s| async move {
        if is_root() {
            return;
        }
        let own = zgate_io::credentials::process_identity();
        let (me, other) = (user(own.uid, own.gid), user(own.uid + 1, own.gid + 1));
        let made = s.create_as(&me, &s.root(), "f", 0o640).await.unwrap();
        let h = made.node.handle;
        assert!(s.store.open(&me, &h, READ_WRITE).await.is_ok());
        assert_eq!(error_of(s.store.open(&other, &h, READ).await), StoreError::AccessDenied);
        let mask = s.store.access(&other, &h).await.unwrap();
        assert!(!mask.read && !mask.write);
        let chmod = s.store.setattr(&other, &h, &mode(0o666), None).await;
        assert_eq!(error_of(chmod), StoreError::NotPermitted);
        let given = SetAttr { uid: Some(own.uid + 1), ..SetAttr::default() };
        let given = s.store.setattr(&me, &h, &given, None).await;
        assert_eq!(error_of(given), StoreError::NotPermitted);
        s.store.setattr(&me, &s.root(), &mode(0o755), None).await.unwrap();
        let made = s.create_as(&other, &s.root(), "g", 0o600).await;
        assert_eq!(error_of(made.map(|_| ())), StoreError::AccessDenied);
        let gone = s.store.remove(&other, &s.root(), b"f", None).await;
        assert_eq!(error_of(gone), StoreError::AccessDenied);
        s.store.setattr(&me, &s.root(), &mode(0o700), None).await.unwrap();
        let found = s.store.lookup(&other, &s.root(), b"f").await;
        assert_eq!(error_of(found), StoreError::AccessDenied);
        let listed = s.store.readdir(&other, &s.root(), 0, 5, true).await;
        assert_eq!(error_of(listed), StoreError::AccessDenied);
    });
}
