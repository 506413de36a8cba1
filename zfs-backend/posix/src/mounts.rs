//! Mounted file systems below the exported root.

use crate::asleep::Asleep;
use crate::errno::OrStoreError;
use crate::file_systems::{FileSystemTraits, WaitsFor, traits_of};
use crate::handle::MAX_WRAPPED_BYTES;
use crate::identities::MountedDevices;
use crate::name_sync::Names;
use crate::syscall;
use ahash::HashMap;
use rustix::fs::{Mode, OFlags, RawDir};
use siphasher::sip::SipHasher24;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, TryLockError};
use std::time::{Duration, Instant};
use zgate_io::file_handle::{name_to_handle, open_by_handle};
use zgate_io::mountinfo::{self, MountLine};
use zgate_io::{IoEngine, StoreName, WriteMethod};
use zgate_store::attr::FsId;
use zgate_store::{StoreError, StoreResult};

/// Least interval between two refreshes of the table caused by handles of
/// unknown file systems: a peer can send any number of them.
const REFRESH_INTERVAL: Duration = Duration::from_millis(250);

/// One mounted file system.
#[derive(Debug)]
pub(crate) struct Mount {
    /// Mount id of the kernel.
    pub(crate) id: u64,
    /// Key of the file system in handles; unchanged after a restart.
    pub(crate) key: u64,
    /// File system identity reported to clients.
    pub(crate) fsid: FsId,
    /// Root of the mount, open for reading: open_by_handle_at needs it.
    pub(crate) root: OwnedFd,
    /// Limits and abilities of the file system.
    pub(crate) traits: FileSystemTraits,
    /// Inode number of the directory it covers.
    pub(crate) covered_fileid: Option<u64>,
    /// Set if names that differ only in case are the same.
    pub(crate) case_insensitive: bool,
    /// Set if kernel handles work.
    pub(crate) kernel_handles: bool,
    /// Set if everything that a kernel handle of this file system can name lies
    /// below the exported root.
    pub(crate) whole: bool,
    /// Engine for its storage: a mount that hangs does not stop mounts of other
    /// pools or devices.
    pub(crate) engine: IoEngine,
    /// Syncs changes of names.
    pub(crate) names: Names,
    /// Method of writing to its regular files, unless opened with O_DIRECT; asked for
    /// the first of them.
    write_method: OnceLock<WriteMethod>,
    /// Set for a ZFS snapshot, which is mounted on demand.
    snapshot: Option<SnapshotMount>,
}

/// State of a mounted snapshot.
#[derive(Debug)]
struct SnapshotMount {
    /// Mount point; opening it mounts the snapshot again.
    point: Vec<u8>,
    /// Set if the snapshot was accessed since the last check.
    asked_for: AtomicBool,
}

impl Mount {
    /// Returns the method of writing to a regular file of this mount, which was opened
    /// without O_DIRECT: all of them have the same.
    pub(crate) fn write_method(&self, file: &OwnedFd) -> WriteMethod {
        *self.write_method.get_or_init(|| WriteMethod::of(file))
    }

    /// Returns whether calls for attributes, rights and names of objects at hand never wait:
    /// a core's thread may make them.
    pub(crate) fn answers_at_once(&self) -> bool {
        self.traits.waits_for == WaitsFor::Nothing
    }

    /// Returns whether this thread may make such calls: they never wait, or a worker of the
    /// storage continues the caller, and they may wait for it alone.
    pub(crate) fn answers_here(&self) -> bool {
        match self.traits.waits_for {
            WaitsFor::Nothing => true,
            WaitsFor::Lock => self.engine.continues_caller(),
            WaitsFor::Network => false,
        }
    }

    /// Returns whether other hosts may change its objects.
    pub(crate) fn is_remote(&self) -> bool {
        self.traits.waits_for == WaitsFor::Network
    }

