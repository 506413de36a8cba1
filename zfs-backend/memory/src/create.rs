//! Creating files and other objects.

use crate::acl;
use crate::attributes::{check_owner_change, check_size, check_times};
use crate::directory::Directory;
use crate::file_data::FileData;
use crate::inode::{Body, Inode, SET_GID};
use crate::permission::{self, EXECUTE, WRITE, require};
use crate::tree::{Birth, Tree, check_name};
use zgate_store::file_store::{CreateMode, DirChange, NewNode, Node};
use zgate_store::{Caller, NodeHandle, SetAttr, SetTime, StoreError, StoreResult, Timestamp};

/// Default mode of a file: access for the owner only.
const DEFAULT_FILE_MODE: u32 = 0o600;
const DEFAULT_DIR_MODE: u32 = 0o700;
const SYMLINK_MODE: u32 = 0o777;
/// Longest target of a symbolic link in bytes (PATH_MAX without the
/// terminator).
const MAX_TARGET_BYTES: usize = 4095;

/// Result of a create, before it becomes an open file.
pub(crate) struct Made {
    pub(crate) node: Node,
    /// Number of the file, if it was opened as well.
    pub(crate) opened: Option<u64>,
    pub(crate) created: bool,
    pub(crate) dir: DirChange,
}

impl Tree {
    /// Creates or finds a regular file.
    pub(crate) fn create_file(
        &mut self,
        who: &Caller,
        dir: &NodeHandle,
        name: &[u8],
        mode: CreateMode,
        attrs: &SetAttr,
    ) -> StoreResult<Made> {
        check_name(name)?;
        let dir = self.directory(dir)?;
        require(who, self.at(dir)?, EXECUTE)?;
        if let Some(number) = self.at(dir)?.entries()?.find(name) {
            return self.found(who, dir, number, mode, attrs);
        }
        let data = FileData::default();
        let mut inode = self.new_inode(who, dir, Body::Regular(data), attrs, DEFAULT_FILE_MODE)?;
        if let CreateMode::Exclusive(verifier) = mode {
            inode.verifier = Some(verifier);
            (inode.atime, inode.mtime) = verifier_times(verifier);
        }
        inode.opens = 1;
        let number = inode.number;
        let dir = self.enter(dir, name, inode)?;
        Ok(Made { node: self.node(number)?, opened: Some(number), created: true, dir })
    }

    /// Handles an existing name.
    fn found(
        &mut self,
        who: &Caller,
        dir: u64,
        number: u64,
        mode: CreateMode,
        attrs: &SetAttr,
    ) -> StoreResult<Made> {
        let change = self.at(dir)?.change;
        let dir = DirChange { atomic: true, before: change, after: change };
        let mut made = Made { node: self.node(number)?, opened: None, created: false, dir };
        match mode {
            CreateMode::Guarded => return Err(StoreError::Exists),
            CreateMode::Exclusive(verifier) => {
                let inode = self.at_mut(number)?;
                if inode.verifier != Some(verifier) {
                    return Err(StoreError::Exists);
                }
                // A retransmission: the creator opens the file regardless of
                // its mode.
                if permission::owns(who, inode) {
                    inode.opens += 1;
                    made.opened = Some(number);
                }
                made.created = true;
            }
            CreateMode::Unchecked => {
                if attrs.size == Some(0) && self.at(number)?.data().is_ok() {
                    let empty = SetAttr { size: Some(0), ..SetAttr::default() };
                    made.node.attr = self.setattr(who, &made.node.handle, &empty, None)?;
                }
            }
        }
        Ok(made)
    }

