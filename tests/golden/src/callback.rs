//! Results of CB_COMPOUND (RFC 8881 §20): clients send them.

use crate::rpc::{BadBody, Body};
use zgate_nfs_wire::v4::callback::{CallbackNum, Reply};
use zgate_xdr::{Decode, Decoder, Encode, Encoder, XdrError};

/// CB_NULL, which is a procedure, not an operation.
const NULL: &str = "CB_NULL";
/// The operations that this server sends.
const SENT: [CallbackNum; 5] = [
    CallbackNum::Sequence,
    CallbackNum::Getattr,
    CallbackNum::Recall,
    CallbackNum::NotifyLock,
    CallbackNum::Offload,
];

/// All operations that this server sends, and CB_NULL.
pub(crate) fn names() -> Vec<&'static str> {
    std::iter::once(NULL).chain(SENT.iter().map(|num| num.name())).collect()
}

/// CB_COMPOUND4res; empty for CB_NULL.
pub(crate) fn results(d: &mut Decoder<'_>, e: &mut Encoder) -> Result<Body, BadBody> {
    if d.remaining() == 0 {
        return Ok(Body { holds: vec![NULL], minor: None });
    }
    let reply = Reply::decode(d)?;
    reply.encode(e);
    let names = reply.results.iter().map(|result| {
        let num = CallbackNum::from_u32(result.num);
        num.map(CallbackNum::name).ok_or(BadBody("an operation number", XdrError::BadValue))
    });
    Ok(Body { holds: names.collect::<Result<_, _>>()?, minor: None })
}
