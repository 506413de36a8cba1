//! COPY (RFC 7862 §15.2) within the server.

mod job;

use super::Rule;
use crate::changes::ChangeGuard;
use crate::namespace::Object;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use crate::v4::request::io::{IoFile, open_for_change, open_for_io};
use crate::v4::state::shares::IoAccess;
use job::Job;
use zgate_nfs_wire::v4::op::Copy;
use zgate_nfs_wire::v4::op::copy::{Args, Res};
use zgate_nfs_wire::v4::{StableHow, Stateid, Status};
use zgate_store::FileKind;

/// Longest copy that is completed before the reply, in bytes; longer ones
/// continue after it if the client allows that.
const SYNCHRONOUS_BYTES: u64 = 64 << 20;

/// Opens both files of a COPY or CLONE of `count` bytes from `offset` of the first one on.
/// Returns the source, the target, its change, and the size of the source.
///
/// # Errors
/// The client's fault: [`Status::WrongType`], [`Status::Xdev`], or [`Status::Inval`] if the
/// range does not lie in the source. Those of [`open_for_io`], and the store's.
pub(super) async fn open_files(
    cx: &Cx<'_>,
    (from, to): (&Object, &Object),
    (from_stateid, to_stateid): (Stateid, Stateid),
    (offset, count): (u64, u64),
) -> Result<(IoFile, IoFile, ChangeGuard, u64), Status> {
    for object in [from, to] {
        // A directory is no exception (RFC 7862 §15.2.3, §15.13.3).
        if object.export.store.getattr(&object.node).await?.kind != FileKind::Regular {
            return Err(Status::WrongType);
        }
    }
    let source = open_for_io(cx, from, from_stateid, IoAccess::Read).await?;
    let (target, changing) = open_for_change(cx, to, to_stateid, IoAccess::Write).await?;
    if from.export.id != to.export.id {
        return Err(Status::Xdev);
    }
    let size = from.export.store.getattr(&from.node).await?.size;
    let end = offset.checked_add(count).ok_or(Status::Inval)?;
    if offset > size || end > size {
        return Err(Status::Inval);
    }
    Ok((source, target, changing, size))
}

impl Rule for Copy {
    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<Res, Failure> {
        cx.current()?;
        let from = cx.saved_object(Status::WrongType)?;
        let to = cx.writable_object()?;
        if !args.servers.is_empty() {
            return Err(Status::Notsupp.into());
        }
        let (stateids, range) = ((args.from, args.to), (args.from_offset, args.count));
        let (source, target, changing, size) =
            open_files(cx, (&from, &to), stateids, range).await?;
        let count = if args.count == 0 { size - args.from_offset } else { args.count };
        let to_end = args.to_offset.checked_add(count).ok_or(Status::Inval)?;
        let overlap = args.from_offset < to_end && args.to_offset < args.from_offset + count;
        if from.node == to.node && overlap {
            return Err(Status::Inval.into());
        }
        let verifier = cx.server.write_verifier.of(&*to.export.store);
        let job = Job {
            store: to.export.store.clone(),
            source,
            target,
            changing,
            from_offset: args.from_offset,
            to_offset: args.to_offset,
            count,
        };
        let mut res = Res {
            callback: None,
            count: 0,
            committed: StableHow::Unstable,
            verifier,
            consecutive: true,
            synchronous: true,
        };
        if args.synchronous || count <= SYNCHRONOUS_BYTES {
            res.count = job::run(&job, None).await?;
        } else {
            let fh = crate::namespace::FileHandle::Node(to.export.id, to.node).to_fh();
            res.callback = Some(job::start(cx, job, fh)?);
            res.synchronous = false;
        }
        Ok(res)
    }
}
