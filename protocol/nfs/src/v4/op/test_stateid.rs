//! TEST_STATEID (RFC 8881 §18.48).

use super::{Failure, Operation};
use crate::limits::MAX_TEST_STATEIDS;
use crate::v4::cx::Cx;
use crate::v4::state::file::{check_seqid, is_special};
use crate::v4::state::ids::StateKey;
use crate::v4::wire::{OpNum, Stateid, Status};
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

/// The operation.
pub struct TestStateid;

impl Operation for TestStateid {
    const NUM: OpNum = OpNum::TestStateid;
    type Args = Args;
    type Res = Res;

    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<Res, Failure> {
        let id = cx.session_client().ok_or(Status::OpNotInSession)?;
        let tables = cx.server.state.lock();
        let judge = |stateid: &Stateid| {
            if is_special(*stateid) {
                return Status::BadStateid;
            }
            match tables.find(StateKey::from(*stateid)) {
                Some((_, owner, seqid)) if owner == id => {
                    check_seqid(cx.minor, stateid.seqid, seqid).err().unwrap_or(Status::Ok)
                }
                Some(_) => Status::BadStateid,
                None => cx.server.state.why_unknown(&tables, cx, *stateid),
            }
        };
        Ok(Res { statuses: args.stateids.iter().map(judge).collect() })
    }
}
