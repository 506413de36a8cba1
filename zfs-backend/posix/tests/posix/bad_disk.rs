//! Disks that are full, broken or rationed, as loop-mounted file systems. Each
//! test needs root, loop devices and its file system's tools. Without them it does
//! nothing, which is a failure where everything is required; Btrfs is no part of that.

use crate::fixture::*;
use bytes::Bytes;
use rustix::fs::Advice;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use zgate_io::{EngineChoice, IoEngine};
use zgate_posix::{HandleMode, PosixOptions, PosixStore};
use zgate_store::file_store::{CreateMode, ReadHow, Stability};
use zgate_store::{FileStore, NodeHandle, SetAttr, StoreError};

pub(crate) fn run(program: &str, args: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(args).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// A file system in an image, unmounted when dropped.
pub(crate) struct Disk {
    pub(crate) at: PathBuf,
    image: PathBuf,
}

impl Disk {
    /// A new file system of `bytes`; the image is sparse.
    pub(crate) fn new(dir: &Path, bytes: u64, make: &[&str], options: &str) -> Option<Self> {
        let (at, image) = (dir.join("mounted"), dir.join("image"));
        std::fs::create_dir_all(&at).unwrap();
        std::fs::File::create(&image).unwrap().set_len(bytes).unwrap();
        let (program, args) = make.split_first()?;
        let image_text = image.to_str()?;
        let made = run(program, &[args, &[image_text]].concat());
        let mounted = made && run("mount", &["-o", options, image_text, at.to_str()?]);
        if !mounted && *program == EXT4[0] {
            not_run("root, loop devices and ext4's tools are needed");
        }
        mounted.then_some(Self { at, image })
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        run("umount", &["-l", self.at.to_str().unwrap_or_default()]);
    }
}

pub(crate) const EXT4: [&str; 6] = ["mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-m0"];

async fn create(store: &impl FileStore, name: &str) -> zgate_store::StoreResult<Created> {
    let attrs = SetAttr { mode: Some(0o644), ..SetAttr::default() };
    let made = store
        .create_file(&user(1234, 1234), &store.root(), name.as_bytes(), CreateMode::Guarded, &attrs)
        .await?;
    Ok(Created { handle: made.node.handle, open: made.open.unwrap() })
}

struct Created {
    handle: NodeHandle,
    open: zgate_store::file_store::OpenFile,
}

pub(crate) fn let_anyone_in(disk: &Disk) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&disk.at, std::fs::Permissions::from_mode(0o777)).unwrap();
}

/// Writes one MiB after the other until an error occurs.
async fn fill(store: &impl FileStore, file: &Created, stability: Stability) -> StoreError {
    let data = Bytes::from(vec![7; 1 << 20]);
    for at in 0..256 {
        let written = store.write(&file.open, at << 20, data.clone(), stability).await;
        match written {
            Ok((count, _)) if count == data.len() => {}
            Ok((count, _)) => {
                let rest = data.slice(count..);
                let at = (at << 20) + count as u64;
                return error_of(store.write(&file.open, at, rest, stability).await);
            }
            Err(error) => return error,
        }
    }
    panic!("it is never full");
}

#[test]
fn a_full_ext4_says_so_for_data_and_names_and_recovers() {
    let dir = tempfile::tempdir().unwrap();
    let make = [&EXT4[..], &["-N", "32"]].concat();
    let Some(disk) = Disk::new(dir.path(), 16 << 20, &make, "loop") else { return };
    let_anyone_in(&disk);
    let store = open_store(&disk.at, HandleMode::Auto);
    block_on(async {
        let big = create(&*store, "big").await.unwrap();
        assert_eq!(fill(&*store, &big, Stability::Unstable).await, StoreError::NoSpace);
        assert_eq!(error_of(store.allocate(&big.open, 0, 64 << 20).await), StoreError::NoSpace);
        let mut made = 0;
        let last = loop {
            match create(&*store, &format!("n{made}")).await {
                Ok(_) => made += 1,
                Err(error) => break error,
            }
            assert!(made < 1000);
        };
        assert_eq!(last, StoreError::NoSpace, "no more inodes");
        store.remove(&root(), &store.root(), b"big", None).await.unwrap();
        drop(big);
        store.remove(&root(), &store.root(), b"n0", None).await.unwrap();
        // Space is freed when the last descriptor is closed, on a worker.
        for _ in 0..100 {
            std::thread::sleep(std::time::Duration::from_millis(20));
            let Ok(again) = create(&*store, "again").await else { continue };
            // The inode may be back before the blocks are.
            let data = Bytes::from_static(b"x");
            if store.write(&again.open, 0, data, Stability::FileSync).await.is_ok() {
                return;
            }
        }
        panic!("nothing came back");
    });
}

