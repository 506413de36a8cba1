//! Supported attributes.

use Use::{Both, Read, Write};
use std::sync::LazyLock;
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

/// The attributes of one minor version by their use.
struct ByUse {
    all: Bitmap,
    readable: Bitmap,
    settable: Bitmap,
    /// Those that can only be set.
    write_only: Bitmap,
}

impl ByUse {
    fn of(minor: u8) -> Self {
        let having = |uses: &[Use]| {
            let mut map = Bitmap::default();
            for (attribute, since, used) in ATTRS {
                if *since <= minor && uses.contains(used) {
                    map.set(*attribute);
                }
            }
            map
        };
        Self {
            all: having(&[Read, Write, Both]),
            readable: having(&[Read, Both]),
            settable: having(&[Write, Both]),
            write_only: having(&[Write]),
        }
    }
}

/// Highest minor version in the table.
const MAX_MINOR: u8 = 2;

/// The attributes of each minor version: every GETATTR asks for them.
static BY_USE: LazyLock<[ByUse; MAX_MINOR as usize + 1]> =
    LazyLock::new(|| std::array::from_fn(|minor| ByUse::of(minor as u8)));

fn by_use(minor: u8) -> &'static ByUse {
    &BY_USE[usize::from(minor.min(MAX_MINOR))]
}

/// The use of an attribute in a minor version; `None`: not offered.
#[must_use]
pub fn usage(attribute: u32, minor: u8) -> Option<Use> {
    let known = by_use(minor);
    match (known.readable.contains(attribute), known.settable.contains(attribute)) {
        (true, true) => Some(Both),
        (true, false) => Some(Read),
        (false, true) => Some(Write),
        (false, false) => None,
    }
}

/// supported_attrs of a file system, with or without delegated times.
#[must_use]
pub fn supported(minor: u8, traits: &StoreTraits, delegated_times: bool) -> Bitmap {
    let mut map = by_use(minor).all.clone();
    let mut leave_out = |is_offered: bool, attributes: &[u32]| {
        if !is_offered {
            attributes.iter().for_each(|attribute| map.clear(*attribute));
        }
    };
    leave_out(traits.acls, &[ACL, ACLSUPPORT]);
    leave_out(traits.clone_block_bytes.is_some(), &[CLONE_BLKSIZE]);
    leave_out(delegated_times, &[TIME_DELEG_ACCESS, TIME_DELEG_MODIFY]);
    map
}

/// suppattr_exclcreat: attributes that EXCLUSIVE4_1 may set. The verifier is
/// kept in the time stamps, so these are left out (RFC 8881 §5.8.1.14); so is the
/// masked mode, which only SETATTR takes (§6.2.5).
#[must_use]
pub fn settable_at_exclusive_create(minor: u8, traits: &StoreTraits) -> Bitmap {
    let mut map = supported(minor, traits, false).intersection(&by_use(minor).settable);
    for attribute in [TIME_ACCESS_SET, TIME_MODIFY_SET, MODE_SET_MASKED] {
        map.clear(attribute);
    }
    map
}

/// True if `want` contains no attribute that can only be set.
#[must_use]
pub fn only_readable(want: &Bitmap, minor: u8) -> bool {
    want.intersection(&by_use(minor).write_only).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRAITS: StoreTraits = StoreTraits {
        persistent_handles: true,
        max_file_bytes: 0,
        max_links: 1,
        xattrs: true,
        acls: true,
        clone_block_bytes: Some(4096),
        chown_restricted: true,
        tells_files_apart: true,
    };

    #[test]
    fn each_attribute_is_used_as_its_row_says() {
        for minor in 0..=MAX_MINOR {
            for (attribute, since, used) in ATTRS {
                let expected = (*since <= minor).then_some(*used);
                assert_eq!(usage(*attribute, minor), expected, "{attribute} in {minor}");
                let is_read = expected != Some(Write);
                assert_eq!(only_readable(&Bitmap::of(&[*attribute]), minor), is_read);
            }
            for unknown in [14, 25, 95, 96, 1000] {
                assert_eq!(usage(unknown, minor), None);
            }
        }
        assert!(ATTRS.iter().all(|(_, since, _)| *since <= MAX_MINOR));
    }

    #[test]
    fn what_a_file_system_lacks_is_not_supported() {
        let all = supported(2, &TRAITS, true);
        assert!(ATTRS.iter().all(|(attribute, _, _)| all.contains(*attribute)));
        assert_eq!(all.iter().count(), ATTRS.len());
        let lacking = StoreTraits { acls: false, clone_block_bytes: None, ..TRAITS };
        let few = supported(2, &lacking, false);
        let left_out = [ACL, ACLSUPPORT, CLONE_BLKSIZE, TIME_DELEG_ACCESS, TIME_DELEG_MODIFY];
        let mut expected = all.clone();
        left_out.iter().for_each(|attribute| expected.clear(*attribute));
        assert_eq!(few, expected);
        let at_create = settable_at_exclusive_create(2, &lacking);
        let expected = [SIZE, MODE, OWNER, OWNER_GROUP, TIME_CREATE, MODE_UMASK];
        assert_eq!(at_create, Bitmap::of(&expected));
        assert!(settable_at_exclusive_create(2, &TRAITS).contains(ACL));
    }
}
