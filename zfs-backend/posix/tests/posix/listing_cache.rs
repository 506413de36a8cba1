//! READDIR's cache is never older than the last change by a client.

use crate::fixture::*;
use std::collections::BTreeMap;
use std::time::Duration;
use zgate_store::{Attr, FileStore, NodeHandle, SetAttr, SetTime, StoreError, Timestamp};

/// Longer than the cache is valid.
const LIFE: Duration = Duration::from_millis(1100);

async fn attrs(s: &Fixture, dir: &NodeHandle) -> BTreeMap<String, Attr> {
    let (mut all, mut cookie) = (BTreeMap::new(), 0);
    loop {
        let page = s.store.readdir(&root(), dir, cookie, 64, true).await.unwrap();
        for entry in &page.entries {
            let name = String::from_utf8(entry.name.clone()).unwrap();
            assert!(all.insert(name, entry.node.unwrap().attr).is_none(), "once only");
            cookie = entry.cookie;
        }
        if page.end {
            return all;
        }
    }
}

#[test]
fn what_clients_do_shows_at_once() {
    in_both_modes(|s| async move {
        let dir = s.mkdir(&s.root(), "d").await.handle;
        for n in 0..200 {
            s.create_as(&root(), &dir, &format!("f{n}"), 0o644).await.unwrap();
        }
        assert_eq!(attrs(&s, &dir).await.len(), 200);
        for n in 0..50 {
            let name = format!("f{n}");
            let node = s.lookup(&dir, &name).await.unwrap().handle;
            let file = s.store.open(&root(), &node, READ_WRITE).await.unwrap();
            let before = attrs(&s, &dir).await[&name];
            s.write(&file, 0, &vec![1; n + 1]).await;
            let written = attrs(&s, &dir).await[&name];
            assert_eq!(written.size, n as u64 + 1);
            assert!(written.change > before.change);
            s.write(&file, 0, &vec![1; n + 2]).await;
            s.write(&file, 0, &vec![1; n + 3]).await;
            assert_eq!(attrs(&s, &dir).await[&name].size, n as u64 + 3);
            let changes = SetAttr { mode: Some(0o600), size: Some(7), ..SetAttr::default() };
            s.store.setattr(&root(), &node, &changes, None).await.unwrap();
            let set = attrs(&s, &dir).await[&name];
            assert_eq!((set.mode, set.size), (0o600, 7));
            assert_eq!(set, s.store.getattr(&node).await.unwrap());
            s.store.rename(&root(), &dir, name.as_bytes(), &dir, b"moved").await.unwrap();
            let now = attrs(&s, &dir).await;
            assert!(now.contains_key("moved") && !now.contains_key(&name));
            s.store.remove(&root(), &dir, b"moved", None).await.unwrap();
            assert_eq!(attrs(&s, &dir).await.len(), 199 - n);
        }
        s.create_as(&root(), &dir, "late", 0o644).await.unwrap();
        assert!(attrs(&s, &dir).await.contains_key("late"));
    });
}

#[test]
fn an_object_that_is_not_at_hand_any_more_is_looked_at_again() {
    in_both_modes(|s| async move {
        let (node, file) = s.file("a").await;
        assert_eq!(attrs(&s, &s.root()).await["a"].size, 0);
        s.write(&file, 0, b"12345").await;
        drop(file);
        s.store.release();
        assert_eq!(attrs(&s, &s.root()).await["a"].size, 5);
        let at = Timestamp { seconds: 1_000_000, nanoseconds: 0 };
        let changes = SetAttr { mtime: Some(SetTime::At(at)), ..SetAttr::default() };
        s.store.setattr(&root(), &node.handle, &changes, None).await.unwrap();
        s.store.release();
        assert_eq!(attrs(&s, &s.root()).await["a"].mtime, at);
    });
}

