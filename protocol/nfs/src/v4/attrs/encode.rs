//! Writes attributes in the order of their numbers.

use super::table::{settable_at_exclusive_create, supported};
use super::values::AttributeValues;
use super::{acl, locations};
use crate::v4::request::{Current, Cx};
use zgate_nfs_wire::v4::attr::*;
use zgate_nfs_wire::v4::{Bitmap, Fattr, NfsTime, Status};
use zgate_store::{Attr, FileKind};
use zgate_xdr::{Encode, Encoder, Opaque};

/// Bytes of the attributes that clients usually ask for.
const USUAL_BYTES: usize = 256;

/// Encodes the supported attributes of `want` for `current`.
///
/// # Errors
/// Errors of the store.
pub async fn encode_attrs(cx: &Cx<'_>, current: &Current, want: &Bitmap) -> Result<Fattr, Status> {
    encode_known(cx, current, None, want).await
}

/// Like [`encode_attrs`], with attributes that are already known.
///
/// # Errors
/// Errors of the store.
pub async fn encode_known(
    cx: &Cx<'_>,
    current: &Current,
    known: Option<Attr>,
    want: &Bitmap,
) -> Result<Fattr, Status> {
    let values = AttributeValues::gather(cx, current, known, want).await?;
    let asked = want.intersection(&supported(cx.minor, &values.traits, values.delegated_times()));
    let mut e = Encoder::with_capacity(USUAL_BYTES);
    let mut mask = asked.clone();
    for attribute in asked.iter() {
        if !write_one(cx, &values, attribute, &mut e) {
            mask.clear(attribute);
        }
    }
    Ok(Fattr { mask, values: Opaque(e.into_vec().unwrap_or_default()) })
}

/// READDIR's answer for an entry whose attributes are not available.
#[must_use]
pub fn encode_error(status: Status) -> Fattr {
    let values = (status as u32).to_be_bytes().to_vec();
    Fattr { mask: Bitmap::of(&[RDATTR_ERROR]), values: Opaque(values) }
}

fn kind_number(kind: FileKind) -> u32 {
    match kind {
        FileKind::Regular => 1,
        FileKind::Directory => 2,
        FileKind::BlockDevice => 3,
        FileKind::CharDevice => 4,
        FileKind::Symlink => 5,
        FileKind::Socket => 6,
        FileKind::Fifo => 7,
    }
}

/// Writes an attribute; false if the object does not have it.
pub(super) fn write_one(
    cx: &Cx<'_>,
    values: &AttributeValues,
    attribute: u32,
    e: &mut Encoder,
) -> bool {
    let attr = &values.attr;
    match attribute {
        SUPPORTED_ATTRS => supported(cx.minor, &values.traits, values.delegated_times()).encode(e),
        SUPPATTR_EXCLCREAT => settable_at_exclusive_create(cx.minor, &values.traits).encode(e),
        TYPE => e.u32(kind_number(attr.kind)),
        // FH4_PERSISTENT is 0; FH4_VOLATILE_ANY is 2 (RFC 8881 §4.2.3).
        FH_EXPIRE_TYPE => e.u32(if values.traits.persistent_handles { 0 } else { 2 }),
        CHANGE => e.u64(attr.change),
        SIZE => e.u64(attr.size),
        LINK_SUPPORT | SYMLINK_SUPPORT | UNIQUE_HANDLES | CANSETTIME | CASE_PRESERVING
        | HOMOGENEOUS | NO_TRUNC => e.u32(1),
        NAMED_ATTR => e.u32(0),
        CASE_INSENSITIVE => values.space.case_insensitive.encode(e),
        CHOWN_RESTRICTED => values.traits.chown_restricted.encode(e),
        XATTR_SUPPORT => values.traits.xattrs.encode(e),
        FSID => {
            e.u64(attr.fsid.major);
            e.u64(attr.fsid.minor);
        }
        LEASE_TIME => e.u32(cx.server.options.lease_seconds),
        RDATTR_ERROR => e.u32(0),
        ACL => match &values.acl {
            Some(posix) => e.array(&acl::from_posix(posix, attr, &values.names)),
            None => return false,
        },
        // ACL4_SUPPORT_ALLOW_ACL and DENY_ACL.
        ACLSUPPORT => e.u32(3),
        FILEHANDLE => values.fh.encode(e),
        FILEID => e.u64(attr.fileid),
        MOUNTED_ON_FILEID => e.u64(attr.mounted_on_fileid),
        FS_LOCATIONS => {
            let path = values.export.as_ref().map_or("", |export| export.pseudo_path.as_str());
            locations::write(path, cx.server.options.addresses.of(cx.call.peer.rdma), e);
        }
        MODE => e.u32(attr.mode & 0o7777),
        NUMLINKS => e.u32(attr.nlink),
        OWNER => write_principal(values.owner.as_deref(), attr.uid, e),
        OWNER_GROUP => write_principal(values.owner_group.as_deref(), attr.gid, e),
        RAWDEV => {
            e.u32(attr.rdev.0);
            e.u32(attr.rdev.1);
        }
        TIME_ACCESS => NfsTime::from(attr.atime).encode(e),
        TIME_MODIFY => NfsTime::from(attr.mtime).encode(e),
        TIME_METADATA => NfsTime::from(attr.ctime).encode(e),
        TIME_CREATE => match attr.btime {
            Some(time) => NfsTime::from(time).encode(e),
            None => return false,
        },
        TIME_DELTA => NfsTime { seconds: 0, nanoseconds: 1 }.encode(e),
        CLONE_BLKSIZE => e.u32(values.traits.clone_block_bytes.unwrap_or(0)),
        // NFS4_CHANGE_TYPE_IS_MONOTONIC_INCR (RFC 7862 §12.2.3).
        CHANGE_ATTR_TYPE => e.u32(0),
        OPEN_ARGUMENTS => write_open_arguments(values.delegated_times(), e),
        _ => return write_limit(values, attribute, e),
    }
    true
}

