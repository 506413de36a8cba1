//! Lookup, removal, renaming and linking of names; directory listings.

use crate::inode::Inode;
use crate::permission::{EXECUTE, READ, WRITE, permits, require, require_unsticky};
use crate::tree::{ROOT, Tree, check_name};
use zgate_store::file_store::{DirChange, DirEntry, DirPage, Node};
use zgate_store::{Caller, FileKind, NodeHandle, StoreError, StoreResult};

/// Rights needed to change the entries of a directory.
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

    /// Looks up the parent directory.
    pub(crate) fn lookup_parent(&self, who: &Caller, dir: &NodeHandle) -> StoreResult<Node> {
        let dir = self.directory(dir)?;
        if dir == ROOT {
            return Err(StoreError::NotFound);
        }
        let inode = self.at(dir)?;
        require(who, inode, EXECUTE)?;
        self.node(inode.entries()?.parent)
    }

    /// Lists entries after `cookie`, at most `max_entries`.
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

    /// Drops one link of an object whose name in `dir` was removed.
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

    /// Refuses to move a directory below itself, or over one of its ancestors.
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
            // Its `..` entry changes.
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

#[cfg(test)]
mod tests {
    use crate::MemoryStore;
    use crate::fixture::*;
    use std::collections::BTreeSet;
    use zgate_store::file_store::NewNode;
    use zgate_store::{FileKind, FileStore, NodeHandle, SetAttr, StoreError};

    #[test]
    fn a_tree_is_built_and_taken_down() {
        let s = Fixture::new();
        let dir = s.mkdir(&s.root(), "dir");
        let made = s.create_as(&root(), &dir.handle, "file", 0o640).unwrap();
        assert!(made.created && made.dir.atomic && made.dir.after > made.dir.before);
        assert_eq!(s.lookup(&dir.handle, "file").unwrap(), made.node);
        let parent = block_on(s.store.lookup_parent(&root(), &dir.handle)).unwrap();
        assert_eq!((parent.handle, parent.attr.nlink), (s.root(), 3));
        let above = block_on(s.store.lookup_parent(&root(), &s.root()));
        assert_eq!(error_of(above), StoreError::NotFound);
        assert_eq!(error_of(s.lookup(&made.node.handle, "x")), StoreError::NotDirectory);
        assert_eq!(error_of(s.remove(&s.root(), "dir")), StoreError::NotEmpty);
        let remove = |dir: &NodeHandle, name: &str, kind| {
            block_on(s.store.remove(&root(), dir, name.as_bytes(), Some(kind)))
        };
        let wrong = remove(&s.root(), "dir", FileKind::Regular);
        assert_eq!(error_of(wrong), StoreError::IsDirectory);
        let wrong = remove(&dir.handle, "file", FileKind::Directory);
        assert_eq!(error_of(wrong), StoreError::NotDirectory);
        s.remove(&dir.handle, "file").unwrap();
        remove(&s.root(), "dir", FileKind::Directory).unwrap();
        assert_eq!(error_of(block_on(s.store.getattr(&dir.handle))), StoreError::Stale);
        let orphan = s.create_as(&root(), &dir.handle, "x", 0o600);
        assert_eq!(error_of(orphan.map(|_| ())), StoreError::Stale);
        assert_eq!(block_on(s.store.getattr(&s.root())).unwrap().nlink, 2);
    }

    #[test]
    fn bad_names_are_refused() {
        let s = Fixture::new();
        for name in [&b".."[..], b".", b"a/b", b"../x", b"a\0"] {
            let found = block_on(s.store.lookup(&root(), &s.root(), name));
            assert_eq!(error_of(found), StoreError::BadName);
            let removed = block_on(s.store.remove(&root(), &s.root(), name, None));
            assert_eq!(error_of(removed), StoreError::BadName);
        }
        let long = "x".repeat(256);
        assert_eq!(error_of(s.lookup(&s.root(), &long)), StoreError::NameTooLong);
        assert_eq!(error_of(s.lookup(&s.root(), "")), StoreError::Invalid);
    }

    #[test]
    fn renaming_keeps_handles_and_numbers() {
        let s = Fixture::new();
        let (one, two) = (s.mkdir(&s.root(), "one"), s.mkdir(&s.root(), "two"));
        let inner = s.mkdir(&one.handle, "inner");
        let (who, dirs) = (root(), (one.handle, two.handle));
        let renamed = s.store.rename(&who, &dirs.0, b"inner", &dirs.1, b"moved");
        let (from, to) = block_on(renamed).unwrap();
        assert!(from.after > from.before && to.after > to.before);
        let found = s.lookup(&two.handle, "moved").unwrap();
        assert_eq!((found.handle, found.attr.fileid), (inner.handle, inner.attr.fileid));
        assert!(found.attr.change > inner.attr.change);
        let parent = block_on(s.store.lookup_parent(&root(), &inner.handle)).unwrap();
        assert_eq!(parent.handle, two.handle);
        let links = |dir| block_on(s.store.getattr(dir)).unwrap().nlink;
        assert_eq!((links(&one.handle), links(&two.handle)), (2, 3));
        assert_eq!(error_of(s.rename(&s.root(), "no", &s.root(), "x")), StoreError::NotFound);
    }

