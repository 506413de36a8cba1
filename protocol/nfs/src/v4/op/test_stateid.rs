//! TEST_STATEID (RFC 8881 §18.48).

use super::Rule;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use crate::v4::state::stateids::{check_seqid, is_special};
use crate::v4::tables::ids::StateKey;
use zgate_nfs_wire::v4::op::TestStateid;
use zgate_nfs_wire::v4::op::test_stateid::{Args, Res};
use zgate_nfs_wire::v4::{Stateid, Status};

impl Rule for TestStateid {
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
                None => cx.server.state.why_unknown(&tables, cx.requester(), *stateid),
            }
        };
        Ok(Res { statuses: args.stateids.iter().map(judge).collect() })
    }
}