/// Writes a principal by its name, if it has one.
fn write_principal(name: Option<&str>, id: u32, e: &mut Encoder) {
    match name {
        Some(name) => e.opaque(name.as_bytes()),
        None => write_id(id, e),
    }
}

/// Writes a uid or gid as a decimal string (RFC 8881 §5.9).
fn write_id(id: u32, e: &mut Encoder) {
    // u32::MAX has ten digits.
    let mut digits = [0; 10];
    let (mut first, mut rest) = (digits.len(), id);
    loop {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    e.opaque(&digits[first..]);
}

/// Space and limits.
fn write_limit(values: &AttributeValues, attribute: u32, e: &mut Encoder) -> bool {
    let space = &values.space;
    let transfer =
        values.export.as_ref().map_or(1 << 20, |export| u64::from(export.max_transfer_bytes));
    match attribute {
        FILES_AVAIL => e.u64(space.available_files),
        FILES_FREE => e.u64(space.free_files),
        FILES_TOTAL => e.u64(space.total_files),
        MAXFILESIZE => e.u64(values.traits.max_file_bytes),
        MAXLINK => e.u32(values.traits.max_links),
        MAXNAME => e.u32(space.max_name_bytes),
        MAXREAD | MAXWRITE => e.u64(transfer),
        QUOTA_AVAIL_HARD | QUOTA_AVAIL_SOFT | SPACE_AVAIL => e.u64(space.available_bytes),
        QUOTA_USED => e.u64(space.total_bytes.saturating_sub(space.free_bytes)),
        SPACE_FREE => e.u64(space.free_bytes),
        SPACE_TOTAL => e.u64(space.total_bytes),
        SPACE_USED => e.u64(values.attr.used_bytes),
        _ => return false,
    }
    true
}

/// open_arguments4 (RFC 9754 §3): supported arguments of OPEN.
fn write_open_arguments(delegated_times: bool, e: &mut Encoder) {
    Bitmap::of(&[1, 2, 3]).encode(e);
    Bitmap::of(&[0, 1, 2, 3]).encode(e);
    // ANY_DELEG, NO_DELEG, CANCEL, DELEG_TIMESTAMPS.
    let wants: &[u32] = if delegated_times { &[3, 4, 5, 20] } else { &[3, 4, 5] };
    Bitmap::of(wants).encode(e);
    // NULL, PREVIOUS, DELEGATE_CUR, FH, DELEG_CUR_FH.
    Bitmap::of(&[0, 1, 2, 4, 5]).encode(e);
    Bitmap::of(&[0, 1, 2, 3]).encode(e);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_decimal_strings() {
        for id in [0, 7, 10, 65_534, 1_000_000, u32::MAX] {
            let (mut e, mut expected) = (Encoder::new(), Encoder::new());
            write_id(id, &mut e);
            expected.opaque(id.to_string().as_bytes());
            assert_eq!(e.finish().flatten(), expected.finish().flatten());
        }
    }
}