    /// Creates anything but a regular file.
    pub(crate) fn create_node(
        &mut self,
        who: &Caller,
        dir: &NodeHandle,
        name: &[u8],
        what: &NewNode,
        attrs: &SetAttr,
    ) -> StoreResult<(Node, DirChange)> {
        check_name(name)?;
        let dir = self.directory(dir)?;
        require(who, self.at(dir)?, EXECUTE)?;
        if self.at(dir)?.entries()?.find(name).is_some() {
            return Err(StoreError::Exists);
        }
        let (body, default_mode) = match what {
            NewNode::Directory => (Body::Directory(Directory::new(dir)), DEFAULT_DIR_MODE),
            NewNode::Symlink(target) => (Body::Symlink(checked_target(target)?), SYMLINK_MODE),
            NewNode::BlockDevice(major, minor) => {
                (Body::BlockDevice(*major, *minor), DEFAULT_FILE_MODE)
            }
            NewNode::CharDevice(major, minor) => {
                (Body::CharDevice(*major, *minor), DEFAULT_FILE_MODE)
            }
            NewNode::Fifo => (Body::Fifo, DEFAULT_FILE_MODE),
            NewNode::Socket => (Body::Socket, DEFAULT_FILE_MODE),
        };
        let inode = self.new_inode(who, dir, body, attrs, default_mode)?;
        let number = inode.number;
        let change = self.enter(dir, name, inode)?;
        Ok((self.node(number)?, change))
    }

    /// Builds an object from the directory, the caller and the attributes; it
    /// is not in the table yet.
    fn new_inode(
        &mut self,
        who: &Caller,
        dir: u64,
        body: Body,
        attrs: &SetAttr,
        default_mode: u32,
    ) -> StoreResult<Inode> {
        let parent = self.at(dir)?;
        require(who, parent, WRITE | EXECUTE)?;
        self.require_writable()?;
        // The number -1 means "no change" to the kernel, so nobody has it.
        let device = matches!(body, Body::BlockDevice(..) | Body::CharDevice(..));
        if who.uid == u32::MAX || who.gid == u32::MAX || (device && who.uid != 0) {
            return Err(StoreError::NotPermitted);
        }
        let is_directory = matches!(body, Body::Directory(_));
        if is_directory && parent.nlink >= self.traits.max_links {
            return Err(StoreError::TooManyLinks);
        }
        let hands_group_down = parent.mode & SET_GID != 0;
        let gid = if hands_group_down { parent.gid } else { who.gid };
        check_owner_change(who, who.uid, gid, attrs, self.traits.chown_restricted)?;
        check_times(attrs)?;
        check_size(attrs, self.traits.max_file_bytes)?;
        self.require_room()?;
        let is_symlink = matches!(body, Body::Symlink(_));
        let asked = attrs.mode.filter(|_| !is_symlink).unwrap_or(default_mode) & 0o7777;
        let mut inode = self.born(Birth { mode: asked, uid: who.uid, gid, body });
        match self.at(dir) {
            Ok(parent) => acl::inherit(parent, &mut inode),
            Err(error) => {
                self.unborn(&inode);
                return Err(error);
            }
        }
        if is_directory && hands_group_down {
            inode.mode |= SET_GID;
        }
        inode.uid = attrs.uid.unwrap_or(inode.uid);
        inode.gid = attrs.gid.unwrap_or(inode.gid);
        if !is_directory && who.uid != 0 && !who.in_group(inode.gid) {
            inode.mode &= !SET_GID;
        }
        set_first_times(&mut inode, attrs);
        if let (Some(size), Body::Regular(data)) = (attrs.size, &mut inode.body) {
            data.set_size(size);
        }
        Ok(inode)
    }

    /// Gives a new object its first name.
    fn enter(&mut self, dir: u64, name: &[u8], inode: Inode) -> StoreResult<DirChange> {
        let parent = self.at_mut(dir)?;
        parent.entries_mut()?.put(name, inode.number);
        if inode.is_directory() {
            parent.nlink += 1;
        }
        self.adopt(inode);
        self.modified_from(dir)
    }
}

fn checked_target(target: &[u8]) -> StoreResult<Vec<u8>> {
    match target {
        [] => Err(StoreError::Invalid),
        _ if target.len() > MAX_TARGET_BYTES => Err(StoreError::NameTooLong),
        _ if target.contains(&0) => Err(StoreError::BadName),
        _ => Ok(target.to_vec()),
    }
}

