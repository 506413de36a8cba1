//! RPC headers of calls and replies.

use crate::{NotUnderstood, RoundTrip};
use zgate_rpc::CallHeader;
use zgate_rpc::message::{decode_reply, encode_success};
use zgate_xdr::{Decoder, Encode, Encoder, XdrError};

/// Contents of a message body.
#[derive(Debug, Default)]
pub(crate) struct Body {
    pub(crate) holds: Vec<&'static str>,
    pub(crate) minor: Option<u32>,
}

/// Decoding error of a body, with its operation.
#[derive(Debug)]
pub(crate) struct BadBody(pub(crate) &'static str, pub(crate) XdrError);

impl From<XdrError> for BadBody {
    fn from(error: XdrError) -> Self {
        Self("the body", error)
    }
}

/// Decodes a call; `arguments` decodes the arguments of the procedure it is
/// passed.
pub(crate) fn call(
    message: &[u8],
    arguments: fn(u32, &mut Decoder<'_>, &mut Encoder) -> Result<Body, BadBody>,
) -> Result<RoundTrip, NotUnderstood> {
    let (mut d, mut e) = (Decoder::new(message), Encoder::new());
    let header = CallHeader::decode(&mut d)
        .map_err(|error| NotUnderstood(format!("no call header: {error:?}")))?;
    header.encode(&mut e);
    finish(arguments(header.procedure, &mut d, &mut e), &d, e)
}

/// A successful reply.
pub(crate) fn reply(
    message: &[u8],
    results: fn(&mut Decoder<'_>, &mut Encoder) -> Result<Body, BadBody>,
) -> Result<RoundTrip, NotUnderstood> {
    let (mut d, mut e) = (Decoder::new(message), Encoder::new());
    let xid = decode_reply(&mut d)
        .map_err(|(_, error)| NotUnderstood(format!("no accepted reply: {error:?}")))?;
    encode_success(&mut e, xid);
    finish(results(&mut d, &mut e), &d, e)
}

fn finish(
    body: Result<Body, BadBody>,
    d: &Decoder<'_>,
    e: Encoder,
) -> Result<RoundTrip, NotUnderstood> {
    let body = body.map_err(|BadBody(of, error)| {
        NotUnderstood(format!("{of}, at byte {}: {error}", d.position()))
    })?;
    d.finish().map_err(|error| NotUnderstood(format!("behind the body: {error}")))?;
    let bytes = e.finish().flatten().map(|bytes| bytes.to_vec()).unwrap_or_default();
    Ok(RoundTrip { holds: body.holds, minor: body.minor, bytes })
}
