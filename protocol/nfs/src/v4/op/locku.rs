//! LOCKU (RFC 8881 §18.12).

use super::Rule;
use crate::limits::MAX_RANGES_PER_FILE;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use crate::v4::request::sequenced::sequenced;
use crate::v4::tables::StateKind;
use crate::v4::tables::ranges::Range;
use zgate_nfs_wire::v4::op::Locku;
use zgate_nfs_wire::v4::op::locku::{Args, Res};
use zgate_nfs_wire::v4::{Stateid, Status};

impl Rule for Locku {
    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<Res, Failure> {
        cx.current()?;
        let stateid = cx.resolve_stateid(args.stateid)?;
        let result = sequenced(cx, stateid, args.seqid, async |cx: &mut Cx<'_>| {
            unlock(cx, &args, stateid).map_err(Failure::from)
        })
        .await?;
        cx.current_stateid = Some(result.stateid);
        Ok(result)
    }
}

fn unlock(cx: &Cx<'_>, args: &Args, stateid: Stateid) -> Result<Res, Status> {
    let file = cx.object(Status::BadStateid)?.file_key();
    let range = Range::new(args.offset, args.length).ok_or(Status::Inval)?;
    let state = &cx.server.state;
    let mut tables = state.lock();
    let (key, kind) = state.find_state(&tables, cx.requester(), stateid, Some(&file))?;
    if kind != StateKind::Lock {
        return Err(Status::BadStateid);
    }
    let owner = tables.locks.get(&key).map(|lock| lock.owner.clone()).ok_or(Status::BadStateid)?;
    if let Some(record) = tables.files.get_mut(&file.id) {
        if record.ranges.len() >= MAX_RANGES_PER_FILE && record.ranges.splits(&range, &owner) {
            return Err(if cx.minor == 0 { Status::Resource } else { Status::Delay });
        }
        record.ranges.clear(&range, &owner);
    }
    tables.count_ranges(key);
    state.wake_waiters(&mut tables, &file.id);
    super::lock::bump(state, &mut tables, key).map(|stateid| Res { stateid })
}
