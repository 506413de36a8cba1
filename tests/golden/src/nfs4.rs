//! Arguments of COMPOUND (RFC 8881 §16.2).

use crate::rpc::{BadBody, Body};
use crate::{Again, again};
use zgate_nfs_wire::v4::OpNum;
use zgate_nfs_wire::v4::op::*;
use zgate_xdr::{Decoder, Encoder, Opaque, XdrError};

/// NULL, which is a procedure and no operation.
const NULL: &str = "NULL";

/// An operation.
struct Row {
    num: OpNum,
    arguments: Again,
}

macro_rules! rows {
    ($($op:ident)*) => {
        &[$(Row { num: $op::NUM, arguments: again::<<$op as Operation>::Args> },)*]
    };
}

static ROWS: &[Row] = rows! {
    Access Close Commit Create Delegpurge Delegreturn
    Getattr Getfh Link Lock Lockt Locku
    Lookup Lookupp Nverify Open Openattr OpenConfirm
    OpenDowngrade Putfh Putpubfh Putrootfh Read Readdir
    Readlink Remove Rename Renew Restorefh Savefh
    Secinfo Setattr Setclientid SetclientidConfirm Verify Write
    ReleaseLockowner BackchannelCtl BindConnToSession ExchangeId CreateSession DestroySession
    FreeStateid SecinfoNoName Sequence TestStateid DestroyClientid ReclaimComplete
    Allocate Copy CopyNotify Deallocate IoAdvise Layouterror
    Layoutstats Layoutget Layoutreturn OffloadCancel OffloadStatus ReadPlus
    Seek WriteSame Clone Getxattr Setxattr Listxattrs
    Removexattr
};

/// All operations, and NULL.
pub(crate) fn names() -> Vec<&'static str> {
    std::iter::once(NULL).chain(ROWS.iter().map(|row| row.num.name())).collect()
}

fn operation(d: &mut Decoder<'_>, e: &mut Encoder) -> Result<&'static Row, BadBody> {
    let number = d.u32()?;
    e.u32(number);
    ROWS.iter()
        .find(|row| row.num as u32 == number)
        .ok_or(BadBody("an operation number", XdrError::BadValue))
}

/// COMPOUND4args, or nothing for NULL.
pub(crate) fn arguments(
    procedure: u32,
    d: &mut Decoder<'_>,
    e: &mut Encoder,
) -> Result<Body, BadBody> {
    if procedure == 0 {
        return Ok(Body { holds: vec![NULL], minor: None });
    }
    again::<Opaque<1024>>(d, e)?;
    let (minor, count) = (d.u32()?, d.u32()?);
    e.u32(minor);
    e.u32(count);
    let mut body = Body { holds: Vec::new(), minor: Some(minor) };
    for _ in 0..count {
        let row = operation(d, e)?;
        (row.arguments)(d, e).map_err(|error| BadBody(row.num.name(), error))?;
        body.holds.push(row.num.name());
    }
    Ok(body)
}