    #[test]
    fn renaming_follows_posix() {
        let s = Fixture::new();
        let (full, empty) = (s.mkdir(&s.root(), "full"), s.mkdir(&s.root(), "empty"));
        let below = s.mkdir(&full.handle, "below");
        let (victim, open) = s.file("victim");
        drop(open);
        let (mover, _open) = s.file("mover");
        let rename = |from: &str, to: &str| s.rename(&s.root(), from, &s.root(), to);
        assert_eq!(error_of(rename("empty", "full")), StoreError::NotEmpty);
        assert_eq!(error_of(rename("mover", "empty")), StoreError::IsDirectory);
        assert_eq!(error_of(rename("empty", "mover")), StoreError::NotDirectory);
        let into_itself = s.rename(&s.root(), "full", &below.handle, "x");
        assert_eq!(error_of(into_itself), StoreError::Invalid);
        assert_eq!(error_of(s.rename(&s.root(), "full", &full.handle, "x")), StoreError::Invalid);
        let over_above = s.rename(&full.handle, "below", &s.root(), "full");
        assert_eq!(error_of(over_above), StoreError::NotEmpty);
        rename("mover", "victim").unwrap();
        assert_eq!(error_of(block_on(s.store.getattr(&victim.handle))), StoreError::Stale);
        assert_eq!(s.lookup(&s.root(), "victim").unwrap().handle, mover.handle);
        rename("full", "empty").unwrap();
        assert_eq!(s.lookup(&s.root(), "empty").unwrap().handle, full.handle);
        assert_eq!(error_of(block_on(s.store.getattr(&empty.handle))), StoreError::Stale);
    }

    #[test]
    fn hard_links() {
        let s = Fixture::new();
        let (file, _open) = s.file("a");
        let link =
            |node, name: &str| block_on(s.store.link(&root(), node, &s.root(), name.as_bytes()));
        link(&file.handle, "b").unwrap();
        let linked = s.lookup(&s.root(), "b").unwrap();
        assert_eq!((linked.handle, linked.attr.nlink), (file.handle, 2));
        assert!(linked.attr.change > file.attr.change);
        assert_eq!(error_of(link(&file.handle, "b")), StoreError::Exists);
        let (who, top) = (root(), s.root());
        let (from, to) = block_on(s.store.rename(&who, &top, b"a", &top, b"b")).unwrap();
        assert_eq!((from.before, to.before), (from.after, to.after));
        assert!(s.lookup(&s.root(), "a").is_ok());
        let dir = s.mkdir(&s.root(), "d");
        assert_eq!(error_of(link(&dir.handle, "e")), StoreError::IsDirectory);
        s.remove(&s.root(), "b").unwrap();
        assert_eq!(block_on(s.store.getattr(&file.handle)).unwrap().nlink, 1);
        s.remove(&s.root(), "a").unwrap();
        assert_eq!(error_of(link(&file.handle, "c")), StoreError::Stale);
    }

    #[test]
    fn limits_on_links_and_objects() {
        let traits = MemoryStore::new().traits();
        let traits = zgate_store::file_store::StoreTraits { max_links: 3, ..traits };
        let store = MemoryStore::builder().traits(traits).max_files(4).build();
        let s = Fixture { store };
        let dir = s.mkdir(&s.root(), "d");
        let again = s.make_as(&root(), &s.root(), "e", &NewNode::Directory, 0o755);
        assert_eq!(error_of(again), StoreError::TooManyLinks);
        let (file, open) = s.file("f");
        for name in [&b"2"[..], b"3"] {
            block_on(s.store.link(&root(), &file.handle, &dir.handle, name)).unwrap();
        }
        let more = block_on(s.store.link(&root(), &file.handle, &dir.handle, b"4"));
        assert_eq!(error_of(more), StoreError::TooManyLinks);
        let (_, _open) = s.file("g");
        let full = s.create_as(&root(), &s.root(), "h", 0o600);
        assert_eq!(error_of(full.map(|_| ())), StoreError::NoSpace);
        assert_eq!(block_on(s.store.statfs(&s.root())).unwrap().free_files, 0);
        drop(open);
        s.remove(&s.root(), "g").unwrap();
        drop(_open);
        assert!(s.create_as(&root(), &s.root(), "h", 0o600).is_ok());
    }

