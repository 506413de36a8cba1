//! An export whose root lies in another file system than its files.

use zgate_memory::MemoryStore;
use zgate_store::FileStore;
use zgate_store::file_store::StoreTraits;

/// The store of the files, with the traits of the root's file system.
pub(super) struct RootTraits(pub(super) MemoryStore, pub(super) StoreTraits);

impl FileStore for RootTraits {
    zgate_store::forward_files! {
        self => self.0;
        root identity fsid recent_attr getattr lookup lookup_parent access setattr readlink
        create_file create_node open remove rename link readdir read write losses commit
        sync_objects sync_names allocate deallocate seek copy_range clone_range advise statfs
        get_xattr set_xattr list_xattrs remove_xattr get_acl set_acl
    }

    fn traits(&self) -> StoreTraits {
        self.1
    }
}
