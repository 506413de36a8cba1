//! OPEN_CONFIRM (RFC 7530 §16.18), minor version 0 only.

use super::Rule;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use crate::v4::request::sequenced::sequenced;
use crate::v4::state::open::next_seqid;
use crate::v4::tables::StateKind;
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::op::OpenConfirm;
use zgate_nfs_wire::v4::op::open_confirm::{Args, Res};

impl Rule for OpenConfirm {
    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<Res, Failure> {
        cx.current()?;
        sequenced(cx, args.stateid, args.seqid, async |cx: &mut Cx<'_>| {
            let file = cx.object(Status::BadStateid)?.file_key();
            let state = &cx.server.state;
            let mut tables = state.lock();
            let (key, kind) =
                state.find_state(&tables, cx.requester(), args.stateid, Some(&file))?;
            if kind != StateKind::Open {
                return Err(Status::BadStateid.into());
            }
            let tables = &mut *tables;
            let open = tables.opens.get_mut(&key).ok_or(Status::BadStateid)?;
            let owner = tables
                .clients
                .get_mut(&open.client)
                .and_then(|client| client.open_owners.get_mut(&open.owner))
                .ok_or(Status::BadStateid)?;
            if std::mem::replace(&mut owner.confirmed, true) {
                return Err(Status::BadStateid.into());
            }
            open.seqid = next_seqid(open.seqid);
            state.index.publish(key, open.seqid, &open.core);
            Ok(Res { stateid: key.stateid(open.seqid) })
        })
        .await
    }
}
