//! Revoked state: found by TEST_STATEID, acknowledged by FREE_STATEID (RFC 8881
//! §8.3, §18.38, §18.48).

use super::give_back::{CallPath, free};
use crate::channel::Channel;
use crate::compound::Ops;
use crate::error::ClientError;
use crate::state::open_state::OpenState;
use std::sync::Arc;
use zgate_nfs_wire::v4::op::test_stateid;
use zgate_nfs_wire::v4::{OpNum, Stateid, Status};

/// Number of stateids tested at a time.
const AT_ONCE: usize = 64;

/// Finds revoked state and acknowledges it. Files are opened again when they
/// are next used; a delegation is not requested again.
pub(crate) async fn acknowledge(channel: &Channel) -> Result<(), ClientError> {
    let held: Vec<(Arc<OpenState>, Stateid)> = channel
        .opens()
        .into_iter()
        .flat_map(|open| {
            let stateids = [open.known(), open.delegation()];
            stateids.into_iter().flatten().map(move |stateid| (Arc::clone(&open), stateid))
        })
        .collect();
    for some in held.chunks(AT_ONCE) {
        let stateids = some.iter().map(|(_, stateid)| *stateid).collect();
        let ops = Ops::new().op(OpNum::TestStateid, &test_stateid::Args { stateids });
        let said: test_stateid::Res = channel.call(ops, false).await?.next(OpNum::TestStateid)?;
        for ((open, stateid), status) in some.iter().zip(said.statuses) {
            if status != Status::Ok {
                tracing::info!(status = status.name(), "the server has revoked state");
                free(&CallPath::Channel(channel), *stateid).await?;
                open.forget(*stateid);
            }
        }
    }
    Ok(())
}
