//! SETXATTR (RFC 8276 §8.4.2).

use super::Rule;
use super::getxattr::check_name;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use zgate_nfs_wire::v4::op::Setxattr;
use zgate_nfs_wire::v4::op::setxattr::{Args, Option4};
use zgate_nfs_wire::v4::{ChangeInfo, Status};
use zgate_store::file_store::XattrSet;

impl Rule for Setxattr {
    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<ChangeInfo, Failure> {
        let object = cx.writable_object()?;
        check_name(&args.name.0)?;
        let value = args.value.ok_or(Status::Xattr2big)?;
        let change = cx.recall_for_change(&object.file_key())?;
        let how = match args.option {
            Option4::Either => XattrSet::Either,
            Option4::Create => XattrSet::Create,
            Option4::Replace => XattrSet::Replace,
        };
        let store = &object.export.store;
        let set = store.set_xattr(object.who(), &object.node, &args.name.0, &value.0, how);
        Ok(change.in_store(set).await?.into())
    }
}
