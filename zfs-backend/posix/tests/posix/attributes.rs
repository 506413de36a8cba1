//! Attributes, change numbers, extended attributes, ACLs.

use crate::fixture::*;
use zgate_store::file_store::{NewNode, PosixAcl, PosixAclEntry, PosixAclTag, XattrSet};
use zgate_store::{FileKind, FileStore, SetAttr, SetTime, StoreError, Timestamp};

#[test]
fn attributes_are_set_and_told() {
    in_both_modes(|s| async move {
        let (node, _open) = s.file("f").await;
        let when = Timestamp { seconds: 1_000_000_000, nanoseconds: 123_456_789 };
        let changes = SetAttr {
            mode: Some(0o4751),
            uid: is_root().then_some(1000),
            gid: is_root().then_some(1001),
            size: Some(77),
            atime: Some(SetTime::At(when)),
            mtime: Some(SetTime::At(Timestamp { seconds: -5, nanoseconds: 0 })),
            btime: None,
        };
        let attr = s.store.setattr(&root(), &node.handle, &changes, None).await.unwrap();
        // A chown clears set-id bits; the requested mode is set afterwards.
        assert_eq!((attr.mode, attr.size), (0o4751, 77));
        assert_eq!(attr.atime, when);
        assert_eq!(attr.mtime.seconds, -5);
        if is_root() {
            assert_eq!((attr.uid, attr.gid), (1000, 1001));
        }
        assert!(attr.change > node.attr.change);
        assert_eq!(s.store.getattr(&node.handle).await.unwrap(), attr);
        let now = SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() };
        let later = s.store.setattr(&root(), &node.handle, &now, None).await.unwrap();
        assert!(later.mtime.seconds > 1_700_000_000);
        assert_eq!(later.atime, when);
        let nobody = SetAttr { uid: Some(u32::MAX), ..SetAttr::default() };
        let refused = s.store.setattr(&root(), &node.handle, &nobody, None).await;
        assert!(matches!(error_of(refused), StoreError::Invalid | StoreError::NotPermitted));
    });
}

#[test]
fn who_may_write_may_cut_and_touch() {
    in_both_modes(|s| async move {
        if !is_root() {
            return;
        }
        let (alice, bob) = (user(1001, 2001), user(1002, 2002));
        let made = s.create_as(&alice, &s.root(), "f", 0o666).await.unwrap();
        s.write(made.open.as_ref().unwrap(), 0, b"data").await;
        let h = made.node.handle;
        let touch = SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() };
        let long_ago = Some(SetTime::At(Timestamp { seconds: 1, nanoseconds: 0 }));
        let by_hand = SetAttr { mtime: long_ago, ..SetAttr::default() };
        // Nothing is cut off for a request that is refused.
        for refused in [by_hand.clone(), mode(0o600)] {
            let refused = SetAttr { size: Some(0), ..refused };
            let refused = s.store.setattr(&bob, &h, &refused, None).await;
            assert_eq!(error_of(refused), StoreError::NotPermitted);
        }
        assert_eq!(s.store.getattr(&h).await.unwrap().size, 4);
        // As a client truncates a file for open(2).
        let cut = SetAttr { size: Some(0), ..touch.clone() };
        s.store.setattr(&alice, &h, &by_hand, None).await.unwrap();
        let after = s.store.setattr(&bob, &h, &cut, None).await.unwrap();
        assert!(after.size == 0 && after.mtime.seconds > 1, "{after:?}");
        // Also where the size stays the same.
        s.store.setattr(&alice, &h, &by_hand, None).await.unwrap();
        assert!(s.store.setattr(&bob, &h, &cut, None).await.unwrap().mtime.seconds > 1);
        s.store.setattr(&alice, &h, &by_hand, None).await.unwrap();
        assert!(s.store.setattr(&bob, &h, &touch, None).await.unwrap().mtime.seconds > 1);
        let own_group = SetAttr { gid: Some(2002), ..SetAttr::default() };
        let touched_mode = SetAttr { mode: Some(0o600), ..touch.clone() };
        for refused in [by_hand, own_group, mode(0o600), touched_mode] {
            let set = s.store.setattr(&bob, &h, &refused, None).await;
            assert_eq!(error_of(set), StoreError::NotPermitted, "{refused:?}");
        }
        assert_eq!(s.store.getattr(&h).await.unwrap().mode, 0o666);
        s.store.setattr(&alice, &h, &mode(0o644), None).await.unwrap();
        let set = s.store.setattr(&bob, &h, &touch, None).await;
        assert_eq!(error_of(set), StoreError::AccessDenied);
    });
}

