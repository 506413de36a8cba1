//! Stable storage for names and attributes: one sync of a mount for all changes
//! that wait for it.

use crate::entry::Entry;
use crate::errno::OrStoreError;
use crate::mounts::Mount;
use crate::name_sync::{NameSync, Names, Object, Step, rounds};
use crate::syscall;
use crate::tree::Tree;
use crate::unsynced::{Syncable, Writes};
use futures_util::future::join_all;
use rustix::fs::OFlags;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use zgate_io::credentials;
use zgate_store::file_store::NamedObject;
use zgate_store::{FileKind, NodeHandle, StoreError, StoreResult};

/// Objects of a group that are synced at the same time: workers that one mount
/// takes for its names.
const MAX_SYNCS_BESIDE_EACH_OTHER: usize = 4;

impl Tree {
    /// Syncs these objects: their attributes and, for directories, their
    /// entries.
    pub(crate) async fn sync_objects(self: &Arc<Self>, nodes: &[NodeHandle]) -> StoreResult<()> {
        for (mount, nodes) in self.by_mount(nodes) {
            let steps = nodes.into_iter().map(|node| Step::alone(Object::Node(node)));
            self.sync_in(&mount, steps.collect()).await?;
        }
        Ok(())
    }

    /// Syncs one change of names in directories, which lie in one mount, in their order.
    pub(crate) async fn sync_names(
        self: &Arc<Self>,
        of: NamedObject,
        dirs: &[NodeHandle],
    ) -> StoreResult<()> {
        let Some(dir) = dirs.first() else { return Ok(()) };
        let mount = self.mount_of(dir);
        let steps = mount.names.how.steps_of(of, dirs);
        self.sync_in(&mount, steps).await
    }

    fn by_mount(&self, nodes: &[NodeHandle]) -> Vec<(Arc<Mount>, Vec<NodeHandle>)> {
        let mut mounts: Vec<(Arc<Mount>, Vec<NodeHandle>)> = Vec::with_capacity(1);
        for node in nodes {
            let mount = self.mount_of(node);
            match mounts.iter_mut().find(|(other, _)| Arc::ptr_eq(other, &mount)) {
                Some((_, near)) => near.push(*node),
                None => mounts.push((mount, vec![*node])),
            }
        }
        mounts
    }

    async fn sync_in(self: &Arc<Self>, mount: &Arc<Mount>, steps: Vec<Step>) -> StoreResult<()> {
        let Names { how, group } = &mount.names;
        if *how == NameSync::Nothing || steps.is_empty() {
            return Ok(());
        }
        let own = steps.len();
        let sync = async |steps: Vec<Step>| {
            let is_alone = steps.len() == own;
            for round in rounds(&steps) {
                self.sync_round(mount, round, is_alone).await?;
            }
            Ok::<(), StoreError>(())
        };
        group.join(steps, sync).await.map_err(after_a_change)
    }

    /// Syncs objects beside each other: a file system combines syncs that come together.
    /// Those of one request alone are synced by the worker that has made its change, if
    /// that can be spared. A group goes to a worker for long calls, which then continues
    /// several of its requests.
    async fn sync_round(
        self: &Arc<Self>,
        mount: &Arc<Mount>,
        objects: Vec<Object>,
        is_alone: bool,
    ) -> StoreResult<()> {
        // The change cannot be undone, so its sync is never refused.
        let engine = mount.engine.patient();
        let part = objects.len().div_ceil(MAX_SYNCS_BESIDE_EACH_OTHER).max(2);
        if is_alone && objects.len() <= part {
            let (tree, mount) = (Arc::clone(self), Arc::clone(mount));
            let sync = move || tree.sync_now(&mount, &objects);
            return engine.run_long_in_place(sync).await.or_store()?;
        }
        let syncs = objects.chunks(part).map(|part| {
            let (tree, mount) = (Arc::clone(self), Arc::clone(mount));
            let part = part.to_vec();
            engine.run_long(move || tree.sync_now(&mount, &part))
        });
        join_all(syncs).await.into_iter().try_for_each(|synced| synced.or_store()?)
    }

