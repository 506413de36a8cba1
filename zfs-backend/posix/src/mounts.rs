//! The mounted file systems below the exported root.

use crate::errno::OrStoreError;
use crate::handle::MAX_WRAPPED_BYTES;
use crate::mountinfo::{self, MountLine};
use crate::siphash::SipKey;
use crate::stable::Names;
use crate::syscall;
use rustix::fs::{Mode, OFlags, RawDir};
use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, TryLockError};
use std::time::{Duration, Instant};
use zgate_io::file_handle::{name_to_handle, open_by_handle};
use zgate_io::{IoEngine, StoreName};
use zgate_store::attr::FsId;
use zgate_store::{StoreError, StoreResult};

/// Handles that name an unknown file system make the table be read again, but
/// not more often than this: a peer can send any number of them.
const REFRESH_INTERVAL: Duration = Duration::from_millis(250);

/// How many snapshots that were let go are remembered.
const MAX_ASLEEP: usize = 4096;

/// One mounted file system.
#[derive(Debug)]
pub(crate) struct Mount {
    /// The kernel's number of the mount.
    pub(crate) id: u64,
    /// Names the file system in handles; the same after a restart.
    pub(crate) key: u64,
    /// Its identity for clients.
    pub(crate) fsid: FsId,
    /// The root of the mount, open for reading: open_by_handle_at needs it.
    pub(crate) root: OwnedFd,
    /// The number of the directory it covers.
    pub(crate) covered_fileid: Option<u64>,
    /// Kernel handles work.
    pub(crate) kernel_handles: bool,
    /// Everything a kernel handle of this file system can name lies below the
    /// exported root.
    pub(crate) whole: bool,
    /// Works for what it lies on: a mount that does not answer stops none of
    /// another pool or device.
    pub(crate) engine: IoEngine,
    /// Brings changes of names to stable storage.
    pub(crate) names: Names,
    /// A ZFS snapshot, mounted on demand.
    snapshot: Option<SnapshotMount>,
}

/// What is known of a mounted snapshot.
#[derive(Debug)]
struct SnapshotMount {
    /// Where it is mounted; opening that mounts it again.
    point: Vec<u8>,
    /// Something of it was asked for since this was last looked at.
    asked_for: AtomicBool,
}

impl Mount {
    /// Notes that something of it was asked for.
    pub(crate) fn mark_asked_for(&self) {
        if let Some(snapshot) = &self.snapshot {
            snapshot.asked_for.store(true, Ordering::Relaxed);
        }
    }

    /// Whether something of it was asked for since the last call.
    pub(crate) fn asked_for_again(&self) -> bool {
        self.snapshot.as_ref().is_none_or(|one| one.asked_for.swap(false, Ordering::Relaxed))
    }
}

/// How mounts are taken up.
#[derive(Clone, Debug)]
pub(crate) struct MountPolicy {
    /// Runs what may wait for a disk.
    pub(crate) engine: IoEngine,
    /// Use kernel handles where they work.
    pub(crate) kernel_handles: bool,
    /// The root file system's identity, if configured.
    pub(crate) root_fsid: Option<FsId>,
}

/// All mounts at or below the exported root.
pub(crate) struct MountTable {
    policy: MountPolicy,
    root_path: Vec<u8>,
    root: Arc<Mount>,
    children: RwLock<Vec<Arc<Mount>>>,
    refreshed: Mutex<Option<Instant>>,
    /// Snapshots that were let go, by key: ZFS unmounts them after a while, and
    /// clients that come back to them find them mounted again.
    asleep: Mutex<HashMap<u64, Vec<u8>>>,
}

impl MountTable {
    /// The table of what is mounted at and below `root_path`, which is free of
    /// symbolic links and open as `root`.
    pub(crate) fn new(
        root_path: Vec<u8>,
        root: &OwnedFd,
        policy: MountPolicy,
    ) -> StoreResult<Self> {
        let id = syscall::stat(root)?.stx_mnt_id;
        let lines = read_lines()?;
        let line = lines.iter().find(|line| line.id == id).ok_or(StoreError::NotSupported)?;
        let mount = take_up(line, &root_path, true, &policy)?;
        let table = Self {
            policy,
            root_path,
            root: Arc::new(mount),
            children: RwLock::default(),
            refreshed: Mutex::new(None),
            asleep: Mutex::default(),
        };
        table.refresh();
        Ok(table)
    }

    /// The mount the exported root lies in.
    pub(crate) fn root(&self) -> &Arc<Mount> {
        &self.root
    }