fn set_first_times(inode: &mut Inode, attrs: &SetAttr) {
    if let Some(SetTime::At(at)) = attrs.atime {
        inode.atime = at;
    }
    if let Some(SetTime::At(at)) = attrs.mtime {
        inode.mtime = at;
    }
    if let Some(at) = attrs.btime {
        inode.btime = at;
    }
}

/// Returns the times that encode a verifier, as a store on a real file system
/// keeps it: 31 bits of seconds each. Returns (atime, mtime).
fn verifier_times(verifier: [u8; 8]) -> (Timestamp, Timestamp) {
    let whole = u64::from_be_bytes(verifier);
    let at = |bits: u64| Timestamp { seconds: (bits & 0x7fff_ffff) as i64, nanoseconds: 0 };
    (at(whole >> 32), at(whole))
}

#[cfg(test)]
mod tests {
    use crate::fixture::*;
    use std::sync::Arc;
    use zgate_store::file_store::{CreateMode, NewNode};
    use zgate_store::{Caller, FileKind, FileStore, SetAttr, SetTime, StoreError, Timestamp};

    #[test]
    fn the_three_ways_to_create() {
        let s = Fixture::new();
        let (first, open) = s.file("f");
        s.write(&open, 0, b"content").unwrap();
        let again = s.create_as(&root(), &s.root(), "f", 0o600);
        assert_eq!(error_of(again.map(|_| ())), StoreError::Exists);

        let cut = SetAttr { mode: Some(0o777), ..size(0) };
        let create = |name: &str, mode, attrs: &SetAttr| {
            block_on(s.store.create_file(&root(), &s.root(), name.as_bytes(), mode, attrs))
        };
        let unchecked = create("f", CreateMode::Unchecked, &cut).unwrap();
        assert!(!unchecked.created && unchecked.open.is_none());
        assert_eq!(unchecked.node.handle, first.handle);
        assert_eq!((unchecked.node.attr.size, unchecked.node.attr.mode), (0, 0o644));

        let exclusive = |verifier| create("x", CreateMode::Exclusive(verifier), &mode(0o400));
        let one = exclusive([0x91, 2, 3, 4, 5, 6, 7, 8]).unwrap();
        assert!(one.created);
        let replay = exclusive([0x91, 2, 3, 4, 5, 6, 7, 8]).unwrap();
        assert!(replay.created && replay.open.is_some());
        assert_eq!(replay.node.handle, one.node.handle);
        assert_eq!(replay.dir.before, replay.dir.after);
        let other = exclusive([0x11, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(error_of(other.map(|_| ())), StoreError::Exists);
        // Setting the times overwrites the verifier.
        let now = SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() };
        block_on(s.store.setattr(&root(), &one.node.handle, &now, None)).unwrap();
        let late = exclusive([0x91, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(error_of(late.map(|_| ())), StoreError::Exists);

        s.mkdir(&s.root(), "d");
        let found = create("d", CreateMode::Unchecked, &cut).unwrap();
        assert!(!found.created);
        assert_eq!(found.node.attr.kind, FileKind::Directory);
    }

    #[test]
    fn all_kinds_of_objects() {
        let s = Fixture::new();
        let link = NewNode::Symlink(b"../outside/target".to_vec());
        let link = s.make_as(&root(), &s.root(), "link", &link, 0o600).unwrap();
        assert_eq!((link.attr.kind, link.attr.mode), (FileKind::Symlink, 0o777));
        let target = block_on(s.store.readlink(&root(), &link.handle)).unwrap();
        assert_eq!(target, b"../outside/target");
        assert_eq!(error_of(s.lookup(&link.handle, "x")), StoreError::IsSymlink);
        let not_link = block_on(s.store.readlink(&root(), &s.root()));
        assert_eq!(error_of(not_link), StoreError::WrongType);
        let kinds = [
            (NewNode::Fifo, FileKind::Fifo, (0, 0)),
            (NewNode::Socket, FileKind::Socket, (0, 0)),
            (NewNode::CharDevice(1, 3), FileKind::CharDevice, (1, 3)),
            (NewNode::BlockDevice(7, 9), FileKind::BlockDevice, (7, 9)),
        ];
        for (index, (what, kind, rdev)) in kinds.into_iter().enumerate() {
            let name = format!("node{index}");
            let node = s.make_as(&root(), &s.root(), &name, &what, 0o620).unwrap();
            assert_eq!((node.attr.kind, node.attr.mode), (kind, 0o620));
            assert_eq!(node.attr.rdev, rdev);
            let opened = block_on(s.store.open(&root(), &node.handle, READ)).map(|_| ());
            assert_eq!(error_of(opened), StoreError::WrongType);
        }
        let device = s.make_as(&user(5, 5), &s.root(), "dev", &NewNode::BlockDevice(1, 1), 0o600);
        assert_eq!(error_of(device), StoreError::NotPermitted);
        let nowhere = NewNode::Symlink(Vec::new());
        let nowhere = s.make_as(&root(), &s.root(), "l", &nowhere, 0o600);
        assert_eq!(error_of(nowhere), StoreError::Invalid);
    }

    #[test]
    fn objects_belong_to_their_creator() {
        let s = Fixture::new();
        let alice = Caller { uid: 1001, gid: 2001, groups: Arc::from([3001, 3002]) };
        let made = s.create_as(&alice, &s.root(), "f", 0o600).unwrap();
        assert_eq!((made.node.attr.uid, made.node.attr.gid), (1001, 2001));
        let create = |name: &str, attrs: &SetAttr| {
            let mode = CreateMode::Guarded;
            block_on(s.store.create_file(&alice, &s.root(), name.as_bytes(), mode, attrs))
        };
        let own_group = SetAttr { gid: Some(3002), ..mode(0o2711) };
        let node = create("g", &own_group).unwrap().node;
        assert_eq!((node.attr.gid, node.attr.mode), (3002, 0o2711));
        for foreign in [
            SetAttr { gid: Some(4000), ..SetAttr::default() },
            SetAttr { uid: Some(0), ..SetAttr::default() },
        ] {
            assert_eq!(error_of(create("h", &foreign).map(|_| ())), StoreError::NotPermitted);
        }
        assert_eq!(error_of(s.lookup(&s.root(), "h")), StoreError::NotFound);
        let nobody = s.create_as(&user(u32::MAX, 5), &s.root(), "h", 0o600);
        assert!(nobody.is_err());
    }

    #[test]
    fn set_group_id_directories_hand_their_group_down() {
        let s = Fixture::new();
        let shared = s.mkdir(&s.root(), "shared");
        let group = SetAttr { gid: Some(700), ..mode(0o2777) };
        block_on(s.store.setattr(&root(), &shared.handle, &group, None)).unwrap();
        let bob = user(1002, 2002);
        let file = s.create_as(&bob, &shared.handle, "f", 0o2755).unwrap().node;
        // Bob is not in the group, so the set-group-id bit is cleared.
        assert_eq!((file.attr.gid, file.attr.mode), (700, 0o755));
        let dir = s.make_as(&bob, &shared.handle, "d", &NewNode::Directory, 0o755).unwrap();
        assert_eq!((dir.attr.gid, dir.attr.mode), (700, 0o2755));
    }

    #[test]
    fn attributes_asked_for_are_there_at_once() {
        let s = Fixture::new();
        let at = Timestamp { seconds: -7, nanoseconds: 5 };
        let attrs = SetAttr {
            uid: Some(10),
            size: Some(5000),
            mtime: Some(SetTime::At(at)),
            ..mode(0o4755)
        };
        let (who, top) = (root(), s.root());
        let made = s.store.create_file(&who, &top, b"f", CreateMode::Guarded, &attrs);
        let node = block_on(made).unwrap().node;
        assert_eq!((node.attr.uid, node.attr.size, node.attr.mtime), (10, 5000, at));
        assert_eq!((node.attr.mode, node.attr.used_bytes), (0o4755, 0));
    }

    #[test]
    fn equal_calls_give_equal_results() {
        let run = || {
            let s = Fixture::new();
            let (node, file) = s.file("f");
            s.write(&file, 0, b"x").unwrap();
            block_on(s.store.getattr(&node.handle)).unwrap()
        };
        assert_eq!(run(), run());
    }
}
