//! A tree of files, with the operations that NFS needs.
//!
//! Every method is asynchronous and may run on any core; none blocks the
//! caller's thread. Futures are `Send`: the worker that ends the last call of a
//! request continues it.
//! Permissions: name-space methods and `open` run with `who`'s identity and
//! fail with [`StoreError::AccessDenied`] or [`StoreError::NotPermitted`] as
//! the file system decides; `read` and `write` use what `open` granted.

use crate::attr::{Attr, FileKind, FsId, SetAttr};
use crate::buffer::Payload;
use crate::caller::{AccessMask, Caller};
use crate::error::{StoreError, StoreResult};
use crate::handle::NodeHandle;
use bytes::Bytes;
use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// Future returned by every store method.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = StoreResult<T>> + Send + 'a>>;

/// An object and its attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Handle of the object in this store.
    pub handle: NodeHandle,
    /// Attributes of the object.
    pub attr: Attr,
}

/// Change numbers of a directory around a modification (RFC 8881 §3.3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirChange {
    /// Set if the pair was taken atomically with the modification.
    pub atomic: bool,
    /// Change number before the modification.
    pub before: u64,
    /// Change number after the modification.
    pub after: u64,
}

/// Rights wanted on an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpenAccess {
    /// Read access is wanted.
    pub read: bool,
    /// Write access is wanted.
    pub write: bool,
    /// Grants the file's owner read and write access regardless of the mode:
    /// NFSv3 and anonymous stateids carry no OPEN, and POSIX programs expect a
    /// file opened before chmod to stay usable. Also lets a caller with execute
    /// permission read an executable-only file (RFC 1813 §4.4).
    pub stateless: bool,
    /// Lets a caller with execute permission read an executable-only file:
    /// clients open a program that is to be run for reading, and an NFSv4 OPEN
    /// does not tell what for.
    pub read_by_execute: bool,
}

/// A file opened by a store; keeps the object alive while it exists, even
/// after its last name is gone. Stores downcast it to their own type.
pub type OpenFile = Arc<dyn Any + Send + Sync>;

/// Handling of an existing name when a regular file is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateMode {
    /// Uses an existing file; of the attributes, only `size` = 0 is applied to
    /// it.
    Unchecked,
    /// Fails with [`StoreError::Exists`] if the name exists.
    Guarded,
    /// Succeeds again if the existing file was created with this verifier,
    /// which is kept in its time stamps on stable storage.
    Exclusive([u8; 8]),
}

/// Result of [`FileStore::create_file`].
#[derive(Clone)]
pub struct CreatedFile {
    /// The file.
    pub node: Node,
    /// The open file if this call created it (the creator's rights do not
    /// depend on the mode); `None` if it existed: open it by handle.
    pub open: Option<OpenFile>,
    /// Set if this call created the file.
    pub created: bool,
    /// Set if the file and its attributes are on stable storage, its name not.
    pub is_stable: bool,
    /// Change numbers of the directory.
    pub dir: DirChange,
}

/// Object that a change of names concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedObject {
    /// It is gone, or has not changed.
    Unchanged,
    /// It is new, or its attributes have changed.
    Changed(NodeHandle),
    /// It is new, and was synced after its name had been made.
    Stable,
}

/// An object other than a regular file, to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewNode {
    /// A directory.
    Directory,
    /// A symbolic link with its target.
    Symlink(Vec<u8>),
    /// A block device node (major, minor).
    BlockDevice(u32, u32),
    /// A character device node (major, minor).
    CharDevice(u32, u32),
    /// A named pipe.
    Fifo,
    /// A socket node.
    Socket,
}

/// One directory entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name, without `.` and `..`.
    pub name: Vec<u8>,
    /// Cookie that resumes a listing after this entry; never 0, 1 or 2.
    pub cookie: u64,
    /// File id of the entry; for a mounted directory, that of the covered one.
    pub fileid: u64,
    /// Handle and attributes, if requested, or the reason why they cannot be had.
    pub node: Result<Node, StoreError>,
}

