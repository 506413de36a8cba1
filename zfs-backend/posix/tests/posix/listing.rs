//! Directory pages.

use crate::fixture::*;
use std::collections::BTreeSet;
use zgate_store::{FileStore, NodeHandle, StoreError};

async fn list(s: &Fixture, dir: &NodeHandle, page: usize, nodes: bool) -> Vec<(Vec<u8>, u64)> {
    let (mut all, mut cookie) = (Vec::new(), 0);
    loop {
        let found = s.store.readdir(&root(), dir, cookie, page, nodes).await.unwrap();
        assert!(found.entries.len() <= page);
        for entry in &found.entries {
            assert!(entry.cookie > 2);
            if nodes {
                assert_eq!(entry.node.unwrap().attr.fileid, entry.fileid);
            }
            all.push((entry.name.clone(), entry.cookie));
        }
        if found.end {
            return all;
        }
        cookie = found.entries.last().unwrap().cookie;
    }
}

#[test]
fn every_name_once_whatever_the_page() {
    in_both_modes(|s| async move {
        let dir = s.mkdir(&s.root(), "d").await;
        assert!(list(&s, &dir.handle, 10, true).await.is_empty());
        let expected: BTreeSet<Vec<u8>> =
            (0..1500).map(|n| format!("file-{n:05}").into_bytes()).collect();
        for name in &expected {
            std::fs::write(s.path("d").join(std::str::from_utf8(name).unwrap()), b"").unwrap();
        }
        for (page, nodes) in [(1, false), (7, true), (128, true), (10_000, false)] {
            let found = list(&s, &dir.handle, page, nodes).await;
            assert_eq!(found.len(), expected.len(), "page {page}");
            let names: BTreeSet<_> = found.into_iter().map(|(name, _)| name).collect();
            assert_eq!(names, expected);
        }
    });
}

#[test]
fn cookies_hold_from_anywhere() {
    in_both_modes(|s| async move {
        for n in 0..300 {
            std::fs::write(s.path(&format!("f{n}")), b"").unwrap();
        }
        let all = list(&s, &s.root(), 1000, false).await;
        for start in [0, 17, 298] {
            let cookie = all[start].1;
            let page = s.store.readdir(&root(), &s.root(), cookie, 5, false).await.unwrap();
            let names: Vec<_> = page.entries.into_iter().map(|entry| entry.name).collect();
            let expected: Vec<_> =
                all[start + 1..].iter().take(5).map(|(name, _)| name.clone()).collect();
            assert_eq!(names, expected);
        }
        let end = s.store.readdir(&root(), &s.root(), all[299].1, 5, false).await.unwrap();
        assert!(end.end && end.entries.is_empty());
    });
}

#[test]
fn removing_while_listing_skips_nothing() {
    in_both_modes(|s| async move {
        for n in 0..500 {
            std::fs::write(s.path(&format!("f{n}")), b"").unwrap();
        }
        let (mut cookie, mut removed) = (0, 0);
        loop {
            let page = s.store.readdir(&root(), &s.root(), cookie, 20, true).await.unwrap();
            for entry in &page.entries {
                s.store.remove(&root(), &s.root(), &entry.name, None).await.unwrap();
                removed += 1;
            }
            match page.entries.last() {
                Some(last) if !page.end => cookie = last.cookie,
                _ => break,
            }
        }
        assert_eq!(removed, 500);
    });
}

#[test]
fn listed_handles_work() {
    in_both_modes(|s| async move {
        std::fs::write(s.path("outside"), b"12345").unwrap();
        let page = s.store.readdir(&root(), &s.root(), 0, 10, true).await.unwrap();
        let node = page.entries[0].node.unwrap();
        assert_eq!(s.store.getattr(&node.handle).await.unwrap(), node.attr);
        assert_eq!(s.lookup(&s.root(), "outside").await.unwrap(), node);
        let file = s.store.readdir(&root(), &node.handle, 0, 10, true).await;
        assert_eq!(error_of(file), StoreError::NotDirectory);
    });
}

#[test]
fn snapshot_directories_are_hidden() {
    in_both_modes(|s| async move {
        std::fs::create_dir(s.path(".zfs")).unwrap();
        std::fs::create_dir_all(s.path("sub/.zfs")).unwrap();
        assert_eq!(error_of(s.lookup(&s.root(), ".zfs").await), StoreError::NotFound);
        let names = list(&s, &s.root(), 10, true).await;
        assert_eq!(names.len(), 1);
        let made = s.create_as(&root(), &s.root(), ".zfs", 0o600).await;
        assert_eq!(error_of(made.map(|_| ())), StoreError::AccessDenied);
        let sub = s.lookup(&s.root(), "sub").await.unwrap();
        assert!(s.lookup(&sub.handle, ".zfs").await.is_ok(), "no mount root: an ordinary name");
        let shown = zgate_posix::PosixOptions { snapshots_visible: true, ..options(s.mode) };
        let store = zgate_posix::PosixStore::open(s.dir.path(), shown).unwrap();
        assert!(store.lookup(&root(), &store.root(), b".zfs").await.is_ok());
    });
}
