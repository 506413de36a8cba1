//! VERIFY (RFC 8881 §18.31).

use super::Rule;
use crate::v4::attrs::table::{Use, usage};
use crate::v4::attrs::{acl, encode_attrs};
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use zgate_nfs_wire::limits::MAX_FH_BYTES;
use zgate_nfs_wire::v4::attr::*;
use zgate_nfs_wire::v4::op::Verify;
use zgate_nfs_wire::v4::{Bitmap, Fattr, Status};
use zgate_xdr::{Decode, Decoder};

impl Rule for Verify {
    async fn run(cx: &mut Cx<'_>, args: Fattr) -> Result<(), Failure> {
        if agrees(cx, &args).await? { Ok(()) } else { Err(Status::NotSame.into()) }
    }
}

/// True if the object's attributes equal the given ones.
///
/// # Errors
/// [`Status::Inval`] for attributes that can only be set, for rdattr_error and for a
/// mode that no object has, [`Status::Attrnotsupp`], errors of the store.
pub async fn agrees(cx: &Cx<'_>, args: &Fattr) -> Result<bool, Status> {
    let current = cx.current()?;
    for attribute in args.mask.iter() {
        match usage(attribute, cx.minor) {
            None => return Err(Status::Attrnotsupp),
            Some(Use::Write) => return Err(Status::Inval),
            Some(_) if attribute == RDATTR_ERROR => return Err(Status::Inval),
            Some(_) => {}
        }
    }
    if has_undefined_mode_bits(args) {
        return Err(Status::Inval);
    }
    let now = encode_attrs(cx, current, &args.mask).await?;
    if now.mask != args.mask {
        return Err(Status::Attrnotsupp);
    }
    Ok(now.values == args.values)
}

/// Returns whether the mode has bits beyond those of RFC 8881 §6.2.4. Values that do not
/// decode have none: they equal no others.
fn has_undefined_mode_bits(args: &Fattr) -> bool {
    if !args.mask.contains(MODE) {
        return false;
    }
    let mut d = Decoder::new(&args.values.0);
    let mut before = args.mask.iter().take_while(|attribute| *attribute < MODE);
    before.all(|attribute| skip(&mut d, attribute)) && d.u32().is_ok_and(|mode| mode & !0o7777 != 0)
}

/// Skips the value of an attribute that the table has before the mode; false if it does not
/// decode, or is that of fs_locations.
fn skip(d: &mut Decoder<'_>, attribute: u32) -> bool {
    let bytes = match attribute {
        SUPPORTED_ATTRS => return Bitmap::decode(d).is_ok(),
        ACL => return acl::decode(d).is_ok(),
        FILEHANDLE => return d.opaque(MAX_FH_BYTES).is_ok(),
        FS_LOCATIONS => return false,
        FSID => 16,
        CHANGE | SIZE | FILEID | FILES_AVAIL | FILES_FREE | FILES_TOTAL | MAXFILESIZE | MAXREAD
        | MAXWRITE => 8,
        _ => 4,
    };
    d.take(bytes).is_ok()
}
