//! OPEN_DOWNGRADE (RFC 8881 §18.18).

use super::Rule;
use super::open::check_bits;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use crate::v4::request::sequenced::sequenced;
use crate::v4::tables::StateKind;
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::op::OpenDowngrade;
use zgate_nfs_wire::v4::op::open_downgrade::{Args, Res};

impl Rule for OpenDowngrade {
    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<Res, Failure> {
        cx.current()?;
        let stateid = cx.resolve_stateid(args.stateid)?;
        let result = sequenced(cx, stateid, args.seqid, async |cx: &mut Cx<'_>| {
            // WANT bits may be present and are ignored; others may not (RFC 8881 §18.18.3).
            check_bits(cx.minor, args.access, args.deny)?;
            let access = args.access & 3;
            let file = cx.object(Status::BadStateid)?.file_key();
            let state = &cx.server.state;
            let mut tables = state.lock();
            let (key, kind) = state.find_state(&tables, cx.requester(), stateid, Some(&file))?;
            if kind != StateKind::Open {
                return Err(Status::BadStateid.into());
            }
            let stateid = state.downgrade_open(&mut tables, key, access, args.deny)?;
            Ok(Res { stateid })
        })
        .await?;
        cx.current_stateid = Some(result.stateid);
        Ok(result)
    }
}
