//! CREATE (RFC 8881 §18.4): all types except regular files.

use super::lookup::require_directory;
use super::remove::as_directory;
use super::{Rule, names};
use crate::namespace::Object;
use crate::v4::attrs::settable::{self, AclOf, Settable, Subject};
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::op::Create;
use zgate_nfs_wire::v4::op::create::{Args, Kind, Res};
use zgate_store::file_store::NewNode;

impl Rule for Create {
    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<Res, Failure> {
        cx.current()?;
        let Kind::Node(kind) = &args.kind else { return Err(Status::Badtype.into()) };
        let dir = cx.writable_object()?;
        let settable = match wanted(cx, &dir, &args, kind).await {
            Ok(settable) => settable,
            // Nothing can be made in an object that is no directory, whatever it is. The store
            // says so where all else is well.
            Err(status) => {
                return Err(require_directory(&dir).await.err().unwrap_or(status).into());
            }
        };
        let made = dir
            .export
            .store
            .create_node(dir.who(), &dir.node, &args.name.0, kind, &settable.set)
            .await;
        let (node, change) = match made {
            Ok(made) => made,
            Err(error) => return Err(as_directory(&dir, error).await.into()),
        };
        cx.set_current_node(&dir, node.handle);
        let made = cx.object(Status::Serverfault)?;
        let attrs_set = settable::apply_new_acl(cx, &made, &settable).await?;
        // An ACL changes the mode.
        cx.looked_up = settable.acl.is_none().then_some(node.attr);
        Ok(Res { change: change.into(), attrs_set })
    }
}

/// Checks the arguments; returns the attributes of the new object.
async fn wanted(
    cx: &Cx<'_>,
    dir: &Object,
    args: &Args,
    kind: &NewNode,
) -> Result<Settable, Status> {
    names::check(&args.name.0)?;
    if matches!(kind, NewNode::Symlink(target) if target.is_empty()) {
        return Err(Status::Inval);
    }
    let acl = match kind {
        NewNode::Directory => AclOf::Directory,
        NewNode::Symlink(_) => AclOf::Link,
        _ => AclOf::Other,
    };
    settable::read(cx, dir, &args.attrs, Subject::New(acl)).await
}
