//! Arguments of MOUNT (RFC 1813 §5.2).

use crate::again;
use crate::rpc::{BadBody, Body};
use zgate_nfs_wire::mount::DirPath;
use zgate_xdr::{Decoder, Encoder, XdrError};

const NAMES: [&str; 6] = ["NULL", "MNT", "DUMP", "UMNT", "UMNTALL", "EXPORT"];

/// All procedures.
pub(crate) fn names() -> Vec<&'static str> {
    NAMES.to_vec()
}

/// The arguments of a procedure: a path for MNT and UMNT.
pub(crate) fn arguments(
    procedure: u32,
    d: &mut Decoder<'_>,
    e: &mut Encoder,
) -> Result<Body, BadBody> {
    let unknown = BadBody("a procedure number", XdrError::BadValue);
    let name = NAMES.get(procedure as usize).copied().ok_or(unknown)?;
    if matches!(name, "MNT" | "UMNT") {
        again::<DirPath>(d, e).map_err(|error| BadBody(name, error))?;
    }
    Ok(Body { holds: vec![name], minor: None })
}
