//! Calls on objects at hand: made on the caller's thread where it waits for nothing in them,
//! and where a worker of their storage continues the caller.

use super::PosixStore;
use crate::entry::Entry;
use crate::errno::OrStoreError;
use crate::file_systems::WaitsFor;
use std::sync::Arc;
use std::time::Instant;
use zgate_store::file_store::{OpenAccess, OpenFile};
use zgate_store::{Attr, Caller, NodeHandle, StoreResult};

impl PosixStore {
    /// Returns the cached object, if this thread may ask for its attributes and rights.
    pub(super) fn at_hand(&self, node: &NodeHandle) -> Option<Arc<Entry>> {
        let entry = self.tree.cached(node).filter(|entry| entry.mount.answers_here())?;
        // A worker tells that it has been moved away.
        self.tree.check_place(&entry).ok()?;
        Some(entry)
    }

    /// Returns the attributes of a cached object as they were a moment ago, if this thread may
    /// not ask for the present ones, and only programs on this machine may have changed them
    /// without this store.
    pub(super) fn known_attr(&self, node: &NodeHandle) -> Option<Attr> {
        if self.tree.mounts.is_single() && self.tree.root.mount.answers_at_once() {
            return None;
        }
        let entry = self.tree.cached(node)?;
        let mount = &entry.mount;
        let may_not_ask = mount.traits.waits_for == WaitsFor::Lock && !mount.answers_here();
        if may_not_ask { entry.recent_attr(Instant::now()) } else { None }
    }

    /// Opens a regular file.
    pub(super) async fn open_file(
        &self,
        who: &Caller,
        node: NodeHandle,
        access: OpenAccess,
    ) -> StoreResult<OpenFile> {
        if let Some(entry) = self.at_hand(&node)
            && let Some(answer) = self.tree.open_in_memory(who, entry, access)
        {
            return answer;
        }
        if access.stateless
            && let Some(answer) = self.open_on_data_worker(who, node, access).await
        {
            return answer;
        }
        self.by(who, &node, move |tree, who| tree.open(who, &node, access)).await
    }

