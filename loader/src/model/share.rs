//! Ranks of one host that load the same: each stretch of a file is read over
//! the network by whoever comes first, and lies in shared memory until all have
//! taken their copy.
//!
//! A stretch is a file below `/dev/shm`. Its lock (flock) says that somebody is
//! at work on it and goes with its holder, however that ends; one byte behind
//! the data says that all of it is there; one byte more for each rank that has
//! it. Whoever adds the last one removes the file.

use super::plan::Plan;
use bytes::BytesMut;
use rustix::fs::{Mode, OFlags};
use sha2::{Digest, Sha256};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Where memory has names.
const SHARED_MEMORY: &str = "/dev/shm";

/// Who shares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Processes that load the same, this one included. All of them must: what
    /// one does not take stays in shared memory.
    pub ranks: u32,
    /// A name of this load that all of them know and no other load uses, such as
    /// the job's.
    pub group: String,
}

/// The stretches of one load.
#[derive(Debug)]
pub(super) struct Shared {
    dir: PathBuf,
    ranks: u64,
}

/// What became of asking for a stretch.
#[derive(Debug)]
pub(super) enum Turn {
    /// Somebody read it: here it is.
    Taken(BytesMut),
    /// It is to be read, and put here; the memory is for that.
    Ours(Claim, BytesMut),
}

/// A stretch that nobody else reads while this lives.
#[derive(Debug)]
pub(super) struct Claim {
    file: File,
    path: PathBuf,
    ranks: u64,
}

impl Shared {
    /// Of what a plan reads. Ranks meet when group, plan and files are the same:
    /// `files` has the name, length and change attribute of each.
    ///
    /// # Errors
    /// No directory of our own can be had.
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

    /// Waits for a stretch to be there, or for the turn to read it. `memory`
    /// is as long as the stretch. Blocks.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn turn(&self, index: usize, mut memory: BytesMut) -> io::Result<Turn> {
        let path = self.dir.join(index.to_string());
        loop {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = File::from(rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)?);
            file.lock()?;
            let found = file.metadata()?;
            if found.nlink() == 0 {
                // Removed while we waited for it: somebody counts otherwise.
                continue;
            }
            let claim = Claim { file, path: path.clone(), ranks: self.ranks };
            if found.len() <= memory.len() as u64 {
                return Ok(Turn::Ours(claim, memory));
            }
            claim.file.read_exact_at(&mut memory, 0)?;
            let len = memory.len() as u64;
            claim.leave(len, found.len() - len + 1)?;
            return Ok(Turn::Taken(memory));
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The last one can: it is empty then.
        let _ = fs::remove_dir(&self.dir);
    }
}

impl Claim {
    /// Puts the stretch there for the others. Blocks.
    ///
    /// # Errors
    /// The system's: no room in shared memory.
    pub(super) fn put(self, data: &[u8]) -> io::Result<()> {
        if self.ranks > 1 {
            self.file.write_all_at(data, 0)?;
        }
        self.leave(data.len() as u64, 1)
    }

    /// `have` ranks have their copy now.
    fn leave(self, len: u64, have: u64) -> io::Result<()> {
        if have >= self.ranks { fs::remove_file(&self.path) } else { self.file.set_len(len + have) }
    }
}

/// A directory nobody else can use.
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
        let Turn::Ours(claim, _) = ranks[0].turn(0, memory()).unwrap() else { panic!("not there") };
        std::thread::scope(|scope| {
            let others: Vec<_> = ranks[1..]
                .iter()
                .map(|rank| scope.spawn(|| rank.turn(0, memory()).unwrap()))
                .collect();
            claim.put(b"hello").unwrap();
            for other in others {
                let Turn::Taken(data) = other.join().unwrap() else { panic!("read twice") };
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
        let Turn::Ours(claim, _) = first.turn(0, memory()).unwrap() else { panic!("not there") };
        claim.file.write_all_at(b"hel", 0).unwrap();
        drop(claim);
        let Turn::Ours(claim, _) = second.turn(0, memory()).unwrap() else { panic!("half of it") };
        claim.put(b"hello").unwrap();
        assert!(matches!(first.turn(0, memory()).unwrap(), Turn::Taken(_)));
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
