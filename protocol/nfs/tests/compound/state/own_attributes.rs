//! GETATTR of a file of which the caller holds a write delegation: it is told what the store
//! has read a moment ago, where the present attributes need another thread.

use std::sync::{Arc, Mutex};
use zgate_memory::{FileOp, MemoryStore};
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::attr::SIZE;
use zgate_nfs_wire::v4::op::Getattr;
use zgate_store::{Attr, FileStore, NodeHandle, StoreFuture};
use zgate_test_harness::nfs::{Client, Harness, OpenRequest, Ops};

/// Bytes that a remembered size has in excess: it tells which one was answered.
const EXCESS: u64 = 1000;

/// A tree in memory that remembers the attributes it was asked for last.
struct Remembering {
    store: MemoryStore,
    recent: Mutex<Option<Attr>>,
}

impl FileStore for Remembering {
    zgate_store::forward_files! {
        self => self.store;
        root traits identity fsid lookup lookup_parent access setattr readlink create_file
        create_node open remove rename link readdir read write losses commit sync_objects
        sync_names allocate deallocate seek copy_range clone_range advise statfs get_xattr
        set_xattr list_xattrs remove_xattr get_acl set_acl
    }

    fn recent_attr(&self, _: &NodeHandle) -> Option<Attr> {
        *self.recent.lock().unwrap()
    }

    fn getattr<'a>(&'a self, node: &'a NodeHandle) -> StoreFuture<'a, Attr> {
        Box::pin(async move {
            let attr = self.store.getattr(node).await?;
            *self.recent.lock().unwrap() = Some(Attr { size: attr.size + EXCESS, ..attr });
            Ok(attr)
        })
    }
}

#[test]
fn the_holder_of_a_write_delegation_is_told_what_was_read_a_moment_ago() {
    // In minor version 0 nothing tells whose request it is.
    for (minor, excess) in [(0, 0), (1, EXCESS), (2, EXCESS)] {
        let harness = Harness::new();
        let (holder, other) = (harness.reachable("holder", minor), harness.client("other", minor));
        let root = holder.export();
        other.file(&root, "f", b"content");
        let store = Remembering { store: harness.store.clone(), recent: Mutex::default() };
        harness.serve_through("/export", Arc::new(store));
        let wish = |access| OpenRequest::name(&root, "f").access(access);
        let asked = || harness.store.faults().calls(FileOp::GetAttr);
        let reader = holder.open(&wish(1)).unwrap();
        let fh = &reader.fh;
        let size = |client: &Client| {
            let reply = client.run(Ops::new().at(fh).getattr(&[SIZE])).ok();
            u64::from_be_bytes(reply.get::<Getattr>().values.0.try_into().unwrap())
        };
        assert_eq!(size(&holder), 7, "a read delegation");
        holder.delegreturn(fh, reader.delegation()).unwrap();
        holder.close(&reader).unwrap();
        let writer = holder.open(&wish(2)).unwrap();
        let before = asked();
        assert_eq!(size(&holder), 7 + excess);
        assert_eq!(asked() == before, excess > 0, "minor version {minor}");
        let before = asked();
        size(&other);
        assert_ne!(asked(), before, "another client");
        assert_eq!(other.open(&wish(1)).unwrap_err(), Status::Delay);
        assert_eq!(size(&holder), 7, "it is recalled");
        holder.delegreturn(fh, writer.delegation()).unwrap();
        assert_eq!(size(&holder), 7, "it is returned");
    }
}
