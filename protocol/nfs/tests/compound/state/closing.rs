//! A store may wait for its storage when a file is closed, and all requests to all stores wait
//! for the tables: no file is closed under their lock.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use zgate_memory::MemoryStore;
use zgate_nfs::v4::Server;
use zgate_nfs_wire::v4::{Fh, Status};
use zgate_store::file_store::{OpenAccess, OpenFile};
use zgate_store::{Caller, FileStore, NodeHandle, StoreFuture};
use zgate_test_harness::nfs::{CallbackBehavior, Client, Harness, LEASE, OpenRequest};

/// The files that were closed.
struct Closes {
    server: Weak<Server>,
    all: AtomicUsize,
    under_lock: AtomicUsize,
}

/// A file that looks at the server when it is closed.
struct WatchedFile {
    closes: Arc<Closes>,
    _file: OpenFile,
}

impl Drop for WatchedFile {
    fn drop(&mut self) {
        self.closes.all.fetch_add(1, Ordering::Relaxed);
        if self.closes.server.upgrade().is_some_and(|server| server.state.is_locked()) {
            self.closes.under_lock.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A tree in memory whose files are watched. Nothing but open and close works with them.
struct WatchedStore {
    store: MemoryStore,
    closes: Arc<Closes>,
}

impl FileStore for WatchedStore {
    zgate_store::forward_files! {
        self => self.store;
        root traits identity fsid recent_attr getattr lookup lookup_parent access setattr readlink
        create_file create_node remove rename link readdir read write losses commit sync_objects
        sync_names allocate deallocate seek copy_range clone_range advise statfs get_xattr
        set_xattr list_xattrs remove_xattr get_acl set_acl
    }

    fn open<'a>(
        &'a self,
        who: &'a Caller,
        node: &'a NodeHandle,
        access: OpenAccess,
    ) -> StoreFuture<'a, OpenFile> {
        Box::pin(async move {
            let file = self.store.open(who, node, access).await?;
            let closes = Arc::clone(&self.closes);
            let watched: OpenFile = Arc::new(WatchedFile { closes, _file: file });
            Ok(watched)
        })
    }
}

/// The file `f`, a client without delegations and one that takes them.
struct Fixture {
    harness: Rc<Harness>,
    plain: Client,
    holder: Client,
    root: Fh,
    closes: Arc<Closes>,
}

impl Fixture {
    fn new(minor: u8) -> Self {
        let harness = Harness::new();
        let (plain, holder) = (harness.client("plain", minor), harness.reachable("holder", minor));
        let root = plain.export();
        plain.file(&root, "f", b"content");
        let closes = Arc::new(Closes {
            server: Arc::downgrade(&harness.server()),
            all: AtomicUsize::new(0),
            under_lock: AtomicUsize::new(0),
        });
        let watched = WatchedStore { store: harness.store.clone(), closes: Arc::clone(&closes) };
        harness.serve_through("/export", Arc::new(watched));
        Self { harness, plain, holder, root, closes }
    }

    fn wish(&self, access: u32) -> OpenRequest {
        OpenRequest::name(&self.root, "f").access(access)
    }
}

type Act = fn(&Fixture);

/// Ways to close a file.
const ACTS: [(&str, Act); 9] = [
    ("CLOSE", |s| {
        let opened = s.plain.open(&s.wish(3)).unwrap();
        s.plain.close(&opened).unwrap();
    }),
    ("an OPEN that takes the place of an earlier one", |s| {
        s.plain.open(&s.wish(2)).unwrap();
        s.plain.open(&s.wish(2)).unwrap();
    }),
    ("OPEN_DOWNGRADE", |s| {
        s.plain.open(&s.wish(1)).unwrap();
        let mut both = s.plain.open(&s.wish(2)).unwrap();
        s.plain.downgrade(&mut both, 1, 0).unwrap();
    }),
    ("DELEGRETURN", |s| {
        let opened = s.holder.open(&s.wish(1)).unwrap();
        s.holder.delegreturn(&opened.fh, opened.delegation()).unwrap();
    }),
    ("a delegation that is revoked", |s| {
        s.holder.open(&s.wish(1)).unwrap();
        s.holder.answers_callbacks(CallbackBehavior::Silent);
        assert_eq!(s.plain.open(&s.wish(2)).unwrap_err(), Status::Delay);
        s.harness.pass_seconds(2 * LEASE);
    }),
    ("a restart of the client", |s| {
        s.plain.open(&s.wish(3)).unwrap();
        s.plain.reboot();
        s.plain.introduce(false);
    }),
    ("a lease that has expired", |s| {
        s.plain.open(&s.wish(3).deny(3)).unwrap();
        s.harness.pass_seconds(LEASE + 1);
        let other = s.harness.client("other", s.plain.minor);
        other.open(&s.wish(3)).unwrap();
    }),
    ("an export that goes", |s| {
        s.plain.open(&s.wish(3)).unwrap();
        s.harness.reload(|_| false);
    }),
    ("an export that shuts the host out", |s| {
        s.plain.open(&s.wish(3)).unwrap();
        s.harness.admit_only(&[IpAddr::from([192, 0, 2, 200]).into()]);
    }),
];

#[test]
fn files_are_closed_after_the_tables_are_unlocked() {
    for minor in 0..=2 {
        for (what, act) in ACTS {
            let s = Fixture::new(minor);
            act(&s);
            let closes = &s.closes;
            assert_ne!(closes.all.load(Ordering::Relaxed), 0, "{what} (minor version {minor})");
            let under_lock = closes.under_lock.load(Ordering::Relaxed);
            assert_eq!(under_lock, 0, "{what} (minor version {minor})");
        }
    }
}
