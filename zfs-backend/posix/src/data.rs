//! Reads and writes of file data.

use crate::attributes::BLOCK_BYTES;
use crate::direct::{DirectIo, Read};
use crate::errno::OrStoreError;
use crate::file_systems::WaitsFor;
use crate::losses::loss_of_write;
use crate::open_file::PosixFile;
use bytes::Bytes;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use zgate_io::{IoEngine, WriteMode, WriteSync, forget_pages};
use zgate_store::file_store::{ReadData, ReadHow, Stability};
use zgate_store::{BufferPool, FileSpan, MIN_SPAN_BYTES, Payload, StoreError, StoreResult};

/// Largest offset on Linux.
const MAX_OFFSET: u64 = i64::MAX as u64;
/// Bytes at the beginning of a large read that tell whether it is likely to lie in a hole.
const SAMPLE_BYTES: usize = 4 << 10;
const _: () = assert!(SAMPLE_BYTES <= MIN_SPAN_BYTES);

/// Reads at most `len` bytes at `offset`.
pub(crate) async fn read(
    pool: &BufferPool,
    policy: DirectIo,
    file: &PosixFile,
    (offset, len): (u64, usize),
    how: ReadHow,
) -> StoreResult<ReadData> {
    let fd = file.reader().ok_or(StoreError::AccessDenied)?;
    let engine = &file.entry.mount.engine;
    let Space { size, lacks_blocks } = space_of(file, &fd).await?;
    let may_have_holes = how.tells_holes && lacks_blocks;
    if may_have_holes && file.entry.mount.answers_at_once() {
        return Ok(ReadData::with_holes(size, offset));
    }
    let left = size.saturating_sub(offset);
    let want = usize::try_from(left).unwrap_or(usize::MAX).min(len);
    if want == 0 {
        return Ok(ReadData::new(Payload::Bytes(Bytes::new()), offset >= size));
    }
    let reaches_end = offset + want as u64 >= size;
    let asked = Read { offset, len: want as u64, size };
    let past_cache = policy != DirectIo::Never && file.entry.reads_past_cache(policy, asked);
    if past_cache
        && !(policy == DirectIo::Auto && engine.is_resident(&fd, offset, want as u64))
        && let Some(data) = read_past_cache(engine, pool, file, asked).await?
    {
        let eof = reaches_end || data.len() < want;
        return Ok(ReadData::new(Payload::Bytes(data), eof));
    }
    let may_be_span = how.span_allowed && want >= MIN_SPAN_BYTES;
    if may_be_span
        && !(may_have_holes && begins_in_hole(file, &fd, offset).await)
        && let Some(span) = without_a_copy(engine, &fd, (offset, want)).await?
    {
        return Ok(ReadData::new(Payload::Span(span), reaches_end));
    }
    let data = read_into_memory(pool, file, &fd, (offset, want)).await?;
    // Less than the size reported: the file has been truncated meanwhile.
    let eof = reaches_end || data.len() < want;
    Ok(ReadData::new(Payload::Bytes(data), eof))
}

/// Size and space of a file.
struct Space {
    /// Size in bytes.
    size: u64,
    /// Set if it takes less space than that; on ZFS as of its last attributes.
    lacks_blocks: bool,
}

/// Returns the size of an open file, and what is known of its space then. This thread waits for
/// nothing.
async fn space_of(file: &PosixFile, fd: &Arc<OwnedFd>) -> StoreResult<Space> {
    let mount = &file.entry.mount;
    let stat = match mount.traits.waits_for {
        WaitsFor::Nothing => rustix::fs::fstat(fd).or_store()?,
        // The kernel answers this by the size in the inode, also on OpenZFS (`zpl_llseek`). It
        // locks the position of the descriptor: other seeks, which may wait for the file
        // system, use others (`ranges::seek`).
        WaitsFor::Lock => {
            let size = rustix::fs::seek(fd, SeekFrom::End(0)).or_store()?;
            return Ok(Space { size, lacks_blocks: file.entry.lacks_blocks() });
        }
        WaitsFor::Network => {
            let fd = Arc::clone(fd);
            mount.engine.run(move || rustix::fs::fstat(&*fd)).await.or_store()?.or_store()?
        }
    };
    let size = stat.st_size.max(0) as u64;
    let used = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(BLOCK_BYTES);
    Ok(Space { size, lacks_blocks: used < size })
}