#[test]
fn times_and_modes_are_those_of_the_object_itself() {
    in_both_modes(|s| async move {
        let (file, open) = s.file("f").await;
        let (closed, _) = s.file("g").await;
        let dir = s.mkdir(&s.root(), "d").await;
        let what = NewNode::Symlink(b"f".to_vec());
        let made = s.store.create_node(&root(), &s.root(), b"l", &what, &SetAttr::default()).await;
        let (link, _) = made.unwrap();
        let when = Timestamp { seconds: 1_000_000_000, nanoseconds: 5 };
        let changes = SetAttr { mtime: Some(SetTime::At(when)), ..mode(0o700) };
        for node in [&link, &closed, &dir] {
            let attr = s.store.setattr(&root(), &node.handle, &changes, None).await.unwrap();
            assert_eq!((attr.kind, attr.mtime), (node.attr.kind, when));
            let is_link = attr.kind == FileKind::Symlink;
            assert_eq!(attr.mode, if is_link { node.attr.mode } else { 0o700 });
        }
        let attr = s.store.getattr(&file.handle).await.unwrap();
        assert_eq!((attr.mode, attr.mtime), (0o644, file.attr.mtime), "the link was not followed");
        // A file that is open.
        let set = s.store.setattr(&root(), &file.handle, &changes, Some(&open)).await.unwrap();
        assert_eq!((set.mode, set.mtime), (0o700, when));
    });
}

#[test]
fn attributes_of_an_object_that_is_gone_are_not_set() {
    in_both_modes(|s| async move {
        for (name, changes) in [("f", mode(0o600)), ("g", SetAttr { size: Some(1), ..mode(0o600) })]
        {
            let (node, open) = s.file(name).await;
            drop(open);
            std::fs::remove_file(s.path(name)).unwrap();
            let set = s.store.setattr(&root(), &node.handle, &changes, None).await;
            assert_eq!(error_of(set), StoreError::Stale);
        }
    });
}

#[test]
fn every_write_moves_the_change_number() {
    in_both_modes(|s| async move {
        let (node, file) = s.file("f").await;
        let mut last = node.attr.change;
        for round in 0..1000u32 {
            s.write(&file, 0, &round.to_le_bytes()).await;
            let next = s.store.getattr(&node.handle).await.unwrap().change;
            assert!(next > last, "round {round}");
            assert_eq!(s.store.getattr(&node.handle).await.unwrap().change, next);
            last = next;
        }
        let mut last = s.store.getattr(&s.root()).await.unwrap().change;
        for round in 0..200 {
            let made = s.create_as(&root(), &s.root(), &format!("x{round}"), 0o600).await.unwrap();
            assert_eq!(made.dir.before, last);
            assert!(made.dir.after > last);
            last = made.dir.after;
        }
    });
}

#[test]
fn changes_made_elsewhere_are_seen() {
    in_both_modes(|s| async move {
        let (node, _) = s.file("f").await;
        let before = s.store.getattr(&node.handle).await.unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        std::fs::write(s.path("f"), b"from the host").unwrap();
        let after = s.store.getattr(&node.handle).await.unwrap();
        assert_eq!(after.size, 13);
        assert!(after.change > before.change);
    });
}

