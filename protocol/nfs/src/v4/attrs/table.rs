//! Supported attributes.

use Use::{Both, Read, Write};
use zgate_nfs_wire::v4::Bitmap;
use zgate_nfs_wire::v4::attr::*;
use zgate_store::file_store::StoreTraits;

/// Allowed use of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// GETATTR.
    Read,
    /// SETATTR.
    Write,
    /// Both.
    Both,
}

/// Number, first minor version, use.
pub static ATTRS: &[(u32, u8, Use)] = &[
    (SUPPORTED_ATTRS, 0, Read),
    (TYPE, 0, Read),
    (FH_EXPIRE_TYPE, 0, Read),
    (CHANGE, 0, Read),
    (SIZE, 0, Both),
    (LINK_SUPPORT, 0, Read),
    (SYMLINK_SUPPORT, 0, Read),
    (NAMED_ATTR, 0, Read),
    (FSID, 0, Read),
    (UNIQUE_HANDLES, 0, Read),
    (LEASE_TIME, 0, Read),
    (RDATTR_ERROR, 0, Read),
    (ACL, 0, Both),
    (ACLSUPPORT, 0, Read),
    (CANSETTIME, 0, Read),
    (CASE_INSENSITIVE, 0, Read),
    (CASE_PRESERVING, 0, Read),
    (CHOWN_RESTRICTED, 0, Read),
    (FILEHANDLE, 0, Read),
    (FILEID, 0, Read),
    (FILES_AVAIL, 0, Read),
    (FILES_FREE, 0, Read),
    (FILES_TOTAL, 0, Read),
    (FS_LOCATIONS, 0, Read),
    (HOMOGENEOUS, 0, Read),
    (MAXFILESIZE, 0, Read),
    (MAXLINK, 0, Read),
    (MAXNAME, 0, Read),
    (MAXREAD, 0, Read),
    (MAXWRITE, 0, Read),
    (MODE, 0, Both),
    (NO_TRUNC, 0, Read),
    (NUMLINKS, 0, Read),
    (OWNER, 0, Both),
    (OWNER_GROUP, 0, Both),
    (QUOTA_AVAIL_HARD, 0, Read),
    (QUOTA_AVAIL_SOFT, 0, Read),
    (QUOTA_USED, 0, Read),
    (RAWDEV, 0, Read),
    (SPACE_AVAIL, 0, Read),
    (SPACE_FREE, 0, Read),
    (SPACE_TOTAL, 0, Read),
    (SPACE_USED, 0, Read),
    (TIME_ACCESS, 0, Read),
    (TIME_ACCESS_SET, 0, Write),
    (TIME_CREATE, 0, Both),
    (TIME_DELTA, 0, Read),
    (TIME_METADATA, 0, Read),
    (TIME_MODIFY, 0, Read),
    (TIME_MODIFY_SET, 0, Write),
    (MOUNTED_ON_FILEID, 0, Read),
    (MODE_SET_MASKED, 1, Write),
    (SUPPATTR_EXCLCREAT, 1, Read),
    (CLONE_BLKSIZE, 2, Read),
    (CHANGE_ATTR_TYPE, 2, Read),
    (MODE_UMASK, 2, Write),
    (XATTR_SUPPORT, 2, Read),
    // RFC 9754 extends minor version 2; offered from 1 on, see
    // docs/spec-exceptions/open-arguments-in-minor-1.md.
    (TIME_DELEG_ACCESS, 1, Write),
    (TIME_DELEG_MODIFY, 1, Write),
    (OPEN_ARGUMENTS, 1, Read),
];

/// The use of an attribute in a minor version; `None`: not offered.
#[must_use]
pub fn usage(attribute: u32, minor: u8) -> Option<Use> {
    ATTRS.iter().find(|row| row.0 == attribute && row.1 <= minor).map(|row| row.2)
}

/// supported_attrs of a file system, with or without delegated times.
#[must_use]
pub fn supported(minor: u8, traits: &StoreTraits, delegated_times: bool) -> Bitmap {
    let mut map = Bitmap::default();
    for (attribute, since, _) in ATTRS {
        let offered = match *attribute {
            ACL | ACLSUPPORT => traits.acls,
            CLONE_BLKSIZE => traits.clone_block_bytes.is_some(),
            TIME_DELEG_ACCESS | TIME_DELEG_MODIFY => delegated_times,
            _ => true,
        };
        if *since <= minor && offered {
            map.set(*attribute);
        }
    }
    map
}

/// suppattr_exclcreat: attributes that EXCLUSIVE4_1 may set. The verifier is
/// kept in the time stamps, so these are left out (RFC 8881 §5.8.1.14); so is the
/// masked mode, which only SETATTR takes (§6.2.5).
#[must_use]
pub fn settable_at_exclusive_create(minor: u8, traits: &StoreTraits) -> Bitmap {
    let mut map = Bitmap::default();
    for attribute in supported(minor, traits, false).iter() {
        let left_out = matches!(attribute, TIME_ACCESS_SET | TIME_MODIFY_SET | MODE_SET_MASKED);
        if !left_out && matches!(usage(attribute, minor), Some(Write | Both)) {
            map.set(attribute);
        }
    }
    map
}

/// True if `want` contains no attribute that can only be set.
#[must_use]
pub fn only_readable(want: &Bitmap, minor: u8) -> bool {
    !want.iter().any(|attribute| usage(attribute, minor) == Some(Write))
}
