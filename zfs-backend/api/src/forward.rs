//! Forwarding of operations by a store to the one behind it.

/// Implements the named operations of [`FileStore`](crate::FileStore) by those of another
/// store. The trait has no defaults: an operation that is neither named nor written out does
/// not compile. Three forms tell how the other store is called:
///
/// * `self => STORE; NAMES` calls STORE.
/// * `self => async STORE; NAMES` calls STORE in the operation's future: STORE may wait, and
///   fail with `?`.
/// * `each!(TOKENS); NAMES` leaves it to the macro `each`, which gets the tokens and one
///   signature: `each! { TOKENS getattr(node: &'a NodeHandle) -> Attr }` for an operation that
///   returns a [`StoreFuture<'a, Attr>`](crate::StoreFuture).
///
/// ```
/// use std::sync::Arc;
/// use zgate_store::FileStore;
///
/// struct InFront {
///     store: Arc<dyn FileStore>,
/// }
///
/// impl FileStore for InFront {
///     zgate_store::forward_files! {
///         self => self.store;
///         root traits identity recent_attr getattr lookup lookup_parent access setattr readlink
///         create_file create_node open remove rename link readdir read write losses commit
///         sync_objects sync_names allocate deallocate seek copy_range clone_range advise
///         statfs get_xattr set_xattr list_xattrs remove_xattr get_acl set_acl fsid
///     }
/// }
/// ```
#[macro_export]
macro_rules! forward_files {
    ($this:ident => async $store:expr; $($name:ident)*) => {
        $($crate::forward_files! { @ (inside $this $store) $name })*
    };
    ($this:ident => $store:expr; $($name:ident)*) => {
        $($crate::forward_files! { @ (to $this $store) $name })*
    };
    ($each:ident! $tokens:tt; $($name:ident)*) => {
        $($crate::forward_files! { @ (by $each $tokens) $name })*
    };

    // The signatures. A crate that forwards `write` depends on `bytes`.
    (@ $how:tt root) => { $crate::forward_files! { @ $how fn root() -> $crate::NodeHandle } };
    (@ $how:tt traits) => { $crate::forward_files! {
        @ $how fn traits() -> $crate::file_store::StoreTraits
    } };
    (@ $how:tt identity) => { $crate::forward_files! { @ $how fn identity(
        node: &$crate::NodeHandle
    ) -> Option<$crate::NodeHandle> } };
    (@ $how:tt recent_attr) => { $crate::forward_files! { @ $how fn recent_attr(
        node: &$crate::NodeHandle
    ) -> Option<$crate::Attr> } };
    (@ $how:tt getattr) => { $crate::forward_files! { @ $how async fn getattr(
        node: &'a $crate::NodeHandle
    ) -> $crate::Attr } };
    (@ $how:tt lookup) => { $crate::forward_files! { @ $how async fn lookup(
        who: &'a $crate::Caller, dir: &'a $crate::NodeHandle, name: &'a [u8]
    ) -> $crate::file_store::Node } };
    (@ $how:tt lookup_parent) => { $crate::forward_files! { @ $how async fn lookup_parent(
        who: &'a $crate::Caller, dir: &'a $crate::NodeHandle
    ) -> $crate::file_store::Node } };
    (@ $how:tt access) => { $crate::forward_files! { @ $how async fn access(
        who: &'a $crate::Caller, node: &'a $crate::NodeHandle
    ) -> $crate::AccessMask } };
    (@ $how:tt setattr) => { $crate::forward_files! { @ $how async fn setattr(
        who: &'a $crate::Caller, node: &'a $crate::NodeHandle, changes: &'a $crate::SetAttr,
        open: Option<&'a $crate::file_store::OpenFile>
    ) -> $crate::Attr } };
    (@ $how:tt readlink) => { $crate::forward_files! { @ $how async fn readlink(
        who: &'a $crate::Caller, node: &'a $crate::NodeHandle
    ) -> Vec<u8> } };
    (@ $how:tt create_file) => { $crate::forward_files! { @ $how async fn create_file(
        who: &'a $crate::Caller, dir: &'a $crate::NodeHandle, name: &'a [u8],
        mode: $crate::file_store::CreateMode, attrs: &'a $crate::SetAttr
    ) -> $crate::file_store::CreatedFile } };
    (@ $how:tt create_node) => { $crate::forward_files! { @ $how async fn create_node(
        who: &'a $crate::Caller, dir: &'a $crate::NodeHandle, name: &'a [u8],
        what: &'a $crate::file_store::NewNode, attrs: &'a $crate::SetAttr
    ) -> ($crate::file_store::Node, $crate::file_store::DirChange) } };
    (@ $how:tt open) => { $crate::forward_files! { @ $how async fn open(
        who: &'a $crate::Caller, node: &'a $crate::NodeHandle,
        access: $crate::file_store::OpenAccess
    ) -> $crate::file_store::OpenFile } };
    (@ $how:tt remove) => { $crate::forward_files! { @ $how async fn remove(
        who: &'a $crate::Caller, dir: &'a $crate::NodeHandle, name: &'a [u8],
        kind: Option<$crate::FileKind>
    ) -> $crate::file_store::DirChange } };
    (@ $how:tt rename) => { $crate::forward_files! { @ $how async fn rename(
        who: &'a $crate::Caller, from_dir: &'a $crate::NodeHandle, from_name: &'a [u8],
        to_dir: &'a $crate::NodeHandle, to_name: &'a [u8]
    ) -> ($crate::file_store::DirChange, $crate::file_store::DirChange) } };
    (@ $how:tt link) => { $crate::forward_files! { @ $how async fn link(
        who: &'a $crate::Caller, node: &'a $crate::NodeHandle, dir: &'a $crate::NodeHandle,
        name: &'a [u8]
    ) -> $crate::file_store::DirChange } };
    (@ $how:tt readdir) => { $crate::forward_files! { @ $how async fn readdir(
        who: &'a $crate::Caller, dir: &'a $crate::NodeHandle, cookie: u64, max_entries: usize,
        with_nodes: bool
    ) -> $crate::file_store::DirPage } };
    (@ $how:tt read) => { $crate::forward_files! { @ $how async fn read(
        file: &'a $crate::file_store::OpenFile, offset: u64, len: usize,
        how: $crate::file_store::ReadHow
    ) -> $crate::file_store::ReadData } };
    (@ $how:tt write) => { $crate::forward_files! { @ $how async fn write(
        file: &'a $crate::file_store::OpenFile, offset: u64, data: ::bytes::Bytes,
        stability: $crate::file_store::Stability
    ) -> (usize, $crate::file_store::Stability) } };
    (@ $how:tt losses) => { $crate::forward_files! { @ $how fn losses() -> u64 } };
    (@ $how:tt commit) => { $crate::forward_files! { @ $how async fn commit(
        file: &'a $crate::file_store::OpenFile
    ) -> () } };
    (@ $how:tt sync_objects) => { $crate::forward_files! { @ $how async fn sync_objects(
        nodes: &'a [$crate::NodeHandle]
    ) -> () } };
    (@ $how:tt sync_names) => { $crate::forward_files! { @ $how async fn sync_names(
        of: $crate::file_store::NamedObject, dirs: &'a [$crate::NodeHandle]
    ) -> () } };
    (@ $how:tt allocate) => { $crate::forward_files! { @ $how async fn allocate(
        file: &'a $crate::file_store::OpenFile, offset: u64, len: u64
    ) -> () } };
    (@ $how:tt deallocate) => { $crate::forward_files! { @ $how async fn deallocate(
        file: &'a $crate::file_store::OpenFile, offset: u64, len: u64
    ) -> () } };
    (@ $how:tt seek) => { $crate::forward_files! { @ $how async fn seek(
        file: &'a $crate::file_store::OpenFile, offset: u64, what: $crate::file_store::SeekWhat
    ) -> u64 } };
    (@ $how:tt copy_range) => { $crate::forward_files! { @ $how async fn copy_range(
        from: &'a $crate::file_store::OpenFile, from_offset: u64,
        to: &'a $crate::file_store::OpenFile, to_offset: u64, len: u64
    ) -> u64 } };
    (@ $how:tt clone_range) => { $crate::forward_files! { @ $how async fn clone_range(
        from: &'a $crate::file_store::OpenFile, from_offset: u64,
        to: &'a $crate::file_store::OpenFile, to_offset: u64, len: u64
    ) -> () } };
    (@ $how:tt advise) => { $crate::forward_files! { @ $how async fn advise(
        file: &'a $crate::file_store::OpenFile, offset: u64, len: u64,
        advice: $crate::file_store::Advice
    ) -> () } };
    (@ $how:tt statfs) => { $crate::forward_files! { @ $how async fn statfs(
        node: &'a $crate::NodeHandle
    ) -> $crate::file_store::FsStat } };
    (@ $how:tt get_xattr) => { $crate::forward_files! { @ $how async fn get_xattr(
        who: &'a $crate::Caller, node: &'a $crate::NodeHandle, name: &'a [u8]
    ) -> Vec<u8> } };
    (@ $how:tt set_xattr) => { $crate::forward_files! { @ $how async fn set_xattr(
        who: &'a $crate::Caller, node: &'a $crate::NodeHandle, name: &'a [u8], value: &'a [u8],
        how: $crate::file_store::XattrSet
    ) -> $crate::file_store::DirChange } };
    (@ $how:tt list_xattrs) => { $crate::forward_files! { @ $how async fn list_xattrs(
        who: &'a $crate::Caller, node: &'a $crate::NodeHandle
    ) -> Vec<Vec<u8>> } };
    (@ $how:tt remove_xattr) => { $crate::forward_files! { @ $how async fn remove_xattr(
        who: &'a $crate::Caller, node: &'a $crate::NodeHandle, name: &'a [u8]
    ) -> $crate::file_store::DirChange } };
    (@ $how:tt get_acl) => { $crate::forward_files! { @ $how async fn get_acl(
        node: &'a $crate::NodeHandle
    ) -> $crate::file_store::PosixAcl } };
    (@ $how:tt set_acl) => { $crate::forward_files! { @ $how async fn set_acl(
        who: &'a $crate::Caller, node: &'a $crate::NodeHandle, acl: &'a $crate::file_store::PosixAcl
    ) -> () } };
    (@ $how:tt fsid) => { $crate::forward_files! { @ $how fn fsid() -> $crate::attr::FsId } };

    // One operation in each form.
    (@ (to $this:ident $store:expr)
        fn $name:ident($($arg:ident: $kind:ty),*) -> $result:ty
    ) => {
        fn $name(&$this $(, $arg: $kind)*) -> $result {
            $store.$name($($arg),*)
        }
    };
    (@ (to $this:ident $store:expr)
        async fn $name:ident($($arg:ident: $kind:ty),*) -> $result:ty
    ) => {
        fn $name<'a>(&'a $this $(, $arg: $kind)*) -> $crate::StoreFuture<'a, $result> {
            $store.$name($($arg),*)
        }
    };
    (@ (inside $this:ident $store:expr)
        async fn $name:ident($($arg:ident: $kind:ty),*) -> $result:ty
    ) => {
        fn $name<'a>(&'a $this $(, $arg: $kind)*) -> $crate::StoreFuture<'a, $result> {
            Box::pin(async move {
                let store = &$store;
                store.$name($($arg),*).await
            })
        }
    };
    (@ (by $each:ident ($($tokens:tt)*))
        async fn $name:ident($($arg:ident: $kind:ty),*) -> $result:ty
    ) => {
        $each! { $($tokens)* $name($($arg: $kind),*) -> $result }
    };
}
