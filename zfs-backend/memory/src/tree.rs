//! The table of objects: numbers, handles, time, change numbers, space.

use crate::content::PAGE_BYTES;
use crate::directory::Directory;
use crate::file_data::FileData;
use crate::inode::{Body, Inode};
use std::collections::{BTreeMap, BTreeSet};
use zgate_store::attr::FsId;
use zgate_store::file_store::{DirChange, FsStat, Node, StoreTraits};
use zgate_store::{NodeHandle, StoreError, StoreResult, Timestamp};

/// Number of the root directory.
pub(crate) const ROOT: u64 = 2;
/// First bytes of every handle.
const MAGIC: [u8; 4] = *b"zmem";
/// Longest name in bytes (NAME_MAX).
pub(crate) const MAX_NAME_BYTES: usize = 255;
/// Size that an unlimited tree reports.
const ENDLESS_BYTES: u64 = 1 << 60;
const ENDLESS_FILES: u64 = 1 << 48;

/// Clock of the tree; read once per change.
pub(crate) type Clock = Box<dyn FnMut() -> Timestamp + Send>;

/// All objects.
pub(crate) struct Tree {
    inodes: BTreeMap<u64, Inode>,
    /// Numbers to reuse, lowest first.
    free_numbers: BTreeSet<u64>,
    /// No number is used again: a snapshot may bring its object back.
    keeps_numbers: bool,
    next_number: u64,
    next_generation: u64,
    last_change: u64,
    clock: Clock,
    used_pages: u64,
    pub(crate) settings: Settings,
    pub(crate) traits: StoreTraits,
}

/// Settings of the builder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) root_mode: u32,
    pub(crate) root_uid: u32,
    pub(crate) root_gid: u32,
    pub(crate) capacity_bytes: Option<u64>,
    pub(crate) max_files: Option<u64>,
    pub(crate) fsid: FsId,
    pub(crate) read_only: bool,
    pub(crate) case_insensitive: bool,
}

/// Initial properties of a new object.
pub(crate) struct Birth {
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) body: Body,
}

impl Tree {
    /// Creates a tree with an empty root directory.
    pub(crate) fn new(settings: Settings, traits: StoreTraits, clock: Clock) -> Self {
        let mut tree = Self {
            inodes: BTreeMap::new(),
            free_numbers: BTreeSet::new(),
            keeps_numbers: false,
            next_number: ROOT,
            next_generation: 1,
            last_change: 0,
            clock,
            used_pages: 0,
            settings,
            traits,
        };
        let root = Birth {
            mode: settings.root_mode & 0o7777,
            uid: settings.root_uid,
            gid: settings.root_gid,
            body: Body::Directory(Directory::new(ROOT)),
        };
        let root = tree.born(root);
        tree.inodes.insert(ROOT, root);
        tree
    }

    /// Returns the root's handle.
    pub(crate) fn root(&self) -> NodeHandle {
        self.handle_of(&self.inodes[&ROOT])
    }

    /// Creates an object that is not yet in the table.
    pub(crate) fn born(&mut self, birth: Birth) -> Inode {
        let now = self.now();
        let number = self.free_numbers.pop_first().unwrap_or_else(|| {
            self.next_number += 1;
            self.next_number - 1
        });
        let generation = self.next_generation;
        self.next_generation += 1;
        let nlink = if matches!(birth.body, Body::Directory(_)) { 2 } else { 1 };
        Inode {
            number,
            generation,
            mode: birth.mode,
            uid: birth.uid,
            gid: birth.gid,
            nlink,
            opens: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            change: self.next_change(),
            xattrs: BTreeMap::new(),
            acl: Vec::new(),
            default_acl: Vec::new(),
            verifier: None,
            body: birth.body,
        }
    }

    /// Returns the number of an object that was never put into the table.
    pub(crate) fn unborn(&mut self, inode: &Inode) {
        self.free(inode.number);
    }

    fn free(&mut self, number: u64) {
        if !self.keeps_numbers {
            self.free_numbers.insert(number);
        }
    }

    /// Puts a new object into the table.
    pub(crate) fn adopt(&mut self, inode: Inode) {
        self.used_pages += inode.allocated_pages();
        self.inodes.insert(inode.number, inode);
    }