    /// Opens a file for the one read, write or sync that follows, on the worker that makes
    /// that one, too: the request needs one hand-over. `None` where no open may wait, and
    /// while no such worker is free: what follows may then have another way than to wait for
    /// one.
    async fn open_on_data_worker(
        &self,
        who: &Caller,
        node: NodeHandle,
        access: OpenAccess,
    ) -> Option<StoreResult<OpenFile>> {
        let mount = self.tree.mount_of(&node);
        if mount.traits.waits_for != WaitsFor::Lock || !mount.engine.has_free_data_worker() {
            return None;
        }
        let (tree, who) = (Arc::clone(&self.tree), who.clone());
        let open = move || tree.inline_as(&who, || tree.open(&who, &node, access));
        let opened = mount.engine.run_long(open).await.or_store();
        opened.unwrap_or_else(|error| Some(Err(error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::PosixOptions;
    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
    use std::os::unix::fs::{FileExt, MetadataExt};
    use std::path::PathBuf;
    use std::sync::atomic::Ordering;
    use std::sync::mpsc;
    use std::task::{Context, Poll, Waker};
    use std::thread::ThreadId;
    use std::time::Duration;
    use tokio::runtime::Handle;
    use tokio::sync::oneshot;
    use zgate_io::continuation::{Home, is_worker};
    use zgate_io::{EngineChoice, IoEngine, credentials};
    use zgate_store::file_store::{ReadData, ReadHow, SeekWhat};
    use zgate_store::{BufferPool, FileStore, MIN_SPAN_BYTES, Payload};

    /// Waits of the calls on a file system, by its mount point.
    type Waits = fn(&[u8]) -> WaitsFor;

    const READ: OpenAccess =
        OpenAccess { read: true, write: false, stateless: false, read_by_execute: false };
    /// Time limit far above the response time of a worker that is free.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn nothing(_: &[u8]) -> WaitsFor {
        WaitsFor::Nothing
    }

    fn lock(_: &[u8]) -> WaitsFor {
        WaitsFor::Lock
    }

    fn network(_: &[u8]) -> WaitsFor {
        WaitsFor::Network
    }

    fn lock_in_the_child(point: &[u8]) -> WaitsFor {
        if point.ends_with(b"/child") { WaitsFor::Lock } else { WaitsFor::Nothing }
    }

    fn lock_above_the_child(point: &[u8]) -> WaitsFor {
        if point.ends_with(b"/child") { WaitsFor::Nothing } else { WaitsFor::Lock }
    }

    /// A file system, unmounted when dropped.
    struct Mounted(PathBuf);

    impl Drop for Mounted {
        fn drop(&mut self) {
            let _ = unmount(&self.0, UnmountFlags::DETACH);
        }
    }

    /// A tree with a file "f". Each file system in it has one worker of each kind.
    struct Files {
        store: Arc<PosixStore>,
        file: NodeHandle,
        /// Before the directory in which it is mounted.
        _child: Option<Mounted>,
        dir: tempfile::TempDir,
    }

    impl Files {
        fn new(waits_for: Waits) -> Self {
            Self::in_dir(tempfile::tempdir().unwrap(), None, waits_for)
        }

        /// Mounts another file system as "child". `None` without the right to mount, which is a
        /// failure where everything is required.
        fn above_a_child(waits_for: Waits) -> Option<Self> {
            let dir = tempfile::tempdir().unwrap();
            let at = dir.path().join("child");
            std::fs::create_dir(&at).unwrap();
            if mount("none", &at, "tmpfs", MountFlags::empty(), c"size=1m").is_err() {
                let wish = std::env::var("ZGATE_TEST_LOOP").unwrap_or_default();
                assert!(wish != "require", "nothing can be mounted");
                return None;
            }
            Some(Self::in_dir(dir, Some(Mounted(at)), waits_for))
        }

        fn in_dir(dir: tempfile::TempDir, child: Option<Mounted>, waits_for: Waits) -> Self {
            std::fs::write(dir.path().join("f"), b"data").unwrap();
            let engine = IoEngine::new(EngineChoice::Threads, 1).unwrap();
            let options = PosixOptions::new(engine, BufferPool::new(1 << 20));
            let options = PosixOptions { waits_for: Some(waits_for), ..options };
            let store = PosixStore::open(dir.path(), options).unwrap();
            let (me, top) = (credentials::process_identity(), store.root());
            let file = block_on(store.lookup(me, &top, b"f")).unwrap().handle;
            Self { store, file, _child: child, dir }
        }
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    /// Returns the result of a request that waits for nothing.
    fn at_once<T>(request: impl Future<Output = T>) -> Option<T> {
        let mut task = Context::from_waker(Waker::noop());
        match std::pin::pin!(request).poll(&mut task) {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        }
    }

    /// Keeps the one worker for short calls busy until the returned value is dropped.
    fn hold(engine: &IoEngine) -> mpsc::Sender<()> {
        let (open, gate) = mpsc::channel::<()>();
        let (begun, begins) = mpsc::channel();
        engine.detach(move || {
            let _ = begun.send(());
            let _ = gate.recv();
        });
        begins.recv().unwrap();
        open
    }

    fn here() -> ThreadId {
        std::thread::current().id()
    }

    fn bytes_of(read: ReadData) -> (Vec<u8>, bool) {
        let Payload::Bytes(bytes) = read.data else { panic!("no span was allowed") };
        (bytes.to_vec(), read.eof)
    }

    #[test]
    fn calls_that_may_wait_are_not_made_on_the_thread_of_the_caller() {
        let cases: [(Waits, bool); 3] = [(nothing, true), (lock, false), (network, false)];
        for (waits_for, is_answered) in cases {
            let Files { store, file, .. } = &Files::new(waits_for);
            let (me, top) = (credentials::process_identity(), store.root());
            let held = hold(store.engine());
            for node in [&top, file] {
                assert_eq!(at_once(store.getattr(node)).is_some(), is_answered);
                assert_eq!(at_once(store.access(me, node)).is_some(), is_answered);
            }
            assert_eq!(at_once(store.open(me, file, READ)).is_some(), is_answered);
            // The kernel of the test may not tell names in memory from others.
            let found = at_once(store.lookup(me, &top, b"f"));
            assert!(is_answered || found.is_none());
            drop(held);
            assert_eq!(block_on(store.getattr(file)).unwrap().size, 4);
        }
    }

    /// Needs the right to mount.
    #[test]
    fn each_file_system_of_a_tree_decides_for_its_own_objects() {
        let cases: [(Waits, bool); 2] = [(lock_in_the_child, true), (lock_above_the_child, false)];
        for (waits_for, is_answered_above) in cases {
            let Some(files) = Files::above_a_child(waits_for) else { return };
            let (store, file) = (&files.store, &files.file);
            let (me, top) = (credentials::process_identity(), store.root());
            let child = block_on(store.lookup(me, &top, b"child")).unwrap().handle;
            let engines = [&top, &child].map(|node| store.tree.engine_of(node));
            let held = engines.map(|engine| hold(&engine));
            assert_eq!(at_once(store.getattr(file)).is_some(), is_answered_above);
            assert_eq!(at_once(store.getattr(&child)).is_some(), !is_answered_above);
            drop(held);
            assert!(block_on(store.getattr(&child)).is_ok());
        }
    }

    #[test]
    fn a_request_is_answered_by_the_worker_that_continues_it() {
        let files = Files::new(lock);
        let (of_request, file) = (Arc::clone(&files.store), files.file);
        let held = hold(files.store.engine());
        let request = async move {
            let (me, top) = (credentials::process_identity(), of_request.root());
            of_request.getattr(&file).await.unwrap();
            let worker = (here(), is_worker());
            let answers = [
                of_request.recent_attr(&file).is_none(),
                at_once(of_request.getattr(&file)).is_some_and(|answer| answer.is_ok()),
                at_once(of_request.access(me, &file)).is_some_and(|answer| answer.is_ok()),
                at_once(of_request.open(me, &file, READ)).is_some_and(|answer| answer.is_ok()),
                at_once(of_request.lookup(me, &top, b"f")).is_some_and(|answer| answer.is_ok()),
            ];
            // The file was closed there, too.
            (worker, answers, of_request.tree.freeing.load(Ordering::Acquire))
        };
        let (worker, answers, being_closed) = block_on(async {
            let (home, returning) = Home::new(Handle::current());
            let (done, ended) = oneshot::channel();
            home.begin(async move {
                let _ = done.send(request.await);
            });
            drop(held);
            tokio::select! {
                result = ended => result.unwrap(),
                () = returning.run() => panic!("the core has ended"),
            }
        });
        assert!(worker.1 && worker.0 != here());
        assert_eq!((answers, being_closed), ([true; 5], 0));
    }

    /// Returns the user of this thread for file systems (proc(5)).
    fn fsuid() -> u32 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("Uid:")).unwrap();
        line.split_whitespace().last().unwrap().parse().unwrap()
    }

    #[test]
    fn only_what_is_known_to_lie_on_a_disk_is_asked_for_attributes_under_any_identity() {
        if !credentials::can_switch() {
            return;
        }
        let who = Caller { uid: 4321, gid: 5, groups: Arc::from([]) };
        let cases: [(Waits, bool, u32); 4] =
            [(lock, true, who.uid), (lock, false, 0), (network, true, 0), (network, false, 0)];
        for (waits_for, is_cached, expected) in cases {
            let Files { store, file, .. } = &Files::new(waits_for);
            if !is_cached {
                store.release();
            }
            // The one worker for short calls keeps this identity until a call needs another one.
            block_on(store.engine().run_as(who.clone(), || ())).unwrap();
            assert_eq!(block_on(store.getattr(file)).unwrap().size, 4);
            let left = block_on(store.engine().run_as_anyone(fsuid)).unwrap();
            assert_eq!(left, expected, "cached: {is_cached}");
        }
    }

    #[test]
    fn what_was_read_a_moment_ago_is_told_where_a_core_may_not_ask() {
        let cases: [(Waits, bool); 3] = [(nothing, false), (lock, true), (network, false)];
        for (waits_for, is_told) in cases {
            let Files { store, file, .. } = &Files::new(waits_for);
            let entry = store.tree.cached(file).unwrap();
            block_on(store.getattr(file)).unwrap();
            let known = entry.recent_attr(Instant::now()).filter(|_| is_told);
            assert_eq!(store.recent_attr(file), known);
            entry.mark_modified();
            assert_eq!(store.recent_attr(file), None, "it has been changed");
        }
    }

    #[test]
    fn a_file_is_closed_by_a_worker_where_that_may_wait() {
        let cases: [(Waits, usize); 3] = [(nothing, 0), (lock, 1), (network, 1)];
        for (waits_for, expected) in cases {
            let Files { store, file, .. } = &Files::new(waits_for);
            let me = credentials::process_identity();
            let opened = block_on(store.open(me, file, READ)).unwrap();
            // Nobody knows whether it still has a name.
            store.tree.cached(file).unwrap().mark_modified();
            let held = hold(store.engine());
            drop(opened);
            let being_closed = || store.tree.freeing.load(Ordering::Acquire);
            assert_eq!(being_closed(), expected);
            drop(held);
            // The one worker takes its jobs in turn.
            block_on(store.engine().run(|| ())).unwrap();
            assert_eq!(being_closed(), 0);
        }
    }

    #[test]
    fn a_file_that_the_store_keeps_is_closed_without_a_worker() {
        // Over a network others may have removed it.
        let cases: [(Waits, usize); 3] = [(nothing, 0), (lock, 0), (network, 1)];
        for (waits_for, expected) in cases {
            let Files { store, file, .. } = &Files::new(waits_for);
            let me = credentials::process_identity();
            let [first, second] = [(); 2].map(|()| block_on(store.open(me, file, READ)).unwrap());
            let entry = store.tree.cached(file).unwrap();
            let held = hold(store.engine());
            let being_closed = || store.tree.freeing.load(Ordering::Acquire);
            drop(first);
            assert_eq!(being_closed(), 0, "it is still open");
            drop(second);
            let left = being_closed();
            // On a machine that has stood still for a second, it is not known any more.
            if entry.recent_attr(Instant::now()).is_some() {
                assert_eq!(left, expected);
            }
            drop(held);
            block_on(store.engine().run(|| ())).unwrap();
            assert_eq!((entry.opens.load(Ordering::Acquire), being_closed()), (0, 0));
        }
    }

    #[test]
    fn what_nobody_else_has_is_closed_by_a_worker() {
        for waits_for in [lock as Waits, network] {
            let Files { store, file, .. } = &Files::new(waits_for);
            let me = credentials::process_identity();
            let opened = block_on(store.open(me, file, READ)).unwrap();
            let entry = Arc::downgrade(&store.tree.cached(file).unwrap());
            store.release();
            let held = hold(store.engine());
            drop(opened);
            let being_closed = || store.tree.freeing.load(Ordering::Acquire);
            assert_eq!(being_closed(), 1);
            drop(held);
            block_on(store.engine().run(|| ())).unwrap();
            assert_eq!((entry.strong_count(), being_closed()), (0, 0));
        }
    }

    /// The file system of a tree that is closed is free as soon as that job has ended.
    #[test]
    fn a_job_closes_files_itself() {
        let Files { store, file, .. } = &Files::new(lock);
        let opened = block_on(store.open(credentials::process_identity(), file, READ)).unwrap();
        let tree = Arc::clone(&store.tree);
        let close = move || {
            drop(opened);
            tree.freeing.load(Ordering::Acquire)
        };
        assert_eq!(block_on(store.engine().run(close)).unwrap(), 0);
    }

    #[test]
    fn data_is_read_without_a_worker_for_short_calls() {
        for waits_for in [nothing as Waits, lock as Waits] {
            let files = Files::new(waits_for);
            let (store, me) = (&files.store, credentials::process_identity());
            let held = hold(store.engine());
            let how = ReadHow { span_allowed: false, tells_holes: false };
            let read = async {
                let stateless = OpenAccess { stateless: true, ..READ };
                let open = store.open(me, &files.file, stateless).await.unwrap();
                let whole = store.read(&open, 0, 100, how).await.unwrap();
                // By another program.
                std::fs::write(files.dir.path().join("f"), b"longer data").unwrap();
                let part = store.read(&open, 0, 6, how).await.unwrap();
                let hole = store.seek(&open, 0, SeekWhat::Hole).await.unwrap();
                let last = store.read(&open, 7, 4, how).await.unwrap();
                ([whole, part, last].map(bytes_of), hole)
            };
            let read = block_on(async { tokio::time::timeout(PATIENCE, read).await });
            let (read, hole) = read.expect("it waits for a worker for short calls");
            let expected = [("data", true), ("longer", false), ("data", true)];
            assert_eq!(read, expected.map(|(text, eof)| (text.as_bytes().to_vec(), eof)));
            assert_eq!(hole, 11);
            drop(held);
        }
    }

    /// Creates a file of nothing but a hole; returns its size.
    fn make_hole(path: PathBuf) -> u64 {
        std::fs::File::create(path).unwrap().set_len(1 << 20).unwrap();
        1 << 20
    }

    /// Returns the size that a caller who tells holes gets in place of data, if it does.
    fn told_holes(store: &PosixStore, dir: &NodeHandle, name: &str) -> Option<u64> {
        let me = credentials::process_identity();
        let how = ReadHow { span_allowed: false, tells_holes: true };
        block_on(async {
            let node = store.lookup(me, dir, name.as_bytes()).await.unwrap().handle;
            let open = store.open(me, &node, READ).await.unwrap();
            let read = store.read(&open, 0, 4, how).await.unwrap();
            assert_eq!(read.data.len(), if read.size_with_holes.is_some() { 0 } else { 4 });
            read.size_with_holes
        })
    }

    #[test]
    fn holes_are_told_where_a_seek_for_them_waits_for_nothing() {
        let cases: [(Waits, bool); 3] = [(nothing, true), (lock, false), (network, false)];
        for (waits_for, is_told) in cases {
            let Files { store, dir, .. } = &Files::new(waits_for);
            let size = make_hole(dir.path().join("hole"));
            assert_eq!(told_holes(store, &store.root(), "hole"), is_told.then_some(size));
            assert_eq!(told_holes(store, &store.root(), "f"), None, "it has none");
        }
    }

    /// Needs the right to mount.
    #[test]
    fn each_file_system_of_a_tree_decides_whether_holes_are_told() {
        let cases: [(Waits, bool); 2] = [(lock_in_the_child, true), (lock_above_the_child, false)];
        for (waits_for, is_told_above) in cases {
            let Some(files) = Files::above_a_child(waits_for) else { return };
            let (store, dir, top) = (&files.store, &files.dir, files.store.root());
            let child = store.lookup(credentials::process_identity(), &top, b"child");
            let child = block_on(child).unwrap().handle;
            let size = make_hole(dir.path().join("hole"));
            make_hole(dir.path().join("child/hole"));
            let found = [told_holes(store, &top, "hole"), told_holes(store, &child, "hole")];
            let expected = [is_told_above, !is_told_above];
            assert_eq!(found, expected.map(|is_told| is_told.then_some(size)));
        }
    }

    /// Counts the reads of the beginning of a file that pass through memory.
    fn reads_into_memory(files: &Files, name: &str, reads: usize, tells_holes: bool) -> usize {
        let (store, me) = (&files.store, credentials::process_identity());
        let how = ReadHow { span_allowed: true, tells_holes };
        block_on(async {
            let node = store.lookup(me, &store.root(), name.as_bytes()).await.unwrap().handle;
            let open = store.open(me, &node, READ).await.unwrap();
            let mut found = 0;
            for _ in 0..reads {
                let read = store.read(&open, 0, MIN_SPAN_BYTES, how).await.unwrap();
                assert_eq!(read.data.len(), MIN_SPAN_BYTES);
                found += usize::from(matches!(read.data, Payload::Bytes(_)));
            }
            found
        })
    }

    /// Passes silently where the kernel does not tell what it has in memory, and where a file that
    /// was just written takes no space yet.
    #[test]
    fn large_reads_of_zeros_pass_through_memory_where_a_seek_may_wait() {
        let files = &Files::new(lock);
        let path = |name: &str| files.dir.path().join(name);
        // Zeros that were written stand for those that ZFS does not keep.
        std::fs::write(path("full"), vec![0; MIN_SPAN_BYTES]).unwrap();
        std::fs::write(path("image"), vec![7; MIN_SPAN_BYTES]).unwrap();
        let image = std::fs::File::options().write(true).open(path("image")).unwrap();
        image.set_len(1 << 30).unwrap();
        if reads_into_memory(files, "image", 20, false) > 0
            || std::fs::metadata(path("full")).unwrap().blocks() < MIN_SPAN_BYTES as u64 / 512
        {
            return;
        }
        assert_eq!(reads_into_memory(files, "full", 100, true), 0, "it takes all its space");
        assert_eq!(reads_into_memory(files, "image", 100, true), 0, "there is data");
        image.write_all_at(&[0; MIN_SPAN_BYTES], 0).unwrap();
        assert!(reads_into_memory(files, "image", 100, true) >= 80);
        assert_eq!(reads_into_memory(files, "image", 20, false), 0, "nobody tells holes");
        image.write_all_at(&[7; MIN_SPAN_BYTES], 0).unwrap();
        assert_eq!(reads_into_memory(files, "image", 100, true), 0, "there is data again");
    }

    #[test]
    fn a_file_is_opened_for_its_data_while_all_data_workers_are_busy() {
        let Files { store, file, .. } = &Files::new(lock);
        let (open, gate) = mpsc::channel::<()>();
        let mut busy = Box::pin(store.engine().run_long(move || gate.recv().is_err()));
        assert!(at_once(busy.as_mut()).is_none());
        let stateless = OpenAccess { stateless: true, ..READ };
        let opened = store.open(credentials::process_identity(), file, stateless);
        let opened = block_on(async { tokio::time::timeout(PATIENCE, opened).await });
        assert!(opened.expect("it waits for a data worker").is_ok());
        drop(open);
        assert!(block_on(busy).unwrap());
    }
}
