//! COMMIT (RFC 8881 §18.3).

use super::Rule;
use super::read::kind_first;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use zgate_nfs_wire::v4::op::Commit;
use zgate_nfs_wire::v4::op::commit::Args;
use zgate_nfs_wire::v4::{Status, Verifier};
use zgate_store::file_store::OpenAccess;

impl Rule for Commit {
    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<Verifier, Failure> {
        let object = cx.object(Status::Isdir)?;
        let store = &object.export.store;
        // COMMIT carries no stateid: write access is sufficient. A file written
        // through an open that its mode no longer allows is committed with read
        // access, or by the server itself.
        let write =
            OpenAccess { read: false, write: true, stateless: true, read_by_execute: false };
        let read = OpenAccess { read: true, write: false, stateless: true, read_by_execute: false };
        let opened = match store.open(object.who(), &object.node, write).await {
            Err(_) => store.open(object.who(), &object.node, read).await,
            opened => opened,
        };
        // Attributes are not asked for before: on ZFS another worker than the one that syncs
        // would tell them.
        let file = match opened {
            Ok(file) => file,
            Err(error) => return Err(kind_first(cx, &object, error.into()).await.into()),
        };
        if args.offset.checked_add(u64::from(args.count)).is_none() {
            return Err(Status::Inval.into());
        }
        store.commit(&file).await?;
        // Read after the sync: an error reported to another sync in the
        // meantime counts as well.
        Ok(cx.server.write_verifier.of(&**store))
    }
}
