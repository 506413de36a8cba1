//! LOCKT (RFC 8881 §18.11): tests for a conflicting lock.

use super::Rule;
use super::lock::denied;
use crate::namespace::FileKey;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use crate::v4::state::State;
use crate::v4::tables::owner::{LockOwnerId, OwnerName};
use crate::v4::tables::ranges::Range;
use std::sync::Arc;
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::op::Lockt;
use zgate_nfs_wire::v4::op::lockt::Args;
use zgate_store::FileKind;

impl Rule for Lockt {
    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<(), Failure> {
        check_kind(cx).await?;
        let file = cx.object(Status::Isdir)?.file_key();
        let range = Range::new(args.offset, args.length).ok_or(Status::Inval)?;
        let state = &cx.server.state;
        let client = match cx.session_client() {
            Some(client) => client,
            None => {
                let (mut tables, now) = (state.lock(), cx.now.seconds());
                state.minor_zero_client(&mut tables, args.owner.clientid, now)?.id
            }
        };
        if state.grace.delays(cx.now.seconds()) {
            return Err(Status::Grace.into());
        }
        let name: OwnerName = Arc::from(args.owner.owner.0.as_slice());
        let owner = LockOwnerId { client, export: file.export, name };
        let attempt = || test(cx, &file, &range, args.kind.is_write(), &owner);
        state.when_settled(&file, attempt).await
    }
}

/// Tests whether the lock would be granted now.
fn test(
    cx: &Cx<'_>,
    file: &FileKey,
    range: &Range,
    write: bool,
    owner: &LockOwnerId,
) -> Result<(), Failure> {
    let state = &cx.server.state;
    let mut tables = state.lock();
    loop {
        let found = tables.files.get(&file.id);
        let held = found.and_then(|found| found.ranges.conflict(range, write, owner)).cloned();
        let Some(held) = held else { return Ok(State::check_settled(&mut tables, file)?) };
        if !state.give_up_if_expired(&mut tables, held.owner.client, cx.now.seconds()) {
            return Err(denied(&held));
        }
        State::check_removed(&tables, held.owner.client)?;
    }
}

/// Locks are for regular files (RFC 8881 §18.10.4).
pub(super) async fn check_kind(cx: &Cx<'_>) -> Result<(), Failure> {
    let object = cx.object(Status::Isdir)?;
    match object.export.store.getattr(&object.node).await?.kind {
        FileKind::Regular => Ok(()),
        FileKind::Directory => Err(Status::Isdir.into()),
        FileKind::Symlink if cx.minor > 0 => Err(Status::Symlink.into()),
        _ if cx.minor > 0 => Err(Status::WrongType.into()),
        _ => Err(Status::Inval.into()),
    }
}
