//! REMOVEXATTR (RFC 8276 §8.4.4).

use super::Rule;
use super::getxattr::check_name;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use zgate_nfs_wire::v4::op::Removexattr;
use zgate_nfs_wire::v4::{ChangeInfo, Component};

impl Rule for Removexattr {
    async fn run(cx: &mut Cx<'_>, name: Component) -> Result<ChangeInfo, Failure> {
        let object = cx.writable_object()?;
        check_name(&name.0)?;
        let change = cx.recall_for_change(&object.file_key())?;
        let store = &object.export.store;
        let remove = store.remove_xattr(object.who(), &object.node, &name.0);
        Ok(change.in_store(remove).await?.into())
    }
}
