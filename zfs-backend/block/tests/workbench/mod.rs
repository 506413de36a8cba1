//! Engines, scratch places and loop devices for the tests of this crate.
#![allow(dead_code, reason = "each test program uses a part of it")]

use bytes::Bytes;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use zgate_block::{BlockOptions, BlockVolume, DirectIo, OpenError};
use zgate_io::{EngineChoice, IoEngine};
use zgate_store::{BlockStore, BufferPool, Payload, StoreResult};

pub(crate) const MIB: u64 = 1 << 20;

/// Every engine that this kernel supports.
pub(crate) fn engines() -> Vec<IoEngine> {
    let mut engines = vec![IoEngine::new(EngineChoice::Threads, 3).unwrap()];
    match IoEngine::new(EngineChoice::Uring, 3) {
        Ok(engine) => engines.push(engine),
        Err(error) => say(&format!("io_uring not tried: {error}")),
    }
    engines
}

pub(crate) fn engine() -> IoEngine {
    IoEngine::new(EngineChoice::Auto, 2).unwrap()
}

pub(crate) fn options() -> BlockOptions {
    BlockOptions::new(BufferPool::new(16 << 20))
}

pub(crate) fn direct(how: DirectIo) -> BlockOptions {
    BlockOptions { direct: how, ..options() }
}

pub(crate) fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, work)
}

/// Prints past the test harness, which captures the output of passing tests.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "note: {text}");
}

/// Says that a test does not run here. With `ZGATE_TEST_LOOP=require` it fails, as in CI.
pub(crate) fn not_run(test: &str, why: &str) {
    let wish = std::env::var("ZGATE_TEST_LOOP").unwrap_or_default();
    assert!(wish != "require", "ZGATE_TEST_LOOP=require, but {test} does not run: {why}");
    say(&format!("{test} not run: {why}"));
}

/// A scratch directory on a real file system: the build's, where O_DIRECT
/// works more often than in /tmp.
pub(crate) fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

pub(crate) fn file_of(dir: &tempfile::TempDir, bytes: u64) -> PathBuf {
    let path = dir.path().join("disk");
    File::create(&path).unwrap().set_len(bytes).unwrap();
    path
}

/// Runs the work on a fresh 4 MiB file with every engine, through the page
/// cache and past it.
pub(crate) fn on_every_file(work: impl AsyncFn(&BlockVolume, &Path)) {
    for engine in engines() {
        for how in [DirectIo::Never, DirectIo::Always] {
            let dir = scratch();
            let path = file_of(&dir, 4 * MIB);
            match BlockVolume::open(&path, direct(how), engine.clone()) {
                Ok(volume) => run(work(&volume, &path)),
                Err(error @ OpenError::NoDirectIo { .. }) => say(&format!("not tried: {error}")),
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Bytes that differ by position and `seed`.
pub(crate) fn pattern(len: usize, seed: u64) -> Bytes {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8 | 1
    };
    (0..len).map(|_| next()).collect::<Vec<_>>().into()
}

pub(crate) async fn read(volume: &BlockVolume, offset: u64, len: usize) -> StoreResult<Bytes> {
    match volume.read(offset, len).await? {
        Payload::Bytes(bytes) => Ok(bytes),
        Payload::Span(_) => panic!("a disk answers with bytes"),
    }
}

pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}

/// Space that a file takes, in bytes.
pub(crate) fn allocated(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    File::open(path).unwrap().sync_all().unwrap();
    std::fs::metadata(path).unwrap().blocks() * 512
}

/// Runs a program; `Err` holds the reason of a failure.
pub(crate) fn program(name: &str, arguments: &[&str]) -> Result<String, String> {
    let told = format!("{name} {}", arguments.join(" "));
    match Command::new(name).args(arguments).output() {
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        }
        Ok(output) => Err(format!("{told}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("{told}: {error}")),
    }
}

/// A loop device over a scratch file; both end with it.
pub(crate) struct LoopDevice {
    pub(crate) path: PathBuf,
    pub(crate) below: PathBuf,
    _dir: Option<tempfile::TempDir>,
}

impl LoopDevice {
    /// Makes one, or prints why that is not possible. With
    /// `ZGATE_TEST_LOOP=require` the test fails then; with `off`, none is made.
    pub(crate) fn new(bytes: u64, arguments: &[&str]) -> Option<Self> {
        let dir = scratch();
        let below = file_of(&dir, bytes);
        Self::over(below, arguments, Some(dir))
    }

    /// Makes one over an existing file.
    pub(crate) fn over(
        below: PathBuf,
        arguments: &[&str],
        dir: Option<tempfile::TempDir>,
    ) -> Option<Self> {
        let wish = std::env::var("ZGATE_TEST_LOOP").unwrap_or_default();
        if wish == "off" {
            say("loop device test not run: ZGATE_TEST_LOOP=off");
            return None;
        }
        let mut all = vec!["--find", "--show"];
        all.extend(arguments);
        let name = below.to_string_lossy().into_owned();
        all.push(&name);
        match program("losetup", &all) {
            Ok(path) => Some(Self { path: path.into(), below, _dir: dir }),
            Err(why) => {
                not_run("loop device test", &format!("{why} (root and losetup are needed)"));
                None
            }
        }
    }

    pub(crate) fn name(&self) -> &str {
        self.path.to_str().unwrap()
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if let Err(why) = program("losetup", &["--detach", self.name()]) {
            say(&why);
        }
    }
}

/// An ext4 on a loop device, unmounted when dropped.
pub(crate) struct Ext4 {
    pub(crate) at: PathBuf,
    /// Detached after that.
    pub(crate) device: LoopDevice,
}

impl Ext4 {
    pub(crate) fn new(bytes: u64) -> Option<Self> {
        let device = LoopDevice::new(bytes, &[])?;
        let at = device.below.with_file_name("mounted");
        std::fs::create_dir(&at).unwrap();
        let make = ["-q", "-F", "-O", "^has_journal", "-m0", device.name()];
        let made = program("mkfs.ext4", &make)
            .and_then(|_| program("mount", &[device.name(), at.to_str().unwrap()]));
        match made {
            Ok(_) => Some(Self { at, device }),
            Err(why) => {
                not_run("ext4 test", &why);
                None
            }
        }
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        if let Err(why) = program("umount", &["-l", self.at.to_str().unwrap()]) {
            say(&why);
        }
    }
}

/// A small tmpfs, unmounted when dropped.
pub(crate) struct SmallFileSystem(pub(crate) tempfile::TempDir);

impl SmallFileSystem {
    pub(crate) fn new() -> Option<Self> {
        let dir = scratch();
        let place = dir.path().to_str().unwrap();
        match program("mount", &["-t", "tmpfs", "-o", "size=1m", "zgate-test", place]) {
            Ok(_) => Some(Self(dir)),
            Err(why) => {
                not_run("small file system test", &format!("{why} (root is needed)"));
                None
            }
        }
    }
}

impl Drop for SmallFileSystem {
    fn drop(&mut self) {
        if let Err(why) = program("umount", &[self.0.path().to_str().unwrap()]) {
            say(&why);
        }
    }
}