    /// Records an access to the snapshot.
    pub(crate) fn mark_asked_for(&self) {
        if let Some(snapshot) = &self.snapshot {
            snapshot.asked_for.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether the snapshot was accessed since the last call.
    pub(crate) fn asked_for_again(&self) -> bool {
        self.snapshot.as_ref().is_none_or(|one| one.asked_for.swap(false, Ordering::Relaxed))
    }
}

/// Settings for adding mounts.
#[derive(Clone, Debug)]
pub(crate) struct MountPolicy {
    /// Engine for work that may wait for a disk.
    pub(crate) engine: IoEngine,
    /// Set if kernel handles are used where they work.
    pub(crate) kernel_handles: bool,
    /// Configured identity of the root file system.
    pub(crate) root_fsid: Option<FsId>,
    /// Takes the devices of all mounts.
    pub(crate) devices: MountedDevices,
    /// Snapshots that were released.
    pub(crate) asleep: Asleep,
    /// See [`PosixOptions`](crate::PosixOptions).
    #[cfg(test)]
    pub(crate) waits_for: Option<fn(&[u8]) -> WaitsFor>,
}

impl MountPolicy {
    /// Returns the engine for the storage of a mount, without access to it.
    fn engine_of(&self, line: &MountLine) -> IoEngine {
        self.engine.for_store(&StoreName::of_mount(&line.kind, &line.source, line.device))
    }
}

/// Mount points below the exported root, with the engines for what is mounted there.
/// They are known without access to it.
#[derive(Debug, Default)]
struct Points {
    engines: HashMap<Vec<u8>, IoEngine>,
    /// Set if not all of them have the workers of the root.
    differ: bool,
}

impl Points {
    /// Returns the engine of the nearest mount point above `point`, if there is one below
    /// the root.
    fn above(&self, mut point: &[u8]) -> Option<&IoEngine> {
        while let Some(at) = point.iter().rposition(|&byte| byte == b'/') {
            point = &point[..at];
            if let Some(engine) = self.engines.get(point) {
                return Some(engine);
            }
        }
        None
    }
}

/// All mounts at or below the exported root.
pub(crate) struct MountTable {
    policy: MountPolicy,
    root_path: Vec<u8>,
    root: Arc<Mount>,
    children: RwLock<Vec<Arc<Mount>>>,
    points: RwLock<Points>,
    refreshed: Mutex<Option<Instant>>,
    /// Number of times that mounts were left out of the table.
    gaps: AtomicU64,
    /// Value of `gaps` before the last refresh that took up all of them.
    filled: AtomicU64,
}

impl MountTable {
    /// Builds the table of mounts at and below `root_path`, which is free of
    /// symbolic links and open as `root`.
    pub(crate) fn new(
        root_path: Vec<u8>,
        root: &OwnedFd,
        policy: MountPolicy,
    ) -> StoreResult<Self> {
        let id = syscall::stat(root)?.stx_mnt_id;
        let lines = read_lines()?;
        let line = lines.iter().find(|line| line.id == id).ok_or(StoreError::NotSupported)?;
        policy.devices.keep(&lines);
        let mount = take_up(line, &root_path, true, &policy)?;
        let table = Self {
            policy,
            root_path,
            root: Arc::new(mount),
            children: RwLock::default(),
            points: RwLock::default(),
            refreshed: Mutex::new(None),
            gaps: AtomicU64::new(1),
            filled: AtomicU64::new(0),
        };
        table.refresh(None);
        Ok(table)
    }

    /// Returns the mount the exported root lies in.
    pub(crate) fn root(&self) -> &Arc<Mount> {
        &self.root
    }

    /// Returns the mount with this id; looks it up if it is unknown, and does not
    /// wait for other storage. Call it under the process's own identity.
    pub(crate) fn by_id(&self, id: u64) -> StoreResult<Arc<Mount>> {
        if let Some(mount) = self.find(|mount| mount.id == id) {
            return Ok(mount);
        }
        self.refresh(Some(id));
        self.find(|mount| mount.id == id).ok_or(StoreError::Stale)
    }

    /// Returns the mount with this id, if it is known.
    pub(crate) fn known(&self, id: u64) -> Option<Arc<Mount>> {
        self.find(|mount| mount.id == id)
    }

    /// Returns the mount of the file system with this key, if it is known.
    pub(crate) fn known_key(&self, key: u64) -> Option<Arc<Mount>> {
        self.find(|mount| mount.key == key)
    }

    /// Returns whether the root is the only mount.
    pub(crate) fn is_single(&self) -> bool {
        self.children.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Returns the mount of the file system with this key; refreshes the table
    /// if it is unknown.
    pub(crate) fn by_key(&self, key: u64) -> StoreResult<Arc<Mount>> {
        if let Some(mount) = self.find(|mount| mount.key == key) {
            return Ok(mount);
        }
        self.wake(key)?;
        self.refresh_if_due()?;
        self.find(|mount| mount.key == key).ok_or(StoreError::Stale)
    }

    /// Returns the known other mounts of the file system of `mount`: directories of
    /// it that are mounted below the root.
    pub(crate) fn others_of(&self, mount: &Mount) -> Vec<Arc<Mount>> {
        let children = self.children.read().unwrap_or_else(PoisonError::into_inner);
        let same = |child: &&Arc<Mount>| child.key == mount.key && child.id != mount.id;
        children.iter().filter(same).cloned().collect()
    }

    /// Returns the other mounts of the file system of `mount` without those in `known`.
    /// Refreshes the table if that is empty, or if the table lacks mounts.
    pub(crate) fn more_of(
        &self,
        mount: &Mount,
        known: &[Arc<Mount>],
    ) -> StoreResult<Vec<Arc<Mount>>> {
        if known.is_empty() || self.is_partial() {
            self.refresh_if_due()?;
        }
        // Another thread may have completed the table since `known` was read.
        let mut others = self.others_of(mount);
        others.retain(|other| !known.iter().any(|one| Arc::ptr_eq(one, other)));
        Ok(others)
    }

    /// Returns whether mounts were left out of the table since the last full refresh.
    fn is_partial(&self) -> bool {
        self.gaps.load(Ordering::Acquire) != self.filled.load(Ordering::Acquire)
    }

    /// Refreshes the table for a handle of a peer: not too often, unless mounts that
    /// were known are missing.
    fn refresh_if_due(&self) -> StoreResult<()> {
        // Another thread may be refreshing, and waiting for a mount that hangs.
        let mut refreshed = match self.refreshed.try_lock() {
            Ok(refreshed) => refreshed,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(StoreError::OutOfResources),
        };
        let is_due = refreshed.is_none_or(|when| when.elapsed() >= REFRESH_INTERVAL);
        if is_due || self.is_partial() {
            self.refresh(None);
            *refreshed = Some(Instant::now());
        }
        Ok(())
    }

    /// Mounts a released snapshot again.
    fn wake(&self, key: u64) -> StoreResult<()> {
        let Some(waking) = self.policy.asleep.begin(key)? else { return Ok(()) };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::open(waking.point(), flags, Mode::empty()).or_store() {
            Ok(_) => self.refresh(None),
            Err(StoreError::OutOfResources) => return Err(StoreError::OutOfResources),
            Err(error) => tracing::debug!(%error, "a snapshot no longer exists"),
        }
        waking.end();
        Ok(())
    }

    /// Returns the snapshots that are kept mounted.
    pub(crate) fn snapshots(&self) -> Vec<Arc<Mount>> {
        let children = self.children.read().unwrap_or_else(PoisonError::into_inner);
        children.iter().filter(|mount| mount.snapshot.is_some()).cloned().collect()
    }

    /// Releases a snapshot, unless a client has an object of it open.
    pub(crate) fn let_go_of(&self, mount: Arc<Mount>) {
        let mut children = self.children.write().unwrap_or_else(PoisonError::into_inner);
        // One reference here, one in the table.
        if Arc::strong_count(&mount) > 2 {
            return;
        }
        self.remember(&mount);
        children.retain(|child| !Arc::ptr_eq(child, &mount));
    }

    /// Remembers a snapshot before it leaves the table, so that it is in one of both.
    fn remember(&self, mount: &Mount) {
        if let Some(snapshot) = &mount.snapshot {
            self.policy.asleep.remember(mount.key, snapshot.point.clone());
        }
    }

    /// Returns the engine for what is mounted at `point`, without access to it.
    pub(crate) fn engine_at(&self, point: &[u8]) -> Option<IoEngine> {
        let known = {
            let points = self.points.read().unwrap_or_else(PoisonError::into_inner);
            points.engines.get(point).cloned()
        };
        known.or_else(|| {
            let lines = read_lines().ok()?;
            // The last one covers those before it.
            lines.iter().rfind(|line| line.point == point).map(|line| self.policy.engine_of(line))
        })
    }

    /// Returns the engine for the directory that the mount at `point` covers, without
    /// access to it.
    pub(crate) fn engine_above(&self, point: &[u8]) -> IoEngine {
        let points = self.points.read().unwrap_or_else(PoisonError::into_inner);
        points.above(point).unwrap_or(&self.root.engine).clone()
    }

    /// Returns the names of mount points in the directory at `dir` whose storage has
    /// other workers than `own`, with the engines for it.
    pub(crate) fn others_in(&self, dir: &[u8], own: &IoEngine) -> HashMap<Vec<u8>, IoEngine> {
        let points = self.points.read().unwrap_or_else(PoisonError::into_inner);
        let names = points.engines.iter().filter_map(|(point, engine)| {
            let at = point.iter().rposition(|&byte| byte == b'/')?;
            let is_here = point[..at] == *dir || (at == 0 && dir == b"/");
            let is_other = is_here && !engine.shares_workers_with(own);
            is_other.then(|| (point[at + 1..].to_vec(), engine.clone()))
        });
        names.collect()
    }

    /// Returns whether a known mount point leads to storage with other workers than
    /// those of the root.
    pub(crate) fn has_other_stores(&self) -> bool {
        self.points.read().unwrap_or_else(PoisonError::into_inner).differ
    }

    fn note_points(&self, lines: &[MountLine]) {
        let below = lines.iter().filter(|line| self.is_child(line));
        let engines: HashMap<_, _> =
            below.map(|line| (line.point.clone(), self.policy.engine_of(line))).collect();
        let differ = engines.values().any(|engine| !engine.shares_workers_with(&self.root.engine));
        *self.points.write().unwrap_or_else(PoisonError::into_inner) = Points { engines, differ };
    }

    fn is_child(&self, line: &MountLine) -> bool {
        is_below(&line.point, &self.root_path) && line.point != self.root_path
    }

    fn find(&self, fits: impl Fn(&Mount) -> bool) -> Option<Arc<Mount>> {
        if fits(&self.root) {
            return Some(Arc::clone(&self.root));
        }
        let children = self.children.read().unwrap_or_else(PoisonError::into_inner);
        let found = children.iter().find(|mount| fits(mount)).cloned();
        found.inspect(|mount| mount.mark_asked_for())
    }

    /// Releases all child mounts, so that they can be unmounted; they are found
    /// again on access.
    pub(crate) fn release(&self) {
        let mut children = self.children.write().unwrap_or_else(PoisonError::into_inner);
        // A refresh that is under way may have added them before.
        self.gaps.fetch_add(1, Ordering::AcqRel);
        children.iter().for_each(|child| self.remember(child));
        let released = std::mem::take(&mut *children);
        // Closing their descriptors may take long, and serving threads take the lock.
        drop(children);
        drop(released);
    }

    /// Adds new mounts, or the one with the id `only` and those that wait for no other
    /// storage than it does, and removes those that are gone. A mount that hangs is
    /// waited for without the lock, because serving threads take the lock.
    fn refresh(&self, only: Option<u64>) {
        let gaps = self.gaps.load(Ordering::Acquire);
        let Ok(lines) = read_lines() else { return };
        self.note_points(&lines);
        self.policy.devices.keep(&lines);
        let known = self.drop_gone(&lines);
        let missing = lines.iter().filter(|line| {
            self.is_child(line) && line.kind != b"autofs" && !known.contains(&line.id)
        });
        // Each unknown mount would cost a read of the whole table otherwise.
        let near = lines.iter().find(|line| Some(line.id) == only && self.is_child(line));
        let near = near.map(|line| self.waits_for(&line.point)).unwrap_or_default();
        let is_near = |line: &MountLine| {
            let engines = self.waits_for(&line.point);
            engines.iter().all(|one| near.iter().any(|other| one.shares_workers_with(other)))
        };
        let (wanted, left): (Vec<_>, Vec<_>) =
            missing.partition(|line| only.is_none_or(|id| line.id == id || is_near(line)));
        // Whoever sees one of those that are added now must know that others are missing.
        if !left.is_empty() {
            self.gaps.fetch_add(1, Ordering::AcqRel);
        }
        for line in wanted {
            self.add(line);
        }
        if only.is_none() {
            // Those left out meanwhile, by a release for example, are still missing.
            self.filled.fetch_max(gaps, Ordering::AcqRel);
        }
    }

    /// Returns the engines for the storage that taking up what is mounted at `point` may
    /// wait for: its own, and that of the directory that it covers. The kernel has the
    /// rest of the path in memory.
    fn waits_for(&self, point: &[u8]) -> Vec<IoEngine> {
        let points = self.points.read().unwrap_or_else(PoisonError::into_inner);
        let above = points.above(point).unwrap_or(&self.root.engine);
        points.engines.get(point).into_iter().chain([above]).cloned().collect()
    }

    /// Removes the mounts that are gone; returns the ids of the others.
    fn drop_gone(&self, lines: &[MountLine]) -> Vec<u64> {
        let mut gone = Vec::new();
        let mut children = self.children.write().unwrap_or_else(PoisonError::into_inner);
        for child in std::mem::take(&mut *children) {
            let there = lines.iter().any(|line| line.id == child.id);
            if there { &mut *children } else { &mut gone }.push(child);
        }
        let known = children.iter().map(|mount| mount.id).chain([self.root.id]).collect();
        // Closing their descriptors may take long.
        drop(children);
        drop(gone);
        known
    }

    /// Takes up a mount below the root.
    fn add(&self, line: &MountLine) {
        let mount = match take_up(line, &self.root_path, false, &self.policy) {
            Ok(mount) => Arc::new(mount),
            Err(error) => {
                let point = String::from_utf8_lossy(&line.point);
                tracing::debug!(%point, %error, "a mount below the root cannot be served");
                return;
            }
        };
        let mut children = self.children.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have added it meanwhile.
        if !children.iter().any(|child| child.id == mount.id) {
            children.push(mount);
        }
    }
}

/// Returns whether `path` is `root` or lies below it.
pub(crate) fn is_below(path: &[u8], root: &[u8]) -> bool {
    match path.strip_prefix(root) {
        Some([] | [b'/', ..]) => true,
        Some(_) => root == b"/",
        None => false,
    }
}

/// Returns what the open directory `root` lies in if it does not lie in the
/// dataset that is said to be mounted there.
pub(crate) fn in_place_of(dataset: &str, root: &OwnedFd) -> StoreResult<Option<String>> {
    let id = syscall::stat(root)?.stx_mnt_id;
    let lines = read_lines()?;
    let line = lines.iter().find(|line| line.id == id).ok_or(StoreError::NotSupported)?;
    Ok(other_than(dataset, line, &lines))
}

/// Returns what `line` mounts if it is not the dataset. On another file system, as
/// when the bare mount point shows, the dataset is missing only if a file system of
/// its pool is mounted: stand-ins of ZFS have datasets that no mount table names.
fn other_than(dataset: &str, line: &MountLine, lines: &[MountLine]) -> Option<String> {
    let pool = StoreName::of_dataset(dataset.as_bytes());
    let of_pool =
        |line: &MountLine| line.kind == b"zfs" && StoreName::of_dataset(&line.source) == pool;
    let is_real = line.kind == b"zfs" || lines.iter().any(of_pool);
    let is_it = line.kind == b"zfs" && line.source == dataset.as_bytes() && line.root == b"/";
    if is_it || !is_real {
        return None;
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let found = format!("{} ({})", text(&line.source), text(&line.kind));
    Some(if line.root == b"/" { found } else { format!("{} of {found}", text(&line.root)) })
}

fn read_lines() -> StoreResult<Vec<MountLine>> {
    mountinfo::read().or_store()
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
    policy.devices.note(key, line);
    let fsid = policy.root_fsid.filter(|_| is_root).unwrap_or(FsId { major: key, minor: 0 });
    let traits = traits_of(rustix::fs::fstatfs(&root).or_store()?.f_type as u64);
    #[cfg(test)]
    let traits = policy.waits_for.map_or(traits, |of| traits.waiting_for(of(&line.point)));
    let engine = policy.engine_of(line);
    // Requests would ask on a core's thread.
    engine.learn_from(&root);
    Ok(Mount {
        id: line.id,
        key,
        fsid,
        covered_fileid: covered_fileid(&line.point),
        case_insensitive: is_case_insensitive(line),
        kernel_handles: policy.kernel_handles && handles_work(&root),
        snapshot: snapshot_mount(line),
        names: Names::new(&line.kind),
        write_method: OnceLock::new(),
        engine,
        traits,
        whole: line.root == b"/" && (!is_root || line.point == root_path),
        root,
    })
}

fn snapshot_mount(line: &MountLine) -> Option<SnapshotMount> {
    let is_one = line.kind == b"zfs" && line.source.contains(&b'@');
    is_one.then(|| SnapshotMount { point: line.point.clone(), asked_for: AtomicBool::new(true) })
}

/// Returns whether a file system takes names that differ only in case for the same: a dataset
/// with `casesensitivity=insensitive`, which never changes. OpenZFS tells it here from 2.2 on.
/// With `mixed`, only a server in the kernel may ask for it.
fn is_case_insensitive(line: &MountLine) -> bool {
    let mut options = line.super_options.split(|&byte| byte == b',');
    line.kind == b"zfs" && options.any(|option| option == b"caseinsensitive")
}

/// Derives a key for a file system without an identity of its own.
fn key_of(line: &MountLine) -> u64 {
    let fields = [&line.kind, &line.source, &line.root, &line.point];
    SipHasher24::new_with_key(&[0; 16]).hash(&fields.map(|field| &field[..]).join(&0))
}

fn handles_work(root: &OwnedFd) -> bool {
    name_to_handle(root, c"").is_ok_and(|handle| {
        handle.as_bytes().len() <= MAX_WRAPPED_BYTES && open_by_handle(root, &handle).is_ok()
    })
}

/// Returns the inode number that a directory listing shows for a mount point.
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
mod tests;
