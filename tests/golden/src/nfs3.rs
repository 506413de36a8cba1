//! Arguments of the NFSv3 procedures (RFC 1813 §3.3).

use crate::rpc::{BadBody, Body};
use crate::{Again, again};
use zgate_nfs_wire::v3::proc::*;
use zgate_xdr::{Decoder, Encoder, XdrError};

/// NULL, which has no arguments.
const NULL: &str = "NULL";

macro_rules! rows {
    ($($procedure:ident)*) => {
        &[$((
            $procedure::NUMBER,
            $procedure::NAME,
            again::<<$procedure as Procedure>::Args>,
        ),)*]
    };
}

/// Number, name and arguments.
static ROWS: &[(u32, &str, Again)] = rows! {
    GetAttr SetAttr Lookup Access ReadLink Read Write
    Create MkDir Symlink MkNod Remove RmDir Rename
    Link ReadDir ReadDirPlus FsStat FsInfo PathConf Commit
};

/// All procedures.
pub(crate) fn names() -> Vec<&'static str> {
    std::iter::once(NULL).chain(ROWS.iter().map(|(_, name, _)| *name)).collect()
}

/// The arguments of a procedure.
pub(crate) fn arguments(
    procedure: u32,
    d: &mut Decoder<'_>,
    e: &mut Encoder,
) -> Result<Body, BadBody> {
    if procedure == 0 {
        return Ok(Body { holds: vec![NULL], minor: None });
    }
    let row = ROWS.iter().find(|(number, ..)| *number == procedure);
    let (_, name, again) = row.ok_or(BadBody("a procedure number", XdrError::BadValue))?;
    again(d, e).map_err(|error| BadBody(name, error))?;
    Ok(Body { holds: vec![*name], minor: None })
}