/// A page of a directory.
#[derive(Clone, Debug, Default)]
pub struct DirPage {
    /// Entries in the store's order.
    pub entries: Vec<DirEntry>,
    /// Set if the page reaches the end of the directory.
    pub end: bool,
}

/// Forms of data that a read may return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadHow {
    /// Set if the transport can send a [`crate::FileSpan`]; otherwise only
    /// bytes are returned.
    pub span_allowed: bool,
    /// Set if the caller tells holes (RFC 7862 §15.10) that seeks find, and zeros.
    pub tells_holes: bool,
}

/// Result of a read. Shorter than requested only at the end of the file, or in place of holes.
#[derive(Clone, Debug)]
pub struct ReadData {
    /// Data read.
    pub data: Payload,
    /// Set if the data reaches the end of the file.
    pub eof: bool,
    /// Size of the file in bytes, in place of any data: the caller tells holes, there may be
    /// some, and [`FileStore::seek`] waits for no network and no writing (as ZFS does, see
    /// `zfs_dmu_offset_next_sync`).
    pub size_with_holes: Option<u64>,
}

impl ReadData {
    /// Returns data that was read.
    #[must_use]
    pub fn new(data: Payload, eof: bool) -> Self {
        Self { data, eof, size_with_holes: None }
    }

    /// Returns the size of a file of which nothing was read at `offset`, for its holes.
    #[must_use]
    pub fn with_holes(size: u64, offset: u64) -> Self {
        let nothing = Payload::Bytes(Bytes::new());
        Self { size_with_holes: Some(size), ..Self::new(nothing, offset >= size) }
    }
}

/// Required stability of a write before its reply, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stability {
    /// The data may be lost until COMMIT.
    Unstable,
    /// Data on stable storage.
    DataSync,
    /// Data and metadata on stable storage.
    FileSync,
}

/// Boundary that SEEK looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekWhat {
    /// Next data at or after the offset.
    Data,
    /// Next hole at or after the offset; the end of the file counts as one.
    Hole,
}

/// A hint about coming accesses (RFC 7862 §15.5, posix_fadvise).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// No known pattern.
    Normal,
    /// Access in order.
    Sequential,
    /// Access out of order.
    Random,
    /// Access soon.
    WillNeed,
    /// No access soon.
    DontNeed,
    /// Access once.
    NoReuse,
}

/// Space and limits of the file system an object lies in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FsStat {
    /// Size of the file system, in bytes.
    pub total_bytes: u64,
    /// Unused bytes.
    pub free_bytes: u64,
    /// Bytes an ordinary user may still use.
    pub available_bytes: u64,
    /// Number of objects the file system can hold.
    pub total_files: u64,
    /// Number of objects that can still be created.
    pub free_files: u64,
    /// Number of objects that ordinary users can still create.
    pub available_files: u64,
    /// Longest name in bytes.
    pub max_name_bytes: u32,
    /// Set if names that differ only in case are the same.
    pub case_insensitive: bool,
    /// Set if the file system is mounted read-only.
    pub read_only: bool,
    /// Preferred I/O size in bytes: the recordsize of a ZFS dataset; 0 if the
    /// file system names none.
    pub preferred_io_bytes: u64,
    /// Abilities and limits here: those of the root's file system may be others.
    pub traits: StoreTraits,
}

/// Subject of a POSIX ACL entry (IEEE 1003.1e draft 17).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PosixAclTag {
    /// The owner.
    UserObj,
    /// A named user.
    User(u32),
    /// The owning group.
    GroupObj,
    /// A named group.
    Group(u32),
    /// The upper bound of named users and all groups.
    Mask,
    /// Everyone else.
    Other,
}

/// One POSIX ACL entry; `perms` is rwx as 4|2|1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PosixAclEntry {
    /// Subject of the entry.
    pub tag: PosixAclTag,
    /// rwx as 4|2|1.
    pub perms: u8,
}

