//! TEST_STATEID (RFC 8881 §18.48).

use crate::limits::MAX_TEST_STATEIDS;
use crate::v4::{Stateid, Status};
use zgate_xdr::{Decode, Decoder, Encode, Encoder, XdrError};

/// TEST_STATEID4args.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Args {
    /// ts_stateids.
    pub stateids: Vec<Stateid>,
}

impl Encode for Args {
    fn encode(&self, e: &mut Encoder) {
        e.array(&self.stateids);
    }
}

impl Decode for Args {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        d.array(MAX_TEST_STATEIDS).map(|stateids| Self { stateids })
    }
}

/// TEST_STATEID4resok.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Res {
    /// tsr_status_codes, one per stateid.
    pub statuses: Vec<Status>,
}

impl Encode for Res {
    fn encode(&self, e: &mut Encoder) {
        e.array(&self.statuses);
    }
}

impl Decode for Res {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        d.array(MAX_TEST_STATEIDS).map(|statuses| Self { statuses })
    }
}