    #[test]
    fn every_name_once_whatever_the_page() {
        let s = Fixture::new();
        let expected: BTreeSet<Vec<u8>> =
            (0..500).map(|n| format!("file-{n:03}").into_bytes()).collect();
        for name in &expected {
            s.file(std::str::from_utf8(name).unwrap());
        }
        for (page, nodes) in [(1, false), (7, true), (500, true), (10_000, false)] {
            let (who, top) = (root(), s.root());
            let (mut names, mut cookie) = (Vec::new(), 0);
            loop {
                let found = s.store.readdir(&who, &top, cookie, page, nodes);
                let found = block_on(found).unwrap();
                assert!(found.entries.len() <= page);
                for entry in &found.entries {
                    assert!(entry.cookie > 2);
                    match nodes {
                        true => assert_eq!(entry.node.unwrap().attr.fileid, entry.fileid),
                        false => assert!(entry.node.is_err()),
                    }
                    names.push(entry.name.clone());
                    cookie = entry.cookie;
                }
                if found.end {
                    break;
                }
            }
            assert_eq!(names.len(), 500);
            assert_eq!(names.into_iter().collect::<BTreeSet<_>>(), expected);
        }
    }

    #[test]
    fn an_open_file_outlives_its_name() {
        let s = Fixture::new();
        let (node, file) = s.file("f");
        s.write(&file, 0, b"still here").unwrap();
        s.remove(&s.root(), "f").unwrap();
        assert_eq!(s.read(&file, 0, 100).0, b"still here");
        let attr = block_on(s.store.getattr(&node.handle)).unwrap();
        assert_eq!((attr.nlink, attr.size), (0, 10));
        let second = block_on(s.store.open(&root(), &node.handle, READ_WRITE)).unwrap();
        drop(file);
        s.write(&second, 0, b"S").unwrap();
        let used = block_on(s.store.statfs(&s.root())).unwrap();
        drop(second);
        assert_eq!(error_of(block_on(s.store.getattr(&node.handle))), StoreError::Stale);
        let opened = block_on(s.store.open(&root(), &node.handle, READ)).map(|_| ());
        assert_eq!(error_of(opened), StoreError::Stale);
        assert!(block_on(s.store.statfs(&s.root())).unwrap().free_bytes > used.free_bytes);
        // The number is reused, but not the handle.
        let (next, _open) = s.file("g");
        assert_eq!(next.attr.fileid, node.attr.fileid);
        assert_ne!(next.handle, node.handle);
        assert_eq!(error_of(block_on(s.store.getattr(&node.handle))), StoreError::Stale);
    }

    #[test]
    fn handles_that_are_none_are_refused() {
        let s = Fixture::new();
        let mut raw = s.root().as_bytes().to_vec();
        for index in 0..raw.len() {
            raw[index] ^= 0x55;
            let forged = NodeHandle::new(&raw).unwrap();
            assert!(block_on(s.store.getattr(&forged)).is_err(), "byte {index}");
            raw[index] ^= 0x55;
        }
        for len in 1..56 {
            let forged = NodeHandle::new(&vec![1; len]).unwrap();
            assert_eq!(error_of(block_on(s.store.getattr(&forged))), StoreError::BadHandle);
        }
        let fsid = zgate_store::attr::FsId { major: 1, minor: 2 };
        let other = MemoryStore::builder().fsid(fsid).build();
        assert_eq!(error_of(block_on(s.store.getattr(&other.root()))), StoreError::Stale);
    }

    #[test]
    fn a_read_only_tree_refuses_every_change() {
        let store = MemoryStore::builder().read_only(true).build();
        let s = Fixture { store };
        let made = s.create_as(&root(), &s.root(), "f", 0o600).map(|_| ());
        assert_eq!(error_of(made), StoreError::ReadOnly);
        let made = s.make_as(&root(), &s.root(), "d", &NewNode::Directory, 0o700);
        assert_eq!(error_of(made), StoreError::ReadOnly);
        let set = block_on(s.store.setattr(&root(), &s.root(), &mode(0), None));
        assert_eq!(error_of(set), StoreError::ReadOnly);
        let nothing = SetAttr::default();
        assert!(block_on(s.store.setattr(&root(), &s.root(), &nothing, None)).is_ok());
        assert_eq!(error_of(s.remove(&s.root(), "f")), StoreError::NotFound);
        let mask = block_on(s.store.access(&root(), &s.root())).unwrap();
        assert!(mask.read && !mask.write && mask.execute);
        assert!(block_on(s.store.statfs(&s.root())).unwrap().read_only);
    }
}