#[test]
fn extended_attributes() {
    in_both_modes(|s| async move {
        if !s.store.traits().xattrs {
            return;
        }
        let (node, _open) = s.file("f").await;
        let (store, h) = (&s.store, &node.handle);
        assert_eq!(error_of(store.get_xattr(&root(), h, b"a").await), StoreError::NoXattr);
        let set = store.set_xattr(&root(), h, b"b", b"two", XattrSet::Create).await.unwrap();
        assert!(set.after > set.before);
        store.set_xattr(&root(), h, b"a", b"", XattrSet::Either).await.unwrap();
        let twice = store.set_xattr(&root(), h, b"a", b"", XattrSet::Create).await;
        assert_eq!(error_of(twice), StoreError::Exists);
        let absent = store.set_xattr(&root(), h, b"c", b"", XattrSet::Replace).await;
        assert_eq!(error_of(absent), StoreError::NoXattr);
        assert_eq!(store.get_xattr(&root(), h, b"b").await.unwrap(), b"two");
        assert_eq!(store.get_xattr(&root(), h, b"a").await.unwrap(), b"");
        let big = vec![9; 2000];
        store.set_xattr(&root(), h, b"big", &big, XattrSet::Either).await.unwrap();
        assert_eq!(store.get_xattr(&root(), h, b"big").await.unwrap(), big);
        let names = store.list_xattrs(&root(), h).await.unwrap();
        assert_eq!(names, [b"a".to_vec(), b"b".to_vec(), b"big".to_vec()]);
        let removed = store.remove_xattr(&root(), h, b"a").await.unwrap();
        assert!(removed.after > removed.before);
        assert_eq!(error_of(store.remove_xattr(&root(), h, b"a").await), StoreError::NoXattr);
        let huge = vec![0; 70_000];
        let set = store.set_xattr(&root(), h, b"h", &huge, XattrSet::Either).await;
        assert_eq!(error_of(set), StoreError::XattrTooBig);
        let long = [b'n'; 252];
        let set = store.set_xattr(&root(), h, &long, b"", XattrSet::Either).await;
        assert_eq!(error_of(set), StoreError::NameTooLong);
    });
}

#[test]
fn acls() {
    in_both_modes(|s| async move {
        let (node, _open) = s.file("f").await;
        let plain = s.store.get_acl(&node.handle).await.unwrap();
        let perms: Vec<_> = plain.access.iter().map(|entry| entry.perms).collect();
        assert_eq!(perms, [6, 4, 4]);
        if !s.store.traits().acls {
            return;
        }
        let entry = |tag, perms| PosixAclEntry { tag, perms };
        let access = vec![
            entry(PosixAclTag::UserObj, 6),
            entry(PosixAclTag::User(4242), 6),
            entry(PosixAclTag::GroupObj, 4),
            entry(PosixAclTag::Mask, 6),
            entry(PosixAclTag::Other, 0),
        ];
        let acl = PosixAcl { access: access.clone(), default: vec![] };
        s.store.set_acl(&root(), &node.handle, &acl).await.unwrap();
        assert_eq!(s.store.get_acl(&node.handle).await.unwrap(), acl);
        if is_root() {
            let named = s.store.access(&user(4242, 1), &node.handle).await.unwrap();
            assert!(named.read && named.write && !named.execute);
            let other = s.store.access(&user(4243, 1), &node.handle).await.unwrap();
            assert!(!other.read && !other.write);
        }
        let with_default = PosixAcl { access: plain.access.clone(), default: access };
        let refused = s.store.set_acl(&root(), &node.handle, &with_default).await;
        assert_eq!(error_of(refused), StoreError::NotSupported);
        s.store.set_acl(&root(), &s.root(), &with_default).await.unwrap();
        assert_eq!(s.store.get_acl(&s.root()).await.unwrap(), with_default);
        s.store.set_acl(&root(), &s.root(), &plain).await.unwrap();
        assert!(s.store.get_acl(&s.root()).await.unwrap().default.is_empty());
    });
}

/// The mode of a new object and the default ACL of its directory limit each other.
#[test]
fn a_new_object_with_set_id_bits_has_no_more_rights_than_the_default_acl() {
    in_both_modes(|s| async move {
        if !s.store.traits().acls {
            return;
        }
        let entry = |tag, perms| PosixAclEntry { tag, perms };
        let default = vec![
            entry(PosixAclTag::UserObj, 7),
            entry(PosixAclTag::GroupObj, 5),
            entry(PosixAclTag::Other, 0),
        ];
        let access = s.store.get_acl(&s.root()).await.unwrap().access;
        s.store.set_acl(&root(), &s.root(), &PosixAcl { access, default }).await.unwrap();
        let file = s.create_as(&root(), &s.root(), "f", 0o4777).await.unwrap();
        assert_eq!(file.node.attr.mode, 0o4750);
        let (what, bits) = (NewNode::Directory, mode(0o2777));
        let made = s.store.create_node(&root(), &s.root(), b"d", &what, &bits).await;
        assert_eq!(made.unwrap().0.attr.mode, 0o2750);
    });
}