impl PosixAclEntry {
    /// Returns the ACL that is equivalent to a mode.
    #[must_use]
    pub fn of_mode(mode: u32) -> [Self; 3] {
        let entry = |tag, shift: u32| Self { tag, perms: ((mode >> shift) & 7) as u8 };
        [
            entry(PosixAclTag::UserObj, 6),
            entry(PosixAclTag::GroupObj, 3),
            entry(PosixAclTag::Other, 0),
        ]
    }
}

/// Access ACL and, for directories, the default ACL its children inherit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PosixAcl {
    /// Entries in canonical order; never empty when read from a store.
    pub access: Vec<PosixAclEntry>,
    /// Default entries; empty when there are none.
    pub default: Vec<PosixAclEntry>,
}

/// Handling of an existing or missing extended attribute when it is set (RFC
/// 8276 §8.4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrSet {
    /// Creates or replaces.
    Either,
    /// Fails with [`StoreError::Exists`] if the attribute exists.
    Create,
    /// Fails with [`StoreError::NoXattr`] if it does not.
    Replace,
}

/// Abilities and limits of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreTraits {
    /// Set if handles survive a restart of the server.
    pub persistent_handles: bool,
    /// Largest file in bytes.
    pub max_file_bytes: u64,
    /// Most hard links to one file.
    pub max_links: u32,
    /// Set if extended attributes (user.*) work.
    pub xattrs: bool,
    /// Set if POSIX ACLs work.
    pub acls: bool,
    /// Block size in bytes that [`FileStore::clone_range`] needs, if it works.
    pub clone_block_bytes: Option<u32>,
    /// Set if only root may change the owner of a file.
    pub chown_restricted: bool,
    /// Set if [`FileStore::identity`] is certain, also of what is mounted twice or was
    /// unmounted in between.
    pub tells_files_apart: bool,
}

/// A tree of files.
///
/// No operation has a default: a store in front of another one that forgot to forward it would
/// take the default instead. [`forward_files`](crate::forward_files) spares such a store the
/// signatures.
pub trait FileStore: Send + Sync {
    /// Returns the handle of the root directory.
    fn root(&self) -> NodeHandle;

    /// Returns abilities and limits of the root's file system; see [`FsStat::traits`].
    fn traits(&self) -> StoreTraits;

    /// Returns the identity of the object that a handle names: the same for the
    /// handles of all stores that serve this object, and another one for each other
    /// object. It holds in this process, and without
    /// [`StoreTraits::tells_files_apart`] while a file system is mounted. `None` if this
    /// store cannot have issued the handle. Asks no storage.
    fn identity(&self, node: &NodeHandle) -> Option<NodeHandle>;

    /// Returns attributes that were read within the last second, of an object that was not
    /// changed through this store since. `None` also where [`Self::getattr`] needs no other
    /// thread. Asks no storage.
    fn recent_attr(&self, node: &NodeHandle) -> Option<Attr>;

    /// Reads the current attributes. [`StoreError::Stale`] if the object is
    /// gone.
    fn getattr<'a>(&'a self, node: &'a NodeHandle) -> StoreFuture<'a, Attr>;

