//! The place of a call: on this thread, on a worker, or on the ring of the request's core.

use super::{EngineKind, IoEngine};
use crate::continuation;
use std::os::fd::OwnedFd;

impl IoEngine {
    /// Returns whether a worker of this store continues the caller, which may therefore make
    /// short calls on the store on this thread. If so, the other requests that wait for that
    /// worker are sent to their cores: they do not wait for the calls. The thread may have the
    /// identity of another caller.
    #[must_use]
    pub fn continues_caller(&self) -> bool {
        self.inner.metadata.continues_caller(self.store)
    }

    /// Returns whether a call that may take long would begin at once: on this thread, if a
    /// worker for such calls continues the caller, or on a worker that is free.
    #[must_use]
    pub fn has_free_data_worker(&self) -> bool {
        self.inner.data.begins_at_once(self.store)
    }

    /// Asks the file system of a file whether its reads may wait for a disk, so that no
    /// request asks on a core's thread. May wait for the file system.
    pub fn learn_from(&self, fd: &OwnedFd) {
        if let Some(reads) = &self.cached_reads {
            reads.may_wait_at(fd);
        }
    }

    /// Returns whether a request goes to the ring of its core. On a file system without
    /// NOWAIT (ZFS), io_uring would pass it to a kernel worker and return the result to the
    /// core: a worker of ours answers the request itself. While none is free, the request
    /// returns to its core from the worker that continues it, which has no ring.
    pub(super) async fn goes_to_ring(&self, fd: &OwnedFd) -> bool {
        if self.inner.kind != EngineKind::Uring {
            return false;
        }
        if !self.cached_reads.as_ref().is_some_and(|reads| reads.may_wait_at(fd)) {
            return true;
        }
        if self.has_free_data_worker() {
            return false;
        }
        continuation::return_home().await;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cached::CachedReads;
    use crate::continuation::is_worker;
    use crate::continuation::tests::{begin, behind_a_short_call, engine, here, on_a_core};
    use crate::{EngineChoice, StoreName};
    use std::sync::Arc;
    use std::time::Duration;
    use zgate_store::AlignedBuf;

    #[test]
    fn a_worker_continues_the_caller_on_its_own_store_alone() {
        let engine = engine();
        let other = engine.for_store(&StoreName::of_dataset(b"other/pool"));
        assert!(!engine.continues_caller(), "this is no worker");
        on_a_core(async |home| {
            let own = engine.clone();
            let result = behind_a_short_call(&home, &engine, |worker| async move {
                (worker, here(), own.continues_caller(), other.continues_caller())
            });
            let (worker, thread, own, others) = result.await.unwrap();
            assert_eq!((thread, own, others), (worker, true, false));
        });
    }

    /// A file system without NOWAIT whose workers are all busy.
    #[test]
    fn a_request_leaves_a_worker_for_the_ring_while_no_data_worker_is_free() {
        let Ok(engine) = IoEngine::new(EngineChoice::Uring, 1) else { return };
        let engine = IoEngine {
            cached_reads: Some(Arc::new(CachedReads::without_nowait())),
            ..engine.for_store(&StoreName::of_dataset(b"one"))
        };
        on_a_core(async |home| {
            assert!(engine.has_free_data_worker());
            let (open, gate) = std::sync::mpsc::channel::<()>();
            let busy = engine.clone();
            let held = begin(&home, async move {
                let hold = move || {
                    let _ = gate.recv();
                };
                busy.run_long(hold).await.unwrap();
            });
            assert!(!engine.has_free_data_worker());
            let file = Arc::new(OwnedFd::from(tempfile::tempfile().unwrap()));
            let reader = engine.clone();
            let read = behind_a_short_call(&home, &engine, |_| async move {
                let is_continued = is_worker();
                let (count, _) = reader.read_into(&file, 0, AlignedBuf::zeroed(8)).await;
                (is_continued, count.unwrap(), is_worker())
            });
            let read = tokio::time::timeout(Duration::from_secs(60), read).await;
            assert_eq!(read.expect("it waits for a data worker").unwrap(), (true, 0, false));
            drop(open);
            held.await.unwrap();
        });
    }
}
