//! DEALLOCATE (RFC 7862 §15.4).

use super::Rule;
use super::write::open_space;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use zgate_nfs_wire::v4::op::Deallocate;
use zgate_nfs_wire::v4::op::deallocate::Args;

impl Rule for Deallocate {
    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<(), Failure> {
        let object = cx.writable_object()?;
        let (file, changing) =
            open_space(cx, &object, args.stateid, args.offset, args.length).await?;
        if args.length == 0 {
            return Ok(());
        }
        let work = object.export.store.deallocate(&file, args.offset, args.length);
        Ok(changing.in_store(work).await?)
    }
}