/// Returns whether a large read is found to begin with zeros, for a caller who tells them as a
/// hole and sees only what passes through memory. Looks at some of the reads, on the worker that
/// reads on: without a further hand-over.
async fn begins_in_hole(file: &PosixFile, fd: &Arc<OwnedFd>, offset: u64) -> bool {
    let (search, mount) = (&file.entry.zero_search, &file.entry.mount);
    // What other hosts have is read into memory, unless the page cache has it.
    if mount.is_remote() {
        return false;
    }
    let Some(look) = search.take_next() else { return false };
    let fd = Arc::clone(fd);
    let sample = move || {
        let mut sample = [0_u8; SAMPLE_BYTES];
        let count = rustix::io::pread(&*fd, &mut sample[..], offset).unwrap_or(0);
        count > 0 && sample[..count].iter().all(|byte| *byte == 0)
    };
    // Its error is that of the read that follows.
    let is_hole = mount.engine.run_long(sample).await.unwrap_or(false);
    search.note(look, is_hole);
    is_hole
}

/// Reads through the page cache; returns less where the file ends.
async fn read_into_memory(
    pool: &BufferPool,
    file: &PosixFile,
    fd: &Arc<OwnedFd>,
    (offset, len): (u64, usize),
) -> StoreResult<Bytes> {
    let engine = &file.entry.mount.engine;
    let (count, mut buf) = if file.entry.mount.is_remote() {
        engine.read_into(fd, offset, pool.take(len)).await
    } else {
        engine.read(fd, offset, pool.take(len)).await
    };
    let count = count.or_store();
    if count == Err(StoreError::Io) {
        // The pages that the disk could not fill stay in the page cache: the next read
        // would take them for data that a socket can send.
        let fd = Arc::clone(fd);
        let _ = engine.run_long(move || forget_pages(&fd, offset, len as u64)).await;
    }
    buf.truncate(count?);
    Ok(buf.into_bytes())
}

/// Returns a range of a file or of a pipe from which a socket can take the data.
async fn without_a_copy(
    engine: &IoEngine,
    fd: &Arc<OwnedFd>,
    (offset, len): (u64, usize),
) -> StoreResult<Option<FileSpan>> {
    if engine.is_resident(fd, offset, len as u64) {
        return Ok(Some(FileSpan { file: Arc::clone(fd) as _, offset, len }));
    }
    let pipe = engine.read_to_pipe(fd, offset, len).await.or_store()?;
    Ok(pipe.map(|pipe| FileSpan { file: Arc::new(pipe), offset: 0, len }))
}

/// Reads with O_DIRECT; `None` if the file system does not support it.
async fn read_past_cache(
    engine: &IoEngine,
    pool: &BufferPool,
    file: &PosixFile,
    asked: Read,
) -> StoreResult<Option<Bytes>> {
    let fd = match file.entry.cached_past_cache() {
        Some(fd) => Some(fd),
        None => {
            let entry = Arc::clone(&file.entry);
            engine.run(move || entry.open_past_cache()).await.or_store()?
        }
    };
    let Some(fd) = fd else { return Ok(None) };
    let (count, mut buf) =
        engine.read_direct(&fd, asked.offset, pool.take(asked.direct_len())).await;
    match count {
        Ok(count) => {
            // The file may have grown since its size was read.
            buf.truncate(count.min(usize::try_from(asked.len).unwrap_or(usize::MAX)));
            Ok(Some(buf.into_bytes()))
        }
        Err(error) if refuses_direct(&error) => {
            file.entry.refuse_past_cache(fd);
            Ok(None)
        }
        Err(error) => Err(error).or_store(),
    }
}

/// Returns whether an error means that O_DIRECT's requirements are not met
/// (open(2)): the same read through the cache would not fail so.
fn refuses_direct(error: &std::io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::INVAL | Errno::OPNOTSUPP))
}

/// Writes all of `data` at `offset`.
pub(crate) async fn write(
    file: &PosixFile,
    offset: u64,
    data: Bytes,
    stability: Stability,
) -> StoreResult<(usize, Stability)> {
    let (fd, mode) = file.writer_and_mode().ok_or(StoreError::AccessDenied)?;
    let engine = &file.entry.mount.engine;
    if offset.checked_add(data.len() as u64).is_none_or(|end| end > MAX_OFFSET) {
        return Err(StoreError::TooLarge);
    }
    if data.is_empty() {
        return Ok((0, stability));
    }
    let sync = match stability {
        Stability::Unstable => return write_unstable(file, (&fd, mode), offset, data).await,
        Stability::DataSync => WriteSync::Data,
        Stability::FileSync => WriteSync::Full,
    };
    let syncs = file.entry.syncs();
    syncs.group.check()?;
    let _beside = syncs.group.beside().await;
    let report = syncs.reports.begin();
    let len = data.len();
    let written = engine.write_from((&fd, mode), offset, data, sync).await.or_store();
    file.entry.mark_modified();
    let is_told_once = file.entry.reports_losses_once();
    let loss = loss_of_write(written, len, is_told_once);
    if let Some(error) = loss {
        file.losses().count(error);
    }
    let others = report.end(loss);
    let written = written?;
    // One of them may have been told that this write is lost.
    others.settled().await?;
    Ok((written, stability))
}

