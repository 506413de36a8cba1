//! Ranks of one host that load the same model: each part of a file is read over
//! the network by the first rank that needs it, and lies in shared memory until
//! all have copied it.
//!
//! A part is a file below `/dev/shm`. Its lock (flock) is held by the rank that
//! works on it, and is released if that rank ends; one byte behind the data
//! marks it as complete; one more byte for each rank that has copied it. The
//! rank that adds the last byte removes the file.

use super::plan::Plan;
use bytes::BytesMut;
use rustix::fs::{Mode, OFlags};
use sha2::{Digest, Sha256};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Directory of named shared memory.
const SHARED_MEMORY: &str = "/dev/shm";

/// Ranks that share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Number of processes that load the same, this one included. All of them
    /// must load it: a part that one does not copy stays in shared memory.
    pub ranks: u32,
    /// Name of this load that all of them know and no other load uses, such as
    /// the job's name.
    pub group: String,
}

/// Shared parts of one load.
#[derive(Debug)]
pub(super) struct Shared {
    dir: PathBuf,
    ranks: u64,
}

/// Result of a request for a stretch.
#[derive(Debug)]
pub(super) enum Stretch {
    /// Another rank has read it: its data.
    Taken(BytesMut),
    /// The caller must read it into this memory, and publish it by the claim.
    Ours(Claim, BytesMut),
}

/// Exclusive right to read a part.
#[derive(Debug)]
pub(super) struct Claim {
    file: File,
    path: PathBuf,
    ranks: u64,
}

impl Shared {
    /// Opens the shared parts of a plan. Ranks share if group, plan and files
    /// are the same: `files` has the name, length and change attribute of each.
    ///
    /// # Errors
    /// No private directory can be created.
    pub(super) fn open(
        share: &Share,
        plan: &Plan,
        files: &[(String, u64, u64)],
    ) -> io::Result<Self> {
        Self::below(Path::new(SHARED_MEMORY), share, plan, files)
    }

    fn below(
        root: &Path,
        share: &Share,
        plan: &Plan,
        files: &[(String, u64, u64)],
    ) -> io::Result<Self> {
        let mut hash = Sha256::new();
        hash.update(format!("{} {} {files:?}", share.group, share.ranks));
        for region in &plan.regions {
            hash.update(format!("{} {} {};", region.shard, region.offset, region.bytes));
        }
        let key: String = hash.finalize().iter().take(12).map(|b| format!("{b:02x}")).collect();
        let own = root.join(format!("zgate-{}", rustix::process::geteuid().as_raw()));
        private(&own)?;
        let dir = own.join(key);
        private(&dir)?;
        Ok(Self { dir, ranks: u64::from(share.ranks.max(1)) })
    }

    /// Waits until a part is available, or until the caller must read it.
    /// `memory` is as long as the part. Blocks.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(super) fn stretch(&self, index: usize, mut memory: BytesMut) -> io::Result<Stretch> {
        let path = self.dir.join(index.to_string());
        loop {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = File::from(rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)?);
            file.lock()?;
            let found = file.metadata()?;
            if found.nlink() == 0 {
                // Removed while we waited for it: its count was complete.
                continue;
            }
            let claim = Claim { file, path: path.clone(), ranks: self.ranks };
            if found.len() <= memory.len() as u64 {
                return Ok(Stretch::Ours(claim, memory));
            }
            claim.file.read_exact_at(&mut memory, 0)?;
            let len = memory.len() as u64;
            claim.leave(len, found.len() - len + 1)?;
            return Ok(Stretch::Taken(memory));
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The last rank succeeds: the directory is empty then.
        let _ = fs::remove_dir(&self.dir);
    }
}

impl Claim {
    /// Publishes the part for the other ranks. Blocks.
    ///
    /// # Errors
    /// The error of the operating system: no room in shared memory.
    pub(super) fn put(self, data: &[u8]) -> io::Result<()> {
        if self.ranks > 1 {
            self.file.write_all_at(data, 0)?;
        }
        self.leave(data.len() as u64, 1)
    }

    /// Records that `have` ranks have copied it.
    fn leave(self, len: u64, have: u64) -> io::Result<()> {
        if have >= self.ranks { fs::remove_file(&self.path) } else { self.file.set_len(len + have) }
    }
}

/// Creates a directory that no other user can access.
fn private(dir: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = fs::symlink_metadata(dir)?;
    let ours = found.uid() == rustix::process::geteuid().as_raw();
    if found.is_dir() && ours && found.permissions().mode() & 0o077 == 0 {
        return Ok(());
    }
    let reason = format!("{} is not a directory of this user alone", dir.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::plan::Region;

    fn shared(root: &Path, ranks: u32) -> Shared {
        let share = Share { ranks, group: "job".into() };
        let region = Region { shard: 0, offset: 100, bytes: 5, targets: Vec::new() };
        let plan = Plan { regions: vec![region] };
        Shared::below(root, &share, &plan, &[("a".into(), 1000, 7)]).unwrap()
    }

    fn memory() -> BytesMut {
        BytesMut::zeroed(5)
    }

    #[test]
    fn one_reads_and_all_have_it() {
        let root = tempfile::tempdir().unwrap();
        let ranks: Vec<Shared> = (0..3).map(|_| shared(root.path(), 3)).collect();
        let dir = ranks[0].dir.clone();
        let Stretch::Ours(claim, _) = ranks[0].stretch(0, memory()).unwrap() else {
            panic!("not there")
        };
        std::thread::scope(|scope| {
            let others: Vec<_> = ranks[1..]
                .iter()
                .map(|rank| scope.spawn(|| rank.stretch(0, memory()).unwrap()))
                .collect();
            claim.put(b"hello").unwrap();
            for other in others {
                let Stretch::Taken(data) = other.join().unwrap() else { panic!("read twice") };
                assert_eq!(data, "hello");
            }
        });
        assert!(!dir.join("0").exists(), "it stays behind");
        drop(ranks);
        assert!(!dir.exists());
    }

    #[test]
    fn a_rank_that_dies_leaves_its_turn_to_the_next() {
        let root = tempfile::tempdir().unwrap();
        let (first, second) = (shared(root.path(), 2), shared(root.path(), 2));
        let Stretch::Ours(claim, _) = first.stretch(0, memory()).unwrap() else {
            panic!("not there")
        };
        claim.file.write_all_at(b"hel", 0).unwrap();
        drop(claim);
        let Stretch::Ours(claim, _) = second.stretch(0, memory()).unwrap() else {
            panic!("half of it")
        };
        claim.put(b"hello").unwrap();
        assert!(matches!(first.stretch(0, memory()).unwrap(), Stretch::Taken(_)));
    }

    #[test]
    fn what_others_can_reach_is_not_used() {
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join(format!("zgate-{}", rustix::process::geteuid().as_raw()));
        fs::create_dir(&own).unwrap();
        fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).unwrap();
        let error = private(&own).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }
}
