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

/// Modes where the request names none: nobody but the owner.
const DEFAULT_FILE_MODE: u32 = 0o600;
const DEFAULT_DIR_MODE: u32 = 0o700;
const SYMLINK_MODE: u32 = 0o777;
/// Longest target of a symbolic link in bytes (PATH_MAX without its end mark).
const MAX_TARGET_BYTES: usize = 4095;

/// Result of a create, before it becomes an open file.
pub(crate) struct Made {
    pub(crate) node: Node,
    /// The number of the file when it was opened as well.
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

    /// The name was there already.
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
                // A retransmission: the creator opens it whatever its mode.
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

    /// Makes an object as the directory, the caller and the attributes want
    /// it; nothing is in the table yet.
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
        // The number -1 means "no change" to the kernel: nobody wears it.
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

/// The times a verifier shows as, the same as a store on a real file system
/// would keep it in: 31 bits of seconds each. Returns (atime, mtime).
fn verifier_times(verifier: [u8; 8]) -> (Timestamp, Timestamp) {
    let whole = u64::from_be_bytes(verifier);
    let at = |bits: u64| Timestamp { seconds: (bits & 0x7fff_ffff) as i64, nanoseconds: 0 };
    (at(whole >> 32), at(whole))
}
