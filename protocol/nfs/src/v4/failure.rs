//! Failures of operations.

use zgate_nfs_wire::v4::Status;
use zgate_store::StoreError;
use zgate_xdr::{Encode, Encoder, XdrError};

/// Failure of an operation (or an already encoded answer, as for a replayed
/// operation).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The status.
    pub status: Status,
    /// Bytes after the status on the wire; empty for most operations.
    pub body: Vec<u8>,
}

impl Failure {
    /// A failure whose status is followed by a body.
    pub fn with_body(status: Status, body: &impl Encode) -> Self {
        let mut e = Encoder::new();
        body.encode(&mut e);
        let body = e.finish().flatten().map(|bytes| bytes.to_vec()).unwrap_or_default();
        Self { status, body }
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self { status, body: Vec::new() }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Status::from(error).into()
    }
}

impl From<XdrError> for Failure {
    fn from(error: XdrError) -> Self {
        Status::from(error).into()
    }
}
