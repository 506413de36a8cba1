//! Set-id bits of files that change: each change is decided by its caller's
//! rights. The mode may have changed since the file was opened, through the
//! store or by another program.

use crate::fixture::{
    Fixture, READ, READ_WRITE, in_both_modes, is_root, mode, open_store, root, user,
};
use bytes::Bytes;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use zgate_posix::HandleMode;
use zgate_store::file_store::{CreateMode, OpenFile, Stability};
use zgate_store::{Caller, FileStore, NodeHandle, SetAttr, StoreError};

/// A program with both bits, and its mode after a change by a caller without
/// the right to keep them.
const SET: u32 = 0o6777;
const CLEARED: u32 = 0o777;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    Write(Stability),
    Copy,
    Clone,
    Allocate,
    Deallocate,
    Truncate,
}

const CHANGES: [Change; 8] = [
    Change::Write(Stability::Unstable),
    Change::Write(Stability::DataSync),
    Change::Write(Stability::FileSync),
    Change::Copy,
    Change::Clone,
    Change::Allocate,
    Change::Deallocate,
    Change::Truncate,
];

impl Fixture {
    /// Changes an open file's data; false where the file system cannot.
    async fn change(&self, who: &Caller, file: &OpenFile, node: &NodeHandle, how: Change) -> bool {
        let store = &self.store;
        let source = async || {
            let made = self.lookup(&self.root(), "source").await.unwrap();
            store.open(&root(), &made.handle, READ).await.unwrap()
        };
        let done = match how {
            Change::Write(stability) => {
                let data = Bytes::from_static(b"changed");
                store.write(file, 0, data, stability).await.map(drop)
            }
            Change::Copy => store.copy_range(&source().await, 0, file, 0, 4096).await.map(drop),
            Change::Clone => store.clone_range(&source().await, 0, file, 0, 4096).await,
            Change::Allocate => store.allocate(file, 0, 8192).await,
            Change::Deallocate => store.deallocate(file, 0, 4096).await,
            Change::Truncate => {
                let cut = SetAttr { size: Some(100), ..SetAttr::default() };
                store.setattr(who, node, &cut, Some(file)).await.map(drop)
            }
        };
        match done {
            Err(StoreError::NotSupported | StoreError::Invalid) if how == Change::Clone => false,
            Err(StoreError::NotSupported) => false,
            done => {
                done.unwrap();
                true
            }
        }
    }

    async fn mode_of(&self, node: &NodeHandle) -> u32 {
        self.store.getattr(node).await.unwrap().mode
    }

    async fn prepare(&self) {
        let (_, source) = self.file("source").await;
        self.write(&source, 0, &[7; 8192]).await;
    }
}

#[test]
fn bits_set_while_the_file_is_open_are_cleared_by_each_change() {
    in_both_modes(|s| async move {
        if !is_root() {
            return;
        }
        s.prepare().await;
        let bob = user(1002, 2002);
        for how in CHANGES {
            let (node, file) = s.file(&format!("{how:?}")).await;
            s.store.setattr(&root(), &node.handle, &mode(0o777), None).await.unwrap();
            s.write(&file, 0, &[1; 8192]).await;
            let file = s.store.open(&bob, &node.handle, READ_WRITE).await.unwrap();
            for round in 0..3 {
                s.store.setattr(&root(), &node.handle, &mode(SET), None).await.unwrap();
                if s.change(&bob, &file, &node.handle, how).await {
                    assert_eq!(s.mode_of(&node.handle).await, CLEARED, "{how:?} {round}");
                }
            }
        }
    });
}

