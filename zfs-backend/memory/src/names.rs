//! Finding, removing, renaming and linking names; listing directories.

use crate::inode::Inode;
use crate::permission::{EXECUTE, READ, WRITE, permits, require, require_unsticky};
use crate::tree::{ROOT, Tree, check_name};
use zgate_store::file_store::{DirChange, DirEntry, DirPage, Node};
use zgate_store::{Caller, FileKind, NodeHandle, StoreError, StoreResult};

/// What changing the entries of a directory needs.
const CHANGES_ENTRIES: u8 = WRITE | EXECUTE;

impl Tree {
    /// Looks a name up.
    pub(crate) fn lookup(&self, who: &Caller, dir: &NodeHandle, name: &[u8]) -> StoreResult<Node> {
        check_name(name)?;
        let dir = self.directory(dir)?;
        require(who, self.at(dir)?, EXECUTE)?;
        self.node(self.child(dir, name)?)
    }

    fn child(&self, dir: u64, name: &[u8]) -> StoreResult<u64> {
        self.at(dir)?.entries()?.find(name).ok_or(StoreError::NotFound)
    }

    /// The directory above.
    pub(crate) fn lookup_parent(&self, who: &Caller, dir: &NodeHandle) -> StoreResult<Node> {
        let dir = self.directory(dir)?;
        if dir == ROOT {
            return Err(StoreError::NotFound);
        }
        let inode = self.at(dir)?;
        require(who, inode, EXECUTE)?;
        self.node(inode.entries()?.parent)
    }

    /// Entries after `cookie`, at most `max_entries`.
    pub(crate) fn readdir(
        &self,
        who: &Caller,
        dir: &NodeHandle,
        cookie: u64,
        max_entries: usize,
        with_nodes: bool,
    ) -> StoreResult<DirPage> {
        let inode = self.at(self.directory(dir)?)?;
        require(who, inode, READ)?;
        let searchable = permits(who, inode, EXECUTE);
        let (listed, end) = inode.entries()?.list(cookie, max_entries);
        let entries = listed.into_iter().map(|listed| DirEntry {
            cookie: listed.cookie,
            fileid: listed.number,
            node: match (with_nodes, searchable) {
                (true, true) => self.node(listed.number),
                (true, false) => Err(StoreError::AccessDenied),
                (false, _) => Err(StoreError::NotSupported),
            },
            name: listed.name,
        });
        Ok(DirPage { entries: entries.collect(), end })
    }

    /// Removes a name.
    pub(crate) fn remove(
        &mut self,
        who: &Caller,
        dir: &NodeHandle,
        name: &[u8],
        kind: Option<FileKind>,
    ) -> StoreResult<DirChange> {
        check_name(name)?;
        let dir = self.directory(dir)?;
        let parent = self.at(dir)?;
        require(who, parent, EXECUTE)?;
        let victim = self.at(self.child(dir, name)?)?;
        self.require_writable()?;
        require(who, parent, CHANGES_ENTRIES)?;
        require_unsticky(who, parent, victim)?;
        match (kind, victim.is_directory()) {
            (Some(FileKind::Directory), false) => return Err(StoreError::NotDirectory),
            (Some(other), true) if other != FileKind::Directory => {
                return Err(StoreError::IsDirectory);
            }
            _ => {}
        }
        require_empty(victim)?;
        let number = victim.number;
        self.at_mut(dir)?.entries_mut()?.take(name);
        self.drop_link(dir, number)?;
        self.modified_from(dir)
    }

    /// Takes one link of an object away, whose name in `dir` is gone.
    fn drop_link(&mut self, dir: u64, number: u64) -> StoreResult<()> {
        self.attributes_changed(number)?;
        let inode = self.at_mut(number)?;
        if inode.is_directory() {
            inode.nlink = 0;
            self.at_mut(dir)?.nlink -= 1;
        } else {
            inode.nlink -= 1;
        }
        self.forget_orphan(number);
        Ok(())
    }