/// Writes without a sync. A file that may not wait for a COMMIT is synced afterwards: a write
/// that syncs itself could not tell a lack of space from a loss.
async fn write_unstable(
    file: &PosixFile,
    to: (&Arc<OwnedFd>, WriteMode),
    offset: u64,
    data: Bytes,
) -> StoreResult<(usize, Stability)> {
    let unstable = file.begin_unstable();
    let must_sync = unstable.is_none();
    if must_sync {
        file.entry.syncs().group.check()?;
    }
    let losses = file.losses().generation();
    let written = file.entry.mount.engine.write_from(to, offset, data, WriteSync::None).await;
    file.entry.mark_modified();
    drop(unstable);
    let written = written.or_store()?;
    if must_sync {
        commit(file).await?;
    }
    // A loss that others were told of before the sync may be this one: with the verifier
    // from before the write, the client sends it again.
    let is_stable = must_sync && file.losses().generation() == losses;
    Ok((written, if is_stable { Stability::FileSync } else { Stability::Unstable }))
}

/// Returns the descriptor that a COMMIT syncs: that of the writes, which is told of all their
/// losses; another one where nothing has been written by now.
fn committed_by(file: &PosixFile) -> StoreResult<Arc<OwnedFd>> {
    if !file.entry.reports_losses_once() {
        return file.any();
    }
    file.entry.cached_writer().map_or_else(|| file.any(), |writer| Ok(writer.fd))
}