#[test]
fn bits_set_beside_the_store_are_cleared() {
    in_both_modes(|s| async move {
        if !is_root() {
            return;
        }
        s.prepare().await;
        let bob = user(1002, 2002);
        for how in CHANGES {
            let name = format!("{how:?}");
            let made = s.create_as(&bob, &s.root(), &name, 0o777).await.unwrap();
            let file = made.open.unwrap();
            s.write(&file, 0, &[1; 8192]).await;
            let set = std::fs::Permissions::from_mode(SET);
            std::fs::set_permissions(s.path(&name), set).unwrap();
            if s.change(&bob, &file, &made.node.handle, how).await {
                assert_eq!(s.mode_of(&made.node.handle).await, CLEARED, "{how:?}");
            }
        }
    });
}

#[test]
fn ones_own_new_file_is_no_exception() {
    in_both_modes(|s| async move {
        if !is_root() {
            return;
        }
        let bob = user(1002, 2002);
        let made = s.create_as(&bob, &s.root(), "made", SET).await.unwrap();
        assert_eq!(made.node.attr.mode, SET);
        s.write(&made.open.unwrap(), 0, b"x").await;
        assert_eq!(s.mode_of(&made.node.handle).await, CLEARED);
        // A retransmitted exclusive create finds its file and opens it.
        let create = async || {
            let (how, attrs) = (CreateMode::Exclusive([3; 8]), mode(SET));
            s.store.create_file(&bob, &s.root(), b"again", how, &attrs).await.unwrap()
        };
        create().await;
        let again = create().await;
        assert_eq!(s.mode_of(&again.node.handle).await, SET);
        s.write(&again.open.unwrap(), 0, b"x").await;
        assert_eq!(s.mode_of(&again.node.handle).await, CLEARED);
    });
}

#[test]
fn roots_changes_keep_the_bits() {
    in_both_modes(|s| async move {
        if !is_root() {
            return;
        }
        s.prepare().await;
        let bob = user(1002, 2002);
        let other = s.create_as(&bob, &s.root(), "other", 0o666).await.unwrap().open.unwrap();
        for how in CHANGES {
            let (node, file) = s.file(&format!("{how:?}")).await;
            s.write(&file, 0, &[1; 8192]).await;
            s.store.setattr(&root(), &node.handle, &mode(SET), None).await.unwrap();
            for _ in 0..8 {
                // Some of the workers that write now have just written for
                // another caller.
                s.write(&other, 0, b"x").await;
                s.change(&root(), &file, &node.handle, how).await;
            }
            assert_eq!(s.mode_of(&node.handle).await, SET, "{how:?}");
        }
    });
}

#[test]
fn without_a_right_to_execute_the_set_user_id_bit_goes_all_the_same() {
    in_both_modes(|s| async move {
        if !is_root() {
            return;
        }
        let bob = user(1002, 2002);
        let made = s.create_as(&bob, &s.root(), "f", 0o666).await.unwrap();
        let file = made.open.unwrap();
        s.store.setattr(&root(), &made.node.handle, &mode(0o4666), None).await.unwrap();
        s.write(&file, 0, b"x").await;
        assert_eq!(s.mode_of(&made.node.handle).await, 0o666);
    });
}

#[test]
fn files_in_memory_follow_the_same_rule() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else { return };
    if !is_root() {
        return;
    }
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let store = open_store(dir.path(), HandleMode::Auto);
    let s = Arc::new(Fixture { dir, store, mode: HandleMode::Auto });
    crate::fixture::block_on(async move {
        s.prepare().await;
        let bob = user(1002, 2002);
        for how in CHANGES {
            let (node, own) = s.file(&format!("{how:?}")).await;
            s.write(&own, 0, &[1; 8192]).await;
            s.store.setattr(&root(), &node.handle, &mode(0o777), None).await.unwrap();
            let file = s.store.open(&bob, &node.handle, READ_WRITE).await.unwrap();
            s.store.setattr(&root(), &node.handle, &mode(SET), None).await.unwrap();
            s.change(&root(), &own, &node.handle, how).await;
            assert_eq!(s.mode_of(&node.handle).await, SET, "{how:?}");
            if s.change(&bob, &file, &node.handle, how).await {
                assert_eq!(s.mode_of(&node.handle).await, CLEARED, "{how:?}");
            }
        }
    });
}
