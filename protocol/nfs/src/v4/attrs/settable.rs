//! Reads attributes that are to be set.

use super::acl::{self, Ace};
use super::table::{Use, usage};
use crate::limits::MAX_PRINCIPAL_BYTES;
use crate::namespace::Object;
use zgate_nfs_wire::v4::attr::*;
use zgate_nfs_wire::v4::{Bitmap, Fattr, NfsTime, Status};
use zgate_store::{SetAttr, SetTime, Timestamp};
use zgate_xdr::{Decode, Decoder};

/// Attributes to set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settable {
    /// Attributes for the store.
    pub set: SetAttr,
    /// An ACL to set.
    pub acl: Option<Vec<Ace>>,
    /// Mode bits to set under a mask: (value, mask) (RFC 8881 §6.2.5).
    pub masked_mode: Option<(u32, u32)>,
    /// All requested attributes.
    pub applied: Bitmap,
}

/// A numeric id, as a bare number or with a domain.
///
/// # Errors
/// [`Status::Inval`] for empty or invalid text, [`Status::Badowner`].
pub fn parse_id(text: &[u8]) -> Result<u32, Status> {
    let text = std::str::from_utf8(text).map_err(|_| Status::Inval)?;
    if text.is_empty() {
        return Err(Status::Inval);
    }
    let number = text.split_once('@').map_or(text, |(user, _)| user);
    match number.parse::<u32>() {
        Ok(id) => Ok(id),
        Err(_) => match number {
            "root" => Ok(0),
            "nobody" => Ok(65_534),
            _ => Err(Status::Badowner),
        },
    }
}

fn time(d: &mut Decoder<'_>) -> Result<Timestamp, Status> {
    let time = NfsTime::decode(d)?;
    if time.nanoseconds >= 1_000_000_000 {
        return Err(Status::Inval);
    }
    Ok(Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds })
}

fn set_time(d: &mut Decoder<'_>) -> Result<SetTime, Status> {
    match d.u32()? {
        0 => Ok(SetTime::Now),
        1 => time(d).map(SetTime::At),
        _ => Err(Status::Badxdr),
    }
}

fn mode(bits: u32) -> Result<u32, Status> {
    if bits & !0o7777 == 0 { Ok(bits) } else { Err(Status::Inval) }
}

/// Decodes the attributes (RFC 8881 §18.30.3).
///
/// # Errors
/// [`Status::Attrnotsupp`] for unknown attributes, [`Status::Inval`] for
/// read-only ones and invalid values, [`Status::Badxdr`], [`Status::Badowner`].
pub fn parse(attrs: &Fattr, minor: u8) -> Result<Settable, Status> {
    let mut d = Decoder::new(&attrs.values.0);
    let mut out = Settable { applied: attrs.mask.clone(), ..Settable::default() };
    for attribute in attrs.mask.iter() {
        match usage(attribute, minor) {
            None => return Err(Status::Attrnotsupp),
            Some(Use::Read) => return Err(Status::Inval),
            Some(Use::Write | Use::Both) => {}
        }
    }
    for attribute in attrs.mask.iter() {
        match attribute {
            SIZE => out.set.size = Some(d.u64()?),
            ACL => out.acl = Some(acl::decode(&mut d)?),
            MODE => out.set.mode = Some(mode(d.u32()?)?),
            OWNER => out.set.uid = Some(parse_id(d.opaque(MAX_PRINCIPAL_BYTES)?)?),
            OWNER_GROUP => out.set.gid = Some(parse_id(d.opaque(MAX_PRINCIPAL_BYTES)?)?),
            TIME_ACCESS_SET => out.set.atime = Some(set_time(&mut d)?),
            TIME_MODIFY_SET => out.set.mtime = Some(set_time(&mut d)?),
            TIME_CREATE => out.set.btime = Some(time(&mut d)?),
            TIME_DELEG_ACCESS => out.set.atime = Some(SetTime::At(time(&mut d)?)),
            TIME_DELEG_MODIFY => out.set.mtime = Some(SetTime::At(time(&mut d)?)),
            MODE_SET_MASKED => out.masked_mode = Some((mode(d.u32()?)?, mode(d.u32()?)?)),
            MODE_UMASK => {
                let (wanted, umask) = (mode(d.u32()?)?, d.u32()?);
                out.set.mode = Some(wanted & !(umask & 0o777));
            }
            _ => return Err(Status::Attrnotsupp),
        }
    }
    d.finish()?;
    if out.masked_mode.is_some() && out.set.mode.is_some() {
        return Err(Status::Inval);
    }
    Ok(out)
}

/// Sets the requested ACL, if any.
///
/// # Errors
/// Errors of the mapping and of the store.
pub async fn apply_acl(object: &Object, settable: &Settable) -> Result<(), Status> {
    let Some(aces) = &settable.acl else { return Ok(()) };
    let posix = acl::to_posix(aces)?;
    object.export.store.set_acl(object.who(), &object.node, &posix).await.map_err(|error| {
        match error {
            zgate_store::StoreError::NotSupported => Status::Attrnotsupp,
            other => other.into(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use zgate_xdr::Opaque;

    fn fattr(bits: &[u32], values: &[u8]) -> Fattr {
        Fattr { mask: Bitmap::of(bits), values: Opaque(values.to_vec()) }
    }

    #[test]
    fn what_may_not_be_set_is_refused() {
        assert_eq!(parse(&fattr(&[FSID], &[0; 16]), 0), Err(Status::Inval));
        assert_eq!(parse(&fattr(&[14], &[0; 4]), 0), Err(Status::Attrnotsupp));
        assert_eq!(parse(&fattr(&[MODE], &[0, 0, 0, 1, 9, 9, 9, 9]), 0), Err(Status::Badxdr));
        assert_eq!(parse(&fattr(&[MODE], &[0, 1, 0, 0]), 0), Err(Status::Inval));
        assert_eq!(parse(&fattr(&[MODE_SET_MASKED], &[0; 8]), 0), Err(Status::Attrnotsupp));
        assert_eq!(parse(&fattr(&[SIZE], &[0; 8]), 0).unwrap().set.size, Some(0));
    }

    #[test]
    fn owners_are_numbers() {
        assert_eq!(parse_id(b"1000"), Ok(1000));
        assert_eq!(parse_id(b"1000@example.org"), Ok(1000));
        assert_eq!(parse_id(b"somebody@example.org"), Err(Status::Badowner));
        assert_eq!(parse_id(b""), Err(Status::Inval));
    }
}