    /// Looks `name` up. `.` and `..` are never passed in. If the child is a
    /// mount point, the root of the mounted file system is returned.
    fn lookup<'a>(
        &'a self,
        who: &'a Caller,
        dir: &'a NodeHandle,
        name: &'a [u8],
    ) -> StoreFuture<'a, Node>;

    /// Looks up the parent directory; [`StoreError::NotFound`] at the root.
    fn lookup_parent<'a>(&'a self, who: &'a Caller, dir: &'a NodeHandle) -> StoreFuture<'a, Node>;

    /// Returns the rights of `who` on the object (mode and POSIX ACL).
    fn access<'a>(&'a self, who: &'a Caller, node: &'a NodeHandle) -> StoreFuture<'a, AccessMask>;

    /// Changes attributes and returns all attributes afterwards. Applies size,
    /// owner, mode and times in this order, so that a chown cannot clear set-id
    /// bits requested by the same call.
    fn setattr<'a>(
        &'a self,
        who: &'a Caller,
        node: &'a NodeHandle,
        changes: &'a SetAttr,
        open: Option<&'a OpenFile>,
    ) -> StoreFuture<'a, Attr>;

    /// Reads a symbolic link's target.
    fn readlink<'a>(&'a self, who: &'a Caller, node: &'a NodeHandle) -> StoreFuture<'a, Vec<u8>>;

    /// Creates or finds a regular file. An existing object of another kind is
    /// returned as it is, with `created = false`.
    fn create_file<'a>(
        &'a self,
        who: &'a Caller,
        dir: &'a NodeHandle,
        name: &'a [u8],
        mode: CreateMode,
        attrs: &'a SetAttr,
    ) -> StoreFuture<'a, CreatedFile>;

    /// Creates anything but a regular file.
    fn create_node<'a>(
        &'a self,
        who: &'a Caller,
        dir: &'a NodeHandle,
        name: &'a [u8],
        what: &'a NewNode,
        attrs: &'a SetAttr,
    ) -> StoreFuture<'a, (Node, DirChange)>;

    /// Opens a regular file.
    fn open<'a>(
        &'a self,
        who: &'a Caller,
        node: &'a NodeHandle,
        access: OpenAccess,
    ) -> StoreFuture<'a, OpenFile>;

    /// Removes a name; directories must be empty. `kind` restricts what may be
    /// removed: `Some(Directory)` for rmdir, `Some(other)` for unlink
    /// semantics (anything but a directory), `None` for either.
    fn remove<'a>(
        &'a self,
        who: &'a Caller,
        dir: &'a NodeHandle,
        name: &'a [u8],
        kind: Option<FileKind>,
    ) -> StoreFuture<'a, DirChange>;

    /// Renames atomically; returns the changes of source and target directory.
    /// Renaming onto another link of the same file succeeds and does nothing.
    fn rename<'a>(
        &'a self,
        who: &'a Caller,
        from_dir: &'a NodeHandle,
        from_name: &'a [u8],
        to_dir: &'a NodeHandle,
        to_name: &'a [u8],
    ) -> StoreFuture<'a, (DirChange, DirChange)>;

    /// Adds a hard link.
    fn link<'a>(
        &'a self,
        who: &'a Caller,
        node: &'a NodeHandle,
        dir: &'a NodeHandle,
        name: &'a [u8],
    ) -> StoreFuture<'a, DirChange>;

    /// Lists entries after `cookie` (0: from the start), at most `max_entries`.
    /// With `with_nodes`, each entry carries handle and attributes.
    fn readdir<'a>(
        &'a self,
        who: &'a Caller,
        dir: &'a NodeHandle,
        cookie: u64,
        max_entries: usize,
        with_nodes: bool,
    ) -> StoreFuture<'a, DirPage>;

    /// Reads at most `len` bytes at `offset`.
    fn read<'a>(
        &'a self,
        file: &'a OpenFile,
        offset: u64,
        len: usize,
        how: ReadHow,
    ) -> StoreFuture<'a, ReadData>;

    /// Writes `data` at `offset`. As with each change of a file's data, set-id
    /// bits are cleared unless root opened the file. Returns the stability
    /// reached (at least `stability`). If a write is cut short, returns the
    /// error when nothing was written, else the number of bytes written.
    fn write<'a>(
        &'a self,
        file: &'a OpenFile,
        offset: u64,
        data: Bytes,
        stability: Stability,
    ) -> StoreFuture<'a, (usize, Stability)>;

    /// Returns a number that changes whenever unsynced data may have been lost
    /// because a sync failed, whoever asked for that sync. The kernel reports
    /// such an error only once. A number is never used again.
    fn losses(&self) -> u64;

    /// Brings all earlier writes of the file to stable storage.
    fn commit<'a>(&'a self, file: &'a OpenFile) -> StoreFuture<'a, ()>;

    /// Brings attributes of these objects, and the entries of the directories
    /// among them, to stable storage. Objects that no longer exist are skipped.
    fn sync_objects<'a>(&'a self, nodes: &'a [NodeHandle]) -> StoreFuture<'a, ()>;

    /// Brings one change of names in `dirs`, which has just been made, to stable
    /// storage, with the object that it concerns. The directories are synced in their
    /// order: of a rename, that with the new name comes first, so that a power loss
    /// leaves the name in one of them at least.
    fn sync_names<'a>(&'a self, of: NamedObject, dirs: &'a [NodeHandle]) -> StoreFuture<'a, ()>;

    /// Reserves space. The range reads as before, or as zeros beyond the end;
    /// the file grows to cover it.
    fn allocate<'a>(&'a self, file: &'a OpenFile, offset: u64, len: u64) -> StoreFuture<'a, ()>;

    /// Punches a hole; the length of the file does not change.
    fn deallocate<'a>(&'a self, file: &'a OpenFile, offset: u64, len: u64) -> StoreFuture<'a, ()>;

    /// Finds data or a hole. [`StoreError::BeyondEnd`] at or beyond the end,
    /// or when no data follows.
    fn seek<'a>(&'a self, file: &'a OpenFile, offset: u64, what: SeekWhat) -> StoreFuture<'a, u64>;

    /// Copies a range inside the store, on the server; returns bytes copied
    /// (short at the source's end). May share blocks.
    fn copy_range<'a>(
        &'a self,
        from: &'a OpenFile,
        from_offset: u64,
        to: &'a OpenFile,
        to_offset: u64,
        len: u64,
    ) -> StoreFuture<'a, u64>;

    /// Shares blocks atomically, or fails with [`StoreError::NotSupported`];
    /// `len` 0 means to the source's end.
    fn clone_range<'a>(
        &'a self,
        from: &'a OpenFile,
        from_offset: u64,
        to: &'a OpenFile,
        to_offset: u64,
        len: u64,
    ) -> StoreFuture<'a, ()>;

    /// Passes an access hint on; errors are ignored.
    fn advise<'a>(
        &'a self,
        file: &'a OpenFile,
        offset: u64,
        len: u64,
        advice: Advice,
    ) -> StoreFuture<'a, ()>;

    /// Reads space and limits of the file system.
    fn statfs<'a>(&'a self, node: &'a NodeHandle) -> StoreFuture<'a, FsStat>;

    /// Reads an extended attribute; `name` is without the `user.` prefix.
    fn get_xattr<'a>(
        &'a self,
        who: &'a Caller,
        node: &'a NodeHandle,
        name: &'a [u8],
    ) -> StoreFuture<'a, Vec<u8>>;

    /// Sets an extended attribute; returns the object's change numbers.
    fn set_xattr<'a>(
        &'a self,
        who: &'a Caller,
        node: &'a NodeHandle,
        name: &'a [u8],
        value: &'a [u8],
        how: XattrSet,
    ) -> StoreFuture<'a, DirChange>;

    /// Lists the names of the extended attributes, without the `user.` prefix,
    /// sorted.
    fn list_xattrs<'a>(
        &'a self,
        who: &'a Caller,
        node: &'a NodeHandle,
    ) -> StoreFuture<'a, Vec<Vec<u8>>>;

    /// Removes an extended attribute; returns the object's change numbers.
    fn remove_xattr<'a>(
        &'a self,
        who: &'a Caller,
        node: &'a NodeHandle,
        name: &'a [u8],
    ) -> StoreFuture<'a, DirChange>;

    /// Reads the POSIX ACLs, derived from the mode if none are stored.
    fn get_acl<'a>(&'a self, node: &'a NodeHandle) -> StoreFuture<'a, PosixAcl>;

    /// Replaces the POSIX ACLs.
    fn set_acl<'a>(
        &'a self,
        who: &'a Caller,
        node: &'a NodeHandle,
        acl: &'a PosixAcl,
    ) -> StoreFuture<'a, ()>;

    /// Returns the identity of the root's file system.
    fn fsid(&self) -> FsId;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_an_acl() {
        let perms = PosixAclEntry::of_mode(0o754).map(|entry| entry.perms);
        assert_eq!(perms, [7, 5, 4]);
    }
}
