//! What the server has taken away: found by TEST_STATEID, acknowledged by
//! FREE_STATEID (RFC 8881 §8.3, §18.38, §18.48).

use crate::channel::Channel;
use crate::compound::Ops;
use crate::errand::{Way, free};
use crate::error::ClientError;
use crate::open_state::OpenState;
use std::sync::Arc;
use zgate_nfs::v4::op::test_stateid;
use zgate_nfs::v4::wire::{OpNum, Stateid, Status};

/// Asked about at a time.
const AT_ONCE: usize = 64;

/// Finds out what is gone and acknowledges that. Files are opened again when
/// they are next used; a delegation is not asked for again.
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
                tracing::info!(status = status.name(), "the server has taken something away");
                free(&Way::Channel(channel), *stateid).await?;
                open.forget(*stateid);
            }
        }
    }
    Ok(())
}
