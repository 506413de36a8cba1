//! Tests of the io_uring engine.

use super::*;
use crate::hang_detector::SLOW_LOOKS;
use rustix::event::{PollFd, PollFlags, poll};
use std::path::Path;
use std::process::{Command, Stdio};
use tokio::sync::oneshot::error::TryRecvError;

const HUNG: StoreSlot = StoreSlot(1);
const SOUND: StoreSlot = StoreSlot(2);

fn run(program: &str, args: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(args).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// A file system whose writes block until this is dropped.
struct Frozen(String);

impl Frozen {
    /// Returns `None` if root, loop devices or ext4's tools are missing, which is a failure
    /// where everything is required.
    fn with_files(dir: &Path, count: usize) -> Option<(Self, Vec<Arc<OwnedFd>>)> {
        let (image, at) = (dir.join("image"), dir.join("mounted"));
        std::fs::create_dir(&at).ok()?;
        std::fs::File::create(&image).ok()?.set_len(16 << 20).ok()?;
        let (image, at) = (image.to_str()?, at.to_str()?);
        let mounted = run("mkfs.ext4", &["-q", "-F", "-O", "^has_journal", image])
            && run("mount", &["-o", "loop", image, at]);
        if !mounted {
            return None;
        }
        let frozen = Self(at.to_owned());
        let open = |number| std::fs::File::create(format!("{at}/{number}"));
        let files = (0..count).map(|number| Some(Arc::new(open(number).ok()?.into())));
        let files = files.collect::<Option<Vec<_>>>()?;
        run("fsfreeze", &["-f", at]).then_some((frozen, files))
    }

    fn thaw(&self) {
        run("fsfreeze", &["-u", &self.0]);
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.thaw();
        run("umount", &["-l", &self.0]);
    }
}

fn write() -> Request {
    let data = Bytes::from_static(b"x");
    let set_id = SetIdBits::Kept;
    Request::Write { offset: 0, data, done: 0, flags: libc::RWF_DSYNC, set_id }
}

/// Uses more files than the kernel gives a thread workers, so that all of
/// them are stuck.
#[test]
fn a_store_that_hangs_leaves_the_ring_to_others() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let Ok(ring) = CoreRing::open().map(Arc::new) else { return };
        let kernel_workers = ring.lock().kernel_workers as usize;
        let Some((frozen, files)) = Frozen::with_files(dir.path(), kernel_workers + 8) else {
            let wish = std::env::var("ZGATE_TEST_LOOP").unwrap_or_default();
            assert!(wish != "require", "no file system can be frozen");
            return;
        };
        assert!(ring.is_driven());
        let submit = |store, file, request| ring.submit(store, file, request);
        let mut stuck: Vec<_> =
            files.iter().map(|file| submit(HUNG, file, write()).ok().unwrap()).collect();
        let sound = Arc::new(OwnedFd::from(tempfile::tempfile().unwrap()));
        (0..SLOW_LOOKS).for_each(|_| ring.lock().look());
        // A slow store gets a few more requests in flight, but only a few.
        while let Ok(answer) = submit(HUNG, &files[0], write()) {
            stuck.push(answer);
        }
        assert!(stuck.len() <= MAX_IN_FLIGHT_SLOW.max(files.len()));
        // The kernel starts a worker for one of them; earlier requests run
        // first.
        for _ in 0..2 {
            let request = Request::Sync { data_only: true };
            let answer = submit(SOUND, &sound, request).ok().unwrap();
            let patience = std::time::Duration::from_secs(20);
            let answered = tokio::time::timeout(patience, answer).await;
            assert_eq!(answered.expect("it waits for the other").unwrap().0, 0);
        }
        frozen.thaw();
        for answer in stuck {
            assert_eq!(answer.await.unwrap().0, 1);
        }
        ring.lock().look();
        assert_eq!(ring.lock().kernel_workers_more, 0);
    });
}

#[test]
fn completions_without_room_in_the_queue_are_answered() {
    let Ok(small) = IoUring::new(4) else { return };
    let mut ring = Ring::over(small);
    let file = Arc::new(OwnedFd::from(tempfile::tempfile().unwrap()));
    let mut waiting = Vec::new();
    for _ in 0..64 {
        let (done, answer) = oneshot::channel();
        let sync = Request::Sync { data_only: true };
        ring.start(SOUND, &file, (sync, OWN_IDENTITY), done);
        waiting.push(answer);
    }
    // Nothing is reaped until the queue is full, or holds all that is left.
    while !ring.ring.submission().cq_overflow()
        && ring.ring.completion().len() < ring.in_flight.len() - ring.free.len()
    {
        std::thread::yield_now();
    }
    let readable = descriptor(&ring.ring).unwrap();
    waiting.retain_mut(|answer| answer.try_recv().is_err());
    while !waiting.is_empty() {
        poll(&mut [PollFd::new(&readable, PollFlags::IN)], None).unwrap();
        ring.reap();
        let before = waiting.len();
        waiting.retain_mut(|answer| answer.try_recv().is_err());
        assert!(waiting.len() < before, "{before} requests are never answered");
    }
}

/// As a kernel without memory does, which may last: a core serves other connections meanwhile.
#[test]
fn requests_that_the_kernel_does_not_take_keep_no_thread() {
    let Ok(small) = IoUring::new(4) else { return };
    let ring = Mutex::new(Ring::over(small));
    let core = CoreRing { ring, driven: AtomicBool::new(true), ordinary: None };
    let file = Arc::new(OwnedFd::from(tempfile::tempfile().unwrap()));
    let submit = || core.submit(SOUND, &file, Request::Sync { data_only: true });
    core.lock().failing_submits = usize::MAX;
    let mut refused = submit().ok().unwrap();
    assert_eq!(refused.try_recv().err(), Some(TryRecvError::Empty), "it is queued");
    assert!(submit().is_err(), "a worker does it");
    core.lock().look();
    assert!(submit().is_err());
    core.lock().failing_submits = 0;
    let next = submit().ok().unwrap();
    for mut answer in [refused, next] {
        let (result, _) = loop {
            match answer.try_recv() {
                Ok(answer) => break answer,
                Err(TryRecvError::Empty) => core.lock().reap(),
                Err(TryRecvError::Closed) => panic!("it is lost"),
            }
        };
        assert_eq!(result, 0);
    }
}