#[test]
fn what_a_disk_cannot_read_is_an_io_error() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = Disk::new(dir.path(), 32 << 20, &EXT4, "loop") else { return };
    let_anyone_in(&disk);
    let store = open_store(&disk.at, HandleMode::Auto);
    block_on(async {
        let file = create(&*store, "f").await.unwrap();
        let data = Bytes::from(vec![7; 8 << 20]);
        store.write(&file.open, 0, data, Stability::FileSync).await.unwrap();
        // Truncate the disk, and drop the page cache of the file.
        std::fs::File::options().write(true).open(&disk.image).unwrap().set_len(1 << 20).unwrap();
        let same = std::fs::File::open(disk.at.join("f")).unwrap();
        rustix::fs::fadvise(&same, 0, None, Advice::DontNeed).unwrap();
        let how = ReadHow { span_allowed: false, tells_holes: false };
        let read = store.read(&file.open, 4 << 20, 1 << 20, how).await;
        assert_eq!(error_of(read), StoreError::Io);
        // Its pages are not taken for data that a socket can send.
        let how = ReadHow { span_allowed: true, tells_holes: false };
        let again = store.read(&file.open, 4 << 20, 1 << 20, how).await;
        assert_eq!(error_of(again), StoreError::Io);
        assert!(store.getattr(&file.handle).await.is_ok(), "what is in memory is still told");
    });
}

#[test]
fn an_error_in_the_middle_of_a_read_is_no_end_of_the_file() {
    for engine in [EngineChoice::Auto, EngineChoice::Threads] {
        let dir = tempfile::tempdir().unwrap();
        let Some(disk) = Disk::new(dir.path(), 32 << 20, &EXT4, "loop") else { return };
        let_anyone_in(&disk);
        let engine = IoEngine::new(engine, 2).unwrap();
        let options = PosixOptions { engine, ..options(HandleMode::Auto) };
        let store = PosixStore::open(&disk.at, options).unwrap();
        block_on(async {
            let file = create(&*store, "f").await.unwrap();
            let data = Bytes::from(vec![7; 8 << 20]);
            store.write(&file.open, 0, data, Stability::FileSync).await.unwrap();
            // The first page stays in memory, and the disk loses the others.
            let same = std::fs::File::open(disk.at.join("f")).unwrap();
            for advice in [Advice::DontNeed, Advice::Random] {
                rustix::fs::fadvise(&same, 0, None, advice).unwrap();
            }
            same.read_exact_at(&mut [0; 4096], 4 << 20).unwrap();
            let image = std::fs::File::options().write(true).open(&disk.image).unwrap();
            image.set_len(1 << 20).unwrap();
            let how = ReadHow { span_allowed: false, tells_holes: false };
            let read = store.read(&file.open, 4 << 20, 1 << 20, how).await;
            assert_eq!(error_of(read), StoreError::Io);
        });
    }
}

/// Runs a test on an ext4 whose image is larger than the tmpfs it lies on.
fn on_a_disk_that_cannot_write(test: impl FnOnce(&Disk)) {
    let dir = tempfile::tempdir().unwrap();
    let small = dir.path().join("small");
    std::fs::create_dir(&small).unwrap();
    if !run("mount", &["-t", "tmpfs", "-o", "size=8m", "none", small.to_str().unwrap()]) {
        return not_run("the right to mount is needed");
    }
    if let Some(disk) = Disk::new(&small, 64 << 20, &EXT4, "loop") {
        let_anyone_in(&disk);
        test(&disk);
    }
    run("umount", &["-l", small.to_str().unwrap()]);
}

#[test]
fn what_a_disk_cannot_write_fails_the_commit() {
    on_a_disk_that_cannot_write(|disk| {
        let store = open_store(&disk.at, HandleMode::Auto);
        block_on(async {
            let file = create(&*store, "f").await.unwrap();
            let data = Bytes::from(vec![7; 16 << 20]);
            store.write(&file.open, 0, data.clone(), Stability::Unstable).await.unwrap();
            // Loop devices pass on the reason of a failed write.
            let lost = [StoreError::Io, StoreError::NoSpace];
            assert!(lost.contains(&error_of(store.commit(&file.open).await)));
            let stable = store.write(&file.open, 16 << 20, data, Stability::FileSync).await;
            assert!(lost.contains(&error_of(stable)));
        });
    });
}

