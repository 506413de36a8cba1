//! Builder for a store with other than the default properties.

use crate::faults::Faults;
use crate::store::{MemoryStore, Shared};
use crate::tree::{Clock, Settings, Tree};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use zgate_store::Timestamp;
use zgate_store::attr::FsId;
use zgate_store::file_store::StoreTraits;

/// Start of the default clock, in seconds since the Unix epoch. Every change
/// advances it by one nanosecond.
pub const EPOCH_SECONDS: i64 = 1_750_000_000;

const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;

/// Builder of a [`MemoryStore`]. By default a store is unlimited, owned by
/// root, and supports every operation.
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
            case_insensitive: false,
        };
        let traits = StoreTraits {
            persistent_handles: true,
            max_file_bytes: i64::MAX as u64,
            max_links: 65_000,
            xattrs: true,
            acls: true,
            clone_block_bytes: Some(4096),
            chown_restricted: true,
            tells_files_apart: true,
        };
        Self { settings, traits, clock: logical_clock() }
    }
}

impl MemoryStoreBuilder {
    /// Sets the permission bits of the root directory (default 0755).
    pub fn root_mode(mut self, mode: u32) -> Self {
        self.settings.root_mode = mode;
        self
    }

    /// Sets owner and group of the root directory (default 0 and 0).
    pub fn root_owner(mut self, uid: u32, gid: u32) -> Self {
        (self.settings.root_uid, self.settings.root_gid) = (uid, gid);
        self
    }

    /// Limits the space for data, in bytes; beyond it writes fail with
    /// [`zgate_store::StoreError::NoSpace`]. Space is counted in pages of 4
    /// KiB; names and attributes cost nothing.
    pub fn capacity_bytes(mut self, bytes: u64) -> Self {
        self.settings.capacity_bytes = Some(bytes);
        self
    }

    /// Limits the number of objects, the root directory included.
    pub fn max_files(mut self, files: u64) -> Self {
        self.settings.max_files = Some(files);
        self
    }

    /// Sets the identity of the file system. Stores with the same identity
    /// accept each other's handles: use different ones in a test with several
    /// stores.
    pub fn fsid(mut self, fsid: FsId) -> Self {
        self.settings.fsid = fsid;
        self
    }

    /// Sets whether every change is refused.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.settings.read_only = read_only;
        self
    }

    /// Sets whether the store says that names which differ only in case are the same. It
    /// compares their bytes all the same.
    pub fn case_insensitive(mut self, case_insensitive: bool) -> Self {
        self.settings.case_insensitive = case_insensitive;
        self
    }

    /// Sets the abilities that the store reports and has.
    pub fn traits(mut self, traits: StoreTraits) -> Self {
        self.traits = traits;
        self
    }

    /// Sets the clock, read once or twice per change. The default is a counter
    /// from [`EPOCH_SECONDS`], so that equal calls give equal times.
    pub fn clock(mut self, clock: impl FnMut() -> Timestamp + Send + 'static) -> Self {
        self.clock = Box::new(clock);
        self
    }

    /// Builds the store.
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
                reads_to_send: AtomicU64::new(0),
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