    /// Adds a hard link.
    pub(crate) fn link(
        &mut self,
        who: &Caller,
        node: &NodeHandle,
        dir: &NodeHandle,
        name: &[u8],
    ) -> StoreResult<DirChange> {
        check_name(name)?;
        let inode = self.inode(node)?;
        let dir = self.directory(dir)?;
        if inode.is_directory() {
            return Err(StoreError::IsDirectory);
        }
        let parent = self.at(dir)?;
        require(who, parent, EXECUTE)?;
        if parent.entries()?.find(name).is_some() {
            return Err(StoreError::Exists);
        }
        self.require_writable()?;
        require(who, parent, CHANGES_ENTRIES)?;
        if inode.nlink == 0 {
            return Err(StoreError::Stale);
        }
        if inode.nlink >= self.traits.max_links {
            return Err(StoreError::TooManyLinks);
        }
        let number = inode.number;
        self.attributes_changed(number)?;
        self.at_mut(number)?.nlink += 1;
        self.at_mut(dir)?.entries_mut()?.put(name, number);
        self.modified_from(dir)
    }

    /// Renames atomically.
    pub(crate) fn rename(
        &mut self,
        who: &Caller,
        from_dir: &NodeHandle,
        from_name: &[u8],
        to_dir: &NodeHandle,
        to_name: &[u8],
    ) -> StoreResult<(DirChange, DirChange)> {
        check_name(from_name)?;
        check_name(to_name)?;
        let (from, to) = (self.directory(from_dir)?, self.directory(to_dir)?);
        require(who, self.at(from)?, EXECUTE)?;
        require(who, self.at(to)?, EXECUTE)?;
        let moved = self.child(from, from_name)?;
        let replaced = self.at(to)?.entries()?.find(to_name);
        self.require_writable()?;
        self.require_no_loop(moved, from, to, replaced)?;
        if replaced == Some(moved) {
            let same = |change| DirChange { atomic: true, before: change, after: change };
            return Ok((same(self.at(from)?.change), same(self.at(to)?.change)));
        }
        self.may_rename(who, moved, from, to, replaced)?;
        if let Some(number) = replaced {
            self.drop_link(to, number)?;
        }
        self.at_mut(from)?.entries_mut()?.take(from_name);
        self.at_mut(to)?.entries_mut()?.put(to_name, moved);
        self.attributes_changed(moved)?;
        if from != to && self.at(moved)?.is_directory() {
            self.at_mut(moved)?.entries_mut()?.parent = to;
            self.at_mut(from)?.nlink -= 1;
            self.at_mut(to)?.nlink += 1;
        }
        let source = self.modified_from(from)?;
        let target = if from == to { source } else { self.modified_from(to)? };
        Ok((source, target))
    }

    /// Refuses to move a directory below itself, or over one it lies in.
    fn require_no_loop(
        &self,
        moved: u64,
        from: u64,
        to: u64,
        replaced: Option<u64>,
    ) -> StoreResult<()> {
        if self.is_at_or_above(moved, to)? {
            return Err(StoreError::Invalid);
        }
        match replaced {
            Some(target) if target != moved && self.is_at_or_above(target, from)? => {
                Err(StoreError::NotEmpty)
            }
            _ => Ok(()),
        }
    }

    fn is_at_or_above(&self, upper: u64, lower: u64) -> StoreResult<bool> {
        let mut number = lower;
        loop {
            if number == upper {
                return Ok(true);
            }
            if number == ROOT {
                return Ok(false);
            }
            number = self.at(number)?.entries()?.parent;
        }
    }

    fn may_rename(
        &self,
        who: &Caller,
        moved: u64,
        from: u64,
        to: u64,
        replaced: Option<u64>,
    ) -> StoreResult<()> {
        let (moved, from_dir, to_dir) = (self.at(moved)?, self.at(from)?, self.at(to)?);
        require(who, from_dir, CHANGES_ENTRIES)?;
        require(who, to_dir, CHANGES_ENTRIES)?;
        require_unsticky(who, from_dir, moved)?;
        if let Some(target) = replaced {
            let target = self.at(target)?;
            require_unsticky(who, to_dir, target)?;
            match (moved.is_directory(), target.is_directory()) {
                (true, false) => return Err(StoreError::NotDirectory),
                (false, true) => return Err(StoreError::IsDirectory),
                _ => require_empty(target)?,
            }
        }
        if moved.is_directory() && from != to {
            // Its `..` changes.
            require(who, moved, WRITE)?;
            if replaced.is_none() && to_dir.nlink >= self.traits.max_links {
                return Err(StoreError::TooManyLinks);
            }
        }
        Ok(())
    }
}

fn require_empty(inode: &Inode) -> StoreResult<()> {
    match inode.entries() {
        Ok(entries) if !entries.is_empty() => Err(StoreError::NotEmpty),
        _ => Ok(()),
    }
}
