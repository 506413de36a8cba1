//! Making a store that is not the plain one.

use crate::faults::Faults;
use crate::store::{MemoryStore, Shared};
use crate::tree::{Clock, Settings, Tree};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use zgate_store::Timestamp;
use zgate_store::attr::FsId;
use zgate_store::file_store::StoreTraits;

/// Where the default clock starts, in seconds since the Unix epoch. Every
/// change takes it one nanosecond further.
pub const EPOCH_SECONDS: i64 = 1_750_000_000;

const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;

/// Decides what a [`MemoryStore`] is like. What is not set is unlimited, owned
/// by root, and able to do everything the store knows.
#[must_use]
pub struct MemoryStoreBuilder {
    settings: Settings,
    traits: StoreTraits,
    clock: Clock,
}

impl Default for MemoryStoreBuilder {
    fn default() -> Self {
        let settings = Settings {
            root_mode: 0o755,
            root_uid: 0,
            root_gid: 0,
            capacity_bytes: None,
            max_files: None,
            fsid: FsId { major: 0x7a_6d65_6d6f_7279, minor: 1 },
            read_only: false,
        };
        let traits = StoreTraits {
            persistent_handles: true,
            max_file_bytes: i64::MAX as u64,
            max_links: 65_000,
            xattrs: true,
            acls: true,
            clone_block_bytes: Some(4096),
            case_sensitive: true,
            chown_restricted: true,
        };
        Self { settings, traits, clock: logical_clock() }
    }
}

impl MemoryStoreBuilder {
    /// Permission bits of the root directory (default 0755).
    pub fn root_mode(mut self, mode: u32) -> Self {
        self.settings.root_mode = mode;
        self
    }

    /// Owner and group of the root directory (default 0 and 0).
    pub fn root_owner(mut self, uid: u32, gid: u32) -> Self {
        (self.settings.root_uid, self.settings.root_gid) = (uid, gid);
        self
    }

    /// Space for data in bytes; beyond it writes get
    /// [`zgate_store::StoreError::NoSpace`]. Counted in pages of 4 KiB; names
    /// and attributes cost nothing.
    pub fn capacity_bytes(mut self, bytes: u64) -> Self {
        self.settings.capacity_bytes = Some(bytes);
        self
    }

    /// Most objects, the root directory included.
    pub fn max_files(mut self, files: u64) -> Self {
        self.settings.max_files = Some(files);
        self
    }

    /// The identity of the file system. Two stores with the same one know each
    /// other's handles: give each its own where a test has several.
    pub fn fsid(mut self, fsid: FsId) -> Self {
        self.settings.fsid = fsid;
        self
    }

    /// Whether every change is refused.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.settings.read_only = read_only;
        self
    }

    /// What the store says it can do, and then does.
    pub fn traits(mut self, traits: StoreTraits) -> Self {
        self.traits = traits;
        self
    }

    /// The clock, asked once or twice per change. Without it a counter runs
    /// from [`EPOCH_SECONDS`], so that equal calls give equal times.
    pub fn clock(mut self, clock: impl FnMut() -> Timestamp + Send + 'static) -> Self {
        self.clock = Box::new(clock);
        self
    }

    /// The store.
    #[must_use]
    pub fn build(self) -> MemoryStore {
        let tree = Tree::new(self.settings, self.traits, self.clock);
        let root = tree.root();
        MemoryStore {
            shared: Arc::new(Shared {
                tree: Mutex::new(tree),
                faults: Faults::default(),
                crashes: AtomicU64::new(0),
                losses: AtomicU64::new(0),
                root,
                traits: self.traits,
                fsid: self.settings.fsid,
            }),
        }
    }
}

fn logical_clock() -> Clock {
    let mut ticks = 0u64;
    Box::new(move || {
        ticks += 1;
        Timestamp {
            seconds: EPOCH_SECONDS + (ticks / NANOSECONDS_PER_SECOND) as i64,
            nanoseconds: (ticks % NANOSECONDS_PER_SECOND) as u32,
        }
    })
}