#[test]
fn links_count_in_every_directory() {
    in_both_modes(|s| async move {
        let (one, two) = (s.mkdir(&s.root(), "one").await, s.mkdir(&s.root(), "two").await);
        let made = s.create_as(&root(), &one.handle, "a", 0o644).await.unwrap();
        assert_eq!(attrs(&s, &one.handle).await["a"].nlink, 1);
        s.store.link(&root(), &made.node.handle, &two.handle, b"b").await.unwrap();
        assert_eq!(attrs(&s, &one.handle).await["a"].nlink, 2);
        drop(made);
        s.store.release();
        assert_eq!(attrs(&s, &one.handle).await["a"].nlink, 2);
        s.store.remove(&root(), &two.handle, b"b", None).await.unwrap();
        assert_eq!(attrs(&s, &one.handle).await["a"].nlink, 1);
        assert_eq!(attrs(&s, &s.root()).await["two"].nlink, 2);
        s.mkdir(&two.handle, "sub").await;
        let two_now = attrs(&s, &s.root()).await["two"];
        assert_eq!(two_now, s.store.getattr(&two.handle).await.unwrap());
    });
}

#[test]
fn what_others_do_shows_within_a_second() {
    in_both_modes(|s| async move {
        std::fs::write(s.path("a"), b"1").unwrap();
        assert_eq!(attrs(&s, &s.root()).await["a"].size, 1);
        std::fs::write(s.path("a"), b"12").unwrap();
        let node = s.lookup(&s.root(), "a").await.unwrap();
        assert_eq!(node.attr.size, 2, "a lookup is never late");
        std::thread::sleep(LIFE);
        assert_eq!(attrs(&s, &s.root()).await["a"].size, 2);
        std::fs::write(s.path("b"), b"").unwrap();
        std::thread::sleep(LIFE);
        assert_eq!(attrs(&s, &s.root()).await.len(), 2);
    });
}

#[test]
fn rights_are_checked_for_every_caller() {
    if !is_root() {
        return;
    }
    in_both_modes(|s| async move {
        let dir = s.mkdir(&s.root(), "d").await.handle;
        s.create_as(&root(), &dir, "a", 0o600).await.unwrap();
        assert_eq!(attrs(&s, &dir).await.len(), 1);
        let (page, stranger) =
            (s.store.readdir(&root(), &dir, 0, 9, true).await.unwrap(), user(7, 7));
        assert!(page.end);
        let seen = s.store.readdir(&stranger, &dir, 0, 9, true).await.unwrap();
        assert_eq!(seen.entries[0].node, page.entries[0].node);
        for (bits, node) in [(0o700, None), (0o744, Some(Err(StoreError::AccessDenied)))] {
            s.store.setattr(&root(), &dir, &mode(bits), None).await.unwrap();
            for _ in 0..2 {
                assert_eq!(attrs(&s, &dir).await.len(), 1);
                let seen = s.store.readdir(&stranger, &dir, 0, 9, true).await;
                match node {
                    None => assert_eq!(error_of(seen), StoreError::AccessDenied),
                    Some(node) => assert_eq!(seen.unwrap().entries[0].node, node),
                }
            }
            let names = s.store.readdir(&stranger, &dir, 0, 9, false).await;
            assert_eq!(names.is_ok(), node.is_some());
        }
    });
}

#[test]
fn many_large_directories_are_listed_in_full() {
    block_on(async {
        let s = fixture(zgate_posix::HandleMode::Auto);
        for name in ["x", "y", "z"] {
            std::fs::create_dir(s.path(name)).unwrap();
            for n in 0..40_000 {
                std::fs::File::create(s.path(name).join(format!("file-{n}"))).unwrap();
            }
        }
        for _ in 0..2 {
            for name in ["x", "y", "z"] {
                let dir = s.lookup(&s.root(), name).await.unwrap().handle;
                let (mut names, mut cookie) = (std::collections::HashSet::new(), 0);
                loop {
                    let page = s.store.readdir(&root(), &dir, cookie, 3000, false).await.unwrap();
                    for entry in page.entries {
                        assert!(names.insert(entry.name));
                        cookie = entry.cookie;
                    }
                    if page.end {
                        break;
                    }
                }
                assert_eq!(names.len(), 40_000);
            }
        }
    });
}