    /// The mount with this number; looks for new ones. Call it under the
    /// process's own identity.
    pub(crate) fn by_id(&self, id: u64) -> StoreResult<Arc<Mount>> {
        if let Some(mount) = self.find(|mount| mount.id == id) {
            return Ok(mount);
        }
        self.refresh();
        self.find(|mount| mount.id == id).ok_or(StoreError::Stale)
    }

    /// The mount with this number when it is known already.
    pub(crate) fn known(&self, id: u64) -> Option<Arc<Mount>> {
        self.find(|mount| mount.id == id)
    }

    /// The mount of the file system with this key when it is known already.
    pub(crate) fn known_key(&self, key: u64) -> Option<Arc<Mount>> {
        self.find(|mount| mount.key == key)
    }

    /// Whether the root is the only one.
    pub(crate) fn is_single(&self) -> bool {
        self.children.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// The mount of the file system with this key; looks for new ones.
    pub(crate) fn by_key(&self, key: u64) -> StoreResult<Arc<Mount>> {
        if let Some(mount) = self.find(|mount| mount.key == key) {
            return Ok(mount);
        }
        self.wake(key);
        // Somebody else may look, and wait for a mount that does not answer.
        let mut refreshed = match self.refreshed.try_lock() {
            Ok(refreshed) => refreshed,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(StoreError::OutOfResources),
        };
        if refreshed.is_none_or(|when| when.elapsed() >= REFRESH_INTERVAL) {
            self.refresh();
            *refreshed = Some(Instant::now());
        }
        drop(refreshed);
        self.find(|mount| mount.key == key).ok_or(StoreError::Stale)
    }

    /// Has a snapshot mounted again that was let go.
    fn wake(&self, key: u64) {
        let point = self.asleep.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        let Some(point) = point else { return };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::open(point, flags, Mode::empty()) {
            Ok(_) => self.refresh(),
            Err(error) => tracing::debug!(%error, "a snapshot is there no more"),
        }
    }

    /// The snapshots that are held mounted.
    pub(crate) fn snapshots(&self) -> Vec<Arc<Mount>> {
        let children = self.children.read().unwrap_or_else(PoisonError::into_inner);
        children.iter().filter(|mount| mount.snapshot.is_some()).cloned().collect()
    }

    /// Lets go of a snapshot, unless a client has something of it open.
    pub(crate) fn let_go_of(&self, mount: Arc<Mount>) {
        let mut children = self.children.write().unwrap_or_else(PoisonError::into_inner);
        // One here, one in the table.
        if Arc::strong_count(&mount) > 2 {
            return;
        }
        children.retain(|child| !Arc::ptr_eq(child, &mount));
        drop(children);
        let mut asleep = self.asleep.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(snapshot) = &mount.snapshot
            && asleep.len() < MAX_ASLEEP
        {
            asleep.insert(mount.key, snapshot.point.clone());
        }
    }

    fn find(&self, fits: impl Fn(&Mount) -> bool) -> Option<Arc<Mount>> {
        if fits(&self.root) {
            return Some(Arc::clone(&self.root));
        }
        let children = self.children.read().unwrap_or_else(PoisonError::into_inner);
        let found = children.iter().find(|mount| fits(mount)).cloned();
        found.inspect(|mount| mount.mark_asked_for())
    }

    /// Lets go of all child mounts, so that they can be unmounted; they are
    /// found again when they are asked for.
    pub(crate) fn release(&self) {
        self.children.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Takes up new mounts and drops those that are gone. A mount that does not
    /// answer is waited for without the lock: serving threads take it.
    fn refresh(&self) {
        let Ok(lines) = read_lines() else { return };
        let lock = || self.children.write().unwrap_or_else(PoisonError::into_inner);
        let mut gone = Vec::new();
        let known: Vec<u64> = {
            let mut children = lock();
            for child in std::mem::take(&mut *children) {
                let there = lines.iter().any(|line| line.id == child.id);
                if there { &mut *children } else { &mut gone }.push(child);
            }
            children.iter().map(|mount| mount.id).chain([self.root.id]).collect()
        };
        drop(gone);
        for line in lines {
            let below = is_below(&line.point, &self.root_path) && line.point != self.root_path;
            if known.contains(&line.id) || !below || line.kind == b"autofs" {
                continue;
            }
            let mount = match take_up(&line, &self.root_path, false, &self.policy) {
                Ok(mount) => Arc::new(mount),
                Err(error) => {
                    let point = String::from_utf8_lossy(&line.point);
                    tracing::debug!(%point, %error, "a mount below the root cannot be taken up");
                    continue;
                }
            };
            let mut children = lock();
            // Somebody else may have been as quick.
            if !children.iter().any(|child| child.id == mount.id) {
                children.push(mount);
            }
        }
    }
}

/// Whether `path` is `root` or lies below it.
pub(crate) fn is_below(path: &[u8], root: &[u8]) -> bool {
    match path.strip_prefix(root) {
        Some([] | [b'/', ..]) => true,
        Some(_) => root == b"/",
        None => false,
    }
}

fn read_lines() -> StoreResult<Vec<MountLine>> {
    std::fs::read("/proc/self/mountinfo").map(|text| mountinfo::parse(&text)).or_store()
}

fn take_up(
    line: &MountLine,
    root_path: &[u8],
    is_root: bool,
    policy: &MountPolicy,
) -> StoreResult<Mount> {
    // The root mount may begin above the exported directory and may be covered
    // there; the exported directory itself serves as its descriptor.
    let path = if is_root { root_path } else { &line.point };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let root = rustix::fs::open(path, flags, Mode::empty()).or_store()?;
    if syscall::stat(&root)?.stx_mnt_id != line.id {
        return Err(StoreError::NotFound);
    }
    let statfs = rustix::fs::fstatvfs(&root).or_store()?;
    let key = if statfs.f_fsid == 0 { key_of(line) } else { statfs.f_fsid };
    let fsid = policy.root_fsid.filter(|_| is_root).unwrap_or(FsId { major: key, minor: 0 });
    Ok(Mount {
        id: line.id,
        key,
        fsid,
        covered_fileid: covered_fileid(&line.point),
        kernel_handles: policy.kernel_handles && handles_work(&root),
        snapshot: snapshot_mount(line),
        names: Names::new(&line.kind),
        engine: policy.engine.for_store(&StoreName::of_mount(
            &line.kind,
            &line.source,
            line.device,
        )),
        whole: line.root == b"/" && (!is_root || line.point == root_path),
        root,
    })
}

fn snapshot_mount(line: &MountLine) -> Option<SnapshotMount> {
    let is_one = line.kind == b"zfs" && line.source.contains(&b'@');
    is_one.then(|| SnapshotMount { point: line.point.clone(), asked_for: AtomicBool::new(true) })
}

/// A key for a file system without an identity of its own.
fn key_of(line: &MountLine) -> u64 {
    let fields = [&line.kind, &line.source, &line.root, &line.point];
    SipKey::new([0; 16]).hash(&fields.map(|field| &field[..]).join(&0))
}

fn handles_work(root: &OwnedFd) -> bool {
    name_to_handle(root, c"").is_ok_and(|handle| {
        handle.as_bytes().len() <= MAX_WRAPPED_BYTES && open_by_handle(root, &handle).is_ok()
    })
}

/// The number a directory listing shows for a mount point.
fn covered_fileid(point: &[u8]) -> Option<u64> {
    let split = point.iter().rposition(|&byte| byte == b'/')?;
    let (parent, name) = (&point[..split], &point[split + 1..]);
    if name.is_empty() {
        return None;
    }
    let parent = if parent.is_empty() { b"/" } else { parent };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(parent, flags, Mode::empty()).ok()?;
    let mut buffer = [MaybeUninit::uninit(); 16 << 10];
    let mut entries = RawDir::new(&dir, &mut buffer);
    while let Some(Ok(entry)) = entries.next() {
        if entry.file_name().to_bytes() == name {
            return Some(entry.ino());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_are_told_by_their_source() {
        let parsed = mountinfo::parse(
            b"50 28 0:49 / /tank/.zfs/snapshot/daily ro,relatime shared:27 - zfs tank@daily ro\n\
              51 28 0:50 / /tank/a@b rw,relatime shared:28 - zfs tank/a rw\n",
        );
        let found: Vec<_> = parsed.iter().map(snapshot_mount).collect();
        assert_eq!(found.len(), 2);
        let point = found[0].as_ref().map(|one| one.point.as_slice());
        assert_eq!(point, Some(&b"/tank/.zfs/snapshot/daily"[..]));
        assert!(found[1].is_none());
    }

    #[test]
    fn below_means_whole_components() {
        assert!(is_below(b"/a/b", b"/a"));
        assert!(is_below(b"/a", b"/a"));
        assert!(is_below(b"/a", b"/"));
        assert!(!is_below(b"/ab", b"/a"));
        assert!(!is_below(b"(unreachable)/a", b"/"), "not an absolute path");
    }
}
