//! CLOSE (RFC 8881 §18.2, RFC 7530 §16.2).

use super::Rule;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use crate::v4::request::sequenced::sequenced;
use crate::v4::tables::StateKind;
use std::sync::Arc;
use zgate_nfs_wire::v4::op::Close;
use zgate_nfs_wire::v4::op::close::{Args, Res};
use zgate_nfs_wire::v4::{Stateid, Status};

impl Rule for Close {
    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<Res, Failure> {
        cx.current()?;
        let stateid = cx.resolve_stateid(args.stateid)?;
        let result = sequenced(cx, stateid, args.seqid, async |cx: &mut Cx<'_>| {
            close(cx, stateid).map_err(Failure::from)
        })
        .await?;
        if cx.minor > 0 {
            cx.current_stateid = Some(Stateid::INVALID);
        }
        Ok(result)
    }
}

fn close(cx: &Cx<'_>, stateid: Stateid) -> Result<Res, Status> {
    let file = cx.object(Status::BadStateid)?.file_key();
    let state = &cx.server.state;
    let now = cx.now.seconds();
    let mut tables = state.lock();
    let (key, kind) = state.find_state(&tables, cx.requester(), stateid, Some(&file))?;
    if kind != StateKind::Open {
        return Err(Status::BadStateid);
    }
    let open = tables.opens.get(&key).ok_or(Status::BadStateid)?;
    let (client, owner, seqid) = (open.client, Arc::clone(&open.owner), open.seqid);
    // Locks under the open are released with it (RFC 8881 §18.2.3 leaves the
    // choice to the server; clients that care unlock first), but those of an owner that
    // has locked under another open, too.
    state.remove_open(&mut tables, key, now);
    state.wake_waiters(&mut tables, &file.id);
    if let Some(record) = tables.clients.get_mut(&client) {
        if cx.minor == 0 {
            if let Some(entry) = record.open_owners.get_mut(&owner) {
                let before = entry.last_closed.replace(key);
                entry.idle = false;
                if let Some(before) = before {
                    tables.last_closed.remove(&before);
                }
                tables.last_closed.insert(key, (client, owner));
            }
        } else if record.open_owners.get(&owner).is_some_and(|o| o.opens.is_empty()) {
            record.open_owners.remove(&owner);
        }
    }
    // Minor version 1 returns the invalid stateid, so that it is not used any
    // more (RFC 8881 §18.2.4).
    let next = crate::v4::state::open::next_seqid(seqid);
    Ok(Res { stateid: if cx.minor == 0 { key.stateid(next) } else { Stateid::INVALID } })
}