    /// Removes an object that has neither names nor open files.
    pub(crate) fn forget_orphan(&mut self, number: u64) {
        let gone = self.inodes.get(&number).is_some_and(|i| i.nlink == 0 && i.opens == 0);
        if gone && let Some(inode) = self.inodes.remove(&number) {
            self.used_pages -= inode.allocated_pages();
            self.free(number);
        }
    }

    /// Returns the time of this change.
    pub(crate) fn now(&mut self) -> Timestamp {
        (self.clock)()
    }

    fn next_change(&mut self) -> u64 {
        self.last_change += 1;
        self.last_change
    }

    /// Returns the object with a number.
    pub(crate) fn at(&self, number: u64) -> StoreResult<&Inode> {
        self.inodes.get(&number).ok_or(StoreError::Stale)
    }

    /// Returns the object with a number for modification.
    pub(crate) fn at_mut(&mut self, number: u64) -> StoreResult<&mut Inode> {
        self.inodes.get_mut(&number).ok_or(StoreError::Stale)
    }

    /// Returns the object of a handle.
    pub(crate) fn inode(&self, handle: &NodeHandle) -> StoreResult<&Inode> {
        let raw = handle.as_bytes();
        let (magic, rest) = raw.split_first_chunk::<4>().ok_or(StoreError::BadHandle)?;
        let (words, tail) = rest.as_chunks::<8>();
        let &[major, minor, number, generation] = words else {
            return Err(StoreError::BadHandle);
        };
        if *magic != MAGIC || !tail.is_empty() {
            return Err(StoreError::BadHandle);
        }
        let fsid = FsId { major: u64::from_be_bytes(major), minor: u64::from_be_bytes(minor) };
        if fsid != self.settings.fsid {
            return Err(StoreError::Stale);
        }
        let inode = self.at(u64::from_be_bytes(number))?;
        if inode.generation == u64::from_be_bytes(generation) {
            Ok(inode)
        } else {
            Err(StoreError::Stale)
        }
    }

    /// Returns the number of the directory of a handle.
    pub(crate) fn directory(&self, handle: &NodeHandle) -> StoreResult<u64> {
        let inode = self.inode(handle)?;
        inode.entries()?;
        Ok(inode.number)
    }

    fn handle_of(&self, inode: &Inode) -> NodeHandle {
        let FsId { major, minor } = self.settings.fsid;
        let mut raw = [0; 36];
        raw[..4].copy_from_slice(&MAGIC);
        let words = [major, minor, inode.number, inode.generation];
        for (target, word) in raw[4..].chunks_exact_mut(8).zip(words) {
            target.copy_from_slice(&word.to_be_bytes());
        }
        NodeHandle::new(&raw).expect("36 bytes fit a handle")
    }

    /// Returns handle and attributes.
    pub(crate) fn node(&self, number: u64) -> StoreResult<Node> {
        let inode = self.at(number)?;
        Ok(Node { handle: self.handle_of(inode), attr: inode.attr(self.settings.fsid) })
    }

    /// Records a change of attributes.
    pub(crate) fn attributes_changed(&mut self, number: u64) -> StoreResult<()> {
        let (now, change) = (self.now(), self.next_change());
        let inode = self.at_mut(number)?;
        inode.ctime = now;
        inode.change = change;
        Ok(())
    }

    /// Records a change of data or entries.
    pub(crate) fn modified(&mut self, number: u64) -> StoreResult<()> {
        self.attributes_changed(number)?;
        let inode = self.at_mut(number)?;
        inode.mtime = inode.ctime;
        inode.verifier = None;
        Ok(())
    }

    /// Records a change and returns the change numbers around it.
    pub(crate) fn modified_from(&mut self, number: u64) -> StoreResult<DirChange> {
        let before = self.at(number)?.change;
        self.modified(number)?;
        Ok(DirChange { atomic: true, before, after: self.at(number)?.change })
    }

    /// Refuses changes of a read-only tree.
    pub(crate) fn require_writable(&self) -> StoreResult<()> {
        if self.settings.read_only { Err(StoreError::ReadOnly) } else { Ok(()) }
    }