/// Brings all earlier writes to stable storage, data and times, because the
/// change number is derived from the times.
pub(crate) async fn commit(file: &PosixFile) -> StoreResult<()> {
    let fd = committed_by(file)?;
    let syncs = file.entry.syncs();
    syncs.group.check()?;
    let sync = async |_| {
        let before = file.entry.writes.ended();
        let report = syncs.reports.begin();
        let synced = file.entry.mount.engine.sync(&fd, false).await.or_store();
        let synced = file.losses().note(synced);
        file.committed(before, synced);
        let others = report.end(synced.err());
        match synced {
            Ok(()) => others.settled().await,
            Err(error) => Err(error),
        }
    };
    syncs.group.join([()], sync).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Writer;
    use crate::options::PosixOptions;
    use crate::store::PosixStore;
    use crate::syscall;
    use crate::unsynced::{LEAST_UNSYNCED_FILES, UnstableWrite};
    use rustix::fs::OFlags;
    use std::pin::Pin;
    use std::sync::mpsc;
    use std::task::{Context, Waker};
    use zgate_io::{EngineChoice, credentials};
    use zgate_store::file_store::{CreateMode, OpenAccess, OpenFile};
    use zgate_store::{FileStore, NodeHandle, SetAttr};

    /// A store on a disk, with room for the least number of unsynced files.
    struct OnDisk {
        store: Arc<PosixStore>,
        _dir: tempfile::TempDir,
    }

    impl OnDisk {
        /// `None` where the tests are built in memory or on ZFS, which need no such room.
        fn new() -> Option<Self> {
            let program = std::env::current_exe().unwrap();
            let dir = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
            let engine = IoEngine::new(EngineChoice::Threads, 1).unwrap();
            let options = PosixOptions::new(engine, BufferPool::new(1 << 20));
            let options = PosixOptions { fd_cache_entries: 1, ..options };
            let store = PosixStore::open(dir.path(), options).unwrap();
            let is_told_once = store.tree.root.mount.names.how.reports_losses_once();
            is_told_once.then_some(Self { store, _dir: dir })
        }

        fn create(&self, name: &str) -> (NodeHandle, OpenFile) {
            let (me, root) = (credentials::process_identity(), self.store.root());
            let attrs = SetAttr { mode: Some(0o600), ..SetAttr::default() };
            let tree = &self.store.tree;
            let made = tree.create_file(me, &root, name.as_bytes(), CreateMode::Guarded, &attrs);
            let made = made.unwrap().unwrap();
            (made.node.handle, made.open.unwrap())
        }

        fn open(&self, node: &NodeHandle, write: bool) -> OpenFile {
            let access = OpenAccess { read: true, write, stateless: true, read_by_execute: false };
            self.store.tree.open(credentials::process_identity(), node, access).unwrap()
        }

        /// Creates as many files as there is room for.
        fn create_to_fill(&self) -> Vec<OpenFile> {
            let names = (0..LEAST_UNSYNCED_FILES).map(|number| format!("f{number}"));
            names.map(|name| self.create(&name).1).collect()
        }

        /// Handles of the files that are kept.
        fn unsynced(&self) -> Vec<NodeHandle> {
            self.store.tree.unsynced.all().iter().map(|entry| entry.handle).collect()
        }
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    /// Polls once, so that its first call is queued.
    fn waits<T>(job: &mut Pin<Box<impl Future<Output = T>>>) -> bool {
        job.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    /// Begins an unstable write to each file.
    fn begin_all(files: &[OpenFile]) -> Vec<UnstableWrite<'_>> {
        files.iter().map(|file| PosixFile::of(file).unwrap().begin_unstable().unwrap()).collect()
    }

    /// Writes a byte; returns the stability that it has.
    fn write_one(file: &OpenFile, stability: Stability) -> Stability {
        let file = PosixFile::of(file).unwrap();
        let written = block_on(write(file, 0, Bytes::from_static(b"x"), stability));
        let (count, stability) = written.unwrap();
        assert_eq!(count, 1);
        stability
    }

    /// Over NFSv3 no client has a file open between a WRITE and its COMMIT.
    #[test]
    fn a_file_outlasts_the_cache_from_its_unstable_write_to_its_commit() {
        let Some(disk) = OnDisk::new() else { return };
        let (node, file) = disk.create("f");
        assert_eq!(write_one(&file, Stability::DataSync), Stability::DataSync);
        assert!(disk.unsynced().is_empty());
        assert_eq!(write_one(&file, Stability::Unstable), Stability::Unstable);
        drop(file);
        let written = disk.store.tree.cached(&node).unwrap().cached_writer().unwrap().fd;
        disk.store.tree.cache.clear();
        assert_eq!(disk.unsynced(), [node]);
        // The descriptor that wrote syncs.
        let file = disk.open(&node, true);
        let writer = PosixFile::of(&file).unwrap().writer().unwrap();
        assert!(Arc::ptr_eq(&writer, &written));
        block_on(commit(PosixFile::of(&file).unwrap())).unwrap();
        assert!(disk.unsynced().is_empty());
    }

    /// Without the right to read, a gateway that is not root writes by a descriptor that
    /// cannot read; a COMMIT without the right to write opens another one.
    #[test]
    fn a_commit_that_may_only_read_syncs_the_descriptor_of_the_writes() {
        let Some(disk) = OnDisk::new() else { return };
        let (node, file) = disk.create("f");
        let entry = Arc::clone(&PosixFile::of(&file).unwrap().entry);
        let writer = entry.cached_writer().unwrap();
        entry.keep_writer(Writer { reads: false, ..writer.clone() });
        let file = disk.open(&node, false);
        let file = PosixFile::of(&file).unwrap();
        assert!(!Arc::ptr_eq(&file.any().unwrap(), &writer.fd));
        assert!(Arc::ptr_eq(&committed_by(file).unwrap(), &writer.fd));
    }

    #[test]
    fn a_commit_does_not_cover_what_is_written_while_it_syncs() {
        let Some(disk) = OnDisk::new() else { return };
        let (node, file) = disk.create("f");
        write_one(&file, Stability::Unstable);
        let file = PosixFile::of(&file).unwrap();
        let (gate, closed) = mpsc::channel::<()>();
        let mut stuck = Box::pin(disk.store.engine().run_long(move || closed.recv().is_err()));
        assert!(waits(&mut stuck));
        let mut committed = Box::pin(commit(file));
        assert!(waits(&mut committed));
        drop(file.begin_unstable());
        drop(gate);
        block_on(committed).unwrap();
        assert_eq!(disk.unsynced(), [node]);
    }

    #[test]
    fn writes_that_begin_together_share_the_descriptor_that_came_first() {
        let Some(disk) = OnDisk::new() else { return };
        let (_, file) = disk.create("f");
        let entry = &PosixFile::of(&file).unwrap().entry;
        let first = entry.cached_writer().unwrap();
        let late = syscall::reopen(&entry.fd, OFlags::RDWR).unwrap();
        let kept = entry.keep_first_writer(Writer::new(late, true), entry.claim().unwrap());
        assert!(Arc::ptr_eq(&kept.fd, &first.fd));
        assert!(Arc::ptr_eq(&entry.cached_writer().unwrap().fd, &first.fd));
    }

    #[test]
    fn a_copy_is_an_unstable_write() {
        let Some(disk) = OnDisk::new() else { return };
        let ((_, from), (node, to)) = (disk.create("from"), disk.create("to"));
        write_one(&from, Stability::FileSync);
        assert_eq!(block_on(disk.store.copy_range(&from, 0, &to, 0, 1)), Ok(1));
        assert_eq!(disk.unsynced(), [node]);
        block_on(commit(PosixFile::of(&to).unwrap())).unwrap();
        assert!(disk.unsynced().is_empty());
    }

    #[test]
    fn without_room_a_write_syncs_itself() {
        let Some(disk) = OnDisk::new() else { return };
        let files = disk.create_to_fill();
        let running = begin_all(&files);
        let (node, late) = disk.create("late");
        assert_eq!(write_one(&late, Stability::Unstable), Stability::FileSync);
        let copied = block_on(disk.store.copy_range(&late, 0, &late, 4096, 1));
        assert_eq!(copied, Ok(1), "it is synced as well");
        assert!(!disk.unsynced().contains(&node));
        drop(running);
        for file in &files {
            block_on(commit(PosixFile::of(file).unwrap())).unwrap();
        }
        assert!(disk.unsynced().is_empty());
        assert_eq!(write_one(&late, Stability::Unstable), Stability::Unstable);
    }

    #[test]
    fn a_write_that_is_refused_without_room_is_nobodys_loss() {
        let Some(disk) = OnDisk::new() else { return };
        let files = disk.create_to_fill();
        let _running = begin_all(&files);
        let (_, file) = disk.create("late");
        let entry = Arc::clone(&PosixFile::of(&file).unwrap().entry);
        // Every write to this device is refused for lack of space.
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let writer = Some(Writer::new(OwnedFd::from(full), false));
        let me = credentials::process_identity();
        let file = PosixFile::new(&disk.store.tree, entry, None, writer, me);
        let before = file.losses().generation();
        let refused = block_on(write(&file, 0, Bytes::from_static(b"x"), Stability::Unstable));
        assert_eq!(refused, Err(StoreError::NoSpace));
        assert_eq!(file.losses().generation(), before);
    }

    /// The loss may be that of the write. With the verifier from before it, its client sends
    /// it again.
    #[test]
    fn a_write_without_room_is_not_stable_if_others_are_told_of_a_loss() {
        let Some(disk) = OnDisk::new() else { return };
        let files = disk.create_to_fill();
        let _running = begin_all(&files);
        let (_, file) = disk.create("late");
        let file = PosixFile::of(&file).unwrap();
        let (gate, closed) = mpsc::channel::<()>();
        let mut stuck = Box::pin(disk.store.engine().run_long(move || closed.recv().is_err()));
        assert!(waits(&mut stuck));
        let mut written = Box::pin(write(file, 0, Bytes::from_static(b"x"), Stability::Unstable));
        assert!(waits(&mut written));
        file.losses().count(StoreError::Io);
        drop(gate);
        assert_eq!(block_on(written), Ok((1, Stability::Unstable)));
    }

    #[test]
    fn the_first_file_is_synced_to_make_room() {
        let Some(disk) = OnDisk::new() else { return };
        let files = ["first", "second", "third"].map(|name| disk.create(name));
        for (_, file) in &files {
            write_one(file, Stability::Unstable);
        }
        // The one worker for such calls takes them in turn.
        let (done, is_done) = mpsc::channel();
        disk.store.engine().detach_long(move || done.send(()).unwrap());
        is_done.recv().unwrap();
        assert_eq!(disk.unsynced().len(), 2);
        assert!(!disk.unsynced().contains(&files[0].0));
    }

    #[test]
    fn a_removed_file_is_not_kept() {
        let Some(disk) = OnDisk::new() else { return };
        let (_, file) = disk.create("f");
        write_one(&file, Stability::Unstable);
        drop(file);
        let (me, root) = (credentials::process_identity(), disk.store.root());
        disk.store.tree.remove(me, &root, b"f", None).unwrap();
        assert!(disk.unsynced().is_empty());
    }
}
