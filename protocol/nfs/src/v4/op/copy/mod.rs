//! COPY (RFC 7862 §15.2) within the server.

mod job;

use super::Rule;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use crate::v4::request::io::{open_for_change, open_for_io};
use crate::v4::state::shares::IoAccess;
use job::Job;
use zgate_nfs_wire::v4::op::Copy;
use zgate_nfs_wire::v4::op::copy::{Args, Res};
use zgate_nfs_wire::v4::{StableHow, Status};
use zgate_store::FileKind;

/// Longest copy that is completed before the reply, in bytes; longer ones
/// continue after it if the client allows that.
const SYNCHRONOUS_BYTES: u64 = 64 << 20;

impl Rule for Copy {
    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<Res, Failure> {
        cx.current()?;
        let from = cx.saved_object(Status::Isdir)?;
        let to = cx.writable_object()?;
        if !args.servers.is_empty() {
            return Err(Status::Notsupp.into());
        }
        for object in [&from, &to] {
            match object.export.store.getattr(&object.node).await?.kind {
                FileKind::Regular => {}
                FileKind::Directory => return Err(Status::Isdir.into()),
                _ => return Err(Status::WrongType.into()),
            }
        }
        let source = open_for_io(cx, &from, args.from, IoAccess::Read).await?;
        let (target, changing) = open_for_change(cx, &to, args.to, IoAccess::Write).await?;
        if from.export.id != to.export.id {
            return Err(Status::Xdev.into());
        }
        let size = from.export.store.getattr(&from.node).await?.size;
        let end = args.from_offset.checked_add(args.count).ok_or(Status::Inval)?;
        if args.from_offset > size || end > size {
            return Err(Status::Inval.into());
        }
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