    /// Refuses a new object beyond the limit.
    pub(crate) fn require_room(&self) -> StoreResult<()> {
        match self.settings.max_files {
            Some(max) if self.inodes.len() as u64 >= max => Err(StoreError::NoSpace),
            _ => Ok(()),
        }
    }

    /// Returns the number of pages that can still be allocated.
    pub(crate) fn free_pages(&self) -> u64 {
        let capacity = self.settings.capacity_bytes.unwrap_or(u64::MAX) / PAGE_BYTES;
        capacity.saturating_sub(self.used_pages)
    }

    /// Changes a file's data and updates the space accounting.
    pub(crate) fn change_data<T>(
        &mut self,
        number: u64,
        change: impl FnOnce(&mut FileData) -> T,
    ) -> StoreResult<T> {
        let data = self.at_mut(number)?.data_mut()?;
        let before = data.live().allocated_pages();
        let result = change(data);
        let after = data.live().allocated_pages();
        self.used_pages = (self.used_pages + after).saturating_sub(before);
        Ok(result)
    }

    /// Drops every unstable write; returns the number of files that lost data.
    /// Their change numbers advance, so that no client takes the old content
    /// for the one in its cache.
    pub(crate) fn crash(&mut self) -> usize {
        let unstable: Vec<u64> = self
            .inodes
            .values()
            .filter(|inode| inode.data().is_ok_and(FileData::is_unstable))
            .map(|inode| inode.number)
            .collect();
        for number in &unstable {
            // Both only fail for numbers that are not in the table.
            let _ = self.change_data(*number, FileData::crash);
            let _ = self.modified(*number);
        }
        unstable.len()
    }

    /// Returns all objects with a name as readers see them now, on stable storage. From now on no
    /// number is used again.
    pub(crate) fn snapshot(&mut self) -> BTreeMap<u64, Inode> {
        self.keeps_numbers = true;
        self.free_numbers.clear();
        let mut objects = self.inodes.clone();
        objects.retain(|_, inode| inode.nlink > 0);
        for inode in objects.values_mut() {
            if let Ok(data) = inode.data_mut() {
                data.commit();
            }
        }
        objects
    }

    /// Replaces all objects by those of a snapshot; returns how many of them have changed since.
    /// Their change numbers advance, as after [`Self::crash`].
    pub(crate) fn roll_back(&mut self, snapshot: &BTreeMap<u64, Inode>) -> usize {
        let (mut objects, mut changed) = (snapshot.clone(), 0);
        for (number, inode) in &mut objects {
            let now = self.inodes.get(number);
            inode.opens = now.map_or(0, |now| now.opens);
            if now.is_none_or(|now| now.change != inode.change) {
                inode.change = self.next_change();
                changed += 1;
            }
        }
        self.used_pages = objects.values().map(Inode::allocated_pages).sum();
        self.inodes = objects;
        changed
    }

    /// Returns space and limits.
    pub(crate) fn statfs(&self, node: &NodeHandle) -> StoreResult<FsStat> {
        self.inode(node)?;
        let total_bytes = self.settings.capacity_bytes.unwrap_or(ENDLESS_BYTES);
        let free_bytes = total_bytes.saturating_sub(self.used_pages.saturating_mul(PAGE_BYTES));
        let total_files = self.settings.max_files.unwrap_or(ENDLESS_FILES);
        let free_files = total_files.saturating_sub(self.inodes.len() as u64);
        Ok(FsStat {
            total_bytes,
            free_bytes,
            available_bytes: free_bytes,
            total_files,
            free_files,
            available_files: free_files,
            max_name_bytes: MAX_NAME_BYTES as u32,
            case_insensitive: self.settings.case_insensitive,
            read_only: self.settings.read_only,
            preferred_io_bytes: 0,
            traits: self.traits,
        })
    }
}

/// Checks a name sent by a peer, as the posix store does.
pub(crate) fn check_name(name: &[u8]) -> StoreResult<()> {
    match name {
        [] => Err(StoreError::Invalid),
        b"." | b".." => Err(StoreError::BadName),
        _ if name.len() > MAX_NAME_BYTES => Err(StoreError::NameTooLong),
        _ if name.contains(&b'/') || name.contains(&0) => Err(StoreError::BadName),
        _ => Ok(()),
    }
}
