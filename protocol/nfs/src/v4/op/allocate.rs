//! ALLOCATE (RFC 7862 §15.1).

use super::Rule;
use super::read::kind_first;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use crate::v4::request::io::open_for_change;
use crate::v4::state::shares::IoAccess;
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::op::Allocate;
use zgate_nfs_wire::v4::op::allocate::Args;

impl Rule for Allocate {
    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<(), Failure> {
        let object = cx.writable_object()?;
        let opened = open_for_change(cx, &object, args.stateid, IoAccess::Write).await;
        let (file, changing) = match opened {
            Ok(opened) => opened,
            Err(status) => return Err(kind_first(cx, &object, status).await.into()),
        };
        let end = args.offset.checked_add(args.length).ok_or(Status::Inval)?;
        if end > object.export.store.traits().max_file_bytes {
            return Err(Status::Fbig.into());
        }
        if args.length == 0 {
            return Ok(());
        }
        let work = object.export.store.allocate(&file, args.offset, args.length);
        Ok(changing.in_store(work).await?)
    }
}
