//! CLONE (RFC 7862 §15.13): shares blocks, atomically.

use super::Rule;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use crate::v4::request::io::{open_for_change, open_for_io};
use crate::v4::state::shares::IoAccess;
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::op::Clone;
use zgate_nfs_wire::v4::op::clone::Args;
use zgate_store::FileKind;

impl Rule for Clone {
    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<(), Failure> {
        cx.current()?;
        let from = cx.saved_object(Status::Isdir)?;
        let to = cx.writable_object()?;
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
        let store = &to.export.store;
        let size = store.getattr(&from.node).await?.size;
        let end = args.from_offset.checked_add(args.count).ok_or(Status::Inval)?;
        if args.from_offset > size || end > size {
            return Err(Status::Inval.into());
        }
        let Some(block) = store.traits().clone_block_bytes.map(u64::from) else {
            return Err(Status::Notsupp.into());
        };
        let aligned =
            args.from_offset.is_multiple_of(block) && args.to_offset.is_multiple_of(block);
        let whole = args.count.is_multiple_of(block) || end == size;
        if !aligned || !whole {
            return Err(Status::Inval.into());
        }
        let (from_offset, to_offset) = (args.from_offset, args.to_offset);
        let clone = async {
            store.clone_range(&source, from_offset, &target, to_offset, args.count).await?;
            // The reply has neither a verifier nor a degree of stability, as COPY's has: no
            // client asks for it by COMMIT, not even at fsync.
            store.commit(&target).await
        };
        Ok(changing.in_store(clone).await?)
    }
}