    /// Syncs objects on a thread that may have any identity.
    fn sync_now(&self, mount: &Mount, objects: &[Object]) -> StoreResult<()> {
        for object in objects {
            // Recorded at once: for a file, the error may be the only report of
            // a lost write.
            let synced = match object {
                Object::Node(node) => self.sync_node(mount, node),
                Object::Any => self.losses.note(rustix::fs::fsync(&mount.root).or_store()),
            };
            match synced {
                // The object is gone: there is nothing left to sync.
                Ok(()) | Err(StoreError::Stale | StoreError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn sync_node(&self, mount: &Mount, node: &NodeHandle) -> StoreResult<()> {
        // What has been moved away since it was changed is synced, too.
        match self.entry_anywhere(node) {
            // A disk takes a sync from anybody. The server of a network file system is told that
            // the process asks; where the object lies is known for sure once it is found.
            Ok(entry) if entry.mount.is_remote() => {
                credentials::as_process(|| self.sync_entry(&entry))
            }
            Ok(entry) => self.sync_entry(&entry),
            // It has left the cache since it was changed, and no descriptor is free
            // for it. The mount keeps one, by which the whole file system is synced.
            Err(StoreError::OutOfResources) if self.lies_in(mount, node) => {
                let synced = credentials::as_process(|| rustix::fs::syncfs(&mount.root));
                self.losses.note(synced.or_store())
            }
            Err(error) => Err(error),
        }
    }

    fn lies_in(&self, mount: &Mount, node: &NodeHandle) -> bool {
        let key = self.file_system_of(node);
        key.map_or_else(|| self.mounts.is_single(), |key| key == mount.key)
    }

    fn sync_entry(&self, entry: &Entry) -> StoreResult<()> {
        // Writes of a file that sync themselves use the same descriptor.
        let report = (entry.kind == FileKind::Regular).then(|| entry.syncs().reports.begin());
        let synced = self.losses.note(sync(entry));
        if let Some(report) = report {
            report.end(synced.err());
        }
        synced
    }
}

impl Syncable for Entry {
    fn handle(&self) -> &NodeHandle {
        &self.handle
    }

    fn writes(&self) -> &Writes {
        &self.writes
    }

    fn disk(&self) -> usize {
        self.mount.engine.workers()
    }

    fn detach(self: Arc<Self>, work: impl FnOnce(Arc<Self>) + Send + 'static) {
        let engine = self.mount.engine.clone();
        engine.detach_long(move || work(self));
    }

    fn sync(&self, told: impl FnOnce(StoreResult<()>)) {
        // COMMITs that run meanwhile wait for it: it may be told of their loss.
        let report = self.syncs().reports.begin();
        let synced = sync(self);
        told(synced);
        report.end(synced.err());
    }
}

/// Maps the error of a sync: its change is made. A client that is told to try again
/// would repeat its CREATE, REMOVE or RENAME, and find that the name exists or is gone.
fn after_a_change(error: StoreError) -> StoreError {
    match error {
        StoreError::OutOfResources | StoreError::Busy => StoreError::Io,
        other => other,
    }
}

fn sync(entry: &Entry) -> StoreResult<()> {
    match descriptor(entry) {
        Some(fd) => rustix::fs::fsync(&fd).or_store(),
        // A link or a device has no descriptor that can be synced, and a file
        // may deny its owner access: sync the whole file system then.
        None => rustix::fs::syncfs(&entry.mount.root).or_store(),
    }
}

fn descriptor(entry: &Entry) -> Option<Arc<OwnedFd>> {
    match entry.kind {
        FileKind::Regular => {
            entry.cached_writer().map(|writer| writer.fd).or_else(|| entry.reader().ok())
        }
        FileKind::Directory => {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            credentials::as_process(|| syscall::reopen(&entry.fd, flags)).ok().map(Arc::new)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PosixOptions, PosixStore};
    use std::sync::mpsc;
    use std::time::Duration;
    use tokio::runtime::Handle;
    use tokio::sync::oneshot;
    use zgate_io::continuation::Home;
    use zgate_io::{EngineChoice, IoEngine};
    use zgate_store::{BufferPool, FileStore};

    /// Workers of each kind for a store.
    const WORKERS: usize = 2;

    type Ended = oneshot::Receiver<StoreResult<()>>;

    /// Begins a request. When this returns, it waits or has ended.
    fn begin(
        home: &Home,
        request: impl Future<Output = StoreResult<()>> + Send + 'static,
    ) -> Ended {
        let (done, ended) = oneshot::channel();
        home.begin(async move {
            let _ = done.send(request.await);
        });
        ended
    }

    async fn expect_synced(ended: Ended) {
        let ended = tokio::time::timeout(Duration::from_secs(60), ended).await;
        assert_eq!(ended.expect("it waits for ever").unwrap(), Ok(()));
    }

    /// Syncs one request, then a group, while no worker for long calls is free.
    async fn sync_without_workers_for_long_calls(home: Home, store: Arc<PosixStore>) {
        let busy = [(); WORKERS].map(|()| {
            let (open, gate) = mpsc::channel::<()>();
            let engine = store.engine().clone();
            let hold = move || {
                let _ = gate.recv();
            };
            (open, begin(&home, async move { engine.run_long(hold).await.or_store() }))
        });
        // Each begins with a call that ends after its request waits: a worker continues it.
        let (waits, told) = mpsc::channel::<()>();
        let of_request = Arc::clone(&store);
        let alone = begin(&home, async move {
            of_request.engine().run(move || told.recv().unwrap()).await.or_store()?;
            of_request.sync_objects(&[of_request.root()]).await
        });
        waits.send(()).unwrap();
        expect_synced(alone).await;
        let (waits, told) = mpsc::channel::<()>();
        let mount = Arc::clone(&store.tree.root.mount);
        let writer = begin(&home, async move {
            let _beside = mount.names.group.beside().await;
            mount.engine.run(move || told.recv().unwrap()).await.or_store()
        });
        let mut group = [(); 3].map(|()| {
            let store = Arc::clone(&store);
            begin(&home, async move { store.sync_objects(&[store.root()]).await })
        });
        // The worker that continues the writer then continues the first of the group.
        waits.send(()).unwrap();
        expect_synced(writer).await;
        let early = tokio::time::timeout(Duration::from_millis(200), &mut group[0]).await;
        assert!(early.is_err(), "a worker for short calls has synced a group");
        for (open, held) in busy {
            drop(open);
            expect_synced(held).await;
        }
        for ended in group {
            expect_synced(ended).await;
        }
    }

    #[test]
    fn one_request_is_synced_in_place_and_a_group_by_a_worker_for_long_calls() {
        // On the disk of this program: names of a memory file system need no sync.
        let program = std::env::current_exe().unwrap();
        let at = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
        let engine = IoEngine::new(EngineChoice::Threads, WORKERS).unwrap();
        let options = PosixOptions::new(engine, BufferPool::new(1 << 20));
        let store = PosixStore::open(at.path(), options).unwrap();
        if store.tree.root.mount.names.how == NameSync::Nothing {
            return;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (home, returning) = Home::new(Handle::current());
            tokio::select! {
                () = sync_without_workers_for_long_calls(home, store) => {}
                () = returning.run() => panic!("the core has ended"),
            }
        });
    }

    #[test]
    fn a_change_that_is_made_is_never_to_be_tried_again() {
        for error in [StoreError::OutOfResources, StoreError::Busy, StoreError::Io] {
            assert_eq!(after_a_change(error), StoreError::Io);
        }
        assert_eq!(after_a_change(StoreError::NoSpace), StoreError::NoSpace);
    }
}