/// The kernel reports a lost write once per descriptor. The loss counter
/// reports it to all callers.
#[test]
fn every_lost_write_is_counted_whoever_is_told() {
    on_a_disk_that_cannot_write(|disk| {
        let store = open_store(&disk.at, HandleMode::Auto);
        block_on(async {
            let file = create(&*store, "f").await.unwrap();
            let unstable = || {
                let data = Bytes::from(vec![7; 16 << 20]);
                store.write(&file.open, 0, data, Stability::Unstable)
            };
            let before = store.losses();
            unstable().await.unwrap();
            assert_eq!(store.losses(), before, "nothing has failed yet");
            assert!(store.sync_objects(&[file.handle]).await.is_err());
            let names = store.losses();
            assert_ne!(names, before, "told to the sync of an attribute");
            unstable().await.unwrap();
            assert!(store.commit(&file.open).await.is_err());
            let commit = store.losses();
            assert_ne!(commit, names, "told to a COMMIT");
            unstable().await.unwrap();
            let data = Bytes::from(vec![7; 16 << 20]);
            let stable = store.write(&file.open, 16 << 20, data.clone(), Stability::FileSync).await;
            assert!(!matches!(stable, Ok((count, _)) if count == data.len()));
            assert_ne!(store.losses(), commit, "told to a stable WRITE, short or not at all");
        });
    });
}

/// Another program is told first, so that the kernel tells nobody who opens the file later.
#[test]
fn a_lost_write_is_counted_after_the_file_has_left_the_cache() {
    on_a_disk_that_cannot_write(|disk| {
        let options = PosixOptions { fd_cache_entries: 64, ..options(HandleMode::Auto) };
        let store = PosixStore::open(&disk.at, options).unwrap();
        block_on(async {
            let file = create(&*store, "f").await.unwrap();
            let data = Bytes::from(vec![7; 16 << 20]);
            store.write(&file.open, 0, data.clone(), Stability::Unstable).await.unwrap();
            drop(file.open);
            for number in 0..1000 {
                create(&*store, &format!("n{number}")).await.unwrap();
            }
            let before = store.losses();
            let other = std::fs::File::open(disk.at.join("f")).unwrap();
            assert!(other.sync_all().is_err());
            let open = store.open(&user(1234, 1234), &file.handle, READ_WRITE).await.unwrap();
            assert!(store.commit(&open).await.is_err());
            let commit = store.losses();
            assert_ne!(commit, before);
            // Nobody asks for this sync: eight more files take the room.
            store.write(&open, 0, data, Stability::Unstable).await.unwrap();
            drop(open);
            for number in 0..8 {
                let file = create(&*store, &format!("m{number}")).await.unwrap();
                let byte = Bytes::from_static(b"x");
                store.write(&file.open, 0, byte, Stability::Unstable).await.unwrap();
            }
            let begun = std::time::Instant::now();
            while store.losses() == commit {
                assert!(begun.elapsed() < std::time::Duration::from_secs(10), "it is not synced");
                std::thread::yield_now();
            }
        });
    });
}

#[test]
fn a_quota_is_not_a_full_disk() {
    let dir = tempfile::tempdir().unwrap();
    let make = ["mkfs.btrfs", "-q", "-f"];
    let Some(disk) = Disk::new(dir.path(), 160 << 20, &make, "loop") else { return };
    let_anyone_in(&disk);
    let path = disk.at.to_str().unwrap();
    let limited =
        run("btrfs", &["quota", "enable", path]) && run("btrfs", &["qgroup", "limit", "4M", path]);
    if !limited {
        return;
    }
    let store = open_store(&disk.at, HandleMode::Auto);
    block_on(async {
        let file = create(&*store, "f").await.unwrap();
        assert_eq!(fill(&*store, &file, Stability::FileSync).await, StoreError::QuotaExceeded);
    });
}

#[test]
fn a_mount_that_is_taken_away_leaves_stale_handles() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = Disk::new(dir.path(), 16 << 20, &EXT4, "loop") else { return };
    let_anyone_in(&disk);
    let store = open_store(dir.path(), HandleMode::Auto);
    block_on(async {
        let child = store.lookup(&root(), &store.root(), b"mounted").await.unwrap();
        let attrs = SetAttr { mode: Some(0o644), ..SetAttr::default() };
        let made = store
            .create_file(&root(), &child.handle, b"f", CreateMode::Guarded, &attrs)
            .await
            .unwrap();
        let handle = made.node.handle;
        drop(made);
        assert!(store.getattr(&handle).await.is_ok());
        store.release();
        drop(disk);
        std::thread::sleep(std::time::Duration::from_millis(300));
        assert_eq!(error_of(store.getattr(&handle).await), StoreError::Stale);
        let lost = store.lookup(&root(), &child.handle, b"f").await;
        assert_eq!(error_of(lost), StoreError::Stale);
        assert!(store.getattr(&store.root()).await.is_ok(), "the rest goes on");
    });
}
