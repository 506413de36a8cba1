//! CB_COMPOUND (RFC 8881 §20): servers send its arguments, clients its results.

use crate::rpc::{BadBody, Body};
use zgate_nfs_wire::v4::callback::{CB_NULL, CallHead, CallbackNum, CallbackOp, Reply};
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

/// The operations whose arguments our codec reads.
const READ: [CallbackNum; 6] = [
    CallbackNum::Sequence,
    CallbackNum::Getattr,
    CallbackNum::Recall,
    CallbackNum::RecallAny,
    CallbackNum::NotifyLock,
    CallbackNum::Offload,
];

/// All operations whose arguments our codec reads, and CB_NULL.
pub(crate) fn call_names() -> Vec<&'static str> {
    std::iter::once(NULL).chain(READ.iter().map(|num| num.name())).collect()
}

/// CB_COMPOUND4args, or nothing for CB_NULL.
pub(crate) fn arguments(
    procedure: u32,
    d: &mut Decoder<'_>,
    e: &mut Encoder,
) -> Result<Body, BadBody> {
    if procedure == CB_NULL {
        return Ok(Body { holds: vec![NULL], minor: None });
    }
    let head = CallHead::decode(d)?;
    head.encode(e);
    let mut body = Body { holds: Vec::new(), minor: Some(head.minor) };
    for _ in 0..head.count {
        let num = CallbackNum::decode(d)?;
        if !READ.contains(&num) {
            return Err(BadBody(num.name(), XdrError::BadValue));
        }
        let op = CallbackOp::decode_args(num, d).map_err(|error| BadBody(num.name(), error))?;
        op.encode(e);
        body.holds.push(num.name());
    }
    Ok(body)
}

/// All operations that this server sends, and CB_NULL.
pub(crate) fn reply_names() -> Vec<&'static str> {
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
