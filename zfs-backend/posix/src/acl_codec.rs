//! POSIX ACLs in the kernel's format of `system.posix_acl_access` and
//! `system.posix_acl_default`: a little-endian version word, then entries of
//! tag u16, permissions u16, id u32 (linux/posix_acl_xattr.h).

use zgate_store::file_store::{PosixAclEntry, PosixAclTag};
use zgate_store::{StoreError, StoreResult};

const VERSION: u32 = 2;
/// Id of entries without a qualifier.
const NO_ID: u32 = u32::MAX;
/// Most entries accepted; more than any file system stores.
const MAX_ACL_ENTRIES: usize = 8192;

const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// Decodes the kernel's format.
pub(crate) fn decode(raw: &[u8]) -> StoreResult<Vec<PosixAclEntry>> {
    let (version, rest) = raw.split_first_chunk::<4>().ok_or(StoreError::Io)?;
    let (entries, tail) = rest.as_chunks::<8>();
    if u32::from_le_bytes(*version) != VERSION || !tail.is_empty() {
        return Err(StoreError::Io);
    }
    entries.iter().map(decode_entry).collect()
}

fn decode_entry(raw: &[u8; 8]) -> StoreResult<PosixAclEntry> {
    let [t0, t1, p0, p1, i0, i1, i2, i3] = *raw;
    let id = u32::from_le_bytes([i0, i1, i2, i3]);
    let tag = match u16::from_le_bytes([t0, t1]) {
        USER_OBJ => PosixAclTag::UserObj,
        USER => PosixAclTag::User(id),
        GROUP_OBJ => PosixAclTag::GroupObj,
        GROUP => PosixAclTag::Group(id),
        MASK => PosixAclTag::Mask,
        OTHER => PosixAclTag::Other,
        _ => return Err(StoreError::Io),
    };
    Ok(PosixAclEntry { tag, perms: (u16::from_le_bytes([p0, p1]) & 7) as u8 })
}

/// Encodes to the kernel's format, in canonical order.
pub(crate) fn encode(entries: &[PosixAclEntry]) -> StoreResult<Vec<u8>> {
    if entries.len() > MAX_ACL_ENTRIES {
        return Err(StoreError::NoSpace);
    }
    let mut sorted = entries.to_vec();
    sorted.sort_by_key(|entry| entry.tag);
    let mut raw = Vec::with_capacity(4 + 8 * sorted.len());
    raw.extend_from_slice(&VERSION.to_le_bytes());
    for entry in sorted {
        let (tag, id) = match entry.tag {
            PosixAclTag::UserObj => (USER_OBJ, NO_ID),
            PosixAclTag::User(id) => (USER, id),
            PosixAclTag::GroupObj => (GROUP_OBJ, NO_ID),
            PosixAclTag::Group(id) => (GROUP, id),
            PosixAclTag::Mask => (MASK, NO_ID),
            PosixAclTag::Other => (OTHER, NO_ID),
        };
        if entry.perms > 7 {
            return Err(StoreError::Invalid);
        }
        raw.extend_from_slice(&tag.to_le_bytes());
        raw.extend_from_slice(&u16::from(entry.perms).to_le_bytes());
        raw.extend_from_slice(&id.to_le_bytes());
    }
    Ok(raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_bytes_round_trip() {
        let entries = vec![
            PosixAclEntry { tag: PosixAclTag::UserObj, perms: 7 },
            PosixAclEntry { tag: PosixAclTag::User(1000), perms: 5 },
            PosixAclEntry { tag: PosixAclTag::GroupObj, perms: 4 },
            PosixAclEntry { tag: PosixAclTag::Group(77), perms: 6 },
            PosixAclEntry { tag: PosixAclTag::Mask, perms: 7 },
            PosixAclEntry { tag: PosixAclTag::Other, perms: 0 },
        ];
        let raw = encode(&entries).unwrap();
        assert_eq!(raw[..12], [2, 0, 0, 0, 1, 0, 7, 0, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(decode(&raw).unwrap(), entries);
        let mut shuffled = entries.clone();
        shuffled.reverse();
        assert_eq!(encode(&shuffled).unwrap(), raw);
    }

    #[test]
    fn broken_bytes_are_refused() {
        for raw in [
            &[][..],
            &[2, 0, 0],
            &[1, 0, 0, 0],
            &[2, 0, 0, 0, 1],
            &[2, 0, 0, 0, 9, 9, 0, 0, 0, 0, 0, 0],
        ] {
            assert_eq!(decode(raw), Err(StoreError::Io));
        }
        let wide = [PosixAclEntry { tag: PosixAclTag::Other, perms: 8 }];
        assert_eq!(encode(&wide), Err(StoreError::Invalid));
    }
}
